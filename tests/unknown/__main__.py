"""Runs the clients: `python -m unknown --shoal BIN --clients PYTHON [--lake NAME] [--keep]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from real.lakes import LakeUnavailable
from real.report import Report
from real.scratch import scratch
from sdks.clients import Client, available

from . import iceberg, many, named, presigned, sdk, sources
from .cluster import Cluster
from .lakes import LAKES, GuestLake
from .scene import Scene, expect


def main() -> int:
    """Parses, runs, counts."""
    parser = argparse.ArgumentParser(prog="tests/unknown/run.sh", description=__doc__)
    parser.add_argument("--shoal", type=Path, required=True, help="the binary")
    parser.add_argument("--clients", type=Path, required=True, help="a Python with the packages of the SDKs")
    parser.add_argument("--lake", choices=LAKES, help="only this lake")
    parser.add_argument("--keep", action="store_true", help="keep logs and data")
    arguments = parser.parse_args()
    report = Report()
    names = [arguments.lake] if arguments.lake else list(LAKES)
    clients = list(available(report, arguments.clients))
    with scratch("shoal-unknown-", arguments.keep) as folder:
        for name in names:
            try:
                with LAKES[name](folder / name) as place:
                    prove(report, place, arguments.shoal.resolve(), folder / f"{name}-nodes", clients)
            except LakeUnavailable as reason:
                report.skip(name, str(reason))
    return report.finish()


def prove(report: Report, place: GuestLake, binary: Path, folder: Path, clients: Sequence[Client]) -> None:
    """Runs all clients at nodes in front of one lake."""
    print(f"-- {place.lake.name} {place.lake.version}", flush=True)
    folder.mkdir()
    with Cluster(binary, folder, place.lake) as cluster:
        scene = Scene(report, place, cluster, binary, folder)
        for part in (sdk, presigned, named, iceberg, sources):
            part.run(scene)
        many.run(scene, clients)
    with scene.check("nodes", "have no secret and no error in their logs"):
        _logs(scene)


def _logs(scene: Scene) -> None:
    """Looks through the logs of all nodes, which have ended."""
    place = scene.place
    secrets = [place.guest.secret_key, place.lake.account.secret_key, "SecretAccessKey", "X-Amz-Signature"]
    logs = {path.parent.name: path.read_text(errors="replace") for path in scene.folder.glob("*/node.log")}
    shown = [
        f"{name}: {line[:300]}"
        for name, log in sorted(logs.items())
        for line in log.splitlines()
        if any(each in line for each in (*secrets, "ERROR", "panicked"))
    ]
    expect(shown, [])
    expect(len(logs) >= len(scene.nodes), True, "logs")


if __name__ == "__main__":
    sys.exit(main())
