"""Builds the lake of a run while the registries can still be reached: `python -m net.fetch DEFAULT [ARGUMENT...]`.

The networks of a run have no way out, so a lake that is not here before them is never here. `DEFAULT` is the lake
of a run without `--lake`; the other arguments are those of the run.
"""

from __future__ import annotations

import argparse
import sys

from real.lakes import LakeUnavailable, minio, versitygw

BINARIES = {"versitygw": versitygw.binary, "minio": minio.binary}


def main() -> int:
    """Ends with 1, and says why, if the lake cannot be built."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("default")
    parser.add_argument("--lake")
    arguments, _ = parser.parse_known_args()
    build = BINARIES.get(arguments.lake or arguments.default)
    try:
        # The run itself refuses the name of a lake that it does not know.
        if build is not None:
            build()
    except LakeUnavailable as reason:
        print(f"skipped: {reason}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
