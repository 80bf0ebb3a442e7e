"""The headers a publisher may send: found, cleaned, never a crash."""

from hypothesis import given
from hypothesis import strategies as st

from pelton.core.base.durations import format_duration, parse_duration
from pelton.core.protocol.publish_headers import scan, tidied, value
from pelton.core.protocol.wire import encode_headers
from pelton.core.stream.refusals import parse_ttl

NAMES = {
    "Nats-Msg-Id": "message_id",
    "Nats-Expected-Stream": "stream",
    "Nats-Expected-Last-Sequence": "last_sequence",
    "Nats-Expected-Last-Subject-Sequence": "subject_sequence",
    "Nats-Expected-Last-Subject-Sequence-Subject": "subject",
    "Nats-Expected-Last-Msg-Id": "last_id",
}
RARE = {
    "Nats-Incr": 1,
    "Nats-TTL": 2,
    "Nats-Schedule": 4,
    "Nats-Scheduler": 4,
    "Nats-Schedule-Next": 4,
    "Nats-Rollup": 8,
    "Nats-Batch-Id": 16,
}
OTHER = [
    "nats-msg-id",
    "Nats-Msg-Idx",
    "Nats-",
    "X",
    "Nats-Schedule-Target",
    "Nats-Batch-Sequence",
    "KV-Operation",
]
LINES = st.lists(
    st.tuples(
        st.sampled_from([*NAMES, *RARE, *OTHER]),
        st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=8),
    ),
    max_size=10,
)


@given(LINES)
def test_first_value_of_each_exact_name(lines: list[tuple[str, str]]) -> None:
    block = b"NATS/1.0\r\n" + b"".join(f"{k}: {v}\r\n".encode() for k, v in lines) + b"\r\n"
    found = scan(block)
    for name, slot in NAMES.items():
        values = [v.lstrip(" ").encode() for k, v in lines if k == name and v.lstrip(" ")]
        assert found[slot] == (values[0] if values else None)
    bits = 0
    for name, bit in RARE.items():
        if any(k == name and v.lstrip(" ") for k, v in lines):
            bits |= bit
    assert found["rare"] == bits
    assert not found["untidy"]
    assert tidied(block) == block


@given(st.binary(max_size=200))
def test_any_bytes_are_scanned(block: bytes) -> None:
    scan(block)
    scan(b"NATS/1.0\r\n" + block)
    tidied(block)


def test_status_line_and_request_info_are_not_stored() -> None:
    block = b"NATS/1.0 503 foo\r\nNats-Request-Info: {}\r\nA: b\r\n\r\n"
    assert scan(block)["untidy"]
    assert tidied(block) == b"NATS/1.0\r\nA: b\r\n\r\n"
    assert tidied(b"garbage!!!") == b"garbage!!!"
    assert tidied(b"NATS/1.0\r\nNats-Request-Info: {}\r\n\r\n") == b""  # no empty block


def test_value_is_by_exact_name() -> None:
    block = encode_headers({"Nats-TTL": ["5s", "6s"], "nats-rollup": ["all"]})
    assert value(block, b"Nats-TTL") == b"5s"
    assert value(block, b"Nats-Rollup") is None


@given(st.integers(-(2**62), 2**62))
def test_durations_read_back(ns: int) -> None:
    assert parse_duration(format_duration(ns)) == ns


def test_durations_as_go_writes_them() -> None:
    texts = {
        0: "0s",
        1: "1ns",
        1_500: "1.5\u00b5s",
        2_000_000: "2ms",
        1_000_000_000: "1s",
        90_000_000_000: "1m30s",
        3_600_000_000_000: "1h0m0s",
    }
    assert {ns: format_duration(ns) for ns in texts} == texts
    texts_read = ("", "5", "s", "1x", "5s ", "-1m", ".5s", "1.5h", "9999999999h")
    assert [parse_duration(text) for text in texts_read] == [
        None, None, None, None, None, -60_000_000_000, 500_000_000, 5_400_000_000_000, None,
    ]  # fmt: skip


def test_ttl_values() -> None:
    texts = ("never", "NEVER", "5", "5s", "1m", "0", "1ms", "", "abc", "-5", "1.9s")
    assert [parse_ttl(t) for t in texts] == [-1, -1, 5, 5, 60, None, None, None, None, None, 1]
