"""PyArrow with the SDK for C++, with nothing set but its environment and the place of the endpoint."""

import os
import sys

from pyarrow import fs

bucket, hot, new = sys.argv[1:]
scheme, _, host = os.environ["AWS_ENDPOINT_URL_S3"].partition("://")
files = fs.S3FileSystem(scheme=scheme, endpoint_override=host, region=os.environ["AWS_REGION"])
with files.open_output_stream(f"{bucket}/{new}") as stream:
    stream.write(b"new")
for key in (hot, new):
    with files.open_input_stream(f"{bucket}/{key}") as stream:
        print(len(stream.read()), end=" ")
