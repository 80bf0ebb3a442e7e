"""Steps that decode payloads: schemas from data that grow, rows that do not fit, schemas of a registry."""

from __future__ import annotations

import base64
import http.server
import json
import random
import struct
import subprocess
import sys
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from google.protobuf import descriptor_pb2

from pelton.client.sync import connect
from pelton.pipeline import load, run
from pelton.pipeline.description.problems import PipelineError
from pelton.pipeline.running.preview import named, previews, readable
from pelton.pipeline.running.schemas import QuerySchemas, Versions
from pelton.pipeline.running.supervising import QueryEndedError
from pelton.spark.connection import ReadError
from pelton.spark.payloads import protobuf
from pelton.spark.payloads.registry import Registry
from pelton.spark.servers import Servers
from tests.peers import available_servers, start_server
from tests.spark.test_payloads import avro_of, descriptors, leaves
from tests.ways import SEED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.peers import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    started = start_server(available_servers()[0])
    yield started
    started.remove()


@pytest.fixture
def publish(server: ServerProcess) -> Iterator[Callable[..., None]]:
    with connect(server.url) as client:
        js = client.jetstream()
        js.create_stream("IN", subjects=["in"])

        def call(*payloads: Any) -> None:
            for each in payloads:
                js.publish("in", each if isinstance(each, bytes) else json.dumps(each).encode())

        yield call
        js.delete_stream("IN")


@pytest.fixture
def write(server: ServerProcess, tmp_path: Path) -> Callable[..., Path]:
    """Writes a pipeline with these steps and sinks."""

    def call(steps: str, sinks: str, per_batch: int = 3) -> Path:
        path = tmp_path / "shop.yaml"
        path.write_text(
            f"""
pipeline: shop
defaults: {{servers: "{server.url}", trigger: 0s}}
sources:
  raw: {{format: jetstream, stream: IN, maxOffsetsPerTrigger: {per_batch}}}
steps: {steps}
sinks: {sinks}
"""
        )
        return path

    return call


@pytest.fixture
def ran(write: Any, spark: Any) -> Callable[..., list[str]]:
    """Runs a pipeline with these steps and sinks; gives its warnings."""

    def call(steps: str, sinks: str, per_batch: int = 3) -> list[str]:
        path = write(steps, sinks, per_batch)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            run(load(path), spark, once=True)
        return [str(each.message) for each in told if "new fields" in str(each.message)]

    return call


def rows(folder: Path) -> list[dict[str, Any]]:
    return sorted(DeltaTable(folder).to_pyarrow_table().to_pylist(), key=lambda row: row["seq"])


STEP = """
  orders: {from: raw, json: {KEYS}, select: [seq, "value", "_rescued"]}"""
TABLE = """
  table: {from: orders, format: jetstream_delta, path: table, mergeSchema: true}"""


def test_a_schema_from_data_grows(ran: Any, publish: Any, tmp_path: Path) -> None:
    publish({"id": 1, "amount": 2.5}, {"id": 2, "to": {"name": "x"}}, {"id": "three"})
    assert ran(STEP.replace("KEYS", "infer: 2"), TABLE) == []
    publish({"id": 4, "to": {"zip": "1"}, "tags": ["a"]}, b"no json", {"id": 6})
    [said] = ran(STEP.replace("KEYS", "infer: 2"), TABLE)
    assert said.endswith("new fields from batch 1 on: tags[] string, to.zip string")
    found = rows(tmp_path / "table")
    assert [row["value"] and row["value"]["id"] for row in found] == [1, 2, None, 4, None, 6]
    assert found[3]["value"] == {
        "id": 4,
        "amount": None,
        "to": {"name": None, "zip": "1"},
        "tags": ["a"],
    }
    rests = [row["_rescued"] and json.loads(row["_rescued"]) for row in found]
    assert rests[:4] == [None, None, {"id": "three"}, None]
    assert rests[4]["payload"] == "no json"
    kept = Versions(tmp_path / "state" / "shop" / "schemas" / "raw" / "orders.json").all()
    assert [batch for batch, _ in kept] == [0, 1]


