"""What goes wrong while writing into streams: rows that cannot be, servers that go, streams that are
full, and what is said before anything is written.
"""

from __future__ import annotations

import threading
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from pelton.api.streams import StreamSource
from pelton.client.base.models import StreamConfig
from pelton.spark.connection import forget_client
from pelton.spark.parsing import OptionError
from pelton.spark.servers import Servers
from pelton.spark.writing.row_errors import WriteError
from pelton.spark.writing.writer import plan_write, write_partition
from tests.peers import ServerProcess
from tests.spark.writing import (
    DATA,
    batches,
    broker,
    needs_atomic,
    payloads,
    sink,
    task,
    write,
)

__all__ = ["broker", "sink"]
pytestmark = pytest.mark.peer

FULL = pa.schema(
    [
        ("data", pa.string()),
        ("subject", pa.string()),
        ("headers", pa.map_(pa.string(), pa.list_(pa.string()))),
        ("msg_id", pa.string()),
        ("expected_last_subject_seq", pa.int64()),
    ]
)


def row(data: object, subject: object, **more: object) -> dict[str, object]:
    return {**dict.fromkeys(FULL.names), "data": data, "subject": subject, **more}


def test_columns_become_subjects_headers_and_ids(sink):
    sink.make()
    table = [
        row("1", f"{sink.low}.a", headers=[("K", ["v", "w"]), ("Nats-Msg-Id", ["of a copy"])]),
        row("2", None, msg_id="mine"),
        row(None, f"{sink.low}.b", expected_last_subject_seq=0),
    ]
    plan = sink.plan(FULL, subject=f"{sink.low}.default")
    assert write(plan, table, FULL).rows == 3
    assert sink.stored() == [
        (f"{sink.low}.a", b"1"),
        (f"{sink.low}.default", b"2"),
        (f"{sink.low}.b", b""),
    ]
    first = sink.headers(1)
    assert first["K"] == ["v", "w"]
    assert first["Nats-Msg-Id"] == ["query:0:0:0"]
    assert first["Nats-Expected-Stream"] == [sink.name]
    assert sink.headers(2)["Nats-Msg-Id"] == ["mine"]
    again = write(plan, table, FULL)
    assert again.already == 3
    assert len(sink.stored()) == 3


def test_subjects_from_a_pattern(sink):
    sink.make()
    schema = pa.schema([("data", pa.binary()), ("country", pa.string()), ("id", pa.int32())])
    plan = sink.plan(schema, subject=f"{sink.low}.{{country}}.n-{{id}}", exactlyOnce="none")
    write(plan, [{"data": b"x", "country": "de", "id": 5}], schema)
    assert sink.stored() == [(f"{sink.low}.de.n-5", b"x")]
    for bad in ("a.b", "a b", "*", ">", "", None, "a\n"):
        with pytest.raises(WriteError, match=r"row 0 .* column country is .*no token"):
            write(plan, [{"data": b"x", "country": bad, "id": 5}], schema)


@pytest.mark.parametrize("mode", ["ids", "none", "batch"])
def test_rows_that_cannot_be_written_go_to_a_side_output(sink, mode, tmp_path):
    more: dict[str, object] = {}
    if mode == "batch":
        needs_atomic(sink)
        more = {"allow_atomic": True, "subjects": [f"{sink.low}.>", sink.progress]}
    sink.make(max_msg_size=4096, **more)
    schema = pa.schema([("data", pa.string()), ("subject", pa.string())])
    table = [
        {"data": "fine", "subject": f"{sink.low}.a"},
        {"data": "x" * 5000, "subject": f"{sink.low}.a"},
        {"data": "x", "subject": f"{sink.low}.*"},
        {"data": "x", "subject": None},
        {"data": "x", "subject": "a..b"},
        {"data": "fine", "subject": f"{sink.low}.b"},
    ]
    if mode != "batch":  # only the server knows these
        table.append({"data": "x", "subject": "nobody.takes.this"})
    refused = sorted(n for n, given in enumerate(table) if given["data"] != "fine")
    given = {"exactlyOnce": mode, "onRowError": "side", "errorPath": tmp_path}
    for _ in range(2):
        written = write(sink.plan(schema, **given), table, schema, size=2)
        assert written.rows == len(table)
    assert len(sink.stored()) == (4 if mode == "none" else 2)
    [path] = tmp_path.iterdir()
    side = pq.read_table(path).sort_by("row").to_pylist()
    assert [one["row"] for one in side] == refused
    if mode != "ids":  # run again, ids know that the partition is done
        assert written.refused == len(refused)
    reasons = [one["reason"] for one in side]
    assert "bytes of headers and data" in reasons[0]
    assert "none that can be published" in reasons[1]
    assert "no subject" in reasons[2]
    if mode != "batch":
        assert "no stream takes subject" in reasons[-1]
        assert side[-1]["subject"] == "nobody.takes.this"
        assert side[-1]["data"] == b"x"


