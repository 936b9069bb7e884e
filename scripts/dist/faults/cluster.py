"""A lake, nodes that reach it through a proxy each, and what a test does to them."""

import http.client
import http.server
import json
import os
import resource
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

ACCESS_KEY = "shoaldev"
SECRET_KEY = "shoaldev-secret"

PATIENCE_SECONDS = 60


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(what: str, condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"timed out waiting for {what}")
        time.sleep(0.1)


def send(url: str, *arguments: str) -> bytes:
    """Send a signed request. Returns what curl prints."""
    command = ["curl", "--silent", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user", f"{ACCESS_KEY}:{SECRET_KEY}"]
    command += ["--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD", "--max-time", "30"]
    return subprocess.run([*command, *arguments, url], capture_output=True, check=False).stdout


def s3(url: str, *arguments: str) -> int:
    """Send a signed request. Returns the status; 0 if there was no answer."""
    return int(send(url, "--output", "/dev/null", "--write-out", "%{http_code}", *arguments) or 0)


class Proxy:
    """Stands before a lake. Gives its answers, or those of a fault."""

    def __init__(self, lake: str) -> None:
        """Listen on a free port; all requests go to the lake."""
        target = urlsplit(lake).netloc
        proxy = self
        # Returns the status to answer with, for a method and a path; None: the lake answers.
        self.fault: Callable[[str, str], int | None] = lambda _method, _path: None
        self.delay_seconds = 0.0
        # Whether each connection is for one request.
        self.closes = False

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                if proxy.is_cut:
                    self.close_connection = True
                    return
                status = proxy.fault(self.command, self.path)
                if status:
                    self.send_response(status)
                    self.send_header("content-length", "0")
                    self.end_headers()
                    return
                if self.command == "GET":
                    time.sleep(proxy.delay_seconds)
                lake = http.client.HTTPConnection(target)
                lake.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    lake.putheader(name, value)
                lake.endheaders(body)
                answer = lake.getresponse()
                content = answer.read()
                self.send_response_only(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("transfer-encoding", "connection"):
                        self.send_header(name, value)
                if answer.getheader("content-length") is None and answer.status not in (204, 304):
                    self.send_header("content-length", str(len(content)))
                if proxy.closes:
                    self.send_header("connection", "close")
                    self.close_connection = True
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)
                lake.close()

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any  # noqa: N815 - the names that http.server calls

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                # A node closes connections that it has no use for.
                pass

        self.is_cut = False
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def cut(self) -> None:
        """Answer nothing from now on."""
        self.is_cut = True
        self.server.shutdown()
        self.server.server_close()


class Node:
    """A process of its own."""

    def __init__(self, cluster: "Cluster", name: str, *, lake: str, secret_key: str, sections: dict[str, str]) -> None:
        """Start a node, with more settings by the names of their sections."""
        self.cluster = cluster
        self.folder = cluster.folder / name
        self.folder.mkdir()
        self.configuration = self.folder / "shoal.toml"
        self.peer_port = free_port()
        self.url = f"http://127.0.0.1:{free_port()}"
        self.instance = f"127.0.0.1:{free_port()}"
        settings = {
            "node": f'name = "{name}"',
            "s3": f'listen = "{urlsplit(self.url).netloc}"',
            "admin": f'listen = "{self.instance}"',
            "lake": f'endpoint = "{lake}"\naccess_key = "{ACCESS_KEY}"\nsecret_key = "{secret_key}"',
            "store": f'path = "{self.folder}/cache"\ncapacity = "1GiB"',
            "cooperation": f'listen = "127.0.0.1:{self.peer_port}"',
            "[identity]": f'access_key = "{ACCESS_KEY}"\nsecret_key = "{SECRET_KEY}"',
        }
        for section, text in sections.items():
            settings[section] = settings.get(section, "") + "\n" + text
        self.configuration.write_text("".join(f"[{section}]\n{text}\n" for section, text in settings.items()))
        self.configuration.chmod(0o600)
        self.start()

    def start(self) -> None:
        """Start the process, and wait until it serves."""
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                [self.cluster.shoal, "serve", "--config", self.configuration],
                stdout=subprocess.DEVNULL,
                stderr=log,
                # A file that may grow no more is an error to the node, and not its end (SIGXFSZ).
                restore_signals=False,
            )
        wait_for(f"the node: {self.folder}/log", self.has_started)

    def stop(self) -> None:
        """End the process as an operator does."""
        self.process.terminate()
        self.process.wait()

    def has_started(self) -> bool:
        """Return whether the node answers."""
        if self.process.poll() is not None:
            raise RuntimeError(f"the node has ended: {(self.folder / 'log').read_text()[-600:]}")
        connection = http.client.HTTPConnection(self.instance, timeout=5)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == http.HTTPStatus.OK
        except OSError:
            return False
        finally:
            connection.close()

    def command(self, *words: str) -> None:
        """Give an order to the node."""
        command = [self.cluster.shoal, *words, "--node", f"http://{self.instance}"]
        subprocess.run(command, capture_output=True, check=True)

    def limit(self, kind: int, most: int) -> None:
        """Limit what the process may use from now on."""
        _, hard = resource.prlimit(self.process.pid, kind)
        resource.prlimit(self.process.pid, kind, (most, hard))

    def get(self, key: str) -> int:
        """Read an object of the sample bucket."""
        return s3(f"{self.url}/demo/{key}")

    def read_at_once(self, keys: list[str]) -> None:
        """Read objects of the sample bucket at the same time."""
        with ThreadPoolExecutor(len(keys)) as pool:
            list(pool.map(self.get, keys))

    def put(self, key: str, file: Path) -> int:
        """Write an object of the sample bucket."""
        return s3(f"{self.url}/demo/{key}", "--upload-file", str(file))


