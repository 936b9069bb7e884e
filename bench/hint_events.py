"""Processor time that events of jobs cost four nodes, as the number of jobs grows, for several builds in turn.

Usage: PYTHONPATH=tests python3 -m bench.hint_events OLD NEW [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
import uuid
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from urllib.request import Request, urlopen

from .process_facts import cpu_seconds

# 331 jobs are those of the workload of dissertation 6.6.
_JOBS = (100, 331, 1_000)
# Jobs that run at the same time, and the pause between two that start.
_RUNNING, _PAUSE_S = 40, 0.02
_INPUTS = 3


def _event(phase: str, run: str, job: int) -> bytes:
    """Returns an event of a job, which reads what earlier ones have written."""
    inputs = [{"namespace": "s3://demo", "name": f"out/{max(job - back, 0)}"} for back in range(1, _INPUTS + 1)]
    event = {
        "eventType": phase,
        "eventTime": datetime.now(UTC).isoformat(),
        "run": {"runId": run},
        "job": {"namespace": "bench", "name": f"job-{job}"},
        "inputs": inputs,
        "outputs": [{"namespace": "s3://demo", "name": f"out/{job}"}],
        "producer": "https://example.org/bench",
    }
    return json.dumps(event).encode()


def _send(node: str, event: bytes) -> None:
    request = Request(f"{node}/api/v1/lineage", event, {"content-type": "application/json"})
    urlopen(request, timeout=60).close()


def _run_jobs(nodes: list[str], jobs: int) -> None:
    """Starts jobs one after the other, and ends each when so many others have started."""
    running: list[tuple[str, int]] = []
    for job in range(jobs + _RUNNING):
        if job < jobs:
            run = str(uuid.uuid4())
            _send(nodes[job % len(nodes)], _event("START", run, job))
            running.append((run, job))
        if job >= _RUNNING:
            run, ended = running[job - _RUNNING]
            _send(nodes[(ended + 1) % len(nodes)], _event("COMPLETE", run, ended))
        time.sleep(_PAUSE_S)


def _measure(binary: Path, jobs: int) -> float:
    """Returns the milliseconds of processor time that a job costs, beyond those of nodes without jobs."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        command = [str(binary), "dev", "--json", "--nodes", "4", "--dir", str(folder / "dev")]
        command += ["--s3-port", "0", "--admin-port", "0", "--peer-port", "0", "--lake-port", "0"]
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        stack.callback(process.wait)
        stack.callback(process.terminate)
        assert process.stdout is not None
        text = process.stdout.readline().decode()
        while not text.strip().endswith("}") or text.count("{") != text.count("}"):
            text += process.stdout.readline().decode()
        nodes = [node["admin"] for node in json.loads(text)["nodes"]]
        before, began = cpu_seconds([process.pid]), time.monotonic()
        _run_jobs(nodes, jobs)
        used, seconds = cpu_seconds([process.pid]) - before, time.monotonic() - began
        before = cpu_seconds([process.pid])
        time.sleep(seconds / 2)
        idle = (cpu_seconds([process.pid]) - before) * 2
        return (used - idle) * 1_000 / jobs


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binaries", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    figures: dict[tuple[Path, int], list[float]] = {}
    for _ in range(options.rounds):
        for jobs in _JOBS:
            for binary in options.binaries:
                figures.setdefault((binary, jobs), []).append(_measure(binary, jobs))
    print("| jobs | " + " | ".join(str(binary) for binary in options.binaries) + " |")
    print("|---|" + "---|" * len(options.binaries))
    for jobs in _JOBS:
        cells = [figures[binary, jobs] for binary in options.binaries]
        shown = [f"{statistics.median(cell):.1f} ms ({min(cell):.1f}–{max(cell):.1f})" for cell in cells]
        print(f"| {jobs} | " + " | ".join(shown) + " |")


if __name__ == "__main__":
    main()
