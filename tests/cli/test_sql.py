"""``pelton sql``: formats, kinds of tables, following, publishing back, failures."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import random
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from pyarrow import parquet

from pelton import ConsumerConfig, KeyValueConfig, ObjectStoreConfig, StreamConfig
from pelton.cli.sql import query
from pelton.sql.live import LiveSource
from pelton.sync import connect
from tests.cli.terminal import Terminal
from tests.copies.local import LocalServer
from tests.sql.sources import in_folder
from tests.ways import skip_other_servers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pelton.core.bulk.columns import Columns
    from pelton.sync import JetStream
    from tests.peers import ServerProcess

    from .conftest import Ran

_ENDLESS = "range(10000000) x, range(10000000) y"


@pytest.fixture
def js(peer: ServerProcess) -> Iterator[JetStream]:
    with connect(peer.url) as client:
        yield client.jetstream()


@pytest.fixture
def orders(js: JetStream, unique: str) -> str:
    js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"]))
    for number in range(6):
        body = {"price": number + 0.5, "item": f"bolt {number}", "tags": ["x"], "Seq": number}
        js.publish(f"{unique}.{'new' if number % 2 else 'paid'}", json.dumps(body).encode())
    js.publish(f"{unique}.new", b"no JSON", headers={"Kind": "odd"})
    return unique


def test_formats(
    request: pytest.FixtureRequest, at: Callable[..., Ran], orders: str, tmp_path: Path
) -> None:
    skip_other_servers(request)  # formats do not depend on the server
    query = f"select seq, subject, headers, data from {orders} where seq > 5 order by seq"
    rows = at("sql", query, "--json").json
    assert [row["seq"] for row in rows] == [6, 7]
    assert rows[1] == {
        "seq": 7,
        "subject": f"{orders}.new",
        "headers": {"Kind": ["odd"]},
        "data": "bm8gSlNPTg==",
    }
    assert at("sql", query, "--format", "jsonl").lines == rows
    read = list(csv.reader(io.StringIO(at("sql", query, "--format", "csv").out)))
    assert read[0] == ["seq", "subject", "headers", "data"]
    assert read[2] == ["7", f"{orders}.new", '{"Kind":["odd"]}', "bm8gSlNPTg=="]
    table = at("sql", query).out
    assert "no JSON" in table
    assert table.startswith("seq")
    assert at("sql", query, "--format", "md").out.splitlines()[1] == "| --: | --- | --- | --- |"
    for form, load in (
        ("parquet", lambda path: parquet.read_table(path)),
        ("arrow", lambda path: pa.ipc.open_stream(path.read_bytes()).read_all()),
    ):
        path = tmp_path / form
        assert at("sql", query, "--format", form, "--output", path).status == 0
        assert load(path).column("seq").to_pylist() == [6, 7]
        assert at("sql", query, "--format", form, "--output", path).status == 1  # it is there


def test_json_payloads_are_columns(at: Callable[..., Ran], orders: str) -> None:
    query = f"select sum(price) s, count(item) n, max(payload_Seq) q from {orders}"
    assert at("sql", "--json-columns", orders, query, "-j").json == [{"s": 18.0, "n": 6, "q": 5}]
    typed = f"{orders}: price DECIMAL(9, 2), item VARCHAR, tags VARCHAR[]"
    query = f"select price, tags from {orders} where item = 'bolt 2'"
    assert at("sql", "--json-columns", typed, query, "-j").json == [{"price": 2.5, "tags": ["x"]}]
    wrong = at("sql", "--json-columns", f"{orders}: price", query)
    assert (wrong.status, wrong.err.count("\n")) == (2, 1)


def test_buckets_objects_consumers_and_advisories(
    at: Callable[..., Ran], js: JetStream, unique: str
) -> None:
    bucket = js.create_key_value(KeyValueConfig(bucket=unique, history=5))
    bucket.put("a.b", b"1")
    bucket.put("a.b", b"2")
    bucket.put("c", b"3")
    bucket.delete("c")
    rows = at("sql", f'select key, value, revision from kv."{unique}"', "-j").json
    assert rows == [{"key": "a.b", "value": "2", "revision": 2}]
    history = at("sql", f'select operation from kv_history."{unique}" order by revision', "-j").json
    assert [row["operation"] for row in history] == ["PUT", "PUT", "PUT", "DEL"]
    store = js.create_object_store(ObjectStoreConfig(bucket=unique))
    store.put("file", b"x" * 1000)
    store.put("gone", b"y")
    store.delete("gone")
    rows = at("sql", f'select name, size from object."{unique}"', "-j").json
    assert rows == [{"name": "file", "size": 1000}]
    js.create_consumer(
        f"KV_{unique}", ConsumerConfig(durable_name="packing", ack_policy="explicit")
    )
    query = f"select name, ack_policy, num_pending from consumers where stream = 'KV_{unique}'"
    found = at("sql", query, "-j").json
    assert found == [{"name": "packing", "ack_policy": "explicit", "num_pending": 4}]
    query = f"select messages from streams where name = 'KV_{unique}'"
    assert at("sql", query, "-j").json == [{"messages": 4}]
    js.create_stream(StreamConfig(name=unique, subjects=["$JS.EVENT.ADVISORY.>"]))
    js.delete_consumer(f"KV_{unique}", "packing")
    # a second call to the API comes after the advisory of the first
    query = f"""select count(*) n from advisories
        where stored_in = '{unique}' and stream = 'KV_{unique}' and kind = 'consumer_action'"""
    assert at("sql", query, "-j").json == [{"n": 1}]
    js.delete_stream(unique)


def test_rows_are_published(
    at: Callable[..., Ran], js: JetStream, orders: str, unique: str
) -> None:
    js.create_stream(StreamConfig(name=f"R{unique}", subjects=[f"R{unique}.>"]))
    query = f"select split_part(subject, '.', 2) kind, count(*) n from {orders} group by all"
    assert at("sql", query, "--to", f"R{unique}.{{kind}}").status == 0
    found = js.get_message(f"R{unique}", last_by_subject=f"R{unique}.paid")
    assert json.loads(found.data) == {"kind": "paid", "n": 3}
    assert at("sql", query, "--to", f"R{unique}.{{no}}").status == 2
    assert at("sql", query, "--to", f"nobody{unique}.x").status == 1
    # the second of three rows makes a subject that is none
    names = "select unnest(['fine', 'not fine', 'x']) as kind"
    bad = at("sql", names, "--to", f"R{unique}.{{kind}}")
    assert (bad.status, bad.err.count("\n")) == (1, 1)
    assert bad.err.endswith("; 1 row published before it\n")
    assert js.stream_info(f"R{unique}").state.messages == 3
    late = at("sql", f"{names} union all select error('late')", "--to", f"R{unique}.same")
    assert late.status == 1


def test_queries_have_no_files_unless_they_are_allowed(
    at: Callable[..., Ran], tmp_path: Path, unique: str
) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("word\nhidden\n")
    written = tmp_path / "written.csv"
    for text in (
        f"select * from read_csv('{file}')",
        f"select * from '{file}'",
        f"copy (select 1) to '{written}'",
        f"attach '{tmp_path / 'other.db'}'",
        "install httpfs",
        f"set enable_external_access = true; select * from '{file}'",
        f"set temp_directory = '{tmp_path / 'temp'}'",
    ):
        ran = at("sql", text)
        assert ran.status != 0, text
        assert "hidden" not in ran.out + ran.err
    assert [each.name for each in tmp_path.iterdir() if each.name != "secret.csv"] == []
    assert at("sql", f"select * from '{file}'", "--allow-files", "-j").json == [{"word": "hidden"}]


def test_a_field_without_a_name_is_a_column(
    at: Callable[..., Ran], js: JetStream, unique: str
) -> None:
    js.create_stream(StreamConfig(name=unique))
    for body in ({"": 5, "a": {"": 1, "b": 2}, "c": [{"": 1}]}, {"": 7}):
        js.publish(unique, json.dumps(body).encode())
    query = f"select payload_, a, c from {unique} order by seq"
    rows = at("sql", "--json-columns", unique, query, "-j").json
    assert rows[0] == {"payload_": 5, "a": {"b": 2}, "c": ['{"":1}']}
    assert rows[1] == {"payload_": 7, "a": None, "c": None}


def test_csv_at_a_terminal_sends_no_control_characters(peer: ServerProcess) -> None:
    query = "select chr(27) || '[31mred' || chr(155) as \"n\x1b[5m\""
    with Terminal("-s", peer.url, "sql", query, "--format", "csv") as screen:
        screen.expect("red")
        assert screen.status() == 0
        assert not {"\x1b", "\x9b"} & set(screen.shown)


def test_following_shows_each_message_once(
    at: Callable[..., Ran], js: JetStream, orders: str
) -> None:
    query = f"select seq from {orders} where subject = '{orders}.new'"
    ran = at("sql", query, "--follow", "--every", "10ms", "-n", 4, "--format", "jsonl")
    assert [row["seq"] for row in ran.lines] == [2, 4, 6, 7]
    assert at("sql", "select 1", "--follow").status == 2


def test_statements_from_stdin(at: Callable[..., Ran], orders: str) -> None:
    text = f"create table t as select seq from {orders}; select count(*) n from t;"
    ran = at("sql", "--format", "jsonl", stdin=text.encode())
    assert ran.lines[-1] == {"n": 7}


def test_a_store_folder(cli: Callable[..., Ran], tmp_path: Path) -> None:
    stored = in_folder(tmp_path / "store", random.Random(1), 50)
    ran = cli("sql", "--store", tmp_path / "store", "select count(*) n from M", "-j")
    assert ran.json == [{"n": len(stored)}]
    ran = cli("sql", "--store", tmp_path / "store", "select name, messages from streams", "-j")
    assert ran.json == [{"name": "M", "messages": len(stored)}]
    gone = cli("sql", "--store", tmp_path / "none", "select 1")
    assert (gone.status, gone.err.count("\n")) == (1, 1)


def test_all_tables_everywhere(cli: Callable[..., Ran], tmp_path: Path) -> None:
    """The same answers of a server, its folder, and backups of both kinds."""
    store = tmp_path / "store"
    with LocalServer(store=str(store)) as local, connect(local.url) as client:
        js = client.jetstream()
        bucket = js.create_key_value(KeyValueConfig(bucket="B", history=5))
        bucket.put("a", b"1")
        bucket.put("a", b"2")
        bucket.delete("a")
        bucket.put("b", b"3")
        js.create_object_store(ObjectStoreConfig(bucket="O")).put("file", b"x" * 1000)
        js.create_stream(StreamConfig(name="ADV", subjects=["$JS.EVENT.ADVISORY.>"]))
        js.create_stream(StreamConfig(name="S", subjects=["s.>"]))
        for number in range(5):
            js.publish(f"s.{number % 2}", b'{"n": %d}' % number)
        js.create_consumer("S", ConsumerConfig(durable_name="c", ack_policy="explicit"))
        js.consumer("S", "c").fetch(2)[0].ack_sync()
        live = ["--server", local.url]
        assert cli("store", "backup", store, tmp_path / "whole").status == 0
        for name in ("KV_B", "OBJ_O", "ADV", "S"):
            made = cli(*live, "stream", "backup", name, tmp_path / "single" / name)
            assert made.status == 0
        look_at_all_tables(lambda *words: cli(*live, *words))
        for place in (store, tmp_path / "whole", tmp_path / "single"):
            look_at_all_tables(lambda *words, place=place: cli(*words, "--store", place))


def look_at_all_tables(run: Callable[..., Ran]) -> None:
    def rows(query: str, *options: str) -> list[Any]:
        ran = run("sql", query, "-j", *options)
        assert ran.status == 0, ran.err
        return ran.json  # type: ignore[no-any-return]  # a list

    assert rows("select key, value from kv.B") == [{"key": "b", "value": "3"}]
    history = rows("select key, operation from kv_history.B order by revision")
    assert [each["operation"] for each in history] == ["PUT", "PUT", "DEL", "PUT"]
    assert rows("select name, size from object.O") == [{"name": "file", "size": 1000}]
    query = "select name, delivered_seq, ack_floor_seq, num_ack_pending, num_pending"
    found = rows(f"{query} from consumers where stream = 'S'")
    assert [list(each.values()) for each in found] == [["c", 2, 1, 1, 3]]
    assert rows("select messages from streams where name = 'S'") == [{"messages": 5}]
    query = "select count(*) n from advisories where kind = 'stream_action' and stream = 'S'"
    assert rows(query) == [{"n": 1}]
    assert rows("select sum(n) n from S", "--json-columns", "S") == [{"n": 10}]
    assert rows('select count(*) n from "S:s.1" where seq > 2') == [{"n": 1}]


def test_payloads_of_other_forms(
    at: Callable[..., Ran], js: JetStream, unique: str, tmp_path: Path
) -> None:
    js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"]))
    for number in range(3):
        body = {"n": number, "data": b"x"}
        js.publish(f"{unique}.m", msgspec.msgpack.encode(body))
        js.publish(
            f"{unique}.p", descriptor_pb2.FileOptions(go_package=f"p{number}").SerializeToString()
        )
    js.publish(f"{unique}.m", b"\xc1")  # no MessagePack
    packed = f"{unique}:msgpack"
    wanted = [{"n": number, "payload_data": "eA=="} for number in range(3)]
    query = f"select n, payload_data from {unique} where subject = '{unique}.m' order by seq"
    ran = at("sql", query, "--decode", packed, "--json-columns", unique, "-j")
    assert ran.json[:3] == wanted, ran.err
    assert ran.json[3] == {"n": None, "payload_data": None}
    described = descriptor_pb2.FileDescriptorSet()
    descriptor_pb2.DESCRIPTOR.CopyToProto(described.file.add())
    (tmp_path / "d").write_bytes(described.SerializeToString())
    kind = f"{unique}:protobuf:google.protobuf.FileOptions"
    query = f"select text->>'go_package' as g from {unique} where subject = '{unique}.p'"
    ran = at("sql", query, "--decode", kind, "--descriptor", tmp_path / "d", "-j")
    assert [each["g"] for each in ran.json] == ["p0", "p1", "p2"]
    for wrong in (unique, f"{unique}:x", ":cbor", f"{unique}:protobuf"):
        assert at("sql", "select 1", "--decode", wrong).status == 2


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["select * from nothing_there"], 2, "nothing_there"),
        (["selec 1"], 2, "syntax"),
        (["select error('no')"], 1, "no"),
        (["select 1", "--follow", "--store", "."], 2, "--follow"),
        (["select 1", "--follow", "--format", "parquet"], 2, "jsonl"),
        (["select 1", "--to", "a", "--format", "csv"], 2, "--to"),
    ],
)
def test_failures_are_one_line(
    at: Callable[..., Ran], arguments: list[Any], status: int, told: str
) -> None:
    ran = at("sql", *arguments)
    assert ran.status == status, ran.err
    assert ran.err.count("\n") == 1
    assert told in ran.err


def test_what_duckdb_cannot_know_is_said(
    at: Callable[..., Ran], js: JetStream, orders: str
) -> None:
    assert f"; did you mean {orders}?" in at("sql", f"select * from {orders[:-1]}").err
    assert "--json-columns STREAM makes columns" in at("sql", f"select price from {orders}").err
    wrong = at("sql", f'select * from "{orders}:a..b"')
    assert (wrong.status, wrong.err) == (
        2,
        f'pelton: "{orders}:a..b": a..b cannot be a subject\n',
    )


def test_a_stream_that_is_deleted_while_it_is_followed(
    at: Callable[..., Ran], js: JetStream, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_: float) -> None:
        js.delete_stream(orders)

    monkeypatch.setattr("pelton.cli.sql.query.time", SimpleNamespace(sleep=gone))
    ran = at("sql", f"select seq from {orders}", "--follow", "--format", "csv")
    assert ran.out.splitlines() == ["seq", *map(str, range(1, 8))]
    said = f"pelton: stream {orders} is not there any more\n"
    assert (ran.status, ran.err) == (1, said)


def test_ctrl_c_while_the_database_opens_is_no_error(
    at: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted:
        """A connection that sees Ctrl-C within a statement, and tells it as DuckDB does."""

        def execute(self, _: str) -> None:
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            raise RuntimeError("Query interrupted")

    monkeypatch.setattr("pelton.sql.database.duckdb.connect", Interrupted)
    assert at("sql", "select 1").status == 130


def test_ctrl_c_in_an_import_that_hides_it_is_heard(
    at: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    def hidden(*given: Any) -> Any:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return made(*given)

    made = query._database
    monkeypatch.setattr(query, "_database", hidden)
    assert at("sql", "select 1").status == 130


@pytest.mark.parametrize("kind", [OSError, ValueError])
def test_ctrl_c_that_a_result_tells_in_its_own_way(
    at: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    def interrupted(*_: Any) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise kind("INTERRUPT Error: Interrupted!")

    monkeypatch.setattr(query, "_print", interrupted)
    ran = at("sql", "select 1")
    assert (ran.status, ran.err.strip()) == (130, "")


def test_ctrl_c_within_a_scan_ends_the_query(
    at: Callable[..., Ran], orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: Any) -> Iterator[Columns]:
        signal.raise_signal(signal.SIGINT)
        yield from read(*given)

    read = LiveSource.read
    monkeypatch.setattr(LiveSource, "read", interrupted)
    # as if DuckDB was told before the query began, which forgets it
    monkeypatch.setattr("pelton.cli.sql.interrupting._telling", contextlib.nullcontext)
    query = f"select a.seq from {_ENDLESS}, {orders} a where x.range + y.range < -a.seq"
    assert at("sql", query).status == 130


@pytest.mark.parametrize("words", [[], ["--format", "csv"]])
def test_ctrl_c_ends_a_query_that_takes_long(
    peer: ServerProcess, orders: str, words: list[str]
) -> None:
    endless = f"select a.seq from {_ENDLESS}, {orders} a where x.range + y.range < -a.seq"
    with Terminal("-s", peer.url, "sql", endless, *words) as terminal:
        while (query := Path(f"/proc/{terminal.pid}/task")) and len(list(query.iterdir())) < 3:
            terminal.glance(0.02)  # until DuckDB has its threads
        terminal.interrupt()
        assert terminal.status() == 130, terminal.shown
        assert "Traceback" not in terminal.shown
