"""Rows that throw and rows that fail conditions: which they are, what they keep, and that each is somewhere once."""

from __future__ import annotations

import contextlib
import json
import random
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from pelton.client.base.models import StreamConfig
from pelton.client.sync import connect
from pelton.pipeline import load, run
from pelton.pipeline.description.problems import PipelineError
from pelton.pipeline.running import engine, throwing
from pelton.pipeline.running.analysis import analyse
from pelton.pipeline.running.queries import Memory, plan
from pelton.pipeline.running.supervising import QueryEndedError
from pelton.pipeline.running.writing import write_batch
from tests.peers import available_servers, start_server
from tests.pipeline.test_pipeline_runs import Killed, one_sink_has_it
from tests.ways import FULL, SEED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pelton.client.sync.jetstream import JetStream
    from tests.peers import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(600)]

FUNCTIONS = """
from pyspark.sql import functions as F


def doubled(rows):
    @F.udf("long")
    def double(data):
        return 2 * int(data.strip("u"))

    return rows.withColumn("doubled", double(F.col("data").cast("string")))
"""

# In data: 7 is good, -7 fails a condition, x7 throws in SQL, u7u in neither, 13 in a condition; u throws in Python.
FILE = """
pipeline: shop
defaults: {servers: URL, trigger: 0s}
sources:
  raw: {format: jetstream, stream: IN, maxOffsetsPerTrigger: PER_BATCH}
steps:
  typed:
    from: raw
    columns:
      text: cast(data as string)
      number: cast(trim('u', text) as long)
    select: [seq, number]
    expect:
      positive: number >= 0
      thirteen: 1 / (number - 13) < 2
    onError: reject
  python: {from: raw, python: "rejected_functions:doubled", select: [seq, doubled], onError: reject}
sinks:
  table: {from: typed, format: jetstream_delta, path: table}
  bad: {from: typed.rejected, format: jetstream_delta, path: bad}
  newest: {from: typed, upsert: newest, keys: [seq]}
  back: {from: typed, select: [cast(number as string) as data], format: jetstream, subject: back.x}
  every: {from: raw, select: [seq], format: jetstream_delta, path: every}
  doubled: {from: python, format: jetstream_delta, path: doubled}
  undoubled: {from: python.rejected, format: jetstream_delta, path: undoubled}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    started = start_server(available_servers()[0])
    yield started
    started.remove()


@pytest.fixture
def js(server: ServerProcess) -> Iterator[JetStream]:
    with connect(server.url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name="IN", subjects=["in.>"]))
        js.create_stream(StreamConfig(name="BACK", subjects=["back.>"]))
        yield js
        js.delete_stream("IN")
        js.delete_stream("BACK")


def written(folder: Path, server: ServerProcess, text: str = FILE, per_batch: int = 1000) -> Path:
    (folder / "rejected_functions.py").write_text(FUNCTIONS)
    path = folder / "shop.yaml"
    path.write_text(text.replace("URL", server.url).replace("PER_BATCH", str(per_batch)))
    return path


def publish(js: JetStream, payloads: Iterable[str]) -> None:
    with js.publisher() as publisher:
        for payload in payloads:
            publisher.publish("in.x", payload.encode())


def rows_of(folder: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(folder / name).to_pyarrow_table().to_pylist()
    return rows


class Model:
    """What each table has after these messages."""

    def __init__(self, payloads: list[str], *, python: bool = True) -> None:
        self.said = "ValueError: invalid literal for int()" if python else "[CAST_INVALID_INPUT]"
        self.numbers: dict[int, int] = {}
        self.rejected: dict[int, list[str]] = {}
        self.doubled: dict[int, int] = {}
        self.data = dict(enumerate(payloads, 1))
        for seq, payload in self.data.items():
            try:
                self.doubled[seq] = 2 * int(payload.strip("u"))
                number = self.doubled[seq] // 2
            except ValueError:
                self.rejected[seq] = ["CAST_INVALID_INPUT"]
                continue
            if number == 13:
                self.rejected[seq] = ["DIVIDE_BY_ZERO"]
            elif number < 0:
                self.rejected[seq] = ["positive"]
            else:
                self.numbers[seq] = number

    def compare(self, folder: Path, js: JetStream) -> None:
        table = rows_of(folder, "table")
        assert Counter(row["seq"] for row in table) == Counter(self.numbers.keys())
        assert {row["seq"]: row["number"] for row in table} == self.numbers
        newest = rows_of(folder, "newest")
        assert Counter(row["seq"] for row in newest) == Counter(self.numbers.keys())
        last = js.stream_info("BACK").state.last_seq
        back = Counter(int(js.get_message("BACK", seq).data) for seq in range(1, last + 1))
        assert back == Counter(self.numbers.values())
        assert Counter(row["seq"] for row in rows_of(folder, "every")) == Counter(self.data.keys())
        bad = rows_of(folder, "bad")
        assert Counter(row["seq"] for row in bad) == Counter(self.rejected.keys())
        for row in bad:
            [because] = row["rejected_because"]
            assert self.rejected[row["seq"]][0] in because
            assert row["data"].decode() == self.data[row["seq"]]
            assert (row["subject"], row["stream"]) == ("in.x", "IN")
        doubled = rows_of(folder, "doubled")
        assert Counter(row["seq"] for row in doubled) == Counter(self.doubled.keys())
        assert {row["seq"]: row["doubled"] for row in doubled} == self.doubled
        undoubled = rows_of(folder, "undoubled")
        assert Counter(row["seq"] for row in undoubled) == Counter(
            self.data.keys() - self.doubled.keys()
        )
        for row in undoubled:
            [because] = row["rejected_because"]
            assert because.startswith(self.said)
            assert row["data"].decode() == self.data[row["seq"]]


def test_rows_that_throw_are_rejected_and_the_rest_is_written(
    tmp_path: Path, server: ServerProcess, js: JetStream, spark: Any
) -> None:
    payloads = [
        *map(str, range(20, 60)),
        "x7",
        "-5",
        "13",
        "u8u",
        "",
        *map(str, range(60, 300)),
        "xx",
    ]
    publish(js, payloads)
    file = written(tmp_path, server)
    run(load(file), spark, once=True)
    Model(payloads).compare(tmp_path, js)
    assert len(list((tmp_path / "state/shop/thrown/raw").glob("*.json"))) == 1
    # A batch with such a message alone.
    publish(js, ["y"])
    run(load(file), spark, once=True)
    Model([*payloads, "y"]).compare(tmp_path, js)


FAILING = """
pipeline: shop
defaults: {servers: URL, trigger: 0s}
sources:
  raw: {format: jetstream, stream: IN, maxOffsetsPerTrigger: 1000}
