"""Tables of sinks in catalogs: Glue as ``moto`` has it, and a server with the calls of Unity Catalog's API."""

from __future__ import annotations

import http.server
import json
import threading
import warnings
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import boto3  # type: ignore[import-untyped]  # has no types
import pytest
from moto.server import ThreadedMotoServer

from pelton.client.sync import connect
from pelton.pipeline import load, run
from pelton.pipeline.description.problems import PipelineError
from tests.peers import available_servers, start_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.peers import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    started = start_server(available_servers()[0])
    with connect(started.url) as client:
        client.jetstream().create_stream("IN", subjects=["in"])
    yield started
    started.remove()


@pytest.fixture
def ran(server: ServerProcess, spark: Any, tmp_path: Path) -> Callable[..., list[str]]:
    """Publishes a message and runs a pipeline whose tables are registered; gives its warnings."""
    with connect(server.url) as client:
        client.jetstream().purge_stream("IN")

    def call(payload: str, register: str) -> list[str]:
        with connect(server.url) as client:
            client.jetstream().publish("in", payload.encode())
        path = tmp_path / "shop.yaml"
        path.write_text(
            f"""
pipeline: shop
sources: {{raw: {{format: jetstream, stream: IN, servers: "{server.url}"}}}}
steps:
  orders: {{from: raw, json: {{types: {{id: long}}}}, select: [seq, "value.*", "'a' as day"]}}
sinks:
  table:
    from: orders
    format: jetstream_delta
    path: table
    mergeSchema: true
    partitionBy: day
    register: {register}
  newest: {{from: orders, upsert: newest, keys: [id], mergeSchema: true, register: {register}2}}
""".replace("}2}", "}}").replace("table: shop.orders}}", "table: shop.newest}}")
        )
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            run(load(path), spark, once=True)
        return [str(each.message) for each in told if "registered" in str(each.message)]

    return call


def test_glue(ran: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    service = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    service.start()
    try:
        host, port = service.get_host_and_port()
        url = f"http://{host}:{port}"
        register = f"{{glue: eu-central-1, endpoint: '{url}', table: shop.orders}}"
        glue = boto3.client("glue", region_name="eu-central-1", endpoint_url=url)
        said = ran('{"id": 1}', register)
        assert len(said) >= 2
        assert "sinks.table: shop.orders is not registered: " in said[0]
        glue.create_database(DatabaseInput={"Name": "shop"})
        assert ran('{"id": 2, "amount": 2.5}', register) == []
        found = glue.get_table(DatabaseName="shop", Name="orders")["Table"]
        assert found["Parameters"]["spark.sql.sources.provider"] == "delta"
        columns = [(one["Name"], one["Type"]) for one in found["StorageDescriptor"]["Columns"]]
        assert columns == [("seq", "bigint"), ("id", "bigint"), ("amount", "double")]
        assert found["PartitionKeys"] == [{"Name": "day", "Type": "string"}]
        assert found["StorageDescriptor"]["Location"].endswith(str(tmp_path / "table"))
        assert glue.get_table(DatabaseName="shop", Name="newest")["Table"]["PartitionKeys"] == []
        assert ran('{"id": 3, "to": {"zip": "1"}}', register) == []
        found = glue.get_table(DatabaseName="shop", Name="orders")["Table"]
        assert found["StorageDescriptor"]["Columns"][-1]["Type"] == "struct<zip:string>"
    finally:
        service.stop()


class Unity(http.server.BaseHTTPRequestHandler):
    """Creates tables and tells of them, as the API's description has it."""

    tables: dict[str, dict[str, Any]]
    tokens: set[str | None]

    def do_GET(self) -> None:
        self.tokens.add(self.headers["Authorization"])
        name = unquote(self.path.removeprefix("/api/2.1/unity-catalog/tables/"))
        found = self.tables.get(name)
        self._answer(404 if found is None else 200, found or {"message": "no such table"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body["schema_name"] != "sales":
            self._answer(404, {"error_code": "SCHEMA_NOT_FOUND", "message": "Schema not found"})
            return
        name = ".".join(body[part] for part in ("catalog_name", "schema_name", "name"))
        self.tables[name] = body
        self._answer(200, body)

    def _answer(self, code: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_unity(ran: Any, tmp_path: Path) -> None:
    handler: Any = type("Handler", (Unity,), {"tables": {}, "tokens": set()})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{service.server_port}"

        def into(table: str) -> str:
            return f"{{unity: '{url}', token: a-secret-token, table: {table}}}"

        said = ran('{"id": 1}', into("main.nothing.orders"))
        assert "main.nothing.orders is not registered: " in said[0]
        assert said[0].endswith("404 Schema not found")
        assert ran('{"id": 2}', into("main.sales.orders"))[-1:] != []  # two tables of one name
        made = handler.tables["main.sales.orders"]
        service.shutdown()
    assert made["table_type"] == "EXTERNAL"
    assert made["data_source_format"] == "DELTA"
    assert made["storage_location"].endswith(str(tmp_path / "table"))
    names = [(each["name"], each["type_name"], each["position"]) for each in made["columns"]]
    assert names == [("seq", "LONG", 0), ("id", "LONG", 1), ("day", "STRING", 2)]
    assert made["columns"][2]["partition_index"] == 0
    assert json.loads(made["columns"][1]["type_json"])["type"] == "long"
    assert handler.tokens == {"Bearer a-secret-token"}
    [said] = {each for each in ran('{"id": 3}', into("main.sales.orders")) if "sinks.table" in each}
    assert "a-secret-token" not in said
    assert "Connection refused" in said


@pytest.mark.parametrize(
    ("register", "said"),
    [
        ("{unity: 'http://x', table: orders}", "table must be catalog.schema.table"),
        ("{glue: eu-1, table: a.b.c}", "table must be database.table"),
        ("{table: a.b}", "give either unity or glue"),
        ("{unity: x, tabel: a.b.c}", "unknown key 'tabel'; did you mean table?"),
        ("unity", "register must be keys and values"),
    ],
)
def test_what_the_file_cannot_say(register: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(
        "pipeline: shop\nsources: {raw: {format: jetstream, stream: IN}}\n"
        f"sinks: {{table: {{from: raw, format: jetstream_delta, path: t, register: {register}}}}}"
    )
    with pytest.raises(PipelineError) as error:
        load(path)
    assert said in str(error.value)
    path.write_text(path.read_text().replace("jetstream_delta", "parquet"))
    with pytest.raises(PipelineError, match="register"):
        load(path)
