"""Real clients, one in each module. A module lists functions that use a store and return their observations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..store import Store
from . import aws_cli, boto3_sdk, duckdb_httpfs, polars_scan, pyarrow_fs, rclone, s5cmd

Check = Callable[[Store], dict[str, object]]

CLIENTS: dict[str, Sequence[Check]] = {
    "boto3": boto3_sdk.CHECKS,
    "aws-cli": aws_cli.CHECKS,
    "s5cmd": s5cmd.CHECKS,
    "rclone": rclone.CHECKS,
    "duckdb": duckdb_httpfs.CHECKS,
    "polars": polars_scan.CHECKS,
    "pyarrow": pyarrow_fs.CHECKS,
}
