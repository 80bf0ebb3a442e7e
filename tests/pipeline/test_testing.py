"""``pelton pipeline test``, ``sample`` and ``shell``, on the session that is there."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.cli.__main__ import main
from pelton.client.sync import connect
from pelton.pipeline import load
from pelton.pipeline.description.cases import Rows, cases_of, rows_in
from pelton.pipeline.description.example import EXAMPLE
from pelton.pipeline.running import preview
from pelton.pipeline.testing.given import Tables, schema_of
from pelton.pipeline.testing.running import run_cases
from pelton.pipeline.testing.sampling import line_of, payload_of
from tests.peers import available_servers, start_server
from tests.ways import SEED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.peers import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

FILE = """
pipeline: shop
defaults: {servers: "URL"}
sources:
  raw: {format: jetstream, stream: ORDERS, subject: orders.eu, columns: "seq,subject,ts,headers,data"}
  names: {format: jetstream_kv, bucket: names, static: true}
steps:
  parsed:
    from: raw
    sql: >
      select seq, subject, ts, data, headers, from_json(cast(data as string),
        'id string, customer string, amount decimal(10,2)') as made from raw
  checked:
    from: parsed
    columns: {id: made.id, customer: made.customer, amount: made.amount}
    drop: [made]
    expect: {has_id: id is not null, has_amount: amount >= 0}
  named:
    from: [checked, names]
    sql: >
      select seq, customer, cast(value as string) as name
      from checked left join names on names.key = customer
  total:
    from: checked
    sql: select customer, sum(amount) as total, count(*) as n, max(seq) as seq from checked group by 1
  timed: {from: checked, watermark: ts 10 minutes, select: [ts, amount]}
  hours: {from: timed, sql: "select window(ts, '1 hour') as hour, count(*) as n from timed group by 1"}
  grown: {from: raw, json: {infer: 10, types: {amount: double}}, select: [seq, "value.*"]}
  doubled: {from: checked, python: "trial_functions:doubled"}
sinks:
  table: {from: doubled, where: amount > 1, format: jetstream_delta, path: table}
  named_rows: {from: named, format: jetstream_delta, path: named}
  grown_rows: {from: grown, format: jetstream_delta, path: grown, mergeSchema: true}
  bad: {from: checked.rejected, format: jetstream_delta, path: bad}
  latest: {from: checked, upsert: latest, keys: [customer], deleteWhen: amount = 0, select: [seq, customer, amount]}
  counts: {from: checked, upsert: counts, keys: [customer], sums: [n], select: [seq, customer, bigint(1) as n]}
  totals: {from: total, upsert: totals, keys: [customer], mode: update, query: own, mergeSchema: true}
  all_totals: {from: total, format: jetstream_delta, path: all, mode: complete, query: own}
  per_hour: {from: hours, format: jetstream_delta, path: hours, query: own}
"""
TESTS = """
tests:
  amounts are numbers:
    given:
      raw:
        - {seq: 4, headers: {kind: new}, data: {id: 7, customer: ann, amount: "12.5"}}
        - not json
      names: [{key: ann, value: Ann}]
    expect:
      checked:
        - {seq: 4, id: "7", amount: 12.50, headers: {kind: [new]}, subject: orders.eu,
           ts: "2026-01-01T00:00:00Z", data: {id: 7}}
      checked.rejected: [{seq: 5, id: null, rejected_because: [has_id, has_amount]}]
      named_rows: [{name: Ann}]
      table: [{amount: 25}]
  what tables keep after some batches:
    given:
      - raw: [{data: {id: a, customer: ann, amount: 1}}, {data: {id: b, customer: bob, amount: 2}}]
        names: [{key: ann, value: Ann}]
      - raw: [{data: {id: c, customer: ann, amount: 3.25}}, {data: {id: d, customer: bob, amount: 0}}]
    expect:
      latest: [{customer: ann, amount: 3.25, seq: 3}]
      counts: [{customer: ann, n: 2}, {customer: bob, n: 2}]
      totals: [{customer: ann, n: 2, total: 4.25}, {customer: bob, n: 2}]
      all_totals: [{customer: ann, n: 2}, {customer: bob, n: 2}]
      named: [{seq: 1, name: Ann}, {seq: 2, name: null}, {seq: 3, name: Ann}, {seq: 4, name: null}]
      bad: []
      grown: [{seq: 1, id: a, amount: 1}, {seq: 2}, {seq: 3, amount: 3.25}, {seq: 4}]
  schemas that grow:
    given:
      - raw: [{data: {id: a}}]
      - raw: [{data: {at: {city: Bern}}}]
    expect: {grown_rows: [{id: a, at: null}, {id: null, at: {city: Bern}}]}
  in their order:
    ordered: true
    given: {raw: [{data: {id: a, amount: 2}}, {data: {id: b, amount: 3}}]}
    expect: {table: [{id: a}, {id: b}]}
  only hours that the watermark has passed:
    given:
      - raw: [{ts: "2026-01-01T10:05:00Z", data: {id: a, amount: 1}}]
      - raw: [{ts: "2026-01-01T12:05:00Z", data: {id: a, amount: 1}}]
    expect: {per_hour: [{hour: {start: "2026-01-01T10:00:00Z"}, n: 1}]}
  a step that is given:
    given: {total: {schema: "customer string, n long, seq long", rows: [{customer: ann, seq: 1}]}}
    expect: {totals: [{customer: ann, n: null}]}
