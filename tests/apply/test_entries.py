"""Entries of key-value buckets in files: read, planned, written by both servers, exported and read again."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from pelton import KeyValueConfig
from pelton.api import StreamConfig
from pelton.apply.executing import ApplyError, execute
from pelton.apply.exporting import Format, export
from pelton.apply.inspecting import Live, LiveEntry, LiveStream, inspect, inspect_buckets
from pelton.apply.model import ConfigurationError, Declared
from pelton.apply.planning import Plan, plan
from pelton.apply.reading import checked, read
from pelton.apply.showing import lines
from pelton.apply.terraform import File
from pelton.client.sync.jetstream import JetStream
from tests.apply.test_round_trips import FILES
from tests.ways import length

keys = st.from_regex(r"[-/_=a-zA-Z0-9]{1,9}(\.[-/_=a-zA-Z0-9]{1,4}){0,2}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
values = texts.map(str.encode) | st.binary(max_size=20)
SHARED = settings(
    max_examples=length(10, 200),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def from_json(**entries: object) -> Declared:
    return checked(read([File("x.json", json.dumps({"entries": entries}))]))


def wrong(name: str, text: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        checked(read([File(name, text)]))
    return str(caught.value)


def planned(jetstream: JetStream, declared: Declared) -> Plan:
    return plan(declared, inspect(jetstream, [each.key for each in declared.entries]))


def test_a_value_is_a_text_bytes_or_json() -> None:
    found = from_json(B={"a": "blue", "b": {"base64": "AAH/"}, "c": {"n": [1, None]}, "d": 5})
    assert {each.name: each.value for each in found.entries} == {
        "a": b"blue",
        "b": b"\x00\x01\xff",
        "c": b'{"n":[1,null]}',
        "d": b"5",
    }


TERRAFORM = """
resource "jetstream_kv_bucket" "b" {
  name = "B"
}
resource "jetstream_kv_entry" "one" {
  bucket = jetstream_kv_bucket.b.%s
  key    = "one"
  value  = %s
}
"""


@pytest.mark.parametrize("attribute", ["name", "id"])
@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ('"x${1 + 1}"', b"x2"),
        ("60 * 60", b"3600"),
        ("true", b"true"),
        ('jsonencode({b = 1, a = ["<"]})', b'{"a":["\\u003c"],"b":1}'),
    ],
)
def test_terraform_declares_entries(attribute: str, value: str, stored: bytes) -> None:
    found = checked(read([File("x.tf", TERRAFORM % (attribute, value))]))
    assert [(each.key, each.value) for each in found.entries] == [(("B", "one"), stored)]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.json", '{"entries": {"B": {"a b": "x"}}}', 'x.json:1:20: "a b" cannot be a key'),
        ("x.json", '{"entries": {"B.C": {"a": "x"}}}', "needs the name of its bucket"),
        ("x.json", '{"entries": {"B": {"a": {"base64": "?"}}}}', "this is not Base64"),
        ("x.json", '[{"entries": {"B": {"a": "x"}}}, {"entries": {"B": {"a": "y"}}}]', "twice"),
        ("x.tf", TERRAFORM % ("name", "[1]"), "jsonencode(...) makes one"),
        ("x.tf", TERRAFORM % ("name", "jsonencode(1, 2)"), "jsonencode takes one value, got 2"),
        ("x.tf", 'resource "jetstream_kv_entry" "a" {\n  key = "a"\n}', "needs bucket, key, value"),
    ],
)
def test_mistakes_have_a_place(name: str, text: str, said: str) -> None:
    assert said in wrong(name, text)


def test_an_entry_of_no_bucket_is_refused() -> None:
    (change,) = plan(from_json(B={"a": "x"}), Live()).changes
    assert (change.action, change.reasons) == (
        "refuse",
        ("there is no bucket B, and none is declared",),
    )


def test_entries_of_a_replaced_bucket_are_written_again() -> None:
    bucket = '{"kv": {"B": {"storage": "memory"}}, "entries": {"B": {"a": "x"}}}'
    live = Live({"KV_B": LiveStream(StreamConfig(name="KV_B", subjects=["$KV.B.>"]))})
    live.entries["B", "a"] = LiveEntry(b"x", 1)
    found = plan(checked(read([File("x.json", bucket)])), live)
    assert [(each.action, each.title) for each in found.changes] == [
        ("replace", "bucket B"),
        ("create", "entry B > a"),
    ]


def test_a_long_value_is_shortened_for_people() -> None:
    found = plan(from_json(B={"a": "x" * 1000}), Live({"KV_B": LiveStream(StreamConfig())}))
    assert f"      value  {'x' * 60}... (1,000 characters)" in [each.text for each in lines(found)]


def test_an_entry_that_changes_after_the_plan_is_not_overwritten(jetstream: JetStream) -> None:
    bucket = jetstream.create_key_value(KeyValueConfig(bucket="B"))
    bucket.put("a", b"1")
    found = planned(jetstream, from_json(B={"a": "2"}))
    bucket.put("a", b"3")
    with pytest.raises(ApplyError, match="cannot update entry B > a"):
        execute(jetstream, found)
    late = plan(from_json(B={"b": "2"}), inspect(jetstream))
    bucket.put("b", b"3")
    with pytest.raises(ApplyError, match="cannot create entry B > b"):
        execute(jetstream, late)
    assert [bucket.get(key).data for key in ("a", "b")] == [b"3", b"3"]


def test_a_deleted_key_is_created_again(jetstream: JetStream) -> None:
    bucket = jetstream.create_key_value(KeyValueConfig(bucket="B"))
    bucket.put("a", b"1")
    bucket.delete("a")
    found = planned(jetstream, from_json(B={"a": "1"}))
    assert [each.action for each in found.changes] == ["create"]
    assert execute(jetstream, found) == 1
    assert planned(jetstream, from_json(B={"a": "1"})).pending == []


@pytest.mark.parametrize("form", ["json", "yaml", "tf"])
@given(entries=st.dictionaries(keys, values, max_size=6))
@SHARED
def test_entries_exported_and_applied_again_change_nothing(
    jetstream: JetStream, form: Format, entries: dict[str, bytes]
) -> None:
    bucket = jetstream.create_or_update_key_value(KeyValueConfig(bucket="B", storage="memory"))
    for key in list(bucket.keys()):  # a bucket is no map
        bucket.purge(key)
    for key, value in entries.items():
        bucket.put(key, value)
    live = inspect(jetstream)
    inspect_buckets(jetstream, live)
    assert {key: each.value for (_, key), each in live.entries.items()} == entries
    text, doubts = export(live, form)
    note(text)
    found = plan(checked(read([File(FILES[form], text)])), live)
    assert found.pending == []
    kept = {each.entry for each in found.changes if each.entry}
    assert len(doubts) == len(entries.keys() - kept)
    assert form == "tf" or not doubts
