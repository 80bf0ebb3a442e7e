"""HTTP heads: one parser for the monitoring port and for both sides of a WebSocket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.server.http_head import END, parse_head

TOKENS = st.text(alphabet="abcXYZ-09", min_size=1, max_size=8)
VALUES = st.text(alphabet="abc ,;=:/\t\x00\xe9", max_size=12)
BLANKS = st.text(alphabet=" \t", max_size=2)


@given(
    st.lists(st.tuples(TOKENS, BLANKS, VALUES, BLANKS), max_size=6),
    st.booleans(),
)
def test_headers_are_those_that_were_written(
    fields: list[tuple[str, str, str, str]], whole: bool
) -> None:
    lines = ["GET /x HTTP/1.1", *(f"{name}:{a}{value}{b}" for name, a, value, b in fields)]
    head = parse_head("\r\n".join(lines).encode("latin-1") + (END if whole else b""))
    model: dict[str, list[str]] = {}
    for name, _, value, _ in fields:
        model.setdefault(name.lower(), []).append(value.strip(" \t"))
    assert head.headers == model
    assert not head.malformed
    assert head.request() == ("GET", "/x", "HTTP/1.1")
    for name, values in model.items():
        assert (head.first(name), head.last(name)) == (values[0], values[-1])
        assert head.words(name) == [
            word.strip(" \t").lower() for value in values for word in value.split(",")
        ]


@given(st.binary(max_size=200))
def test_any_bytes_are_a_head(data: bytes) -> None:
    head = parse_head(data)
    request = head.request()
    assert request is None or request[2].startswith("HTTP/1.")
    assert all(name == name.lower() and values for name, values in head.headers.items())


@pytest.mark.parametrize(
    ("line", "malformed"),
    [
        ("Host: a", False),
        ("Host:", False),
        ("no colon", True),
        (": no name", True),
        ("Host : a", True),
        (" Host: a", True),
        ("", True),
    ],
)
def test_malformed_lines_are_marked_and_kept(line: str, malformed: bool) -> None:
    head = parse_head(f"GET / HTTP/1.1\r\n{line}\r\nUpgrade: WebSocket".encode())
    assert head.malformed is malformed
    assert head.first("upgrade") == "WebSocket"


@pytest.mark.parametrize(
    ("line", "request_", "status"),
    [
        (b"GET / HTTP/1.1", ("GET", "/", "HTTP/1.1"), ""),
        (b"GET  HTTP/1.0", ("GET", "", "HTTP/1.0"), ""),
        (b"GET / HTTP/2", None, ""),
        (b"GET /", None, ""),
        (b"HTTP/1.1 101 Switching Protocols", None, "101"),
        (b"HTTP/1.1 404", None, "404"),
        (b"", None, ""),
    ],
)
def test_first_lines(line: bytes, request_: tuple[str, str, str] | None, status: str) -> None:
    head = parse_head(line)
    assert head.request() == request_
    assert head.status() == status


def test_words_are_divided_by_each_separator() -> None:
    head = parse_head(b"GET / HTTP/1.1\r\nExt: a; B ,c\r\next: d;e=1")
    assert head.words("ext", ",", ";") == ["a", "b", "c", "d", "e=1"]
    assert head.words("ext") == ["a; b", "c", "d;e=1"]
    assert head.words("none") == []