steps:
  text: {from: raw, columns: {text: cast(data as string)}}
  typed:
    from: text
    columns:
      length: length(text)
      number: cast(text as long)
    select: [number]
sinks:
  every: {from: raw, format: jetstream_delta, path: every}
  table: {from: typed, format: jetstream_delta, path: tableOWN}
"""


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        (
            "",
            "",
            ":12: steps.typed: columns.number: message 41 of IN (subject in.x): [CAST_INVALID",
        ),
        (
            "OWN",
            ", query: own",
            ":12: steps.typed: columns.number: message 41 of IN (subject in.x): ",
        ),
        (
            "select: [number]",
            "where: 1 / (locate('x', text) - 1) is not null",
            ":13: steps.typed: where: message 41 of IN (subject in.x): [DIVIDE_BY_ZERO]",
        ),
        (
            "number: cast(text as long)\n    select: [number]",
            "number: 1\n    select: [seq, text]\n    expect: {low: text < 100}",
            ":14: steps.typed: expect.low: message 41 of IN (subject in.x): [CAST_INVALID",
        ),
        (
            "number: cast(text as long)\n    select: [number]",
            "number: text",
            ":15: sinks.table: where: message 41 of IN (subject in.x): [CAST_INVALID",
        ),
        (
            "from: text\n    columns:",
            "from: text\n    sql: select *, cast(text as long) as n from text\n    columns:",
            ":10: steps.typed: sql: message 41 of IN (subject in.x): [CAST_INVALID",
        ),
        (
            "from: raw, columns",
            'from: raw, python: "rejected_functions:doubled", columns',
            ":7: steps.text: python: message 41 of IN (subject in.x): ValueError: invalid literal",
        ),
    ],
)
def test_an_error_names_message_and_key(
    tmp_path: Path, server: ServerProcess, js: JetStream, spark: Any, old: str, new: str, where: str
) -> None:
    text = FAILING.replace(old, new) if old else FAILING
    if "sinks.table" in where:
        text = text.replace("from: typed, format", "from: typed, where: number > 5, format")
    if "expect" in text:
        text += "  left: {from: typed.rejected, format: jetstream_delta, path: left}\n"
    file = written(tmp_path, server, text.replace("OWN", ""))
    publish(js, [*map(str, range(20)), "5"])
    run(load(file), spark, once=True)
    publish(js, [*map(str, range(21, 40)), "x3", *map(str, range(41, 80))])
    with pytest.raises(QueryEndedError) as raised:
        run(load(file), spark, once=True)
    assert str(raised.value).startswith(f"{file}{where}"), raised.value
    assert "\n" not in str(raised.value)


SQL_ONLY = FILE.replace(
    '  python: {from: raw, python: "rejected_functions:doubled", select: [seq, doubled], onError: reject}\n',
    "  python: {from: raw, columns: {doubled: \"2 * cast(trim('u', cast(data as string)) as long)\"},"
    " select: [seq, doubled], onError: reject}\n",
)


def random_payloads(generator: random.Random, count: int) -> list[str]:
    kinds = [
        lambda: str(generator.randrange(14, 10**6)),
        lambda: str(-generator.randrange(1, 100)),
        lambda: generator.choice(["x7", "", "12.5x", "u", "13", "u13u", "u20u"]),
    ]
    return [generator.choices(kinds, (20, 1, 1))[0]() for _ in range(count)]


def dies(generator: random.Random) -> Any:
    """Writes sinks as the engine does, and dies after a random one."""
    left = generator.randrange(1, 15)

    def write(sink: Any, *arguments: Any, **options: Any) -> None:
        nonlocal left
        write_batch(sink, *arguments, **options)
        left -= 1
        if left == 0:
            raise RuntimeError("told to die")

    return write


def test_whatever_throws_and_dies_the_tables_are_those_of_the_model(
    tmp_path: Path,
    server: ServerProcess,
    js: JetStream,
    spark: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Random payloads, batches and deaths between two sinks; some runs are killed with PELTON_FULL=1."""
    generator = random.Random(SEED)
    print("seed", SEED)
    payloads: list[str] = []
    for turn in range(6 if FULL else 2):
        more = random_payloads(generator, generator.randrange(40, 100))
        publish(js, more)
        payloads += more
        file = written(tmp_path, server, SQL_ONLY, generator.choice([17, 60, 1000]))
        if FULL and turn % 2:
            Killed(file, tmp_path).kill_when(lambda: one_sink_has_it(tmp_path, js, 0))
            continue
        with monkeypatch.context() as patch:
            patch.setattr(engine, "write_batch", dies(generator))
            with contextlib.suppress(QueryEndedError):
                run(load(file), spark, once=True)
    run(load(file), spark, once=True)
    Model(payloads, python=False).compare(tmp_path, js)


