"""A pytest plugin that sends each request to the next node of a cluster: every node must know of all writes."""

from __future__ import annotations

import itertools
import os
from typing import Any

from botocore.client import BaseClient

NODES = "SHOAL_NODE_PORTS"

_request = BaseClient._make_request


def pytest_configure() -> None:
    """Turns each request to the first node of `NODES`, before it is signed."""
    ports = os.environ[NODES].split(",")
    turns = itertools.cycle(ports)

    def request_in_turn(client: BaseClient, operation: Any, request: dict[str, Any], context: Any) -> Any:
        # Only the port tells nodes apart: the host may name the bucket.
        request["url"] = request["url"].replace(f":{ports[0]}", f":{next(turns)}", 1)
        return _request(client, operation, request, context)

    BaseClient._make_request = request_in_turn
