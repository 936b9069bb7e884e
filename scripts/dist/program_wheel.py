#!/usr/bin/env python3
"""Makes a wheel whose only content is a static program, which pip puts on the PATH.

Usage: program_wheel.py PROGRAM VERSION FOLDER
"""

import base64
import hashlib
import os
import platform
import sys
import time
import zipfile
from pathlib import Path

ZIP_BEGINS = 315532800  # 1980: a ZIP file has no earlier date
EXECUTABLE = 0o100755 << 16


def main() -> None:
    """Write the wheel, the same bytes for the same program."""
    program, version, folder = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    name = program.name.replace("-", "_")
    # A static program needs no C library, so it runs where the oldest tag of each kind does.
    tags = [f"py3-none-{kind}_{platform.machine()}" for kind in ("manylinux_2_17", "manylinux2014", "musllinux_1_1")]
    info = f"{name}-{version}.dist-info"
    metadata = [
        "Metadata-Version: 2.1",
        f"Name: {program.name}",
        f"Version: {version}",
        "Summary: The planner of Shoal, a cooperative cache for S3 data lakes: what `shoal plan` plans with",
        "License: Apache-2.0",
    ]
    wheel = ["Wheel-Version: 1.0", "Generator: make dist", "Root-Is-Purelib: false", *(f"Tag: {tag}" for tag in tags)]
    files = {
        f"{name}-{version}.data/scripts/{program.name}": program.read_bytes(),
        f"{info}/METADATA": "\n".join([*metadata, ""]).encode(),
        f"{info}/WHEEL": "\n".join([*wheel, ""]).encode(),
    }
    record = ""
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(content)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    date = time.gmtime(max(int(os.environ["SOURCE_DATE_EPOCH"]), ZIP_BEGINS))[:6]
    platforms = ".".join(tag.split("-", 2)[2] for tag in tags)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-{platforms}.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path, date)
            entry.external_attr = EXECUTABLE
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)


if __name__ == "__main__":
    main()
