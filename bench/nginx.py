"""nginx with one worker.

It serves files by sendfile, as the rival of a node's hits, or relays the answers of a lake and keeps nothing.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from real.processes import Process, free_port, run

CONFIGURATION = """\
daemon off;
worker_processes 1;
error_log {folder}/error.log warn;
pid {folder}/nginx.pid;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush {nopush};
    tcp_nodelay on;
    keepalive_requests 1000000000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    default_type application/octet-stream;
    {upstream}
    server {{
        listen 127.0.0.1:{port};
        {answer}
    }}
}}
"""
UPSTREAM = "upstream lake {{ server {address}; keepalive 256; }}"
RELAY = """
        location / {
            proxy_pass http://lake;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;
            proxy_buffering off;
        }
"""


@dataclass
class Nginx:
    """One nginx, made by `serving` or `relaying`."""

    folder: Path
    """The configuration inside its server block, and beside it."""
    answer: str
    upstream: str = ""
    nopush: str = "on"
    url: str = ""
    _process: Process | None = None

    @classmethod
    def serving(cls, folder: Path, root: Path, nopush: str) -> Nginx:
        """Files below `root` are its objects."""
        return cls(folder, f"root {root};", nopush=nopush)

    @classmethod
    def relaying(cls, folder: Path, lake_url: str) -> Nginx:
        """Returns an nginx that passes requests on unchanged, and answers as they come."""
        return cls(folder, RELAY, UPSTREAM.format(address=urlsplit(lake_url).netloc))

    def __enter__(self) -> Nginx:
        self.folder.mkdir(parents=True)
        port = free_port()
        path = self.folder / "nginx.conf"
        path.write_text(
            CONFIGURATION.format(
                folder=self.folder, nopush=self.nopush, port=port, answer=self.answer, upstream=self.upstream
            )
        )
        # `user` follows the folder's owner; the worker must be able to read below a private temp folder.
        if Path("/proc/self").owner() == "root":
            path.write_text("user root;\n" + path.read_text())
        command = [program(), "-c", path, "-p", self.folder]
        self._process = Process.listening(command, self.folder / "nginx.log", port)
        self.url = f"http://127.0.0.1:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.stop()

    def pids(self) -> list[int]:
        """Returns the process ids of master and worker."""
        if self._process is None:
            raise RuntimeError("nginx is not running")
        return self._process.pids()


def program() -> str:
    """Returns the path of nginx, which a user's PATH may lack."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise FileNotFoundError("nginx: apt-get install nginx-light")
    return found


def version() -> str:
    """Returns nginx's version, such as `1.22.1`."""
    return run(["sh", "-c", f"{program()} -v 2>&1"]).strip().partition("/")[2]


def wrk_version() -> str:
    """Returns the version of the load generator, which exits with 1 when it prints it."""
    match = re.search(r"wrk (\S+)", run(["sh", "-c", "wrk -v 2>&1 || true"]))
    return match[1] if match else "unknown"