def test_killed_between_sinks_the_rest_rejects_the_same_rows(
    tmp_path: Path, server: ServerProcess, js: JetStream, spark: Any
) -> None:
    """Also when the step was changed meanwhile: the list of the batch decides."""
    payloads = ["20", "x1", "21", "13", "22", "-7", "23"]
    publish(js, payloads)
    file = written(tmp_path, server, SQL_ONLY)
    Killed(file, tmp_path).kill_when(lambda: one_sink_has_it(tmp_path, js, 0))
    [kept] = (tmp_path / "state/shop/thrown/raw").glob("*.json")
    assert json.loads(kept.read_text())["typed"][0][:2] == ["IN", 2]
    tries = SQL_ONLY.replace("number: cast", "number: try_cast")
    tries = tries.replace("number >= 0", "number >= 0 or number is null")
    publish(js, more := ["x5", "30"])
    file = written(tmp_path, server, tries)
    run(load(file), spark, once=True)
    bad = {row["seq"]: row["rejected_because"] for row in rows_of(tmp_path, "bad")}
    assert bad.keys() == {2, 4, 6, 8}
    assert "CAST_INVALID_INPUT" in bad[2][0]
    assert bad[8] == ["thirteen"]
    assert Counter(row["seq"] for row in rows_of(tmp_path, "table")) == Counter([1, 3, 5, 7, 9])
    every = Counter(row["seq"] for row in rows_of(tmp_path, "every"))
    assert every == Counter(range(1, len([*payloads, *more]) + 1))