def test_the_side_output_may_be_a_stream(sink):
    sink.make(subjects=[f"{sink.low}.>"])
    sink.js.create_stream(StreamConfig(name=f"{sink.name}E", subjects=[f"errors.{sink.low}"]))
    table = [
        row("1", f"{sink.low}.a"),
        row("2", f"{sink.low}.a", expected_last_subject_seq=77, headers=[("K", ["v"])]),
    ]
    given = {"onRowError": "side", "errorSubject": f"errors.{sink.low}"}
    assert write(sink.plan(FULL, **given), table, FULL).refused == 1
    found = sink.js.get_message(f"{sink.name}E", 1)
    assert found.data == b"2"
    assert found.headers.get_all("K") == ["v"]
    assert found.headers.get_all("Pelton-Row") == ["query:0:0:1"]
    assert found.headers.get_all("Pelton-Subject") == [f"{sink.low}.a"]
    assert "wrong last sequence: 1" in found.headers["Pelton-Error"]
    sink.js.delete_stream(f"{sink.name}E")


def test_a_row_that_the_server_refuses_fails_the_write_and_is_named(sink):
    sink.make()
    table = [row("1", f"{sink.low}.a"), row("2", f"{sink.low}.a", expected_last_subject_seq=77)]
    with pytest.raises(WriteError, match=r"row 1 of partition 0 of batch 0 \(subject .*wrong last"):
        write(sink.plan(FULL), table, FULL)


@pytest.mark.parametrize("mode", ["ids", "batch", "none"])
def test_a_stream_that_is_full(sink, mode, tmp_path):
    more: dict[str, object] = {}
    if mode == "batch":
        needs_atomic(sink)
        more = {"allow_atomic": True, "subjects": [f"{sink.low}.>", sink.progress]}
    sink.make(max_msgs=50, discard="new", **more)
    given = {"exactlyOnce": mode, "subject": f"{sink.low}.x", "atomicRows": 21}
    side = {"onRowError": "side", "errorPath": tmp_path}
    with pytest.raises(WriteError, match="maximum messages exceeded"):
        write(sink.plan(DATA, **given, **side), payloads(100))
    if mode == "none":
        return
    config = sink.js.stream_info(sink.name).config
    config.max_msgs = 1000
    sink.js.update_stream(config)
    write(sink.plan(DATA, **given), payloads(100))
    assert sorted(data for _, data in sink.stored()) == sorted(b"row %d" % n for n in range(100))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["ids", "batch"])
@pytest.mark.parametrize("kill", [False, True])
def test_the_server_is_restarted_while_rows_are_written(sink, broker, mode, kill):
    given = {"exactlyOnce": mode, "subject": f"{sink.low}.x", "retryTimeout": "30s"}
    more: dict[str, object] = {}
    if mode == "batch":
        needs_atomic(sink)
        more = {"allow_atomic": True, "subjects": [f"{sink.low}.>", sink.progress]}
    sink.make(**more)
    plan = sink.plan(DATA, **given, maxInFlight=400, atomicRows=100)

    def restart() -> None:
        time.sleep(0.3)
        for _ in range(2):
            broker.stop(kill=kill)
            broker.start()
            time.sleep(0.3)

    def slowly():
        for batch in batches(payloads(6000), DATA, 50):
            yield batch
            time.sleep(0.01)

    thread = threading.Thread(target=restart)
    thread.start()
    written = write_partition(plan, task(), slowly())
    thread.join()
    forget_client(plan.options.servers)
    assert written.rows == 6000
    assert [data for _, data in sink.stored()] == [b"row %d" % n for n in range(6000)]


def test_a_server_that_stays_away(tmp_path):
    options = {"servers": "nats://127.0.0.1:1", "subject": "a", "retryTimeout": "500ms"}
    with pytest.raises(WriteError, match=r"cannot connect to nats://127\.0\.0\.1:1"):
        plan_write(options, from_arrow_schema(DATA))


