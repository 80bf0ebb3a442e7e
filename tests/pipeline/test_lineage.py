"""Events of OpenLineage, sent to a real HTTP server. No JVM."""

import contextlib
import json
import re
import threading
import uuid
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openlineage.client import event_v2
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from pelton.pipeline.description.lineage import Lineage
from pelton.pipeline.description.problems import PipelineError
from pelton.pipeline.description.reading import read
from pelton.pipeline.running import lineage as module
from pelton.pipeline.running.datasets import placed, read_by, written_by
from pelton.pipeline.running.lineage import LineageEmitter
from pelton.pipeline.running.numbers import QueryNumbers
from pelton.pipeline.running.queries import Query

SHOP = """\
pipeline: shop
defaults: {servers: "nats://anna:hush@nats.example.com,nats://two:4223"}
sources:
  raw: {format: jetstream, stream: "ORDERS,MORE"}
  names: {format: jetstream_kv, bucket: names}
  files: {format: json, schema: id long, path: /srv/in}
steps:
  all: {from: [raw, names, files], sql: "select * from raw, names, files"}
sinks:
  table: {from: all, format: jetstream_delta, path: tables/orders}
  latest: {from: all, upsert: "s3a://warehouse/latest/", keys: [id]}
  back: {from: raw, format: jetstream, subject: "big.{id}"}
  kept: {from: raw, format: jetstream, stream: KEPT, subject: kept}
  bucket: {from: raw, format: jetstream_kv, bucket: b}
  objects: {from: raw, format: jetstream_object, bucket: o}
  show: {from: raw, format: console}
lineage: LINEAGE
"""
QUERIES = [
    Query("raw", "raw", ("raw",), ("back",), True),
    Query("all", "all", ("raw", "names", "files"), ("table",), True),
]
SCHEMA = StructType(
    [
        StructField("id", LongType()),
        StructField("to", ArrayType(StructType([StructField("zip", StringType())]))),
    ]
)


def shop(lineage="{url: 'http://127.0.0.1:1'}"):
    return read(SHOP.replace("LINEAGE", lineage), Path("/x/f.yaml"), environment={})


class Received:
    """A server that takes events, and answers with a status."""

    def __init__(self, status=201):
        self.events, self.paths, self.headers = [], [], []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                outer.paths.append(self.path)
                outer.headers.append(dict(self.headers))
                outer.events.append(
                    json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                )
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def received():
    with contextlib.closing(Received()) as made:
        yield made


def sent(pipeline, numbers, failure=None):
    emitter = LineageEmitter(
        pipeline, pipeline.lineage, QUERIES, {"table": SCHEMA}, spark="4.3.0", once=False
    )
    emitter.end(numbers, failure)
    lines = []
    while not emitter.notices.empty():
        lines.append(emitter.notices.get())
    return lines


def check_event(event):
    """What OpenLineage's RunEvent requires, and that the library reads it as one."""
    assert event["schemaURL"].endswith("#/$defs/RunEvent")
    assert datetime.fromisoformat(event["eventTime"]).tzinfo is not None
    uuid.UUID(event["run"]["runId"])
    assert re.match(r"https?://\S+$", event["producer"])
    facets = [event["run"]["facets"], event["job"]["facets"]]
    for dataset in (*event["inputs"], *event["outputs"]):
        assert dataset["namespace"]
        assert dataset["name"]
        facets += [dataset.get(key) or {} for key in ("facets", "inputFacets", "outputFacets")]
    for facet in (each for group in facets for each in group.values()):
        assert facet["_schemaURL"].startswith("https://openlineage.io/spec/facets/")
        assert facet["_producer"]
    event_v2.RunEvent(
        eventType=event_v2.RunState(event["eventType"]),
        eventTime=event["eventTime"],
        run=event_v2.Run(event["run"]["runId"]),
        job=event_v2.Job(event["job"]["namespace"], event["job"]["name"]),
        inputs=[event_v2.InputDataset(each["namespace"], each["name"]) for each in event["inputs"]],
    )