def test_a_step_for_which_all_rows_throw_fails(
    tmp_path: Path,
    server: ServerProcess,
    js: JetStream,
    spark: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(throwing, "_ALL_OF", 10)
    publish(js, ["x"] * 30)
    file = written(tmp_path, server, SQL_ONLY)
    with pytest.raises(QueryEndedError) as raised:
        run(load(file), spark, once=True)
    assert re.match(
        r".*shop\.yaml:16: steps\.typed: all of the first 10 messages of a batch throw, so the step is at fault,"
        r" not they: message 1 of IN: \[CAST_INVALID_INPUT\]",
        str(raised.value),
    ), raised.value
    assert not (tmp_path / "table").exists()
    publish(js, ["1"] * 30)
    monkeypatch.setattr(throwing, "MOST", 10)
    monkeypatch.setattr(throwing, "_ALL_OF", 1000)
    with pytest.raises(QueryEndedError, match="more than 10 messages of a batch throw"):
        run(load(file), spark, once=True)


OWN = """
pipeline: shop
defaults: {servers: URL, trigger: 0s}
sources:
  raw: {format: jetstream, stream: IN, maxOffsetsPerTrigger: 10}
steps:
  typed: {from: raw, columns: {number: cast(cast(data as string) as long)}, onError: reject}
sinks:
  table: {from: typed, select: [seq, number], format: jetstream_delta, path: table, query: own}
  newest: {from: typed, select: [seq, number], upsert: newest, keys: [seq], query: own}
  back: {from: typed, select: [data], format: jetstream, subject: back.x, query: own}
  bad: {from: typed.rejected, format: jetstream_delta, path: bad, trigger: 0s}
"""


def test_own_queries_reject_too_also_from_a_checkpoint_of_before(
    tmp_path: Path, server: ServerProcess, js: JetStream, spark: Any
) -> None:
    """A query that Spark's own writer began goes on with the same marks and message ids."""
    publish(js, map(str, range(15)))
    before = OWN.replace(", onError: reject", "").replace("from: typed.rejected", "from: typed")
    run(load(written(tmp_path, server, before)), spark, once=True)
    # The last batch of each comes again.
    for commits in tmp_path.glob("state/shop/checkpoints/*/commits"):
        (commits / "1").unlink()
        (commits / ".1.crc").unlink(missing_ok=True)
    publish(js, ["20", "x", "21"])
    text = OWN.replace("path: bad", "path: bad, mergeSchema: true")
    run(load(written(tmp_path, server, text)), spark, once=True)
    wanted = Counter(seq for seq in range(1, 19) if seq != 17)
    assert Counter(row["seq"] for row in rows_of(tmp_path, "table")) == wanted
    assert Counter(row["seq"] for row in rows_of(tmp_path, "newest")) == wanted
    assert js.stream_info("BACK").state.messages == 17
    bad = [row for row in rows_of(tmp_path, "bad") if row["rejected_because"]]
    assert [row["seq"] for row in bad] == [17]


def test_what_cannot_be_rejected_is_refused(tmp_path: Path, spark: Any) -> None:
    def refused(text: str) -> str:
        path = tmp_path / "shop.yaml"
        path.write_text(text.replace("URL", "nats://127.0.0.1:1"))
        with pytest.raises(PipelineError) as raised:
            load(path)
        return str(raised.value)

    assert "nothing reads typed.rejected, so rows that throw would be lost" in refused(
        OWN.replace("typed.rejected", "typed")
    )
    said = refused(
        OWN.replace("format: jetstream_delta, path: table", "format: parquet, path: table")
    )
    assert (
        ":7: steps.typed: onError: reject: sinks.table has parquet, which cannot skip a batch"
        in said
    )
    two = OWN.replace("sources:\n", "sources:\n  more: {format: jetstream, stream: ALSO}\n")
    assert "has 2 streamed inputs" in refused(two.replace("from: raw", "from: [raw, more]"))
    met = two.replace("sinks:\n", "  both: {from: [typed, more], select: [seq]}\nsinks:\n")
    said = refused(met + "  all: {from: both, format: jetstream_delta, path: all}\n")
    assert "the streams of sinks.all meet in both, and only steps after it can reject" in said
    assert "onError is 'skip', but must be fail or reject" in refused(
        OWN.replace("reject}", "skip}")
    )

    def found(text: str) -> list[str]:
        path = tmp_path / "shop.yaml"
        path.write_text(text.replace("URL", "nats://127.0.0.1:1"))
        pipeline = load(path)
        queries, _ = plan(pipeline, Memory("shop"), lambda _: -1)
        return analyse(pipeline, spark, queries).problems

    assert found(OWN) == []
    cut = OWN.replace("steps:\n", "steps:\n  cut: {from: raw, select: [data]}\n")
    line = found(cut.replace("typed: {from: raw", "typed: {from: cut"))[0]
    assert ":8: steps.typed: onError: rows that throw are found by their sequences" in line
    [line] = found(OWN.replace("stream: IN", "stream: 'IN,OTHER', columns: 'seq,data'"))
    assert "need the source's column stream, too" in line
    counted = (
        "  count: {from: typed, sql: 'select count(*) as n, max(seq) as seq from typed'}\nsinks:\n"
    )
    lines = found(
        OWN.replace("sinks:\n", counted)
        + "  counted: {from: count, upsert: counted, keys: [n], query: own}\n"
    )
    assert (
        ":7: sinks.counted: its input keeps state over the stream (Aggregate), so steps.typed"
        in lines[0]
    )


@pytest.mark.parametrize("kind", ["delta", "upsert"])
def test_tables_of_rejected_rows_of_before_go_on(
    tmp_path: Path, server: ServerProcess, js: JetStream, spark: Any, kind: str
) -> None:
    """They get the columns of the message with mergeSchema alone."""
    DeltaTable.create(
        tmp_path / "bad",
        pa.schema(
            [
                ("seq", pa.int64()),
                ("number", pa.int64()),
                ("rejected_because", pa.list_(pa.string())),
            ]
        ),
    )
    text = """
pipeline: shop
defaults: {servers: URL, trigger: 0s}
sources:
  raw: {format: jetstream, stream: IN}
steps:
  typed:
    from: raw
    columns: {number: try_cast(cast(data as string) as long), data: upper(cast(data as string))}
    select: [seq, number]
    expect: {a_number: number is not null}
sinks:
  table: {from: typed, format: jetstream_delta, path: table}
  bad: {from: typed.rejected, INTO}
  also: {from: typed.rejected, format: jetstream_delta, path: also}
"""
    into = "format: jetstream_delta, path: bad" if kind == "delta" else "upsert: bad, keys: [seq]"
    publish(js, ["1", "x"])
    with pytest.warns(
        UserWarning, match=r"sinks\.bad: the table is without data, stream, subject, ts"
    ):
        run(load(written(tmp_path, server, text.replace("INTO", into))), spark, once=True)
    [row] = rows_of(tmp_path, "bad")
    assert row == {"seq": 2, "number": None, "rejected_because": ["a_number"]}
    assert [*rows_of(tmp_path, "table")[0]] == ["seq", "number"]
    [also] = rows_of(tmp_path, "also")
    assert also["data"] == b"x"  # the message, though the step had other data
    publish(js, ["y"])
    merged = text.replace("INTO", into + ", mergeSchema: true")
    run(load(written(tmp_path, server, merged)), spark, once=True)
    rows = {row["seq"]: row["data"] for row in rows_of(tmp_path, "bad")}
    assert rows == {2: None, 3: b"y"}
