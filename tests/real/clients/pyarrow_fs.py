"""PyArrow: the C++ SDK behind a file system, random reads and datasets."""

from __future__ import annotations

import os

import pyarrow
import pyarrow.compute
import pyarrow.dataset
import pyarrow.parquet
from pyarrow import fs

from ..lakes import REGION
from ..store import Store, content, digest

MIB = 1 << 20


def filesystem(store: Store) -> fs.S3FileSystem:
    """A file system on the store, without retries."""
    # The C++ SDK reads this whenever a client is made; the file system has no setting for it.
    os.environ["AWS_REQUEST_CHECKSUM_CALCULATION"] = "WHEN_SUPPORTED" if store.knows_checksums else "WHEN_REQUIRED"
    return fs.S3FileSystem(
        access_key=store.account.access_key,
        secret_key=store.account.secret_key,
        region=REGION,
        scheme="http",
        endpoint_override=store.host,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1),
        request_timeout=60,
        connect_timeout=5,
    )


def streams(store: Store) -> dict[str, object]:
    """A stream written in parts, read in order and at random, twice."""
    files, at, data = filesystem(store), f"{store.bucket}/arrow/stream", content(13 * MIB, seed=12)
    with files.open_output_stream(at, metadata={"Content-Type": "application/x-arrow"}) as out:
        out.write(data)
    seen: dict[str, object] = {}
    for reading in (1, 2):
        with files.open_input_stream(at) as stream:
            seen[f"stream {reading}"] = digest(stream.read())
            seen[f"metadata {reading}"] = dict(stream.metadata()).get(b"Content-Type")
        with files.open_input_file(at) as file:
            seen[f"size {reading}"] = file.size()
            places = ((0, 10), (4 * MIB - 5, 10), (13 * MIB - 7, 7), (5 * MIB, 2 * MIB))
            seen[f"random {reading}"] = [digest(file.read_at(length, offset)) for offset, length in places]
    return seen


def a_dataset(store: Store) -> dict[str, object]:
    """A partitioned dataset written, discovered, filtered."""
    files, at = filesystem(store), f"{store.bucket}/arrow/dataset"
    table = pyarrow.table({"i": range(100_000), "part": [number % 4 for number in range(100_000)]})
    pyarrow.dataset.write_dataset(
        table,
        at,
        format="parquet",
        filesystem=files,
        partitioning=["part"],
        existing_data_behavior="overwrite_or_ignore",
    )
    found = pyarrow.dataset.dataset(at, filesystem=files, format="parquet", partitioning=["part"])
    chosen = found.to_table(filter=pyarrow.dataset.field("part") == 2)
    return {
        "files": len(found.files),
        "rows": [found.count_rows() for _ in range(2)],
        "chosen": [chosen.num_rows, pyarrow.compute.sum(chosen["i"]).as_py()],
    }


def moves_and_removes(store: Store) -> dict[str, object]:
    """Files copied, moved, listed, deleted as in a file system."""
    files, at = filesystem(store), f"{store.bucket}/arrow/moves"
    for name in ("a", "b/c", "b/d"):
        with files.open_output_stream(f"{at}/{name}") as out:
            out.write(name.encode())
    files.copy_file(f"{at}/a", f"{at}/b/copy of a")
    files.move(f"{at}/a", f"{at}/b/e")
    listed = files.get_file_info(fs.FileSelector(at, recursive=True))
    files.delete_dir(f"{at}/b")
    return {
        "listed": sorted((info.path.partition("/")[2], str(info.type), info.size) for info in listed),
        "left": [str(info.type) for info in files.get_file_info([f"{at}/a", f"{at}/b/c"])],
    }


CHECKS = (streams, a_dataset, moves_and_removes)
