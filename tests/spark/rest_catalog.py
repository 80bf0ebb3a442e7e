"""A REST catalog over HTTP: the protocol's requests for tables, answered by a catalog in SQLite.

It keeps to what the protocol says of commits: 409 where a requirement does not hold. A test may have
it lose an answer (500 after the commit was made).
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import CommitTableRequest, Table

from tests.spark.iceberg_help import properties_of

TOKEN = "let-me-in"


class RestCatalog:
    """A server on a free port, and what it has been asked."""

    def __init__(self, folder: Path) -> None:
        self.behind: Catalog = load_catalog("behind", **properties_of(folder))
        self.lose_answers = 0
        self.commits: list[int] = []  # statuses
        self.lock = threading.Lock()
        catalog = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *given: object) -> None:
                pass

            def do_GET(self) -> None:
                self.answer(None)

            def do_POST(self) -> None:
                self.answer(self.rfile.read(int(self.headers["Content-Length"])))

            def answer(self, body: bytes | None) -> None:
                if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    status, told = 401, error("NotAuthorizedException", "no")
                else:
                    with catalog.lock:
                        status, told = catalog.answer(self.path.partition("?")[0], body)
                self.send_response(status)
                self.send_header("Content-Length", str(len(told)))
                self.end_headers()
                self.wfile.write(told)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def answer(self, path: str, body: bytes | None) -> tuple[int, bytes]:
        """Status and body for a request."""
        parts = path.removeprefix("/v1/").split("/")
        if parts == ["config"]:
            return 200, json.dumps({"defaults": {}, "overrides": {}}).encode()
        try:
            if parts == ["namespaces"] and body is not None:
                name = tuple(json.loads(body)["namespace"])
                self.behind.create_namespace(name)
                return 200, json.dumps({"namespace": name, "properties": {}}).encode()
            namespace = tuple(parts[1].split("\x1f"))
            if body is None:
                return 200, told(self.behind.load_table((*namespace, parts[3])))
            if len(parts) == 3:
                return 200, self.create(namespace, json.loads(body))
            return self.commit((*namespace, parts[3]), body)
        except (NamespaceAlreadyExistsError, TableAlreadyExistsError) as problem:
            return 409, error("AlreadyExistsException", str(problem))
        except NoSuchTableError as problem:
            return 404, error("NoSuchTableException", str(problem))

    def create(self, namespace: tuple[str, ...], asked: dict[str, Any]) -> bytes:
        from pyiceberg.schema import Schema

        make = self.behind.create_table
        if asked.get("stage-create"):
            make = self.behind._create_staged_table
        schema = Schema.model_validate(asked["schema"])
        return told(
            make((*namespace, asked["name"]), schema, properties=asked.get("properties") or {})
        )

    def commit(self, table: tuple[str, ...], body: bytes) -> tuple[int, bytes]:
        asked = CommitTableRequest.model_validate_json(body)
        named: Any = SimpleNamespace(name=lambda: table)
        try:
            made = self.behind.commit_table(named, asked.requirements, asked.updates)
        except CommitFailedException as problem:
            self.commits.append(409)
            return 409, error("CommitFailedException", str(problem))
        if self.lose_answers:
            self.lose_answers -= 1
            self.commits.append(500)
            return 500, error("InternalServerError", "the answer got lost")
        self.commits.append(200)
        return 200, made.model_dump_json(by_alias=True).encode()


def told(table: Table) -> bytes:
    """What a catalog says of a table."""
    answer = {
        "metadata-location": table.metadata_location,
        "metadata": json.loads(table.metadata.model_dump_json(by_alias=True)),
        "config": {},
    }
    return json.dumps(answer).encode()


def error(kind: str, message: str) -> bytes:
    """What a catalog says of a failure."""
    return json.dumps({"error": {"message": message, "type": kind, "code": 0}}).encode()
