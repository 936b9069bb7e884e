"""Varnish with one pool of threads, which keeps everything in memory: another cache beside the node."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from real.processes import Process, free_port, run

# Signatures and hosts are ignored: the same request may come with another signature.
CONFIGURATION = """\
vcl 4.1;
backend files {{ .host = "{host}"; .port = "{port}"; }}
sub vcl_recv {{ return (hash); }}
sub vcl_hash {{ hash_data(regsub(req.url, "\\?.*", "")); return (lookup); }}
sub vcl_backend_response {{ set beresp.ttl = 1d; return (deliver); }}
"""
PARAMETERS = ("thread_pools=1", "thread_pool_min=80", "thread_pool_max=200")


@dataclass
class Varnish:
    """A Varnish in front of a server of files."""

    folder: Path
    files_url: str
    url: str = ""
    _process: Process | None = None

    def __enter__(self) -> Varnish:
        self.folder.mkdir(parents=True)
        port, files = free_port(), urlsplit(self.files_url)
        path = self.folder / "files.vcl"
        path.write_text(CONFIGURATION.format(host=files.hostname, port=files.port))
        parameters = [word for parameter in PARAMETERS for word in ("-p", parameter)]
        command = [
            *("varnishd", "-F", "-j", "none", "-n", self.folder / "work", "-f", path, "-s", "malloc,1g"),
            *("-a", f"127.0.0.1:{port}", *parameters),
        ]
        self._process = Process.listening(command, self.folder / "varnish.log", port)
        self.url = f"http://127.0.0.1:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.stop()

    def pids(self) -> list[int]:
        """Returns the process ids of the manager and of its child, which serves."""
        if self._process is None:
            raise RuntimeError("Varnish is not running")
        return self._process.pids()


def version() -> str:
    """Returns Varnish's version, such as `7.1.1`."""
    match = re.search(r"varnish-(\S+)", run(["sh", "-c", "varnishd -V 2>&1"]))
    return match[1] if match else "unknown"
