"""What files of every dialect say, and what is said of files with mistakes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.api import ConsumerConfig, StreamConfig
from pelton.apply.jsonc import read_json
from pelton.apply.model import ConfigurationError, Declared, Node
from pelton.apply.reading import checked, read
from pelton.apply.terraform import File

DAY = 86_400_000_000_000


def resources(text: str, name: str = "x.json", **variables: str) -> dict[str, object]:
    found = checked(read([File(name, text)], variables))
    return {each.title: each.config for each in found.resources}


def problems(text: str, name: str = "x.json", **variables: str) -> list[str]:
    return [str(each) for each in sorted(read([File(name, text)], variables).problems)]


def stream(text: str, name: str = "x.json") -> StreamConfig:
    (found,) = resources(text, name).values()
    assert isinstance(found, StreamConfig)
    return found


def bare(node: Node) -> object:
    """A node without its places."""
    if isinstance(node.value, list):
        return [bare(each) for each in node.value]
    if isinstance(node.value, dict):
        return {name: bare(each) for name, each in node.value.items()}
    return node.value


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text() | st.floats(-1e9, 1e9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES, st.sampled_from([None, 2]), st.booleans())
def test_json_is_read_as_python_reads_it(value: object, indent: int | None, escape: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=escape)
    (node,) = read_json(text, "x")
    assert bare(node) == value


@given(st.text('{}[]",:\\/*#\n 0-e.tfn', max_size=30))
def test_any_text_is_json_or_a_mistake_with_its_place(text: str) -> None:
    try:
        read_json(text, "x")
    except ConfigurationError as error:
        (problem,) = error.problems
        assert 1 <= problem.place.line <= text.count("\n") + 1
        assert problem.place.column >= 1
    else:
        return
    with pytest.raises(ValueError, match=r"."):
        json.loads(text)


@pytest.mark.parametrize("name", ["x.json", "x.yaml", "x.toml", "x.tf", "x.tf.json"])
@given(text=st.text(max_size=40))
def test_no_text_is_more_than_a_mistake(name: str, text: str) -> None:
    declared = read([File(name, text)])
    assert isinstance(declared, Declared)
    assert all(each.place.file == name for each in declared.problems)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "x.json",
            '{ // a stream\n "name": "S", /* where */ "subjects": ["s.>",], # all\n "max_age": "1d",\n}',
        ),
        (
            "x.json",
            '{"config": {"name": "S", "subjects": ["s.>"], "max_age": 86400000000000}, "state": {}}',
        ),
        ("x.yaml", "name: S\nsubjects: [s.>]\nmax_age: 24h\n"),
        ("x.yaml", "streams:\n  S:\n    subjects:\n    - s.>\n    max_age: 1d\n"),
        ("x.toml", '[streams.S]\nsubjects = ["s.>"]\nmax_age = "1d"\n'),
        (
            "x.tf",
            'variable "days" {\n  default = 1\n}\nlocals {\n  hour = 60 * 60\n}\n'
            'resource "jetstream_stream" "s" {\n  name = "S"\n  subjects = ["${lower}.>"]\n'
            "  max_age = var.days * (local.hour + local.hour) * 24 / 2\n  allow_direct = false\n}\n".replace(
                "${lower}", "s"
            ),
        ),
        (
            "x.tf.json",
            '{"resource": {"jetstream_stream": {"s": {"name": "S", "subjects": ["s.>"],'
            ' "max_age": "${24 * 3600}", "allow_direct": false}}}}',
        ),
        (
            "x.yaml",
            "apiVersion: jetstream.nats.io/v1beta2\nkind: Stream\nmetadata: {name: s}\n"
            "spec: {name: S, subjects: [s.>], storage: file, maxAge: 24h}\n",
        ),
        (
            "stdin",
            "{name: S, subjects: [s.>], max_age: 24h}".replace("{", "")
            .replace("}", "")
            .replace(", ", "\n"),
        ),
    ],
)
def test_a_stream_in_every_dialect(name: str, text: str) -> None:
    assert stream(text, name) == StreamConfig(name="S", subjects=["s.>"], max_age=DAY)


def test_defaults_are_those_of_the_dialect() -> None:
    tf = 'resource "jetstream_stream" "s" {\n name = "S"\n}\nresource "jetstream_consumer" "c" {\n'
    tf += ' stream_id = jetstream_stream.s.id\n durable_name = "C"\n deliver_new = true\n}\n'
    found = resources(tf, "x.tf")
    assert found["stream S"] == StreamConfig(name="S", allow_direct=True)
    assert found["consumer S > C"] == ConsumerConfig(
        durable_name="C",
        name="C",
        deliver_policy="new",
        ack_policy="explicit",
        max_ack_pending=20_000,
    )
    crd = "apiVersion: jetstream.nats.io/v1beta1\nkind: {}\nmetadata: {{name: x}}\nspec: {}\n"
    assert stream(crd.format("Stream", "{name: S}"), "x.yaml").storage == "memory"
    text = crd.format("Consumer", "{streamName: S, durableName: C, ackWait: 1ns}")
    (consumer,) = resources(text, "x.yaml").values()
    assert consumer == ConsumerConfig(durable_name="C", name="C", ack_policy="none")


def test_a_manifest_without_storage_is_warned_of() -> None:
    text = "apiVersion: jetstream.nats.io/v1beta1\nkind: Stream\nspec: {name: S}\n"
    (warning,) = read([File("x.yaml", text)]).warnings
    assert str(warning).startswith("x.yaml:3:7: storage defaults to memory")


@pytest.mark.parametrize(
    "text",
    [
        '{"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "explicit"}}',
        '{"stream_name": "S", "name": "C", "config": {"durable_name": "C", "ack_policy": "explicit"}, "ts": "x"}',
        '{"stream_name": "S", "durable_name": "C", "ack_policy": "explicit"}',
        '{"consumers": {"S": {"C": {"ack_policy": "explicit"}}}}',
        '[{"consumers": {"S": [{"name": "C", "ack_policy": "explicit"}]}}]',
        '{"consumers": [{"stream_name": "S", "name": "C", "ack_policy": "explicit"}]}',
        '{"consumers": [{"stream_name": "S", "durable_name": "C", "ack_policy": "explicit"}]}',
    ],
)
def test_a_consumer_in_every_shape(text: str) -> None:
    wanted = ConsumerConfig(durable_name="C", name="C", ack_policy="explicit")
    assert resources(text) == {"consumer S > C": wanted}


def test_a_bucket_is_the_same_in_every_dialect() -> None:
    given = {
        "x.json": '{"kv": {"B": {"history": 5, "ttl": "1h"}}}',
        "x.tf": 'resource "jetstream_kv_bucket" "b" {\n name = "B"\n ttl = 3600\n}\n',
        "x.yaml": "apiVersion: jetstream.nats.io/v1beta2\nkind: KeyValue\n"
        "spec: {bucket: B, history: 5, ttl: 1h}\n",
    }
    one, *others = [resources(text, name)["bucket B"] for name, text in given.items()]
    assert isinstance(one, StreamConfig)
    assert (one.max_msgs_per_subject, one.max_age, one.deny_delete) == (5, 3600 * 10**9, True)
    assert others == [one, one]


MISTAKES = [
    (
        "x.json",
        '{"name": "S",\n "max_mgs": 5}',
        'x.json:2:2: unknown key "max_mgs"; did you mean "max_msgs"?',
    ),
    ("x.json", '{"name": "S"\n "max_msgs": 5}', 'x.json:2:2: expected "," or "}", got \'"\''),
    (
        "x.json",
        '{"name": "S", "name": "T"}',
        'x.json:1:15: "name" is given twice, also at x.json:1:2',
    ),
    (
        "x.json",
        '{"name": "S", "max_msgs": "many"}',
        'max_msgs: expected a whole number, got "many"',
    ),
    (
        "x.json",
        '{"name": "S", "max_age": 60}',
        '60 needs a unit, such as "60s"; a number is nanoseconds',
    ),
    ("x.json", '{"name": "S", "storage": "flie"}', 'got "flie"; did you mean "file"?'),
    ("x.json", '{"name": "a.b"}', '"a.b" cannot be the name of a stream'),
    ("x.json", '{"durable_name": "C"}', 'consumer "C" needs the name of its stream'),
    (
        "x.json",
        '[{"name": "S"}, {"name": "S"}]',
        "x.json:1:17: stream S is declared twice, also at x.json:1:2",
    ),
    ("x.yaml", "name: S\nsubjects: [a\n", "x.yaml:3:1:"),
    (
        "x.yaml",
        "a: &a [x, x]\n"
        + "".join(
            f"{n}: &{n} [{', '.join([f'*{m}'] * 9)}]\n"
            for m, n in zip("abcdefghi", "bcdefghij", strict=True)
        ),
        "aliases stand for too many values",
    ),
    ("x.yaml", "&a [*a]\n", "x.yaml:1:1: values are nested too deeply"),
    ("x.yaml", "name: !secret S\n", 'x.yaml:1:7: the tag "!secret" is not understood'),
    (
        "x.yaml",
        "name: !!python/object/apply:os.getcwd []\n",
        'x.yaml:1:7: the tag "python/object/apply:os.getcwd" is not understood',
    ),
    (
        "x.tf",
        'resource "jetstream_stream" "S" {\n  name = var.n\n}\n',
        'x.tf:2:10: unknown variable "n"; there are none here',
    ),
    ("x.yaml", "name: S\n  x: 1\n", "x.yaml:2:4: mapping values are not allowed here"),
    (
        "x.yaml",
        "name: S\nmax_bites: 5\n",
        'x.yaml:2:1: unknown key "max_bites"; did you mean "max_bytes"?',
    ),
    ("x.toml", "[streams.S]\nmax_age = \n", "x.toml:2:11: Invalid value"),
    (
        "x.toml",
        '[streams.S]\nmax_agee = "1d"\n',
        'x.toml:2: unknown key "max_agee"; did you mean "max_age"?',
    ),
    ("x.tf", 'resource "jetstream_stream" "s" {\n  name = = "S"\n}\n', "x.tf:2:10: did not expect"),
    (
        "x.tf",
        'resource "jetstream_stream" "s" {\n  name = "S"\n  max_mesages = 5\n}\n',
        'x.tf:3:3: unknown key "max_mesages"; did you mean "max_msgs"?',
    ),
    (
        "x.tf",
        'resource "jetstream_stream" "s" {\n  name = lower("S")\n}\n',
        'x.tf:2:10: functions ("lower") are not understood here',
    ),
    (
        "x.tf",
        'resource "jetstream_stream" "s" {\n  name = var.x\n}\n',
        "x.tf:2:10: unknown variable",
    ),
    (
        "x.tf",
        'variable "x" {}\nresource "jetstream_stream" "s" {\n  name = var.x\n}\n',
        'x.tf:3:10: variable "x" has no default; give it with --var x=VALUE',
    ),
    (
        "x.tf",
        'locals {\n  a = local.b\n  b = local.a\n}\nresource "jetstream_stream" "s" {\n  name = local.a\n}\n',
        "refers to itself",
    ),
    (
        "x.tf",
        'resource "aws_bucket" "s" {\n}\n',
        'x.tf:1:1: resources "aws_bucket" are not understood',
    ),
    ("x.tf", 'module "m" {\n}\n', 'x.tf:1:1: blocks "module" are not understood'),
    (
        "x.tf",
        'resource "jetstream_stream" "s" {\n  count = 2\n  name = "S"\n}\n',
        'x.tf:2:3: "count" is not understood',
    ),
    (
        "x.tf",
        'resource "jetstream_consumer" "c" {\n  stream_id = "S"\n  durable_name = "C"\n}\n',
        "x.tf:1:1: a consumer needs exactly one of deliver_all",
    ),
    (
        "x.yaml",
        "apiVersion: jetstream.nats.io/v1beta2\nkind: Stream\nspec: {name: S, storage: file, maxBites: 5}\n",
        'x.yaml:3:32: unknown key "maxBites"; did you mean "maxBytes"?',
    ),
    (
        "x.yaml",
        "apiVersion: jetstream.nats.io/v1beta3\nkind: Stream\nspec: {name: S}\n",
        "x.yaml:1:1: expected jetstream.nats.io/v1beta2 or jetstream.nats.io/v1beta1",
    ),
    (
        "x.yaml",
        "apiVersion: jetstream.nats.io/v1beta1\nkind: StreamTemplate\nspec: {name: S}\n",
        "x.yaml:2:1: StreamTemplate is not understood",
    ),
]


@pytest.mark.parametrize(("name", "text", "said"), MISTAKES)
def test_a_mistake_is_said_with_its_place(name: str, text: str, said: str) -> None:
    found = problems(text, name)
    assert any(said in each for each in found), found


def test_all_mistakes_are_said_at_once() -> None:
    found = problems('{"streams": {"A": {"max_mgs": 1}, "B": {"storage": 5}, "c.d": {}}}')
    assert len(found) == 3


def test_a_variable_from_the_command_line() -> None:
    text = 'variable "n" {\n  default = 1\n}\nresource "jetstream_stream" "s" {\n  name = "S"\n  max_msgs = var.n\n}\n'
    (found,) = resources(text, "x.tf", n="7").values()
    assert isinstance(found, StreamConfig)
    assert found.max_msgs == 7


def test_files_of_a_folder_are_one_module() -> None:
    files = [
        File("f/a.tf", 'resource "jetstream_stream" "s" {\n  name = local.name\n}\n'),
        File("f/b.tf", 'locals {\n  name = "S-${var.stage}"\n}\n'),
        File("f/c.tf.json", '{"variable": {"stage": {"default": "test"}}}'),
    ]
    assert [each.title for each in checked(read(files)).resources] == ["stream S-test"]