"""
FAILING = """
tests:
  wrong: {given: {raw: [{data: {id: a, amount: 1}}]}, expect: {checked: [{id: a, amount: 2}]}}
  stops: {given: {raw: [{sq: 1}]}, expect: {checked: 1}}
  type: {given: {raw: [{seq: one}]}, expect: {checked: 1}}
  step: {given: {total: [{n: 1}]}, expect: {total: 1}}
  good: {given: {raw: []}, expect: {checked: 0}}
"""
FUNCTIONS = """
def doubled(rows):
    return rows.withColumn("amount", rows.amount * FACTOR)
"""


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    monkeypatch.delitem(sys.modules, "trial_functions", raising=False)  # of another folder
    (tmp_path / "trial_functions.py").write_text("FACTOR = 2\n" + FUNCTIONS)

    def write(tests: str, url: str = "nats://127.0.0.1:9") -> Path:
        path = tmp_path / "shop.yaml"
        path.write_text(FILE.replace("URL", url) + tests)
        return path

    return write


@pytest.fixture
def warm(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Commands use the session of the tests."""
    monkeypatch.setattr(preview, "session_of", lambda _: contextlib.nullcontext(spark))
    return spark


def test_rows_are_those_of_a_run(written: Any, spark: Any) -> None:
    pipeline = load(written(TESTS))
    outcomes = list(run_cases(pipeline, spark, cases_of(pipeline, {})))
    assert [(each.problem, each.differences) for each in outcomes if not each.passed] == []
    assert len(outcomes) == 6


def test_the_first_file_passes_its_test(tmp_path: Path, warm: Any, capsys: Any) -> None:
    (tmp_path / "orders.yaml").write_text(EXAMPLE)
    assert main(["pipeline", "test", str(tmp_path / "orders.yaml")]) == 0, capsys.readouterr()
    assert "1 test passed" in capsys.readouterr().out


def test_the_command_tells_what_differs(
    written: Any, warm: Any, tmp_path: Path, capsys: Any
) -> None:
    file, report = str(written(FAILING)), tmp_path / "junit.xml"
    assert main(["pipeline", "test", file, "--junit", str(report)]) == 1
    out = capsys.readouterr().out
    for said in (
        "    checked: 1 differ, 0 as expected",
        "      expected  a   »2«",
        "      got       a   »1«",
        "shop.yaml:43: raw has no column sq; did you mean seq?",
        "shop.yaml:44: raw: seq is 'one', not bigint: it must be a whole number",
        "shop.yaml:45: the columns of step total are not known: give them",
        "5 tests, 4 failed",
    ):
        assert said in out, out
    suite = ElementTree.parse(report).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("5", "1", "3")
    assert main(["pipeline", "test", file, "good", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["passed"]
    assert main(["pipeline", "test", file, "goo"]) == 1
    assert "has no test goo; did you mean good?" in capsys.readouterr().err
    assert main(["pipeline", "test", str(written(""))]) == 1
    assert "has no tests; a test is" in capsys.readouterr().err


@given(
    st.binary()
    | st.text().map(str.encode)
    | st.sampled_from([b'{"a": 1.50, "b":[1 ]}', b"[1e400]"])
)
def test_a_payload_comes_back_from_a_fixture(data: bytes) -> None:
    line = line_of({"seq": 1, "data": data})
    row = json.loads(line)
    ending, value = payload_of(data)
    assert row.keys() == {"seq", "data" + ending}
    assert isinstance(value, str | dict | list)


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists).map(json.dumps)
)
def test_json_in_a_fixture_keeps_its_meaning(text: str) -> None:
    row = json.loads(line_of({"data": text.encode()}))
    given_back = row["data"] if isinstance(row["data"], str) else json.dumps(row["data"])
    assert json.loads(given_back) == json.loads(text)


# -- with a server --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    started = start_server(available_servers()[0])
    with connect(started.url) as client:
        js = client.jetstream()
        js.create_stream("ORDERS", subjects=["orders.>"])
        js.create_key_value("names").put("ann", b"Ann")
        for number in range(30):
            order = {"id": str(number), "customer": "ann", "amount": number}
            js.publish("orders.eu", json.dumps(order).encode() if number % 10 else b"\xff\xfe")
    yield started
    started.remove()


