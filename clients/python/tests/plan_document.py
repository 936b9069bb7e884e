"""A plan as `shoal plan` writes it, for jobs that begin in seconds: without a history, a solver, or a night."""

from __future__ import annotations

import math
import time
from typing import Any

_BLOCK_BYTES = 4 << 20
_SLOT_S = 0.5
_LINK = 100_000_000.0


def document(sizes: dict[str, int], submit_s: float = 12.0, deadline_s: float = 12.5) -> dict[str, Any]:
    """Returns a plan for one job, which reads objects of these sizes, named by their URIs.

    It is submitted and due so many seconds from now. All objects are fetched from now on, in one slot of half a
    second, and stay until the deadline.
    """
    slots = math.ceil(deadline_s / _SLOT_S) + 1
    return {
        "version": 1,
        "epoch_ms": int(time.time() * 1000),
        "files": [
            {"path": uri, "extent": "object", "bytes_low": size, "bytes_high": size} for uri, size in sizes.items()
        ],
        "jobs": [
            {
                "name": "etl",
                "early_s": submit_s,
                "late_s": submit_s,
                "probability": 1.0,
                "deadline_rule": "given",
            }
        ],
        "request": {
            "version": 1,
            "window": {"start_s": 0.0, "end_s": submit_s + 1.0, "slot_s": _SLOT_S},
            "link": {"bytes_per_second": _LINK},
            "cache": {"capacity_bytes": 1 << 30},
            "files": [{"name": uri, "bytes": size, "block_bytes": _BLOCK_BYTES} for uri, size in sizes.items()],
            "jobs": [{"name": "etl@night", "submit_s": submit_s, "deadline_s": deadline_s, "inputs": list(sizes)}],
        },
        "plan": _plan(sizes, deadline_s, slots),
    }


def _plan(sizes: dict[str, int], deadline_s: float, slots: int) -> dict[str, Any]:
    size = float(sum(sizes.values()))
    idle = [0.0] * slots
    return {
        "version": 1,
        "objective": "least-peak",
        "quality": {
            "planned": 1,
            "planned_at_most": 1.0,
            "peak_share": size / _SLOT_S / _LINK,
            "peak_share_at_least": None,
            "fetched_bytes": size,
            "remote_bytes": 0.0,
            "paged_bytes": 0.0,
        },
        "jobs": [
            {
                "job": "etl@night",
                "outcome": "planned",
                "reads": [_read(uri, size) for uri, size in sizes.items()],
            }
        ],
        "files": [_file(uri, size, deadline_s) for uri, size in sizes.items()],
        "usage": {
            "start_s": 0.0,
            "slot_s": _SLOT_S,
            "link_bytes_per_second": [_LINK] * slots,
            "promised_bytes_per_second": idle,
            "fetched_bytes_per_second": [size / _SLOT_S, *idle[1:]],
            "remote_bytes_per_second": idle,
            "capacity_bytes": float(1 << 30),
            "cached_bytes": [size] * slots,
            "paged_bytes": idle,
        },
    }


def _read(uri: str, size: int) -> dict[str, Any]:
    return {
        "file": uri,
        "cached_bytes": float(size),
        "paged_bytes": 0.0,
        "remote_bytes_per_second": 0.0,
        "keep": False,
    }


def _file(uri: str, size: int, until_s: float) -> dict[str, Any]:
    return {
        "file": uri,
        "transfers": [
            {
                "start_s": 0.0,
                "end_s": _SLOT_S,
                "bytes_per_second": size / _SLOT_S,
                "first_block": 0,
                "blocks": math.ceil(size / _BLOCK_BYTES),
            }
        ],
        "cached": [{"from_s": 0.0, "until_s": until_s, "bytes": float(size)}],
    }