def test_a_run_has_a_start_and_an_end_of_each_job(received):
    pipeline = shop(f"{{url: '{received.url}', namespace: here}}")
    numbers = [
        QueryNumbers("raw", "ended", rows=30, sinks={"back": 20}),
        QueryNumbers("all", "ended", rows=12, sinks={"table": 12}),
    ]
    assert sent(pipeline, numbers) == []
    assert set(received.paths) == {"/api/v1/lineage"}
    for event in received.events:
        check_event(event)
    states = [(each["job"]["name"], each["eventType"]) for each in received.events]
    assert states == [
        *((name, "START") for name in ("shop", "shop.raw", "shop.all")),
        *((name, "COMPLETE") for name in ("shop.raw", "shop.all", "shop")),
    ]
    runs = {(each["job"]["name"], each["run"]["runId"]) for each in received.events}
    assert len(runs) == 3
    assert {each["job"]["namespace"] for each in received.events} == {"here"}
    [whole] = {run for name, run in runs if name == "shop"}
    end = received.events[3]
    parent = end["run"]["facets"]["parent"]
    assert parent["run"]["runId"] == whole
    assert (parent["job"]["namespace"], parent["job"]["name"]) == ("here", "shop")
    assert end["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    [back] = end["outputs"]
    assert (back["namespace"], back["name"]) == ("nats://nats.example.com:4222", "big.{id}")
    assert back["outputFacets"]["outputStatistics"]["rowCount"] == 20
    [table] = received.events[4]["outputs"]
    assert (table["namespace"], table["name"]) == ("file", "/x/tables/orders")
    fields = table["facets"]["schema"]["fields"]
    assert [(each["name"], each["type"]) for each in fields] == [
        ("id", "bigint"),
        ("to", "array<struct<zip:string>>"),
    ]
    assert fields[1]["fields"][0]["name"] == "zip"
    inputs = received.events[4]["inputs"]
    assert [each["name"] for each in inputs] == ["ORDERS", "MORE", "KV_names", "/srv/in"]
    assert [each["name"] for each in inputs[0]["facets"]["schema"]["fields"]][:2] == [
        "stream",
        "seq",
    ]
    assert "hush" not in json.dumps(received.events)


@pytest.mark.parametrize(
    ("failure", "ends"),
    [
        (
            RuntimeError("query raw: it is full of hush"),
            {"shop": "FAIL", "shop.raw": "FAIL", "shop.all": "ABORT"},
        ),
        (KeyboardInterrupt(), {"shop": "ABORT", "shop.raw": "FAIL", "shop.all": "ABORT"}),
    ],
)
def test_a_failed_run_says_why(tmp_path, failure, ends):
    file = tmp_path / "events.jsonl"
    pipeline = shop(f"{{file: {file}}}")
    numbers = [QueryNumbers("raw", "failed", error="it is full"), QueryNumbers("all", "running")]
    assert sent(pipeline, numbers, failure) == []
    events = [json.loads(line) for line in file.read_text().splitlines()]
    for event in events:
        check_event(event)
    assert {each["job"]["name"]: each["eventType"] for each in events[3:]} == ends
    assert events[3]["run"]["facets"]["errorMessage"]["message"] == "it is full"


def test_a_key_and_a_path_of_the_server(received):
    pipeline = shop(f"{{url: '{received.url}/ingest/events', apiKey: very-secret}}")
    assert sent(pipeline, []) == []
    assert set(received.paths) == {"/ingest/events"}
    assert {each["Authorization"] for each in received.headers} == {"Bearer very-secret"}
    assert pipeline.hide("very-secret") == "***"
    assert "very-secret" not in repr(pipeline)


def test_a_server_that_refuses_is_one_warning(monkeypatch):
    with contextlib.closing(Received(400)) as refusing:
        [line] = sent(shop(f"{{url: '{refusing.url}'}}"), [])
        assert line.startswith("lineage: an event was not sent: ")
        assert len(refusing.events) == 6
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.0)
    assert (
        sent(shop("{url: 'http://127.0.0.1:1'}"), [])[-1]
        == "lineage: events could not be sent in time"
    )


@pytest.mark.parametrize(
    ("lineage", "said"),
    [
        ("{}", "lineage: give url, file or both"),
        ("{namespace: x}", "lineage: give url, file or both"),
        ("{url: localhost}", "the address of a server of OpenLineage"),
        ("{url: 'ftp://x'}", "the address of a server of OpenLineage"),
        ("{url: 'http://x:99999'}", "the address of a server of OpenLineage"),
        ("{urll: x}", "unknown key 'urll'; did you mean url?"),
    ],
)
def test_wrong_sections(lineage, said):
    with pytest.raises(PipelineError) as raised:
        shop(lineage)
    assert said in str(raised.value)


def test_the_section_is_read():
    assert shop("{url: 'http://x', file: events.jsonl}").lineage == Lineage(
        "http://x", "/x/events.jsonl"
    )


def test_names_of_datasets():
    pipeline = shop()
    here = "nats://nats.example.com:4222"
    assert {name: [*map(tuple, read_by(each))] for name, each in pipeline.sources.items()} == {
        "raw": [(here, "ORDERS"), (here, "MORE")],
        "names": [(here, "KV_names")],
        "files": [("file", "/srv/in")],
    }
    assert {name: tuple(written_by(each)) for name, each in pipeline.sinks.items()} == {
        "table": ("file", "/x/tables/orders"),
        "latest": ("s3://warehouse", "latest"),
        "back": (here, "big.{id}"),
        "kept": (here, "KEPT"),
        "bucket": (here, "KV_b"),
        "objects": (here, "OBJ_o"),
        "show": ("console", "unknown"),
    }
    assert placed("abfss://box@account.dfs.core.windows.net/a/b") == (
        "abfss://box@account.dfs.core.windows.net",
        "a/b",
    )
    assert placed("file:///srv/a%20b/") == ("file", "/srv/a b")


@given(st.from_regex(r"(/[a-z]{1,3}){1,4}", fullmatch=True))
def test_a_folder_has_one_name_in_all_spellings(path):
    assert placed(path) == placed(f"{path}/") == placed(f"file://{path}") == ("file", path)