def test_a_sample_is_a_fixture(
    written: Any, warm: Any, server: Any, tmp_path: Path, capsys: Any
) -> None:
    """What is sampled and given to a test are the rows of the stream."""
    file = written("", server.url)
    output = str(tmp_path / "fixtures" / "orders.jsonl")
    command = ["pipeline", "sample", str(file), "raw", "--output", output]
    assert main([*command, "--from", "9", "--messages", "4"]) == 0
    assert "4 messages" in capsys.readouterr().err
    pipeline = load(file)
    rows = rows_in(Rows("", file=Path(output)))
    assert [row.value["seq"] for row in rows] == [9, 10, 11, 12]  # type: ignore[index]  # no texts
    assert "data_base64" in rows[2].value
    source = pipeline.sources["raw"]
    schema = schema_of(source, None)
    assert schema is not None
    made = Tables("raw", source, schema).table(Rows("", file=Path(output)))
    options = {**source.options, "startingOffsets": "9", "endingOffsets": "12"}
    real = warm.read.format("jetstream").options(**options).load().orderBy("seq").toArrow()
    spaces = pa.array([each.replace(b" ", b"") for each in real["data"].to_pylist()])
    assert made.drop_columns("data").to_pylist() == real.drop_columns("data").to_pylist()
    assert made["data"].to_pylist() == spaces.to_pylist()
    test = (
        "tests: {some: {given: {raw: {file: fixtures/orders.jsonl}}, expect: {checked: 3, bad: 1}}}"
    )
    assert main(["pipeline", "test", str(written(test, server.url))]) == 0, capsys.readouterr()
    condition = "seq % 10 = 1"
    assert (
        main(["pipeline", "sample", str(file), "raw", "--where", condition, "--messages", "2"]) == 0
    )
    out = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["seq"] for line in out[-2:]] == [1, 11]
    for words, said in (
        (["rw"], "there is no source rw; did you mean raw?"),
        ([], "name one of the sources: raw, names"),
        (["raw", "--where", "sq = 1"], "sources.raw: [UNRESOLVED_COLUMN"),
    ):
        assert main(["pipeline", "sample", str(file), *words]) == 1
        assert said in capsys.readouterr().err


@pytest.fixture
def typed(warm: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """The shell, with these lines as its input."""

    def call(file: Path, lines: Iterator[str]) -> int:
        monkeypatch.setattr(sys, "stdin", lines)
        return main(["pipeline", "shell", str(file)])

    return call


class Typed(io.StringIO):
    """Lines of input, each of which may do something before it is read."""

    def __init__(self, *lines: str | Callable[[], object]) -> None:
        super().__init__()
        self._lines = iter(lines)

    def __next__(self) -> str:
        for each in self._lines:
            if isinstance(each, str):
                return each + "\n"
            each()
        raise StopIteration


def test_a_shell_sees_each_change(
    written: Any, typed: Any, server: Any, tmp_path: Path, capsys: Any
) -> None:
    file = written("", server.url)
    functions = tmp_path / "trial_functions.py"
    mistake = file.read_text().replace("amount >= 0", "amont >= 0")
    good = file.read_text()
    lines = Typed(
        "check",
        "show table --rows 2 --from 2 --messages 3",
        lambda: functions.write_text("FACTOR = 3\n" + FUNCTIONS),
        "show table --rows 2 --from 2 --messages 3",
        "sql select count(*) as n, min(seq) as first from checked_rejected",
        lambda: file.write_text(mistake),
        "check",
        "show nothing",
        "shw",
        "show --row 3",
        "show --rows x",
        "sql select nope from raw",
        lambda: file.write_text(good + TESTS),
        "test a step that is given",
        "run",
        "help",
    )
    assert typed(file, lines) == 1
    out, err = capsys.readouterr()
    assert "shop: " in out
    assert "amount" in out
    shown = [line.split()[-1] for line in out.splitlines() if "orders.eu" in line]
    assert shown == ["2", "4", "3", "6"]
    assert "a step that is given  ok" in out
    assert "table" in out
    for said in (
        "amont",
        "there is no source, step or sink nothing",
        "there is no command shw; help lists them",
        "there is no option --row; there are: --rows, --from, --messages",
        "--rows is 'x', but must be a number",
        "nope",
    ):
        assert said in err, err
    assert "Traceback" not in out + err
    assert (tmp_path / "table" / "_delta_log").exists()


def test_a_command_of_the_shell_is_cancelled(
    written: Any, typed: Any, server: Any, warm: Any, capsys: Any
) -> None:
    """Ctrl-C ends the job that runs, and the next command works."""
    print("seed", SEED)

    def interrupt() -> None:
        tracker = warm.sparkContext.statusTracker()
        deadline = time.monotonic() + 120
        while not tracker.getActiveJobsIds() and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    lines = Typed(
        lambda: threading.Thread(target=interrupt).start(),
        "sql select sum(hash(a.id, b.id)) from range(10000000) a cross join range(10000000) b",
        "show raw --rows 1 --messages 1",
        "quit",
        "never",
    )
    kept = signal.getsignal(signal.SIGINT)
    try:
        assert typed(written("", server.url), lines) == 1
    finally:
        signal.signal(signal.SIGINT, kept)
    out, err = capsys.readouterr()
    assert "cancelled" in err
    assert "orders.eu" in out
    assert "never" not in err