def test_nothing_of_any_json_is_lost(ran: Any, publish: Any, tmp_path: Path) -> None:
    print(f"seed {SEED}")
    random_ = random.Random(SEED)

    def value(depth: int = 0) -> Any:
        kind = random_.randrange(7 if depth < 3 else 5)
        if kind == 5:
            return [value(depth + 1) for _ in range(random_.randrange(3))]
        if kind == 6:
            return {name: value(depth + 1) for name in random_.sample("abcd", 2)}
        return random_.choice([None, True, random_.randrange(100), random_.random(), "text"])

    sent = [
        {name: value() for name in random_.sample("abcdefgh", random_.randrange(4))}
        for _ in range(60)
    ]
    for begin in range(0, 60, 20):
        publish(*sent[begin : begin + 20])
        ran(STEP.replace("KEYS", "infer: 3"), TABLE, per_batch=random_.randrange(3, 12))
    found = rows(tmp_path / "table")
    assert len(found) == 60
    for row, wanted in zip(found, sent, strict=True):
        there = leaves(row["value"])
        for path, each in json.loads(row["_rescued"] or "{}").items():
            there |= leaves(each, path)
        for path in set(there) - set(leaves(wanted)):  # a text with a value that is no text
            there |= leaves(json.loads(there.pop(path)), path)
        expected = leaves(wanted)
        assert {
            path: json.loads(each) if isinstance(each, str) and each != expected[path] else each
            for path, each in there.items()
        } == expected


def test_killed_when_a_new_schema_is_kept_and_no_sink_has_it(
    write: Any, ran: Any, publish: Any, tmp_path: Path
) -> None:
    kept = tmp_path / "state" / "shop" / "schemas" / "raw" / "orders.json"

    def since() -> list[int]:
        return [each["batch"] for each in json.loads(kept.read_text())] if kept.exists() else []

    publish(*({"id": number, f"f{number // 4}": number} for number in range(40)))
    steps = STEP.replace("KEYS", "infer: 2")
    command = [sys.executable, "-m", "pelton.cli", "pipeline", "run", "--once"]
    for many in (1, 4):
        process = subprocess.Popen(
            [*command, str(write(steps, TABLE, per_batch=4))], stdout=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 300
        while len(since()) < many:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.002)
        process.kill()
        process.wait()
        commits = tmp_path / "state" / "shop" / "checkpoints" / "raw" / "commits"
        assert not (commits / str(since()[-1])).exists()
    ran(steps, TABLE, per_batch=4)
    found = rows(tmp_path / "table")
    assert [row["seq"] for row in found] == list(range(1, 41))
    for number, row in enumerate(found):
        wanted = {"id": number, f"f{number // 4}": number}
        assert leaves(row["value"]) == wanted
        assert row["_rescued"] is None


def test_a_batch_that_runs_again_has_the_schema_that_it_had(
    publish: Any, server: ServerProcess, spark: Any, tmp_path: Path
) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(
        f"pipeline: shop\nsources: {{raw: {{format: jetstream, stream: IN, servers: '{server.url}'}}}}"
        f"\nsteps: {STEP.replace('KEYS', 'infer: 10')}\nsinks: {TABLE}"
    )
    pipeline = load(path)
    step = pipeline.steps["orders"]

    def of(batch: int, *payloads: str) -> str:
        frame = spark.createDataFrame([(each,) for each in payloads], "data string")
        schema = QuerySchemas(pipeline, "raw", batch).of(step, frame)
        return str(schema.simpleString())

    assert of(0, '{"a": 1}') == "struct<a:bigint>"
    assert of(1, '{"b": 1}') == "struct<a:bigint,b:bigint>"
    assert of(1, '{"b": 1, "c": 1}') == "struct<a:bigint,b:bigint>"  # as it was
    assert of(2, '{"c": 1}') == "struct<a:bigint,b:bigint,c:bigint>"
    assert of(1, "{}") == "struct<a:bigint,b:bigint>"


def test_a_schema_that_is_given(ran: Any, publish: Any, tmp_path: Path) -> None:
    publish({"id": 1, "at": "2026-11-29T12:00:00Z", "more": 1}, {"id": 1.5}, {"id": 3, "at": None})
    steps = """
  orders: {from: raw, json: "id long, at timestamp", columns: {day: "date(value.at)"},
           select: [seq, "value.*", day, _rescued]}
  plain:  {from: raw, json: {schema: "id long", rescue: none, into: v}, select: [seq, "v.id"]}
  strict:
    from: raw
    json: {schema: "id long, at timestamp", evolve: reject}
    select: [seq, "value.id"]
    expect: {big: id > 0}"""
    sinks = """
  table:  {from: orders, format: jetstream_delta, path: table}
  plain_table:  {from: plain, format: jetstream_delta, path: plain}
  good:   {from: strict, format: jetstream_delta, path: good}
  bad:    {from: strict.rejected, format: jetstream_delta, path: bad}"""
    ran(steps, sinks)
    found = rows(tmp_path / "table")
    assert [row["id"] for row in found] == [1, None, 3]
    assert str(found[0]["day"]) == "2026-11-29"
    assert [row["_rescued"] for row in found] == ['{"more":1}', '{"id":1.5}', None]
    assert rows(tmp_path / "plain") == [
        {"seq": 1, "id": 1}, {"seq": 2, "id": None}, {"seq": 3, "id": 3}
    ]  # fmt: skip
    assert [row["seq"] for row in rows(tmp_path / "good")] == [3]
    assert [(row["seq"], row["rejected_because"]) for row in rows(tmp_path / "bad")] == [
        (1, ["json"]),
        (2, ["json", "big"]),
    ]


