"""PyIceberg, which gets its key and the address of a node from a catalog, and nothing else from anybody."""

from __future__ import annotations

import sys

from real.lakes import REGION
from real.report import Difference

from .catalog import Catalog
from .cluster import counter
from .lakes import SHARED
from .scene import Scene, ended, expect

PROGRAM = """
import pyarrow, sys, time
from pyiceberg.catalog import load_catalog
catalog = load_catalog("proof", type="rest", uri=sys.argv[1])
catalog.create_namespace("proof")
rows = pyarrow.table({"number": range(500_000), "text": [f"row {number}" for number in range(500_000)]})
table = catalog.create_table("proof.rows", schema=rows.schema)
for _ in range(2):
    table.append(rows)
# In the second of the writes all reads go to the lake.
written = int(time.time())
while int(time.time()) == written:
    time.sleep(0.05)
for _ in range(2):
    found = catalog.load_table("proof.rows").scan().to_arrow()
    print(found.num_rows, sum(found["number"].to_pylist()), found["text"].to_pylist()[-1])
"""


def run(scene: Scene) -> None:
    """Runs the check."""
    with scene.check("PyIceberg", "with what a catalog vends"):
        _table(scene)


def _table(scene: Scene) -> None:
    node, guest = scene.nodes[0], scene.place.guest
    vended = {
        "s3.endpoint": node.url,
        "s3.access-key-id": guest.access_key,
        "s3.secret-access-key": guest.secret_key,
        "s3.region": REGION,
        "s3.path-style-access": "true",
    }
    near = 'shoal_read_bytes_total{source="local"}'
    before = counter(node, near)
    with Catalog(f"s3://{SHARED}/warehouse", vended) as catalog:
        output = ended([sys.executable, "-c", PROGRAM, catalog.url], scene.environment())
    total = 2 * sum(range(500_000))
    if output != f"1000000 {total} row 499999\n" * 2:
        raise Difference(output[-2000:])
    listed = scene.place.client().list_objects_v2(Bucket=SHARED, Prefix="warehouse/")["Contents"]
    files = {each["Key"]: each["Size"] for each in listed if each["Key"].endswith(".parquet")}
    expect(len(files), 2, "data files at the lake")
    came = counter(node, near) - before
    expect(came > sum(files.values()) // 2, True, f"{came} bytes from the node's cache, of files {files}")
