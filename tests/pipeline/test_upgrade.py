"""What is said of a changed file before its next run. No JVM: the state folder is made by hand."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pelton.cli.__main__ import main
from pelton.pipeline.description.reading import load
from pelton.pipeline.running.definition import differences, parts_of, record, recorded
from pelton.pipeline.running.queries import checkpoint, committed, plan, recall, remember
from pelton.pipeline.running.upgrade import upgrade_of

SHOP = """\
pipeline: shop
defaults: {servers: "nats://127.0.0.1:1", user: shop, password: "${PASSWORD:-first secret}"}
sources:
  raw: {format: jetstream, stream: ORDERS}
  other: {format: jetstream, stream: OTHERS, startingOffsets: 41}
steps:
  good: {from: raw, python: "shop_upgrade:good", with: {limit: 3}}
  some: {from: good, where: "id > 1", columns: {a: b}}
sinks:
  table: {from: some, format: jetstream_delta, path: tables/orders}
  latest: {from: some, upsert: latest, keys: [id]}
  hours: {from: good, upsert: hours, keys: [id], mode: update}
  rest: {from: other, format: jetstream, subject: rest}
"""
CODE = "def good(rows, limit):\n    return rows\n"


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """Writes the file, and its state as after a run of so many batches."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "shop_upgrade.py").write_text(CODE)
    return Shop(tmp_path)


class Shop:
    def __init__(self, folder):
        self.folder = folder
        self.file = folder / "shop.yaml"

    def written(self, *changes):
        text = SHOP
        for old, new in changes:
            assert old in text, old
            text = text.replace(old, new)
        self.file.write_text(text)
        return load(self.file, environment={})

    def ran(self, pipeline, batch=7):
        pipeline.state.mkdir(parents=True, exist_ok=True)
        memory = recall(pipeline.state, pipeline.name)
        queries, problems = plan(pipeline, memory, lambda query: committed(pipeline.state, query))
        assert not problems
        remember(pipeline.state, memory)
        for query in queries:
            for folder in ("offsets", "commits"):
                place = checkpoint(pipeline.state, query.name) / folder
                place.mkdir(parents=True, exist_ok=True)
                (place / str(batch)).write_text(self.offsets(pipeline, query))
        record(pipeline)
        return queries

    @staticmethod
    def offsets(pipeline, query):
        lines = [
            json.dumps({"stream": pipeline.sources[each].options["stream"], "seq": 10, "born": "b"})
            for each in query.sources
        ]
        return "\n".join(["v1", "{}", *lines])

    def changes(self, *edits):
        found = upgrade_of(self.written(*edits))
        return {each.part: each for each in found.changed}, found


def test_the_first_run_adds_everything(shop):
    changes, found = shop.changes()
    assert found.last_run is None
    assert {each.kind for each in changes.values()} == {"added"}
    assert changes["sinks.table"].effects == (
        "begins with a new query, raw, which reads raw from earliest",
    )
    assert changes["sinks.rest"].effects == (
        "begins with a new query, other, which reads other from 41",
    )
    assert not found.refused


def test_nothing_has_changed(shop):
    shop.ran(shop.written())
    changes, found = shop.changes()
    assert changes == {}
    assert found.notes == ()
    assert not found.refused
    # another spelling of the same
    changes, _ = shop.changes(
        ("{from: raw, python", "{from: [raw], python"), ("keys: [id]", "keys: id")
    )
    assert changes == {}


