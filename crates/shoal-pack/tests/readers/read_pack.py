"""Unpacks a pack into a folder, and prints name and bytes of each member in hexadecimal digits."""

import sys
import zipfile

with zipfile.ZipFile(sys.argv[1]) as pack:
    assert pack.testzip() is None
    pack.extractall(sys.argv[2])
    for member in pack.infolist():
        print(member.filename.encode().hex(), pack.read(member).hex())
