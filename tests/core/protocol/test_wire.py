import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.core.protocol import wire
from pelton.core.protocol.wire import (
    BAD_ARGS,
    BAD_LINE,
    BAD_OP,
    BAD_PAYLOAD,
    OP_CONNECT,
    OP_ERR,
    OP_INFO,
    OP_MSG,
    OP_OK,
    OP_PING,
    OP_PONG,
    OP_PUB,
    OP_SUB,
    OP_UNSUB,
    ROLE_CLIENT,
    ROLE_LEAF,
    ROLE_SERVER,
    Parser,
    WireError,
    decode_headers,
    encode_headers,
    pub,
)

Event = tuple[object, ...]
Written = tuple[bytes, Event | None]
BAD = {BAD_OP, BAD_ARGS, BAD_LINE, BAD_PAYLOAD}


def run(parser: Parser, chunks: list[bytes]) -> tuple[list[Event], int | None]:
    """What a parser makes of these chunks: the events, and the failure if any."""
    events: list[Event] = []
    for chunk in chunks:
        try:
            events += parser.feed(chunk)
        except WireError as error:
            return events + error.events, parser.failed
    return events, None


def cut(data: bytes, at: list[int]) -> list[bytes]:
    edges = [0, *sorted(i % (len(data) + 1) for i in at), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


# ---- operations and the ways to write them ----

BLANK = st.text(" \t", min_size=1, max_size=3).map(str.encode)
MAYBE_BLANK = st.text(" \t", max_size=2).map(str.encode)
END = st.sampled_from([b"\r\n", b"\r\n", b"\n"])
_SIGNS = "ab.*>$_-ö"
TOKEN = st.one_of(
    st.text(_SIGNS, min_size=1, max_size=12), st.text(_SIGNS, min_size=13, max_size=70)
)
BODY = st.one_of(st.binary(max_size=30), st.sampled_from([b"\r\n", b"PUB a 1\r\n", b"x" * 5000]))
JSON = st.sampled_from([b"{}", b'{"verbose": false}', b'{"name":"' + b"n" * 4000 + b'"}'])
CUTS = st.lists(st.integers(0, 20_000), max_size=12)


@st.composite
def line(draw: st.DrawFn, name: bytes, *args: str | bytes | int) -> bytes:
    """A line in some case, with some blanks and some line end."""
    shown = b"".join(draw(st.sampled_from([bytes([c]).lower(), bytes([c]).upper()])) for c in name)
    for arg in args:
        text = str(arg) if isinstance(arg, int) else arg
        shown += draw(BLANK) + (text.encode() if isinstance(text, str) else text)
    return shown + draw(MAYBE_BLANK) + draw(END)


@st.composite
def message(
    draw: st.DrawFn, name: bytes, fixed: tuple[str, ...]
) -> tuple[bytes, str, bytes, bytes]:
    reply, payload = draw(st.one_of(st.just(""), TOKEN)), draw(BODY)
    headers = draw(BODY) if name.startswith(b"H") else b""
    sizes = [len(headers)] if name.startswith(b"H") else []
    args: list[str | bytes | int] = [
        *fixed,
        *([reply] if reply else []),
        *sizes,
        len(headers) + len(payload),
    ]
    return draw(line(name, *args)) + headers + payload + b"\r\n", reply, headers, payload


@st.composite
def pub_op(draw: st.DrawFn) -> Written:
    subject = draw(TOKEN)
    name = draw(st.sampled_from([b"PUB", b"HPUB"]))
    data, reply, headers, payload = draw(message(name, (subject,)))
    return data, (OP_PUB, subject, reply, headers, payload)


@st.composite
def msg_op(draw: st.DrawFn) -> Written:
    subject, sid = draw(TOKEN), draw(st.integers(0, 2**63 - 1))
    name = draw(st.sampled_from([b"MSG", b"HMSG"]))
    data, reply, headers, payload = draw(message(name, (subject, str(sid))))
    return data, (OP_MSG, subject, sid, reply, headers, payload)


@st.composite
def sub_op(draw: st.DrawFn) -> Written:
    subject, queue, sid = draw(TOKEN), draw(st.one_of(st.just(""), TOKEN)), draw(TOKEN)
    args = [subject, *([queue] if queue else []), sid]
    return draw(line(b"SUB", *args)), (OP_SUB, subject, queue, sid.encode())


@st.composite
def unsub_op(draw: st.DrawFn) -> Written:
    sid, most = (
        draw(TOKEN),
        draw(st.sampled_from([None, "0", "1", "-1", "x", "999999999", "9" * 10])),
    )
    count = int(most) if most and most.isdigit() and len(most) < 10 else 0
    data = draw(line(b"UNSUB", sid, *([most] if most else [])))
    return data, (OP_UNSUB, sid.encode(), count)


@st.composite
def bare_op(draw: st.DrawFn) -> Written:
    name, kind = draw(st.sampled_from([(b"PING", OP_PING), (b"PONG", OP_PONG), (b"+OK", OP_OK)]))
    rest = draw(
        st.one_of(st.just(b""), st.binary(max_size=20).map(lambda b: b.replace(b"\n", b"")))
    )
    return draw(line(name))[: len(name)] + rest + draw(END), (kind,)


@st.composite
def text_op(draw: st.DrawFn, name: bytes, kind: int) -> Written:
    text = draw(JSON)
    ended = draw(line(name, text)).rstrip(b" \t\r\n")
    return ended + draw(END), (kind, text)


ERR_OP = line(b"-ERR", b"'Some trouble'").map(lambda data: (data, (OP_ERR, b"Some trouble")))
SERVER_OPS = st.one_of(
    pub_op(),
    pub_op(),
    sub_op(),
    unsub_op(),
    bare_op(),
    text_op(b"CONNECT", OP_CONNECT),
    text_op(b"INFO", OP_INFO),
)
CLIENT_OPS = st.one_of(msg_op(), msg_op(), bare_op(), ERR_OP, text_op(b"INFO", OP_INFO))


@given(st.lists(SERVER_OPS, max_size=8), CUTS)
def test_any_split_of_what_a_client_sends(ops: list[Written], at: list[int]) -> None:
    data = b"".join(written for written, _ in ops)
    parser = Parser(ROLE_SERVER)
    assert run(parser, cut(data, at)) == ([event for _, event in ops], None)
    assert parser.waiting == 0


@given(st.lists(CLIENT_OPS, max_size=8), CUTS)
def test_any_split_of_what_a_server_sends(ops: list[Written], at: list[int]) -> None:
    data = b"".join(written for written, _ in ops)
    parser = Parser(ROLE_CLIENT)
    assert run(parser, cut(data, at)) == ([event for _, event in ops], None)
    assert parser.waiting == 0


@given(st.lists(SERVER_OPS, min_size=1, max_size=3))
def test_byte_by_byte_and_before_the_last_byte_nothing(ops: list[Written]) -> None:
    data = b"".join(written for written, _ in ops)
    parser = Parser(ROLE_SERVER)
    events, failed = run(parser, [data[i : i + 1] for i in range(len(data) - 1)])
    assert (events, failed) == ([event for _, event in ops[:-1]], None)
    assert parser.feed(data[-1:]) == [ops[-1][1]]


# ---- garbage ----

FRAGMENT = st.one_of(
    st.binary(max_size=12),
    st.sampled_from(
        [
            b"PUB ",
            b"HPUB ",
            b"SUB ",
            b"UNSUB ",
            b"MSG ",
            b"HMSG ",
            b"CONNECT ",
            b"INFO",
            b"PING",
            b"-ERR ",
            b"+OK",
            b"\r\n",
            b"\n",
            b"\r",
            b" ",
            b"a 1 ",
            b"5",
            b"0",
            b"-1",
            b"99999999",
            b"xx\r\n",
            b"b" * 60,
        ]
    ),
)
GARBAGE = st.one_of(
    st.lists(FRAGMENT, max_size=12).map(b"".join),
    st.builds(
        lambda ops, i, junk: (
            (data := b"".join(o for o, _ in ops))[: i % (len(data) + 1)]
            + junk
            + data[i % (len(data) + 1) + len(junk) // 2 :]
        ),
        st.lists(st.one_of(SERVER_OPS, CLIENT_OPS), max_size=4),
        st.integers(0, 10_000),
        st.binary(max_size=3),
    ),
)


@given(GARBAGE, CUTS, st.sampled_from([ROLE_SERVER, ROLE_CLIENT]))
def test_garbage_gives_events_or_a_documented_failure_whatever_the_split(
    data: bytes, at: list[int], role: int
) -> None:
    def parser() -> Parser:
        return Parser(role, max_control_line=40, max_payload=64)

    whole = run(parser(), [data])
    assert whole[1] is None or whole[1] in BAD
    assert run(parser(), cut(data, at)) == whole
    assert run(parser(), [data[i : i + 1] for i in range(len(data))]) == whole


def test_a_parser_that_failed_stays_so() -> None:
    parser = Parser(ROLE_SERVER)
    with pytest.raises(WireError) as first:
        parser.feed(b"PING\r\nFOO\r\nPING\r\n")
    assert (first.value.code, first.value.events) == (BAD_OP, [(OP_PING,)])
    with pytest.raises(WireError) as again:
        parser.feed(b"PING\r\n")
    assert (again.value.code, again.value.events, parser.failed) == (BAD_OP, [], BAD_OP)


# ---- limits and memory ----


def test_payload_limit_is_told_by_the_line_alone() -> None:
    for data in (b"PUB a 65\r\n", b"HPUB a 5 65\r\n"):
        assert run(Parser(ROLE_SERVER, max_payload=64), [data]) == ([], BAD_PAYLOAD)
    assert run(Parser(ROLE_SERVER, max_payload=64), [b"PUB a 64\r\n" + b"x" * 64]) == ([], None)


def test_hpub_without_headers_agreed_on() -> None:
    parser = Parser(ROLE_SERVER, headers=False)
    assert run(parser, [b"PUB a 0\r\n\r\nHPUB a 0 0\r\n"]) == (
        [(OP_PUB, "a", "", b"", b"")],
        BAD_ARGS,
    )


def test_a_client_takes_long_lines_and_large_messages() -> None:
    info = b"INFO " + b"x" * 500_000 + b"\r\n"
    large = b"MSG a 1 2000000\r\n" + b"x" * 2_000_000 + b"\r\n"
    events, failed = run(Parser(ROLE_CLIENT), cut(info + large, [1000, 400_000, 700_000]))
    assert failed is None
    assert [event[0] for event in events] == [OP_INFO, OP_MSG]
    assert run(Parser(ROLE_CLIENT), [b"INFO " + b"x" * 1_100_000]) == ([], BAD_LINE)


@pytest.mark.parametrize("start", [b"PING", b"+OK ", b"UNSUB ", b"CONNECT", b"-ERR\t"])
def test_a_line_without_end_does_not_fill_memory(start: bytes) -> None:
    parser = Parser(ROLE_SERVER)
    parser.feed(start)
    for _ in range(100):
        assert parser.feed(b" " * 4096) == []
        assert parser.waiting < 16


@pytest.mark.parametrize(
    ("start", "rest", "event"),
    [
        (b"PING", b"x\n", (OP_PING,)),
        (b"pInG", b"\r\n", (OP_PING,)),
        (b"UNSUB ", b"7 3\r\n", (OP_UNSUB, b"7", 3)),
        (b"CONNECT", b"{}\r\n", (OP_CONNECT, b"{}")),
    ],
)
def test_blanks_without_number_then_the_rest(start: bytes, rest: bytes, event: Event) -> None:
    parser = Parser(ROLE_SERVER)
    parser.feed(b"PING\r\n" + start)
    for _ in range(30):
        parser.feed(b" \t" * 5000)
    assert parser.feed(rest + b"PONG\r\n") == [event, (OP_PONG,)]


def test_no_such_role() -> None:
    with pytest.raises(ValueError, match="role"):
        Parser(3)


# ---- between servers ----

WEIGHT = st.integers(0, 10**9 - 1)


@st.composite
def leaf_sub(draw: st.DrawFn) -> Written:
    subject = draw(TOKEN)
    if draw(st.booleans()):
        return draw(line(b"LS+", subject)), (OP_SUB, subject, 0)
    queue, weight = draw(TOKEN), draw(WEIGHT)
    return draw(line(b"LS+", subject, queue, weight)), (OP_SUB, subject, queue, weight)


@st.composite
def leaf_unsub(draw: st.DrawFn) -> Written:
    key = " ".join([draw(TOKEN), *([draw(TOKEN)] if draw(st.booleans()) else [])])
    return draw(line(b"LS-", key)), (OP_UNSUB, key.encode())


@st.composite
def leaf_message(draw: st.DrawFn) -> Written:
    subject, reply = draw(TOKEN), draw(st.one_of(st.just(""), TOKEN))
    queues = draw(st.lists(TOKEN, max_size=9))
    name = draw(st.sampled_from([b"LMSG", b"HMSG"]))
    headers, payload = draw(BODY) if name == b"HMSG" else b"", draw(BODY)
    args: list[str | bytes | int] = [subject]
    if queues:
        args += ["+", reply, *queues] if reply else ["|", *queues]
    elif reply:
        args.append(reply)
    args += [len(headers)] if name == b"HMSG" else []
    data = draw(line(name, *args, len(headers) + len(payload))) + headers + payload + b"\r\n"
    return data, (OP_MSG, subject, reply, tuple(queues), headers, payload)


LEAF_OPS = st.one_of(
    leaf_sub(), leaf_unsub(), leaf_message(), bare_op(), text_op(b"CONNECT", OP_CONNECT)
)


@given(st.lists(LEAF_OPS, max_size=8), CUTS)
def test_any_split_of_what_servers_say_gives_the_same(ops: list[Written], at: list[int]) -> None:
    data = b"".join(op[0] for op in ops)
    expected = [op[1] for op in ops]
    assert run(Parser(ROLE_LEAF, 100_000), cut(data, at)) == (expected, None)


@given(
    st.binary(max_size=60), st.sampled_from([b"", b"LMSG a ", b"HMSG a + ", b"LS+ ", b"LS- "]), CUTS
)
def test_garbage_between_servers_is_refused_the_same_way(
    tail: bytes, head: bytes, at: list[int]
) -> None:
    data = head + tail + b"\r\n"
    whole = run(Parser(ROLE_LEAF), [data])
    assert run(Parser(ROLE_LEAF), cut(data, at)) == whole
    assert whole[1] is None or whole[1] in BAD


@pytest.mark.parametrize(
    "data",
    [
        b"LMSG a\r\n",
        b"LMSG a x q 0\r\n",
        b"HMSG a 3 2\r\n",
        b"LS+ a q\r\n",
        b"LS+ a q x\r\n",
        b"LS+ a b 1 1\r\n",
        b"LS+ \r\n",
        b"LMSG a -1\r\n",
        b"LMSG a + r q x\r\n",
    ],
)
def test_arguments_between_servers_that_cannot_be(data: bytes) -> None:
    assert run(Parser(ROLE_LEAF), [data]) == ([], BAD_ARGS)


# ---- writers ----


@given(TOKEN, st.one_of(st.just(""), TOKEN), st.binary(max_size=50), st.binary(max_size=300))
def test_pub_is_read_back(subject: str, reply: str, headers: bytes, payload: bytes) -> None:
    written = pub(subject, reply, headers, payload)
    assert Parser(ROLE_SERVER).feed(written) == [(OP_PUB, subject, reply, headers, payload)]
    assert written.startswith(b"HPUB " if headers else b"PUB ")


@pytest.mark.parametrize("text", ["a b", "a\r\nPING", "a\n", "a\tb"])
def test_pub_refuses_what_would_break_the_line(text: str) -> None:
    with pytest.raises(ValueError, match="subject"):
        pub(text, "", b"", b"")
    with pytest.raises(ValueError, match="reply"):
        pub("a", text, b"", b"")
    with pytest.raises(ValueError, match="empty"):
        pub("", "", b"", b"")


KEY = st.text(min_size=1, max_size=8).filter(lambda t: not set(t) & set(":\r\n"))
VALUE = (
    st.text(max_size=8).filter(lambda t: not set(t) & set("\r\n")).map(lambda t: t.lstrip(" \t"))
)


@given(st.dictionaries(KEY, st.lists(VALUE, min_size=1, max_size=3), max_size=4))
def test_headers_are_read_back_in_order(headers: dict[str, list[str]]) -> None:
    assert decode_headers(encode_headers(headers)) == (0, "", headers)


def test_a_header_of_one_value_may_be_a_str() -> None:
    assert encode_headers({"A": "x", "B": "y"}) == b"NATS/1.0\r\nA: x\r\nB: y\r\n\r\n"
    assert encode_headers({}) == b"NATS/1.0\r\n\r\n"


@pytest.mark.parametrize(
    "headers", [{"": "x"}, {"a:b": "x"}, {"a\r": "x"}, {"a": "x\ny"}, {"a": ["x", "\r"]}]
)
def test_headers_that_cannot_be_written(headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="header"):
        encode_headers(headers)


@pytest.mark.parametrize(
    ("block", "want"),
    [
        (b"NATS/1.0\r\n\r\n", (0, "", {})),
        (b"NATS/1.0 503\r\n\r\n", (503, "", {})),
        (b"NATS/1.0 503 No Responders\r\n\r\n", (503, "No Responders", {})),
        (b"NATS/1.0 503\r\nNats-Subject: a.b\r\n\r\n", (503, "", {"Nats-Subject": ["a.b"]})),
        (b"NATS/1.0\r\nA:x\r\na:  y \r\nA: z:1\r\n\r\n", (0, "", {"A": ["x", "z:1"], "a": ["y "]})),
        (b"NATS/1.0\r\nA: \xff\r\n\r\n", (0, "", {"A": ["\udcff"]})),
    ],
)
def test_header_blocks(block: bytes, want: tuple[int, str, dict[str, list[str]]]) -> None:
    assert decode_headers(block) == want


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"NATS/1.0",
        b"NATS/1.0\r\n",
        b"NATS/1.1\r\n\r\n",
        b"NATS/1.05\r\n\r\n",
        b"NATS/1.0 5\r\n\r\n",
        b"NATS/1.0 5033\r\n\r\n",
        b"NATS/1.0 x\r\n\r\n",
        b"NATS/1.0\r\nno colon\r\n\r\n",
        b"NATS/1.0\r\n: x\r\n\r\n",
        b"NATS/1.0\r\nA: x\nB: y\r\n\r\n",
        b"NATS/1.0\r\nA: x\r\n\r\n\r\n",
        b"NATS/1.0\r\nA: x\r\n\r\ny",
        b"\r\n\r\n",
    ],
)
def test_header_blocks_that_are_none(block: bytes) -> None:
    with pytest.raises(ValueError, match=re.compile("header|status")):
        decode_headers(block)


