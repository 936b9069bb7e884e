"""delta-rs (deltalake), with nothing set but its environment."""

import sys

import pyarrow
from deltalake import DeltaTable, write_deltalake
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import PyFileSystem

bucket, hot, new = sys.argv[1:]
at = f"s3://{bucket}/{new}"
write_deltalake(at, pyarrow.table({"number": [1, 2, 3]}))
with PyFileSystem(DeltaStorageHandler(f"s3://{bucket}")).open_input_file(hot) as file:
    read = len(file.read())
print(read, DeltaTable(at).to_pyarrow_table().num_rows)