def test_a_query_of_its_own_keeps_its_schema(ran: Any, publish: Any, tmp_path: Path) -> None:
    publish({"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": "a", "n": 3})
    steps = """
  orders: {from: raw, json: {infer: 100}}
  sums: {from: orders, sql: "select value.k, sum(value.n) as n, max(seq) as seq from orders group by 1"}"""
    sinks = """
  table: {from: sums, upsert: table, keys: [k], mode: update, query: own}"""
    ran(steps, sinks)
    publish({"k": "a", "n": 10, "new": 1})
    ran(steps, sinks)
    assert {row["k"]: row["n"] for row in rows(tmp_path / "table")} == {"a": 14, "b": 2}


def test_what_show_shows(ran: Any, publish: Any, spark: Any, tmp_path: Path) -> None:
    publish({"id": 1}, {"id": 2, "more": "x"})
    steps = STEP.replace("KEYS", "infer: 1")
    ran(steps, TABLE, per_batch=1)
    publish({"id": 3, "newest": True})
    pipeline = load(tmp_path / "shop.yaml")
    names = named(pipeline, "orders")
    [shown] = previews(readable(pipeline, names, begin=None, messages=10), spark, names, 20)
    last = shown.rows.to_pylist()[-1]
    assert last["value"] == {"id": 3, "more": None, "newest": True}


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("json: {schema: 'id long', types: {id: long}}", "json: give either schema or types"),
        ("json: {infr: 5}", "unknown key 'infr'; did you mean infer?"),
        ("json: {evolve: reject, rescue: none}", "loses what evolve: reject looks for"),
        ("json: {infer: many}", "infer is 'many', but must be"),
        ("json: {registry: SCHEMAS}", "registry is not for json"),
        ("json: {infer: 5}, cbor: {infer: 5}", "give either json or cbor"),
        ("avro: {evolve: add}", "give either schema or registry"),
        ("avro: nothing.avsc", "cannot read nothing.avsc: No such file"),
        ("""avro: '{"type": "record"}'""", "schema must be an Avro schema"),
        ("protobuf: {descriptors: shop.yaml}", "descriptors must be a set of descriptors"),
        ("protobuf: {message: a.B}", "give either descriptors or registry"),
        ("json: [5]", "json must be keys and values: json: {infer: 1000}"),
    ],
)
def test_what_the_file_cannot_say(step: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(
        f"pipeline: shop\nsources: {{raw: {{format: jetstream, stream: IN}}}}\n"
        f"steps:\n  orders: {{from: raw, {step}}}\n"
        "sinks: {table: {from: orders, format: jetstream_delta, path: table}}"
    )
    with pytest.raises(PipelineError, match=r"shop\.yaml:4: steps\.orders") as error:
        load(path)
    assert said in str(error.value)


def test_a_column_that_is_not_there(ran: Any, publish: Any) -> None:
    from pelton.pipeline.running.stages import StepError

    publish({"id": 1})
    with pytest.raises(
        StepError, match=r"steps\.orders: json: there is no column dta with payloads"
    ):
        ran(STEP.replace("KEYS", "column: dta, schema: id long"), TABLE)


# -- registries ------------------------------------------------------------------------------------

SMALL = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
LARGER = {
    **SMALL,
    "fields": [*SMALL["fields"], {"name": "name", "type": "string"}],
}


def numbered(number: int, payload: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + payload


def test_avro_of_a_bucket(ran: Any, publish: Any, server: ServerProcess, tmp_path: Path) -> None:
    with connect(server.url) as client:
        bucket = client.jetstream().create_key_value("SCHEMAS")
        for number, schema in ((1, SMALL), (2, LARGER)):
            bucket.put(str(number), json.dumps({"schema": json.dumps(schema)}).encode())
    publish(numbered(1, avro_of({"id": 1}, SMALL)), numbered(3, b"x"), b"\0\0")
    steps = STEP.replace("json: {KEYS}", "avro: {registry: SCHEMAS}")
    ran(steps, TABLE)
    publish(numbered(2, avro_of({"id": 2, "name": "x"}, LARGER)), numbered(1, b"\xff" * 20))
    ran(steps, TABLE)
    found = rows(tmp_path / "table")
    assert [row["value"] for row in found] == [
        {"id": 1, "name": None},
        None,
        None,
        {"id": 2, "name": "x"},
        None,
    ]
    errors = [json.loads(row["_rescued"] or "{}").get("error") for row in found]
    assert errors[1] == "bucket SCHEMAS has no schema 3"
    assert errors[2] == "it does not begin with a zero byte and the number of a schema"
    assert errors[4].startswith("it is no Avro of its schema")


class Api(http.server.BaseHTTPRequestHandler):
    """The two calls of a registry that are used, as its documentation has them."""

    answers: dict[str, Any]
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(f"{self.headers.get('Authorization')} {self.path}")
        found = self.answers.get(self.path)
        if isinstance(found, list):  # the first ones fail
            found = found.pop(0) if len(found) > 1 else found[0]
        self.send_response(404 if found is None else found if isinstance(found, int) else 200)
        self.end_headers()
        self.wfile.write(json.dumps(found).encode() if isinstance(found, dict) else b"{}")

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def api() -> Iterator[tuple[str, type[Api]]]:
    handler = type("Handler", (Api,), {"answers": {}, "asked": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{listening.server_port}", handler
        listening.shutdown()


def test_avro_of_a_registry(ran: Any, publish: Any, api: Any, tmp_path: Path) -> None:
    host, handler = api
    handler.answers = {
        "/schemas/ids/7": [503, {"schema": json.dumps(SMALL)}],
        "/schemas/ids/8": 401,
    }
    publish(numbered(7, avro_of({"id": 5}, SMALL)))
    ran(STEP.replace("json: {KEYS}", f"avro: 'http://me:p%40ss@{host}'"), TABLE)
    assert [row["value"] for row in rows(tmp_path / "table")] == [{"id": 5}]
    wanted = f"Basic {base64.b64encode(b'me:p@ss').decode()} /schemas/ids/7"
    assert set(handler.asked) == {wanted}
    publish(numbered(8, b""))
    with pytest.raises(QueryEndedError, match=r"does not give /schemas/ids/8: 401") as error:
        ran(STEP.replace("json: {KEYS}", f"avro: 'http://me:p%40ss@{host}'"), TABLE)
    assert "p%40ss" not in str(error.value)


def test_protobuf_of_a_registry(api: Any) -> None:
    host, handler = api
    [file] = descriptor_pb2.FileDescriptorSet.FromString(descriptors()).file
    other = descriptor_pb2.FileDescriptorProto(
        name="default", package="shop", syntax="proto3", dependency=["reading.proto"]
    )
    one = other.message_type.add(name="Order")
    kind = descriptor_pb2.FieldDescriptorProto
    one.field.add(
        name="first", number=1, type=kind.TYPE_MESSAGE, type_name=".plant.Reading", label=1
    )

    def told(of: Any) -> str:
        return base64.b64encode(of.SerializeToString()).decode()

    handler.answers = {
        "/schemas/ids/4": {"schemaType": "PROTOBUF", "schema": "..."},
        "/schemas/ids/4?format=serialized": {
            "schema": told(other),
            "references": [{"name": "reading.proto", "subject": "plant/reading", "version": 2}],
        },
        "/subjects/plant%2Freading/versions/2?format=serialized": {"schema": told(file)},
    }
    schema = Registry(f"http://{host}").schema(4)
    assert schema is not None
    message = protobuf.class_at(schema, (0,))
    made = message()
    made.first.id = 9
    assert protobuf.reader(message)(made.SerializeToString())["first"]["id"] == 9
    assert Registry(f"http://{host}").schema(5) is None


def test_registries_that_do_not_answer(server: ServerProcess) -> None:
    with pytest.raises(ReadError, match=r"the registry http://127\.0\.0\.1:9 does not give"):
        Registry("http://me:secret@127.0.0.1:9").schema(1)
    with pytest.raises(ReadError, match="there is no bucket NOTHING on"):
        Registry("NOTHING", Servers(urls=(server.url,))).schema(1)