@given(st.binary(max_size=40))
def test_header_garbage(junk: bytes) -> None:
    for block in (junk, b"NATS/1.0" + junk, b"NATS/1.0\r\n" + junk + b"\r\n\r\n"):
        try:
            status, _, headers = decode_headers(block)
        except ValueError:
            continue
        assert 0 <= status <= 999
        assert all(headers.values())


def by_lines(block: bytes) -> dict[str, list[str]] | None:
    """The headers of a block without a status; None when it is no such block."""
    if not block.startswith(b"NATS/1.0\r\n") or not block.endswith(b"\r\n\r\n"):
        return None
    headers: dict[str, list[str]] = {}
    for line in block[:-4].split(b"\r\n")[1:]:
        key, colon, value = line.decode("utf-8", "surrogateescape").partition(":")
        if not key or not colon or "\r" in line.decode("latin-1") or "\n" in line.decode("latin-1"):
            return None
        headers.setdefault(key, []).append(value.lstrip(" \t"))
    return headers


PIECE = st.sampled_from(
    [b"A", b"bc", b":", b" ", b"\t", b"\r\n", b"\r", b"\n", b"\x00", "\u00e9".encode(), b"\xff", b"\xe2\x82"]
)  # fmt: skip


@given(st.lists(PIECE, max_size=12).map(b"".join))
def test_header_blocks_against_a_reader_by_lines(middle: bytes) -> None:
    block = b"NATS/1.0\r\n" + middle + b"\r\n"
    want = by_lines(block)
    if want is None:
        with pytest.raises(ValueError, match="header"):
            decode_headers(block)
    else:
        assert decode_headers(block) == (0, "", want)


def test_constants_differ() -> None:
    ops = [getattr(wire, name) for name in dir(wire) if name.startswith("OP_")]
    assert len(set(ops)) == len(ops) == 10
    assert len(BAD) == 4
    assert all(code < 0 for code in BAD)