def test_wrong_credentials(broker: ServerProcess, tmp_path):
    secured = ServerProcess(broker.kind, arguments=["--user", "anna", "--pass", "right"])
    secured.start()
    try:
        given = {"servers": secured.url, "subject": "a", "user": "anna", "password": "wrong-one"}
        with pytest.raises(WriteError, match=r"(?i)authorization violation") as caught:
            plan_write(given, from_arrow_schema(DATA))
        assert "wrong-one" not in str(caught.value)
    finally:
        secured.remove()
        forget_client(Servers(urls=(secured.url,), user="anna", password="wrong-one"))


def test_what_is_said_before_anything_is_written(sink):
    with pytest.raises(WriteError, match=f"there is no stream {sink.name}"):
        sink.plan(DATA, subject=f"{sink.low}.x")
    sink.make()
    with pytest.raises(WriteError, match=r"does not take subject other\.x; it takes"):
        sink.plan(DATA, subject="other.x")
    with pytest.raises(WriteError, match=r"no stream on .* takes subject other\.x"):
        sink.plan(DATA, subject="other.x", stream=None)
    with pytest.raises(WriteError, match="say with option stream"):
        sink.plan(FULL, stream=None)
    with pytest.raises(WriteError, match="takes no atomic batches: set allow_atomic"):
        sink.plan(DATA, subject=f"{sink.low}.x", exactlyOnce="batch")
    with pytest.raises(OptionError, match="give the subject"):
        sink.plan(DATA)
    with pytest.raises(OptionError, match="needs a column data; there are: x"):
        sink.plan(pa.schema([("x", pa.string())]), subject="a")
    with pytest.raises(OptionError, match="column data is int, but must be binary or string"):
        sink.plan(pa.schema([("data", pa.int32())]), subject="a")
    with pytest.raises(OptionError, match="no use for column datum"):
        sink.plan(DATA.append(pa.field("datum", pa.string())), subject="a")
    with pytest.raises(OptionError, match="needs a column country"):
        sink.plan(DATA, subject="a.{country}")
    with pytest.raises(OptionError, match="expected_last_subject_seq go with exactlyOnce=ids"):
        sink.plan(FULL, exactlyOnce="batch")
    ttl = DATA.append(pa.field("ttl", pa.string()))
    with pytest.raises(WriteError, match="does not allow one: set allow_msg_ttl"):
        sink.plan(ttl, subject=f"{sink.low}.x")


def test_streams_that_cannot_be_written_once(sink):
    sink.make(no_ack=True)
    with pytest.raises(WriteError, match="has no_ack set"):
        sink.plan(DATA, subject=f"{sink.low}.x")
    sink.js.delete_stream(sink.name)
    sink.make(retention="workqueue")
    with pytest.warns(UserWarning, match="workqueue retention"):
        sink.plan(DATA, subject=f"{sink.low}.x")
    sink.js.delete_stream(sink.name)
    sink.make(duplicate_window=1)
    with pytest.warns(UserWarning, match="for 1 s only"):
        sink.plan(DATA, subject=f"{sink.low}.x")
    sink.js.delete_stream(sink.name)
    sink.js.create_stream(StreamConfig(name=f"{sink.name}O", subjects=[f"{sink.low}.>"]))
    sink.make(subjects=[], mirror=StreamSource(name=f"{sink.name}O"))
    with pytest.raises(WriteError, match="is a mirror of"):
        sink.plan(DATA, subject=f"{sink.low}.x")
    sink.js.delete_stream(f"{sink.name}O")


def test_a_batch_needs_a_place_for_its_markers(sink):
    needs_atomic(sink)
    sink.make(allow_atomic=True)
    with pytest.raises(WriteError, match=f"add the subject spark.progress.{sink.name}.> to it"):
        sink.plan(DATA, subject=f"{sink.low}.x", exactlyOnce="batch")
    given = {"exactlyOnce": "batch", "progressSubject": f"{sink.low}.progress"}
    plan = sink.plan(DATA, subject=f"{sink.low}.x", **given)
    write(plan, payloads(10))
    assert sink.js.stream_info(sink.name).state.messages == 11
    too_many = sink.plan(DATA, subject=f"{sink.low}.x", **given, atomicRows=5000)
    with pytest.raises(WriteError, match="Set atomicRows"):
        write(too_many, payloads(5000), of=task(1), size=5000)
