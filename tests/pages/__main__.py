"""Types the commands of a page of docs/how-to: `python -m pages --shoal BIN PAGE FOLDER`; see `tests/pages/run.sh`.

Each page has a machine of its own as far as it sees: network, processes, /etc, /var and a home that are empty. Three
nodes of `shoal dev` listen on the usual ports, unless the set-up of the page (tests/pages/set-ups) starts others. A
command must end with 0, and the lines that the page shows must be printed, in their order: equal but for numbers,
times, ids and names of nodes.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from real.processes import Process, run

from .page import Shown, commands, missing

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "how-to"
SET_UPS = Path(__file__).parent / "set-ups"
_COMMAND_S = 60
# The status by which `timeout` says so.
_TIMED_OUT = 124
_CLUSTER_S = 60
# A set-up that starts its own nodes.
_OWN_NODES = re.compile(r"^# its own nodes$", re.MULTILINE)
# What a reader fills in, and what is filled in here: `# for: WORD = TEXT`.
_FILLED = re.compile(r"^# for: (\S+) = (.*)$", re.MULTILINE)
# Programs without which the page is skipped.
_NEEDS = re.compile(r"^# needs: (.*)$", re.MULTILINE)
# Variables and arguments of `shoal dev`, and what a reader types into commands that read it.
_WITH = re.compile(r"^# with: (\S+)=(.*)$", re.MULTILINE)
_DEV = re.compile(r"^# dev: (.*)$", re.MULTILINE)
_STDIN = re.compile(r"^# stdin: (.*)$", re.MULTILINE)
# Folders of the machine that pages name, empty at first.
_EMPTY = ("/etc/shoal", "/var/log", "/var/cache", "/run", "/srv", "/mnt")
# Commands that stay, and what they say when they serve.
_SERVES = (" serving ", " answering ")
_SERVERS = re.compile(r"^shoal (serve|lookup) (?!.*--check|explain)")


class Machine:
    """The shell of a reader of one page."""

    def __init__(self, binary: Path, name: str, home: Path) -> None:
        self._home, self._binary = home, binary
        self._page = PAGES / f"{name}.md"
        set_up = SET_UPS / f"{name}.sh"
        self._set_up = set_up.read_text() if set_up.exists() else ""
        self._servers = 0
        self._state = home / ".variables"
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SHOAL_", "AWS_"))},
            "PATH": f"{home}/bin:{binary.parent}:{os.environ['PATH']}",
            "HOME": str(home),
            # Processes that the end of the namespace kills leave their files where the folder is removed.
            "TMPDIR": str(home),
            "REPOSITORY": str(ROOT),
            "NO_COLOR": "1",
            "AWS_ACCESS_KEY_ID": "shoaldev",
            "AWS_SECRET_ACCESS_KEY": "shoaldev-secret",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def typed(self) -> int:
        """Types the page; prints a line for each command, and returns how many failed."""
        shown = commands(self._page)
        print(f"-- {self._page.relative_to(ROOT)}", flush=True)
        if lacking := [
            program for program in self._needs() if not shutil.which(program, path=self._environment["PATH"])
        ]:
            print(f"skipped: {self._page.stem}: {', '.join(lacking)}: not installed")
            return 0
        if any(not one.untyped for one in shown):
            if not _OWN_NODES.search(self._set_up):
                more = _DEV.search(self._set_up)
                self._serve([self._binary, "dev", *(more[1].split() if more else ())], "ready")
            if self._set_up:
                common = (SET_UPS / "common").read_text()
                status, printed = self._run(f"set -e\n{common}\n{self._set_up}", "/dev/null")
                if status:
                    print(f"FAIL the set-up ended with {status}:\n{printed}")
                    return 1
        failed = sum(not self._is_true(one) for one in shown if not one.untyped)
        for reason, untyped in itertools.groupby(shown, lambda one: one.untyped):
            titles = [_title(one) for one in untyped]
            if reason:
                rest = f" and {len(titles) - 1} more" if len(titles) > 1 else ""
                print(f"skipped: {self._page.stem}: {titles[0]}{rest}: {reason}", flush=True)
        return failed

    def _needs(self) -> list[str]:
        """Returns the programs that the page and its set-up take from the machine."""
        return [program for line in _NEEDS.findall(self._set_up) for program in line.split()]

    def _is_true(self, shown: Shown) -> bool:
        title, command = _title(shown), shown.command
        for word, text in _FILLED.findall(self._set_up):
            command = command.replace(word, text)
        if _SERVERS.match(command):
            self._serve(["bash", "-c", f"exec {command}"], *_SERVES)
            print(f"ok $ {title}", flush=True)
            return True
        status, printed = self._run(command, self._state)
        lacking = missing(shown.output, printed.splitlines())
        if status == 0 and lacking is None:
            print(f"ok $ {title}", flush=True)
            return True
        why = f"ended with {status}" if status else f"has not printed `{lacking}`"
        print(f"FAIL $ {title}: it {why}; it printed\n{printed[-3000:]}", flush=True)
        return False

    def _run(self, command: str, state: Path | str) -> tuple[int, str]:
        """Returns the status of a command and what it printed. Its variables stay."""
        keeps = f"status=$?; export -p > {state}; exit $status"
        loads = f"[ ! -e {self._state} ] || . {self._state}"
        typed = _STDIN.search(self._set_up)
        try:
            done = subprocess.run(
                ["bash", "-c", f"exec 2>&1; set -a; {loads}\n{command}\n{keeps}"],
                input=f"{typed[1]}\n" if typed else "",
                capture_output=True,
                text=True,
                errors="replace",
                cwd=self._home,
                env=self._environment,
                timeout=_COMMAND_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            return _TIMED_OUT, (error.stdout or b"").decode(errors="replace")
        return done.returncode, done.stdout

    def _serve(self, command: list[str | Path], *words: str) -> None:
        """Starts a server that stays, and returns once it has printed one of these words."""
        self._servers += 1
        log = self._home / f".server-{self._servers}.log"
        environment = {**self._environment, **dict(_WITH.findall(self._set_up))}
        server = Process(command, log, env=environment, cwd=self._home)
        server.wait_until(lambda: any(word in log.read_text(errors="replace") for word in words), _CLUSTER_S)


def _title(shown: Shown) -> str:
    """Returns the first line of a command, without its comment."""
    return re.split(r"\s+# |\n", shown.command)[0]


def main() -> int:
    """Types one page."""
    parser = argparse.ArgumentParser(prog="tests/pages/run.sh", description=__doc__)
    parser.add_argument("--shoal", type=Path, required=True, help="the binary")
    parser.add_argument("page", help="such as tasks, for docs/how-to/tasks.md")
    parser.add_argument("folder", type=Path, help="an empty folder")
    arguments = parser.parse_args()
    _empty_machine(arguments.folder)
    home = arguments.folder / "home"
    home.mkdir()
    return 1 if Machine(arguments.shoal.resolve(), arguments.page, home).typed() else 0


def _empty_machine(folder: Path) -> None:
    """Gives the namespaces of this process a network and folders that nobody else sees."""
    run(["ip", "link", "set", "lo", "up"])
    run(["ip", "address", "add", "10.0.0.1/8", "dev", "lo"])
    above, work = folder / "etc", folder / "work"
    above.mkdir()
    work.mkdir()
    run(["mount", "-t", "overlay", "-o", f"lowerdir=/etc,upperdir={above},workdir={work}", "overlay", "/etc"])
    Path("/etc/shoal").mkdir(exist_ok=True)
    for path in _EMPTY:
        run(["mount", "-t", "tmpfs", "tmpfs", path])


if __name__ == "__main__":
    sys.exit(main())
