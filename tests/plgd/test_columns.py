"""Batches of events as columns: the same as one at a time, in order, bad messages in their place."""

from typing import Any

import pyarrow as pa
import pytest
from cramjam import snappy
from hypothesis import given
from hypothesis import strategies as st

from pelton.plgd import SCHEMA, Kind, columns, decode, decode_batch
from pelton.plgd.codec import Envelope
from tests.plgd import vectors
from tests.plgd.strategies import messages
from tests.plgd.test_codec import encoded, refusal

BAD = st.sampled_from(
    [
        ("orders.new", b"x"),
        (vectors.CHANGED_SUBJECT, b"\xff"),
        (vectors.REGISTERED_SUBJECT, b"\x05"),
        (vectors.CHANGED_SUBJECT, vectors.CHANGED[:100]),
    ]
)
GOOD = messages().map(encoded).map(lambda out: (out.subject, out.payload))


def check(row: dict[str, Any], subject: str, payload: bytes) -> None:
    if (bad := refusal(decode, subject, payload)) is not None:
        assert (row["error"], row["kind"]) == (bad.value, None)
        assert row["error_detail"]
        return
    event = decode(subject, payload)
    assert row["error"] is None
    assert row["kind"] == event.type.kind.value
    assert row["event_type"] == event.type.name
    assert row["is_snapshot"] == event.type.is_snapshot
    assert row["owner_id"] == event.subject.owner_id
    assert row["device_id"] == event.device_id
    assert row["version"] == event.version
    assert row["aggregate_id"] == event.aggregate_id
    assert row["timestamp_ns"] == event.timestamp_ns
    assert row["hub_id"] == event.hub_id
    assert row["href"] == event.href
    assert event.type.message.FromString(row["data"]) == event.message
    if event.type.kind is Kind.REGISTRATIONS:
        assert row["device_ids"] == list(event.message.device_ids)
    if hasattr(event.message, "content"):
        assert row["content"] == event.message.content.data
        assert row["content_type"] == event.message.content.content_type
    if hasattr(event.message, "valid_until"):
        assert row["valid_until_ns"] == event.message.valid_until
    if hasattr(event.message, "connection"):
        assert row["connected_at_ns"] == event.message.connection.connected_at
        assert row["local_endpoints"] == list(event.message.connection.local_endpoints)
        assert row["twin_enabled"] == event.message.twin_enabled


@given(st.lists(GOOD | BAD, max_size=12))
def test_a_batch_is_its_events_in_order(batch: list[tuple[str, bytes]]) -> None:
    subjects, payloads = [s for s, _ in batch], [p for _, p in batch]
    table = decode_batch(subjects, payloads)
    assert table.schema == SCHEMA
    for row, subject, payload in zip(table.to_pylist(), subjects, payloads, strict=True):
        check(row, subject, payload)


def test_a_batch_longer_than_a_slice_keeps_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "SLICE", 3)
    messages = [
        (vectors.CHANGED_SUBJECT, vectors.CHANGED),
        (vectors.REGISTERED_SUBJECT, vectors.REGISTERED),
        ("orders", b""),
        (vectors.CHANGED_SUBJECT, vectors.CHANGED),
        ("orders", b""),
    ] * 3
    subjects = pa.chunked_array([[s for s, _ in messages[:7]], [s for s, _ in messages[7:]]])
    table = decode_batch(subjects, pa.array([p for _, p in messages]))
    kinds = table.column("kind").to_pylist()
    assert kinds == ["resources", "registrations", None, "resources", None] * 3


def test_a_row_has_the_columns_of_its_event() -> None:
    [row] = decode_batch([vectors.CHANGED_SUBJECT], [vectors.CHANGED], content="json").to_pylist()
    assert row["content_json"] == '{"state":true,"power":42,"name":"Light"}'
    assert (row["status"], row["resource_types"], row["sequence"]) == ("OK", ["core.light"], 19)
    assert (row["user_id"], row["owner"], row["correlation_id"]) == ("1", "a", "")
    assert row["etag"] == bytes(range(1, 9))
    assert row["href_id"] == vectors.LIGHT


def test_content_that_is_not_of_its_type_is_an_error_of_its_row() -> None:
    message = decode(vectors.CHANGED_SUBJECT, vectors.CHANGED).message
    message.content.data = b"\xa1"
    out = encoded(message)
    [row] = decode_batch([out.subject], [out.payload], content="json").to_pylist()
    assert (row["error"], row["version"], row["content"]) == ("content", 7, b"\xa1")
    [raw] = decode_batch([out.subject], [out.payload]).to_pylist()
    assert raw["error"] is None


def test_no_subject_and_no_payload_are_errors_of_their_rows() -> None:
    table = decode_batch([None, vectors.CHANGED_SUBJECT], [vectors.CHANGED, None])
    assert table.column("error").to_pylist() == ["subject", "envelope"]


def test_what_fits_no_batch_is_refused() -> None:
    assert decode_batch([], []).num_rows == 0
    with pytest.raises(ValueError, match="1 subjects for 0 payloads"):
        decode_batch(["a"], [])
    with pytest.raises(ValueError, match="'raw' or 'json'"):
        decode_batch([], [], content="cbor")


def damaged(out: tuple[str, bytes], at: int, with_byte: int, where: str) -> tuple[str, bytes]:
    """A message with a byte changed: in its envelope, or in the event that it holds."""
    subject, payload = out
    body = bytearray(payload)
    if where == "event":
        envelope = Envelope.FromString(payload)
        body = bytearray(snappy.decompress_raw(envelope.data))
    if body:
        body[at % len(body)] ^= with_byte
    if where == "event":
        envelope.data = bytes(snappy.compress_raw(bytes(body)))
        return subject, envelope.SerializeToString()
    return subject, bytes(body)


DEVICE = GOOD.filter(lambda out: ".registrations." not in out[0])
DAMAGED = st.builds(
    damaged,
    DEVICE,
    st.integers(0, 2000),
    st.integers(1, 255),
    st.sampled_from(["event", "envelope"]),
)


@given(st.lists(DAMAGED | DEVICE, min_size=1, max_size=12))
def test_the_scanner_reads_what_protobuf_reads(batch: list[tuple[str, bytes]]) -> None:
    subjects, payloads = [s for s, _ in batch], [p for _, p in batch]
    for content in ("raw", "json"):
        at_once = decode_batch(subjects, payloads, content=content)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(columns, "PLAIN", set())
            one_by_one = decode_batch(subjects, payloads, content=content)
        for ours, theirs in zip(at_once.to_pylist(), one_by_one.to_pylist(), strict=True):
            assert ours == theirs


def test_fields_of_a_newer_hub_change_nothing() -> None:
    """A field that is not known, in the envelope and in the event: number 300, with a text."""
    unknown = bytes([0xE2, 0x12, 3]) + b"new"
    envelope = Envelope.FromString(vectors.CHANGED)
    inner = bytes(snappy.decompress_raw(envelope.data)) + unknown
    envelope.data = bytes(snappy.compress_raw(inner))
    newer = envelope.SerializeToString() + unknown
    rows = decode_batch([vectors.CHANGED_SUBJECT] * 2, [vectors.CHANGED, newer]).drop(["data"])
    old, new = rows.to_pylist()
    assert old == new
    assert old["error"] is None
