"""The protocol's lines of a connection, as they are shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from pelton.client.protocol.events import Lines, hide_secrets
from tests.client.shells import connected

if TYPE_CHECKING:
    from tests.peers import ServerProcess

PARTS = st.sampled_from([b"PING\r\n", b"PONG\r\n", b"+OK\r\n", b"SUB a 1\r\n", b"-ERR 'no'\r\n"])


@st.composite
def operations(draw: st.DrawFn) -> tuple[bytes, str]:
    """One operation as bytes, and the line to show."""
    if draw(st.booleans()):
        line = draw(PARTS)
        return line, line.decode().strip()
    payload = draw(st.binary(max_size=20)) + draw(st.sampled_from([b"", b"\r\nPING\r\n"]))
    kind = draw(st.sampled_from(["PUB a", "MSG a 1", "HPUB a 0", "HMSG a 1 r 0"]))
    line = f"{kind} {len(payload)}"
    return line.encode() + b"\r\n" + payload + b"\r\n", line


@given(st.lists(operations()), st.data())
def test_any_split_gives_the_same_lines(
    found: list[tuple[bytes, str]], data: st.DataObject
) -> None:
    whole = b"".join(each for each, _ in found)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    lines = Lines()
    shown = []
    for start, stop in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        shown += lines.feed(whole[start:stop])
    assert shown == [line for _, line in found]


@given(st.text(min_size=5), st.sampled_from(["pass", "auth_token", "jwt", "sig"]))
def test_no_secret_is_shown(secret: str, field: str) -> None:
    secret = f"geheim{secret}"
    for ascii_only in (True, False):
        text = json.dumps({"user": "u", field: secret, "name": "n"}, ensure_ascii=ascii_only)
        shown = hide_secrets(f"CONNECT {text}")
        assert json.loads(shown[8:]) == {"user": "u", field: "***", "name": "n"}


def test_a_client_shows_its_lines(shell: str, server: ServerProcess, unique: str) -> None:
    seen: list[tuple[str, str]] = []
    options = {"on_protocol": lambda *each: seen.append(each), "verbose": True}
    with connected(shell, server.url, user="u", password="geheim", **options) as client:
        subscription = client.subscribe(unique)
        client.publish(unique, b"one\r\ntwo")
        assert subscription.next().data == b"one\r\ntwo"
        client.flush()
    assert next(line[:7] for way, line in seen if way == "in") == 'INFO {"'
    assert ("out", f"PUB {unique} 8") in seen
    assert ("in", f"MSG {unique} 1 8") in seen
    assert ("in", "+OK") in seen, "the option verbose asks for it"
    assert '"pass":"***"' in next(line for way, line in seen if line.startswith("CONNECT"))
    assert "geheim" not in str(seen)
