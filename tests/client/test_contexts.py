"""Contexts of the ``nats`` command as options: their text, and the files."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton import ContextError, Options, TlsOptions, connect, sync
from pelton.client.base.addresses import parse_servers
from pelton.client.protocol.contexts import context_names, options_of
from pelton.client.protocol.options import make_options
from tests.client.shells import connected

if TYPE_CHECKING:
    from pathlib import Path

    from tests.peers import ServerProcess


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({}, {"servers": parse_servers("nats://127.0.0.1:4222")}),
        ({"url": "a:1,tls://b"}, {"servers": parse_servers("a:1,tls://b")}),
        ({"user": "u", "password": "p"}, {"user": "u", "password": "p"}),
        ({"user": "u", "creds": "c"}, {"user": "u", "password": ""}),
        ({"token": "t"}, {"token": "t"}),
        ({"creds": "~/c.creds"}, {"creds": "/anna/c.creds"}),
        ({"nkey": "/n"}, {"nkey": "/n"}),
        ({"user_jwt": "j", "user_seed": "s"}, {"jwt": "j", "nkey": "s"}),
        (
            {"ca": "~/ca", "tls_first": True},
            {"tls": TlsOptions(ca_file="/anna/ca", first=True)},
        ),
        (
            {"cert": "c", "key": "k"},
            {"tls": TlsOptions(cert_file="c", key_file="k")},
        ),
        ({"jetstream_domain": "hub"}, {"jetstream_domain": "hub"}),
        ({"jetstream_api_prefix": "a.b"}, {"jetstream_prefix": "a.b"}),
        ({"socks_proxy": "socks5://h"}, {"socks_proxy": "socks5://h"}),
        ({"inbox_prefix": "_I.me"}, {"inbox_prefix": "_I.me"}),
        ({"color_scheme": "red", "description": "d", "nsc": ""}, {}),
    ],
)
def test_fields_become_options(fields: dict[str, Any], options: dict[str, Any]) -> None:
    found = options_of(json.dumps(fields), "c", "/anna")
    expected = {"servers": parse_servers("nats://127.0.0.1:4222"), **options}
    assert found == expected
    Options(**found)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "not a JSON object"),
        ("{", "not a JSON object"),
        ('{"nsc": "nsc://o/a/u"}', "nsc"),
        ('{"creds": "op://vault/item"}', "op://"),
        ('{"url": 4222}', "wrong type in: url"),
        ('{"tls_first": "yes"}', "tls_first"),
        ('{"url": "http://h"}', "http://"),
        ('{"key": "k"}', "key without cert"),
    ],
)
def test_what_the_client_cannot_follow_is_refused(text: str, says: str) -> None:
    with pytest.raises(ContextError, match=says) as caught:
        options_of(text, "mine", "/anna")
    assert "'mine'" in str(caught.value)


@given(st.binary() | st.recursive(st.none() | st.text(), lambda e: st.dictionaries(st.text(), e)))
def test_any_text_gives_options_or_the_one_error(value: Any) -> None:
    text = value if isinstance(value, bytes) else json.dumps(value)
    with suppress(ContextError):
        assert "servers" in options_of(text, "c", "/anna")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "nats" / "context").mkdir(parents=True)
    return tmp_path / "nats"


def test_a_context_is_read_by_name_or_by_selection(folder: Path) -> None:
    (folder / "context" / "hub.json").write_text('{"url": "nats://h:1", "user": "u"}')
    (folder / "context" / "leaf.json").write_text('{"url": "nats://l:2"}')
    assert context_names() == ["hub", "leaf"]
    with pytest.raises(ContextError, match="no context is selected"):
        Options.from_context()
    (folder / "context.txt").write_text("leaf\n")
    assert Options.from_context().servers == parse_servers("nats://l:2")
    assert Options.from_context("hub", user="v").user == "v"
    assert make_options(None, None, {"context": "hub"})[0].servers == parse_servers("h:1")
    assert make_options("other", None, {"context": "hub"})[0] == Options(
        servers=parse_servers("other"), user="u"
    )
    with pytest.raises(ContextError, match=r"no context 'gone'.*hub, leaf"):
        sync.connect(context="gone")
    for wrong in ("../hub", "a/b", "\0"):
        with pytest.raises(ContextError):
            connect(context=wrong)
    (folder / "context" / "dir.json").mkdir()
    with pytest.raises(ContextError, match="cannot read"):
        Options.from_context("dir")


def test_a_client_connects_by_context(shell: str, server: ServerProcess, folder: Path) -> None:
    fields = {"url": server.url, "inbox_prefix": "_I.test", "jetstream_api_prefix": "$JS.API"}
    (folder / "context" / "here.json").write_text(json.dumps(fields))
    with connected(shell, None, context="here") as client:
        assert client.new_inbox().startswith("_I.test.")
        assert client.jetstream().account_info().streams >= 0
        assert client.options.jetstream_prefix == "$JS.API"
