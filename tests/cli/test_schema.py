"""``pelton schema`` and ``pelton errors``: schemas beside what servers answer, and files of errors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.api.codec import JsonError, decode_request, encode
from pelton.api.schemas import problems, schema_of
from pelton.api.streams import StreamConfig
from pelton.cli.schemas import known
from pelton.sync import connect

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Ran
    from tests.peers import ServerProcess

    Run = Callable[..., Ran]

V1 = "io.nats.jetstream.api.v1."
CONFIG = schema_of(StreamConfig, "stream", closed=True)


@pytest.mark.parametrize("name", known())
def test_a_message_without_values_fits_its_schema(name: str) -> None:
    kind, closed = known()[name]
    found = schema_of(kind, name, closed=closed)
    assert problems(json.loads(encode(kind())), found) == []
    assert found["title"] == name
    assert found["description"]
    assert problems([], found) == ["the message: expected an object, got a list"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
FIELD = st.sampled_from([*CONFIG["properties"], "bogus"])


@given(st.dictionaries(FIELD, JSON, max_size=3))
def test_what_fits_is_what_a_server_reads(value: dict[str, Any]) -> None:
    """A schema may refuse more than a server does (null leaves a field as it is), and never less."""
    if problems(value, CONFIG):
        return
    try:
        decode_request(StreamConfig, json.dumps(value).encode(), strict=True)
    except JsonError as error:
        raise AssertionError(f"{value} fits, but: {error}") from None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"retention": "foo"}, "retention: 'foo' is none of 'limits', 'interest', 'workqueue'"),
        ({"max_age": "1h"}, "max_age: expected a whole number, got a text"),
        ({"bogus": 1}, "bogus: there is no such field"),
        ({"sources": [{}, {"name": 1}]}, "sources[1].name: expected a text, got a whole number"),
        ({"sealed": 1}, "sealed: expected true or false, got a whole number"),
        ({"subjects": "a"}, "subjects: expected a list, got a text"),
        ({"metadata": {"a": True}}, "metadata.a: expected a text, got true or false"),
        ({"max_msg_size": 1 << 31}, "max_msg_size: 2147483648 is not between"),
        ({"mirror": {"opt_start_time": "noon"}}, "mirror.opt_start_time: 'noon' is no time"),
    ],
)
def test_problems_are_named_with_their_place(value: Any, text: str) -> None:
    (problem,) = problems(value, CONFIG)
    assert problem.startswith(text)


def test_what_servers_answer_fits(at: Run, peer: ServerProcess, unique: str) -> None:
    with connect(peer.url) as client:
        js = client.jetstream()
        body = {"name": unique, "subjects": [f"{unique}.>"], "metadata": {"a": "b"}}
        created = client.request(f"$JS.API.STREAM.CREATE.{unique}", json.dumps(body).encode())
        assert json.loads(created.data)["type"] == f"{V1}stream_create_response"
        js.publish(f"{unique}.a", b"one")
    config = {"durable_name": "c", "ack_policy": "explicit", "backoff": [1000000000, 2000000000]}
    config["max_deliver"] = 5
    consumer = json.dumps({"stream_name": unique, "config": config})
    for subject, body_ in (
        ("INFO", ""),
        ("STREAM.NAMES", "{}"),
        ("STREAM.LIST", "{}"),
        (f"STREAM.INFO.{unique}", '{"subjects_filter": ">"}'),
        ("STREAM.INFO.NONE", ""),
        (f"STREAM.MSG.GET.{unique}", '{"seq": 1}'),
        (f"CONSUMER.DURABLE.CREATE.{unique}.c", consumer),
        (f"CONSUMER.INFO.{unique}.c", ""),
        (f"CONSUMER.LIST.{unique}", "{}"),
        (f"CONSUMER.NAMES.{unique}", "{}"),
        (f"CONSUMER.PAUSE.{unique}.c", '{"pause_until": "2099-01-01T00:00:00Z"}'),
        (f"CONSUMER.DELETE.{unique}.c", ""),
        (f"STREAM.PURGE.{unique}", ""),
        (f"STREAM.DELETE.{unique}", ""),
    ):
        ran = at("schema", "request", f"$JS.API.{subject}", body_, "--json")
        assert ran.json["problems"] == [], subject
        assert ran.status == 0
    shown = at("schema", "req", "$JS.API.INFO", "--schema", "account_info_response", "--show")
    assert '"type": "io.nats.jetstream.api.v1.account_info_response"' in shown.out
    other = at("schema", "request", "$JS.API.INFO", "--schema", "pub_ack_response")
    assert (other.status, other.out) == (1, "")


def test_schemas_are_found_and_shown(cli: Run) -> None:
    names = cli("schema", "search").out.splitlines()
    assert f"{V1}stream_create_request" in names
    assert "io.nats.jetstream.advisory.v1.max_deliver" in names
    assert cli("schema", "ls", "pub_ack", "--json").json == [f"{V1}pub_ack_response"]
    assert cli("schema", "search", "nothing_like_it").status == 1
    assert cli("schema", "search", "(").status == 2
    shown = cli("schema", "info", "stream_configuration").json
    assert shown["properties"]["storage"]["enum"] == ["file", "memory"]
    assert "enum:\n" in cli("schema", "show", "stream_configuration", "--yaml").out
    wrong = cli("schema", "info", "stream_configurations")
    assert (wrong.status, wrong.out) == (1, "")
    assert "did you mean 'stream_configuration'" in wrong.err


def test_files_are_validated(cli: Run, tmp_path: Path) -> None:
    path = tmp_path / "stream.json"
    path.write_text('{"name": "S", "retention": "limits"}')
    assert cli("schema", "validate", "stream_configuration", path).status == 0
    path.write_text('{"name": "S", "retentoin": "limits"}')
    ran = cli("schema", "check", f"{V1}stream_configuration", path)
    assert (ran.status, "retentoin: there is no such field" in ran.out) == (1, True)
    path.write_text('{\n "name": }')
    broken = cli("schema", "validate", "stream_configuration", path)
    assert (broken.status, broken.out) == (1, "")
    assert f"{path}:2:10: " in broken.err
    assert cli("schema", "validate", "stream_configuration", tmp_path / "none").status == 2


# -- errors


def test_errors_are_sorted_and_read_from_files(cli: Run, tmp_path: Path) -> None:
    listed = [each["code"] for each in cli("errors", "ls", "", "http", "-j").json]
    assert listed == sorted(listed)
    assert [each["err_code"] for each in cli("err", "ls", "stream not found$", "-j").json] == [
        10059
    ]
    assert cli("errors", "ls", "(").status == 2
    path = tmp_path / "errors.json"
    entry = {
        "constant": "X",
        "code": 400,
        "error_code": 12000,
        "description": "no {x}",
        "help": "h",
    }
    path.write_text(json.dumps([entry]))
    assert cli("errors", "ls", "--errors", path, "-j").json[0]["err_code"] == 12000
    assert "Help: h" in cli("error", "view", "12000", "--errors", path).out
    assert cli("errors", "validate", path).out == "1 errors are sound\n"
    for bad, text in (
        ({"error_code": 5}, "is not between"),
        ({"code": 0}, "code is missing"),
        ({"constant": ""}, "constant is missing"),
        ({"description": ""}, "description is missing"),
        ({"description": "a {b"}, "braces"),
        ({"description": "{err}"}, "needs a comment"),
    ):
        path.write_text(json.dumps([{**entry, **bad}]))
        ran = cli("errors", "validate", path)
        assert (ran.status, text in ran.out) == (1, True), bad
    path.write_text(json.dumps([entry, entry]))
    assert len(cli("errors", "validate", path, "-j").json["problems"]) == 2
    path.write_text("{}")
    assert cli("errors", "validate", path).status == 1


def test_errors_are_edited(cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, editor = tmp_path / "errors.json", tmp_path / "editor"
    entry = {"constant": "X", "code": 400, "error_code": 12000, "description": "no"}
    path.write_text(json.dumps([entry]))
    editor.write_text('#!/bin/sh\nsed -i "$EDIT" "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(editor))
    monkeypatch.setenv("EDIT", 's/"no"/"yes"/')
    assert cli("errors", "edit", path, "12000").status == 0
    assert json.loads(path.read_text())[0]["description"] == "yes"
    monkeypatch.setenv(
        "EDIT", 's/"description": ""/"description": "new"/; s/"constant": ""/"constant": "N"/'
    )
    assert cli("errors", "add", path).status == 0
    assert [each["error_code"] for each in json.loads(path.read_text())] == [12000, 12001]
    before = path.read_text()
    monkeypatch.setenv("EDIT", "s/12000/12001/")
    assert cli("errors", "edit", path, "12000").status == 2
    assert cli("errors", "edit", path, "13000").status == 1
    assert path.read_text() == before
