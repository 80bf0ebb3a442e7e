"""Passwords, tokens and queries of URLs are never shown, however wrong the URL is; clients are not pickled."""

from __future__ import annotations

import copy
import pickle
import traceback
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.client.base.addresses import HIDDEN, masked, parse_server, parse_servers
from pelton.client.protocol.options import Options
from pelton.client.protocol.socks import parse_proxy
from tests.client.shells import connected

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.peers import ServerProcess

SECRET = "Geheim"  # of nobody
PARTS = st.text("ab1/:#[]%é", max_size=4)
FORMS = st.sampled_from(
    [
        "nats://anna:{}@h:4222",
        "anna:{}@h",
        "http://anna:{}@h",
        "nats://anna:{}@h:port",
        "nats://anna:{}@",
        "nats://anna:{}@[::1",
        "nats://anna:{},more@h",
        "wss://h/path?token={}",
        "socks5://anna:{}@h:x",
    ]
)


@given(FORMS, PARTS, PARTS)
@pytest.mark.parametrize("parse", [parse_server, parse_servers, parse_proxy])
def test_no_error_shows_a_password(
    parse: Callable[[str], object], form: str, before: str, after: str
) -> None:
    url = form.format(f"{before}{SECRET}{after}")
    assert SECRET not in masked(url)
    try:
        found = parse(url)
    except ValueError as error:
        shown = "".join(traceback.format_exception(error))
        assert SECRET not in shown  # also nothing that it was raised from
    else:
        assert SECRET not in f"{found!r} {found}"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nats://anna:secret@h:1", f"nats://anna:{HIDDEN}@h:1"),
        ("nats://t0ken@h", f"nats://{HIDDEN}@h"),
        ("a:1,nats://u:p@b:2", f"a:1,nats://u:{HIDDEN}@b:2"),
        ("ws://h/p?key=5", f"ws://h/p?{HIDDEN}"),
        ("nats://h:4222", "nats://h:4222"),
        ("[::1]:5", "[::1]:5"),
        ("[::1]", "[::1]"),
        ("h", "h"),
        ("ws://h/path/to", "ws://h/path/to"),
        ("nats://anna:p:w", f"nats://anna:{HIDDEN}"),
    ],
)
def test_what_is_shown_of_a_url(url: str, shown: str) -> None:
    assert masked(url) == shown


def test_options_do_not_show_credentials() -> None:
    creds = f"-----BEGIN NATS USER JWT-----\n{SECRET}"
    shown = repr(Options(servers=parse_servers(f"nats://u:{SECRET}@h"), creds=creds))
    assert SECRET not in shown


def test_a_client_cannot_be_pickled_and_its_options_can(shell: str, server: ServerProcess) -> None:
    with connected(shell, server.url) as client:
        inner = getattr(client, "_inner", client)
        for each in (inner, inner.jetstream()):
            for attempt in (pickle.dumps, copy.copy if each is inner else copy.deepcopy):
                with pytest.raises(TypeError, match=r"cannot be pickled.*client\.options"):
                    attempt(each)
        assert pickle.loads(pickle.dumps(inner.options)) == inner.options
