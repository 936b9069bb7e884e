"""Stands where the suite calls `versitygw admin`: a node is told of each account that is made at its lake.

Called as `admin.py PROGRAM CONFIGURATION PID URL`, with the arguments of the suite behind them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from real.node import IDENTITY
from real.processes import await_that


def reloads(url: str) -> int:
    """Returns how often the node with its admin port at `url` has loaded a new configuration."""
    with urllib.request.urlopen(f"{url}/status", timeout=10) as answer:
        return int(json.load(answer)["config"]["reloads"])


def admit(access_key: str, secret_key: str, configuration: Path, pid: int, url: str) -> None:
    """Adds an identity to the node's configuration, and returns when the node has read it."""
    before = reloads(url)
    with configuration.open("a") as file:
        file.write(IDENTITY.format(access_key=access_key, secret_key=secret_key))
    os.kill(pid, signal.SIGHUP)
    await_that("the node reads its configuration", lambda: reloads(url) > before)


def main() -> int:
    """Runs the suite's command at the lake, adds a created user to the node, and returns the command's status."""
    program, configuration, pid, url, *arguments = sys.argv[1:]
    status = subprocess.run([program, *arguments], check=False).returncode
    if status == 0 and "create-user" in arguments:
        _, access_key, _, secret_key, *_ = arguments[arguments.index("create-user") + 1 :]
        admit(access_key, secret_key, Path(configuration), int(pid), url)
    return status


if __name__ == "__main__":
    sys.exit(main())
