"""Which query feeds which sinks, from the first run on and after changes of the file. No JVM."""

import json
from pathlib import Path

import pytest

from pelton.pipeline.description.reading import read
from pelton.pipeline.running.queries import (
    Memory,
    StateError,
    checkpoint,
    committed,
    plan,
    recall,
    remember,
)

HEAD = """\
pipeline: shop
sources:
  raw: {format: jetstream, stream: A}
  other: {format: jetstream, stream: B}
steps:
  both: {from: [raw, other]}
sinks:
"""
SINKS = {
    "table": "{from: raw, format: jetstream_delta, path: table}",
    "latest": "{from: raw, upsert: latest, keys: [id]}",
    "files": "{from: raw, format: parquet, path: files}",
    "union": "{from: both, format: jetstream_delta, path: union}",
    "more": "{from: raw, format: jetstream_delta, path: more}",
}


def shop(*names, **changed):
    sinks = {**{name: SINKS[name] for name in names}, **changed}
    text = HEAD + "".join(f"  {name}: {text}\n" for name, text in sinks.items())
    if "both" not in "".join(sinks.values()):
        text += "  rest: {from: both, format: jetstream_delta, path: rest}\n"
    return read(text, Path("/x/shop.yaml"), environment={})


def planned(pipeline, memory, batches=None):
    queries, problems = plan(pipeline, memory, lambda query: (batches or {}).get(query, -1))
    return {query.name: query.sinks for query in queries}, [each.text for each in problems]


FIRST = ("table", "latest", "files", "union")


def begun():
    memory = Memory("shop")
    found, problems = planned(shop(*FIRST), memory)
    assert found == {"raw": ("table", "latest"), "files": ("files",), "both": ("union",)}
    assert not problems
    return memory


def test_sinks_that_begin_together_share_a_query_per_cut():
    memory = begun()
    assert planned(shop(*FIRST), memory) == planned(shop(*FIRST), begun())


def test_a_sink_that_comes_later_gets_a_query_of_its_own():
    memory = begun()
    found, problems = planned(shop(*FIRST, "more"), memory, {"raw": 7})
    assert not problems
    assert found["raw_2"] == ("more",)
    assert found["raw"] == ("table", "latest")
    again, _ = planned(shop(*FIRST, "more"), memory, {"raw": 8, "raw_2": 1})
    assert again == found


def test_a_sink_may_be_left_out_while_its_query_stands():
    memory = begun()
    found, _ = planned(shop("table", "files", "union"), memory, {"raw": 7})
    assert found["raw"] == ("table",)
    assert memory.queries["raw"].left == {"latest": 7}
    found, problems = planned(shop(*FIRST), memory, {"raw": 7})
    assert found["raw"] == ("table", "latest")
    assert not problems
    assert memory.queries["raw"].left == {}


def test_a_sink_that_was_left_behind_is_refused():
    memory = begun()
    planned(shop("table", "files", "union"), memory, {"raw": 7})
    _, problems = planned(shop(*FIRST), memory, {"raw": 9})
    assert "left out since batch 7 of query raw, which is now at batch 9" in problems[0]


def test_a_query_of_one_sink_waits_for_it():
    memory = begun()
    found, _ = planned(shop("table", "latest", "union"), memory, {"files": 3})
    assert "files" not in found
    found, problems = planned(shop(*FIRST), memory, {"files": 3})
    assert found["files"] == ("files",)
    assert not problems


@pytest.mark.parametrize(
    ("sink", "text"),
    [
        (
            "{from: other, format: jetstream_delta, path: table}",
            "began with raw, but it reads other",
        ),
        ("{from: raw, format: parquet, path: table}", "began as shared and cannot become its own"),
        (
            "{from: raw, format: jetstream_delta, path: table, query: own}",
            "began as shared and cannot become its own",
        ),
    ],
)
def test_a_sink_does_not_change_its_query(sink, text):
    memory = begun()
    _, problems = planned(shop("latest", "files", "union", table=sink), memory, {"raw": 1})
    assert text in problems[0]
    assert "give the sink another name" in problems[0]


def test_memory_is_kept(tmp_path):
    memory = begun()
    memory.queries["raw"].left["gone"] = 4
    remember(tmp_path, memory)
    assert recall(tmp_path, "shop") == Memory("shop")
    for query in memory.queries:
        (checkpoint(tmp_path, query) / "offsets").mkdir(parents=True)
        (checkpoint(tmp_path, query) / "offsets" / "0").write_text("v1")
    assert recall(tmp_path, "shop") == memory
    with pytest.raises(StateError, match="is the state of pipeline shop, not of x"):
        recall(tmp_path, "x")
    (tmp_path / "pipeline.json").write_text(json.dumps({"queries": {"raw": 1}}))
    with pytest.raises(StateError, match="cannot be read"):
        recall(tmp_path, "shop")
    assert recall(tmp_path / "none", "shop") == Memory("shop")


def test_the_last_batch_is_read_from_the_checkpoint(tmp_path):
    assert committed(tmp_path, "raw") == -1
    folder = checkpoint(tmp_path, "raw") / "commits"
    folder.mkdir(parents=True)
    for name in ("9", "10", ".11.crc", ".12.tmp"):
        (folder / name).write_text("")
    assert committed(tmp_path, "raw") == 10
