"""Events of jobs, in OpenLineage, as Kariz would send them to a node."""

from __future__ import annotations

import json
import urllib.request
import uuid
from datetime import UTC, datetime, timedelta

from net.cluster import BUCKET
from real.node import Node

from .tpch import Job

NAMESPACE = "pig"
# Lets a node take them.
RULE = f"""
[[hints.rule]]
namespace = "{NAMESPACE}"
"""


class Run:
    """A run of a job, which has its stages and writes their results below a folder."""

    def __init__(self, node: Node, job: Job, between: str) -> None:
        self._node, self._job = node, job
        stages = [
            {
                "name": stage.name,
                "reads": [f"s3://{BUCKET}/{table}" for table in stage.tables]
                + [f"s3://{BUCKET}/{between}/{name}" for name in stage.before],
                "writes": [f"s3://{BUCKET}/{between}/{stage.name}"],
            }
            for level in job.levels
            for stage in level
        ]
        self._run = {"runId": str(uuid.uuid4())}
        self._facet: dict[str, object] = {"stages": stages}

    def start(self, due_s: float | None = None) -> None:
        """Sends the start, with all stages, and with the time in which the run should end if it is given."""
        facet = dict(self._facet)
        if due_s is not None:
            facet["deadline"] = _shown(datetime.now(UTC) + timedelta(seconds=due_s))
        self._send("START", {"facets": {"shoal": facet}})

    def complete(self) -> None:
        """Sends the end."""
        self._send("COMPLETE", {})

    def _send(self, kind: str, more: dict[str, object]) -> None:
        event = {
            "eventType": kind,
            "eventTime": _shown(datetime.now(UTC)),
            "producer": "https://github.com/mabdi/kariz",
            "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
            "run": self._run,
            "job": {"namespace": NAMESPACE, "name": self._job.name, **more},
        }
        request = self._node.request("/api/v1/lineage", "POST")
        request.data = json.dumps(event).encode()
        request.add_header("content-type", "application/json")
        urllib.request.urlopen(request, timeout=10).close()


def _shown(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
