"""``pelton pipeline show``: rows of steps without a run, from real streams on the session that is there."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from pelton.cli.__main__ import main
from pelton.client.sync import connect
from pelton.pipeline import load
from pelton.pipeline.running import preview
from pelton.pipeline.running.preview import named, previews, readable
from pelton.pipeline.running.stages import StepError
from tests.peers import available_servers, start_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.peers import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(300)]

FILE = """
pipeline: shop
defaults: {servers: URL}
sources:
  raw:   {format: jetstream, stream: IN, startingOffsets: latest, maxOffsetsPerTrigger: 5}
  words: {format: jetstream_kv, bucket: names}
  empty: {format: jetstream, stream: EMPTY}
steps:
  parsed:
    from: raw
    columns: {number: try_cast(cast(data as string) as long)}
    select: [seq, number]
    expect: {is_number: number is not null}
  nothing: {from: empty, select: [seq]}
sinks:
  table: {from: parsed, where: number > 0, format: jetstream_delta, path: table}
  bad:   {from: parsed.rejected, format: jetstream_delta, path: bad}
  none:  {from: nothing, format: jetstream_delta, path: none}
  names: {from: words, format: jetstream_delta, path: names}
"""


@pytest.fixture(scope="module", params=available_servers())
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    started = start_server(request.param)
    with connect(started.url) as client:
        js = client.jetstream()
        js.create_stream("IN", subjects=["in"])
        js.create_stream("EMPTY", subjects=["empty"])
        js.create_key_value("names").put("k", b"v")
        for number in range(100):
            js.publish("in", b"x" if number % 10 == 9 else b"%d" % number)
    yield started
    started.remove()


@pytest.fixture
def file(tmp_path: Path, server: ServerProcess) -> Path:
    path = tmp_path / "shop.yaml"
    path.write_text(FILE.replace("URL", server.url))
    return path


@pytest.fixture
def shown(file: Path, spark: Any) -> Callable[..., dict[str, list[dict[str, Any]]]]:
    def call(
        name: str | None = None, *, begin: str | None = None, messages: int = 1000, rows: int = 20
    ) -> dict[str, list[dict[str, Any]]]:
        pipeline = load(file)
        names = named(pipeline, name)
        asked = readable(pipeline, names, begin=begin, messages=messages)
        return {each.name: each.rows.to_pylist() for each in previews(asked, spark, names, rows)}

    return call


def test_rows_are_those_of_a_run(shown: Any, tmp_path: Path) -> None:
    found = shown(rows=1000)
    assert list(found) == ["table", "bad", "none", "names"]
    assert [row["seq"] for row in found["table"]] == [n + 1 for n in range(1, 100) if n % 10 != 9]
    assert [row["seq"] for row in found["bad"]] == list(range(10, 101, 10))
    assert found["bad"][0]["rejected_because"] == ["is_number"]
    assert found["none"] == []
    assert [row["key"] for row in found["names"]] == ["k"]
    assert not [each for each in tmp_path.iterdir() if each.is_dir()]  # no state, no table


def test_some_messages_are_read(shown: Any) -> None:
    assert [row["seq"] for row in shown("raw", messages=3)["raw"]] == [98, 99, 100]
    found = shown("parsed", begin="41", messages=10)["parsed"]
    assert [row["seq"] for row in found] == list(range(41, 50))
    assert [row["seq"] for row in shown("parsed.rejected", rows=2)["parsed.rejected"]] == [10, 20]
    assert len(shown("raw", begin="earliest", rows=7)["raw"]) == 7
    assert shown("raw", begin="2999-01-01T00:00:00Z")["raw"] == []


@pytest.mark.parametrize(
    ("name", "begin", "text"),
    [
        ("parsd", None, "there is no source, step or sink parsd; did you mean parsed"),
        ("nothing.rejected", None, "nothing has neither expect nor onError"),
        ("raw", "500", "raw: .*500"),
        ("raw", "soon", "sources.raw: option startingOffsets is 'soon'"),
    ],
)
def test_what_cannot_be_shown(shown: Any, name: str, begin: str | None, text: str) -> None:
    with pytest.raises(StepError, match=text):
        shown(name, begin=begin)


def test_a_fault_of_spark_has_its_place(file: Path, shown: Any) -> None:
    file.write_text(file.read_text().replace("number > 0", "nunber > 0"))
    with pytest.raises(
        StepError, match=r"shop\.yaml:\d+: sinks\.table: where: \[UNRESOLVED_COLUMN"
    ):
        shown("table")
    file.write_text(file.read_text().replace("stream: EMPTY", "stream: NOWHERE"))
    with pytest.raises(StepError, match=r"sources\.empty: there is no stream NOWHERE"):
        shown("nothing")
    assert shown("parsed", rows=1)  # which does not read it


def test_a_spark_that_does_not_start_is_one_line(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("All masters are unresponsive")

    monkeypatch.setattr("pelton.spark.session.session", fails)
    assert main(["pipeline", "show", str(file), "raw"]) == 1
    complaint = capsys.readouterr().err
    assert "Spark does not start: All masters are unresponsive" in complaint
    assert complaint.count("\n") == 1


def test_the_command(
    file: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(preview, "session_of", lambda _: contextlib.nullcontext(spark))
    assert main(["pipeline", "show", str(file), "--rows", "2"]) == 0
    out = capsys.readouterr().out
    assert "table: 2 rows" in out
    assert "none: 0 rows" in out
    assert main(["pipeline", "show", str(file), "bad", "--rows", "1", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    row = {"seq": 10, "number": None, "rejected_because": ["is_number"]}
    message = {"stream": "IN", "subject": "in", "data": "eA==", "ts": found["row"]["ts"]}
    assert found == {"step": "bad", "row": {**row, **message}}
    assert main(["pipeline", "show", str(file), "bd"]) == 1
    assert "did you mean bad?" in capsys.readouterr().err
