"""An Iceberg REST catalog with its tables in memory, that vends a key and an address with each table."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import update_table_metadata

_TABLE = re.compile(r"/v1/namespaces/([^/]+)/tables/([^/]+)")
_TABLES = re.compile(r"/v1/namespaces/([^/]+)/tables")

# What PyIceberg's model of a request wants, and clients may leave out.
_ABSENT = {"location": None, "partition-spec": None, "write-order": None}


class Catalog:
    """A catalog on loopback; `vended` are the properties that a client gets with a table."""

    def __init__(self, warehouse: str, vended: Mapping[str, str]) -> None:
        self._warehouse, self._vended = warehouse, dict(vended)
        self._tables: dict[tuple[str, str], TableMetadata] = {}
        self._commits = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _pages(self))

    @property
    def url(self) -> str:
        """Returns the URL that clients are told."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, object]:
        """Returns the status and the document that answer a request."""
        document: object = {"error": {"code": 404, "type": "NotFoundException", "message": path}}
        status = 200
        if path == "/v1/config":
            document = {"defaults": {}, "overrides": {}}
        elif (method, path) == ("POST", "/v1/namespaces"):
            document = {**json.loads(body), "properties": {}}
        elif method == "POST" and (named := _TABLES.fullmatch(path)):
            document = self._create(named[1], CreateTableRequest.model_validate({**_ABSENT, **json.loads(body)}))
        elif (named := _TABLE.fullmatch(path)) is None or (table := (named[1], named[2])) not in self._tables:
            status = 404
        elif method == "POST":
            document = self._commit(table, CommitTableRequest.model_validate_json(body))
        else:
            document = self._loaded(table)
        return status, document

    def _create(self, namespace: str, request: CreateTableRequest) -> dict[str, object]:
        table = (namespace, request.name)
        self._tables[table] = new_table_metadata(
            location=request.location or f"{self._warehouse}/{namespace}/{request.name}",
            schema=request.table_schema,
            partition_spec=request.partition_spec or UNPARTITIONED_PARTITION_SPEC,
            sort_order=request.write_order or UNSORTED_SORT_ORDER,
            properties=request.properties,
        )
        return self._loaded(table)

    def _commit(self, table: tuple[str, str], request: CommitTableRequest) -> dict[str, object]:
        base = self._tables[table]
        for requirement in request.requirements:
            requirement.validate(base)
        self._tables[table] = update_table_metadata(base, request.updates)
        self._commits += 1
        return self._loaded(table)

    def _loaded(self, table: tuple[str, str]) -> dict[str, object]:
        metadata = self._tables[table]
        return {
            "metadata-location": f"{metadata.location}/metadata/{self._commits:05}.metadata.json",
            "metadata": json.loads(metadata.model_dump_json()),
            "config": self._vended,
        }

    def __enter__(self) -> Catalog:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _pages(catalog: Catalog) -> type[BaseHTTPRequestHandler]:
    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(b"")

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers.get("content-length", "0"))))

        def _answer(self, body: bytes) -> None:
            status, document = catalog.answer(self.command, self.path.partition("?")[0], body)
            text = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    return Pages
