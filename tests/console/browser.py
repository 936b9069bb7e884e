"""A browser without a window: what a page is after its scripts ran, and a picture of it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

# The page reads the cluster at once, and again after five seconds.
_MILLISECONDS = 4000


class Browser:
    """Chromium with a profile of its own in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def text(self, url: str) -> str:
        """Returns the words of a page, without its markup."""
        page = self._run(url, "--dump-dom")
        page = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
        return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))

    def picture(self, url: str, path: Path, *, is_dark: bool) -> None:
        """Writes a picture of a page, in the light or the dark theme."""
        theme = f"--blink-settings=preferredColorScheme={0 if is_dark else 1}"
        self._run(url, f"--screenshot={path}", "--window-size=1400,2230", "--hide-scrollbars", theme)

    def _run(self, url: str, *arguments: str) -> str:
        command = [
            "chromium",
            "--headless=new",
            # The profile is empty, and the page is our own.
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            f"--user-data-dir={self._folder}",
            "--enable-logging=stderr",
            f"--virtual-time-budget={_MILLISECONDS}",
            *arguments,
            url,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
        complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        if complaints:
            raise RuntimeError(f"the page complains: {complaints[:5]}")
        return done.stdout