EDITS = [
    (("id > 1", "id > 2"), "steps.some", ["where"], ["applies to batches from now on"]),
    (
        ("tables/orders", "tables/new"),
        "sinks.table",
        ["path"],
        ["the new place begins with the rows from now on; the old one stays"],
    ),
    (
        ("startingOffsets: 41", "startingOffsets: 7, maxOffsetsPerTrigger: 10"),
        "sources.other",
        ["startingOffsets", "maxOffsetsPerTrigger"],
        [
            "only for queries that begin; other continues from its position",
            "applies to batches from now on",
        ],
    ),
    (
        ("upsert: latest, keys: [id]", "upsert: latest, keys: [id, x]"),
        "sinks.latest",
        ["keys"],
        ["rows that the table has stay as they are: give new keys a new place"],
    ),
    (
        ("pipeline: shop\n", "pipeline: shop\nmetrics: {port: 0}\n"),
        "pipeline",
        ["metrics.port", "metrics.host", "metrics.subject"],
        ["applies from the next start on"],
    ),
    (
        ("pipeline: shop\n", "pipeline: shop\nspark: {spark.sql.shuffle.partitions: 3}\n"),
        "pipeline",
        ["spark.sql.shuffle.partitions"],
        [
            "applies from the next start on",
            "queries that have begun keep the spark.sql.shuffle.partitions of their checkpoint",
        ],
    ),
    (
        ("limit: 3", "limit: 4"),
        "steps.good",
        ["with"],
        [
            "applies to batches from now on",
            "if query hours keeps state, Spark may refuse the old one; then give the sink another"
            " name and place",
        ],
    ),
]


@pytest.mark.parametrize(("edit", "part", "keys", "effects"), EDITS)
def test_an_edit_is_told_with_its_effect(shop, edit, part, keys, effects):
    shop.ran(shop.written())
    changes, found = shop.changes(edit)
    assert list(changes) == [part]
    assert changes[part].kind == "changed"
    assert list(changes[part].keys) == keys
    assert list(changes[part].effects) == effects
    assert not found.refused


