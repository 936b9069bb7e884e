"""The folder of a run."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch(prefix: str, is_kept: bool = False) -> Iterator[Path]:
    """Yields a new folder, and removes it at the end unless it is to be kept.

    From here on SIGTERM ends the program as an exception does: otherwise it would leave lakes and nodes behind.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield folder
    finally:
        if is_kept:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