class Cluster:
    """The lake of a run, and all of its nodes."""

    def __init__(self, shoal: str, folder: Path) -> None:
        """Start a lake with a few objects."""
        self.shoal = shoal
        self.folder = folder
        self.nodes: list[Node] = []
        self.processes: list[subprocess.Popen] = []
        found = folder / "lake.json"
        with found.open("w") as output, (folder / "lake.log").open("w") as log:
            command = [shoal, "dev", "--json", "--nodes", "1", "--dir", str(folder / "dev")]
            command += ["--s3-port", "0", "--admin-port", "0", "--peer-port", "0", "--lake-port", "0"]
            self.processes.append(subprocess.Popen(command, stdout=output, stderr=log))
        wait_for("the lake", lambda: found.stat().st_size > 0)
        self.lake = json.loads(found.read_text())["lake"]
        self.sample = folder / "sample"
        self.sample.write_bytes(os.urandom(1 << 20))
        for key in range(40):
            s3(f"{self.lake}/demo/sample-{key}", "--upload-file", str(self.sample))

    def names(self, prefix: str) -> list[str]:
        """Return the keys below a prefix of the sample bucket, as the lake has them."""
        page = ElementTree.fromstring(send(f"{self.lake}/demo?list-type=2&prefix={quote(prefix, safe='')}"))
        return [key.text or "" for key in page.iter() if key.tag.endswith("}Key")]

    def node(self, name: str, *, lake: str | None = None, secret_key: str = SECRET_KEY, **sections: str) -> Node:
        """Start a node, with more settings by the names of their sections."""
        node = Node(self, name, lake=lake or self.lake, secret_key=secret_key, sections=sections)
        self.nodes.append(node)
        return node

    def start(self, command: list[str], log: str) -> subprocess.Popen:
        """Start another program, which ends with the cluster."""
        with (self.folder / log).open("w") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output)
        self.processes.append(process)
        return process

    def stop(self) -> None:
        """End all that was started."""
        processes = [node.process for node in self.nodes] + self.processes
        for process in processes:
            if process.poll() is None:
                process.kill()
        for process in processes:
            process.wait()