@settings(
    max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(st.sets(st.sampled_from(range(5))))
def test_edits_add_up(shop, which):
    """Edits of different parts are told as each of them alone."""
    shop.ran(shop.written())
    changes, _ = shop.changes(*(EDITS[each][0] for each in which))
    assert {part: list(each.effects) for part, each in changes.items()} == {
        EDITS[each][1]: EDITS[each][3] for each in which
    }


def test_the_code_of_a_function_is_compared_and_a_secret_is_not(shop):
    shop.ran(shop.written())
    (shop.folder / "shop_upgrade.py").write_text(CODE + "# changed\n")
    changes, _ = shop.changes(("first secret", "second secret"))
    assert list(changes) == ["steps.good"]
    assert list(changes["steps.good"].keys) == ["code"]
    written = b"".join(each.read_bytes() for each in (shop.folder / "state").rglob("*.json"))
    assert b"first secret" not in written


def test_a_sink_is_added_removed_and_comes_back(shop):
    shop.ran(shop.written())
    latest = ("  latest: {from: some, upsert: latest, keys: [id]}\n", "")
    more = ("  latest:", "  more: {from: raw, upsert: more, keys: [id]}\n  latest:")
    changes, _ = shop.changes(more)
    assert list(changes) == ["sinks.more"]
    assert changes["sinks.more"].effects == (
        "begins with a new query, raw_2, which reads raw from earliest",
    )
    changes, found = shop.changes(latest)
    assert changes["sinks.latest"].kind == "removed"
    assert changes["sinks.latest"].effects == (
        "query raw continues without it; it can come back until raw has done another batch",
    )
    shop.ran(shop.written(latest))
    changes, _ = shop.changes()
    assert changes["sinks.latest"].effects == ("continues in query raw after batch 7",)
    shop.ran(shop.written(latest), batch=8)
    changes, found = shop.changes()
    assert found.refused
    assert changes["sinks.latest"].effects[0].startswith("refused: it was left out since batch 7")
    rest = ("  rest: {from: other, format: jetstream, subject: rest}\n", "")
    unread = ("  other: {format: jetstream, stream: OTHERS, startingOffsets: 41}\n", "")
    changes, found = shop.changes(latest, rest, unread)
    assert changes["sinks.rest"].effects == (
        "query other stops; its position stays in the state folder",
    )
    assert changes["sources.other"].kind == "removed"


@pytest.mark.parametrize(
    ("edit", "part", "said"),
    [
        (
            ("stream: OTHERS", "stream: MORE"),
            "sources.other",
            "refused: query other has read OTHERS up to sequence 10, and cannot continue with MORE:"
            " give the sinks",
        ),
        (
            ("subject: rest}", "subject: rest, query: own}"),
            "sinks.rest",
            "refused: its query other began as shared",
        ),
        (
            (
                "format: jetstream, stream: OTHERS, startingOffsets: 41",
                "format: jetstream_kv, bucket: OTHERS",
            ),
            "sources.other",
            "refused: query other began with format jetstream: give the sinks",
        ),
        (
            ("  some: {from: good", "  some: {from: both"),
            "sinks.table",
            "refused: its query raw began with raw, but it reads raw, other now",
        ),
    ],
)
def test_what_a_run_refuses_is_refused_here(shop, edit, part, said):
    shop.ran(shop.written())
    more = ("steps:\n", "steps:\n  both: {from: [raw, other]}\n")
    changes, found = shop.changes(edit, *([more] if "both" in edit[1] else []))
    assert found.refused
    assert changes[part].refused
    assert changes[part].effects[0].startswith(said)


def test_an_interrupted_batch_is_told_of(shop):
    pipeline = shop.written()
    shop.ran(pipeline)
    (checkpoint(pipeline.state, "raw") / "offsets" / "8").write_text("v1\n{}\n{}")
    _, found = shop.changes()
    assert found.notes == ()
    _, found = shop.changes(("id > 1", "id > 2"))
    [note] = found.notes
    assert note.startswith("query raw was interrupted in batch 8, which runs again")


@pytest.mark.parametrize(
    "content", [None, "", "[]", '{"parts": 3}', '{"parts": {"a": 1}, "at": ""}']
)
def test_a_record_that_cannot_be_read_is_as_none(shop, content):
    pipeline = shop.written()
    shop.ran(pipeline)
    path = pipeline.state / "definition.json"
    path.unlink() if content is None else path.write_text(content)
    assert recorded(pipeline.state) is None
    _, found = shop.changes()
    assert found.last_run is None
    assert found.notes == ("the state folder does not say what the last run's file was",)


def test_the_command_and_its_exit_status(shop, capsys):
    shop.written()
    plan_of = ["pipeline", "plan", str(shop.file)]
    assert main(plan_of) == 2
    assert "shop: has not run yet" in capsys.readouterr().out
    shop.ran(load(shop.file))
    assert main(plan_of) == 0
    assert "unchanged: pipeline, sources.raw, " in capsys.readouterr().out
    shop.written(("id > 1", "id > 2"))
    assert main(plan_of) == 2
    out = capsys.readouterr().out
    assert "~ steps.some\n    where: id > 1 -> id > 2\n    => applies to batches" in out
    assert main([*plan_of, "--json"]) == 2
    data = json.loads(capsys.readouterr().out)
    [change] = [each for each in data["changes"] if each["kind"] != "unchanged"]
    assert change["keys"] == {"where": {"before": "id > 1", "now": "id > 2"}}
    shop.written(("stream: OTHERS", "stream: MORE"))
    assert main(plan_of) == 1
    shop.file.write_text("pipeline: x y")
    assert main(plan_of) == 1
    assert "is not a valid name" in capsys.readouterr().err


@given(
    st.dictionaries(st.sampled_from("abcd"), st.sampled_from("xy")),
    st.dictionaries(st.sampled_from("abcd"), st.sampled_from("xy")),
)
def test_differences_lead_from_one_to_the_other(before, now):
    made = dict(before)
    for key, (old, new) in differences(before, now).items():
        assert old != new
        assert made.pop(key, None) == old
        if new is not None:
            made[key] = new
    assert made == now


def test_the_catalog_of_a_table_is_compared_without_its_token(shop):
    path = "path: tables/orders"
    where = "unity: 'http://127.0.0.1:8080', token: very-secret"
    made = shop.written((path, f"{path}, register: {{{where}, table: a.b.c}}"))
    assert parts_of(made)["sinks.table"] == {
        "from": "some",
        "format": "jetstream_delta",
        "path": str(shop.folder / "tables/orders"),
        "register.table": "a.b.c",
        "register.unity": "http://127.0.0.1:8080",
        "register.token": "***",
    }


def test_parts_have_the_keys_of_the_file(shop):
    parts = parts_of(shop.written())
    assert parts["sinks.hours"] == {
        "from": "good",
        "upsert": str(shop.folder / "hours"),
        "keys": "id",
        "mode": "update",
    }
    assert parts["sources.raw"]["password"] == "***"
    assert parts["steps.some"] == {"from": "good", "where": "id > 1", "columns": '{"a": "b"}'}
