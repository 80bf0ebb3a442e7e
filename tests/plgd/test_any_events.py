"""Any events and any bytes come through: each is an event, a duplicate or a dead letter, and nothing fails."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pelton.plgd import EVENT_TYPES, encode, encode_registration
from pelton.plgd.codec import Envelope
from pelton.plgd.fleet.delivery import Delivery
from pelton.plgd.tables import TABLES
from pelton.plgd.tables.settings import Settings
from tests.plgd.strategies import messages
from tests.plgd.tables_help import Memory, as_messages, cut
from tests.ways import FULL, length

DEVICES = [f"00000000-0000-4000-8000-00000000000{number}" for number in range(3)]
FEW = st.sampled_from([0, 1, 2, 3, 5, 16, 2**63 - 1, 2**63, 2**64 - 1])
TIMES = st.sampled_from([0, 1, -1, -(2**63), 2**63 - 1, 1_721_815_740 * 10**9]) | st.integers(
    0, 2 * 10**18
)
OWNERS = st.sampled_from(["a", "auth0|b", ""])


def set_all(message: Any, name: str, value: Any) -> None:
    """Give every field of a name the same value, at any depth."""
    for field, found in message.ListFields():
        if field.name == name:
            if field.is_repeated:
                del found[:]
            else:
                setattr(message, name, value)
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for one in found if field.is_repeated else [found]:
                set_all(one, name, value)


@st.composite
def deliveries(draw: st.DrawFn) -> Delivery:
    """A message of few devices, so that versions meet; some with other bytes."""
    message = draw(messages())
    device, owner = draw(st.sampled_from(DEVICES)), draw(OWNERS)
    set_all(message, "device_id", device)
    set_all(message, "correlation_id", draw(st.sampled_from(["", "c1", "c2"])))
    if hasattr(message, "device_ids"):
        message.timestamp = draw(TIMES)
        out = encode_registration(message)
    else:
        if hasattr(message, "device_id"):
            message.device_id = device
        else:
            message.resource_id.device_id = device
            message.resource_id.href = draw(st.sampled_from(["/light/1", "/ü"]))
        message.event_metadata.version = draw(FEW)
        message.event_metadata.timestamp = draw(TIMES)
        out = encode(message, owner=owner)
    payload = out.payload
    if draw(st.integers(0, 4)) == 0:
        place = draw(st.integers(0, max(0, len(payload) - 1)))
        payload = payload[:place] + draw(st.binary(max_size=3)) + payload[place + 1 :]
    return Delivery(draw(st.integers(0, 2 * 10**18)), out.subject, payload, "")


@given(st.lists(deliveries(), min_size=1, max_size=16), st.integers(3, 16))
@settings(
    deadline=None,
    max_examples=length(25, 2000),
    phases=[Phase.explicit, Phase.generate],
    derandomize=not FULL,
)
def test_every_message_is_in_a_table_whatever_it_says(found: list[Delivery], rows: int) -> None:
    memory = Memory(Settings(buckets=1, late_s=1.0))
    for part in cut(as_messages(found, 1), rows):
        memory.run(part)
    assert sorted(memory.table("raw")["seq"].to_pylist()) == list(range(1, len(found) + 1))
    events, letters = memory.table("events"), memory.table("dead_letters")
    others = [row for row in letters["reason"].to_pylist() if row != "content"]
    assert len(events) + len(others) + memory.duplicates == len(found)
    for name in TABLES:
        pq.write_table(memory.table(name), pa.BufferOutputStream())


def test_a_version_that_no_store_can_hold_is_a_dead_letter() -> None:
    message: Any = EVENT_TYPES["resourcechanged"].message()
    message.resource_id.device_id, message.resource_id.href = DEVICES[0], "/light/1"
    found = []
    for version in (0, 2**63, 1):
        message.event_metadata.version = version
        message.event_metadata.sequence = 2**63 - version  # fits in the last one alone
        message.event_metadata.timestamp += 10**9
        out = encode(message, owner="a")
        found.append(Delivery(0, out.subject, out.payload, ""))
    memory = Memory(Settings(buckets=1))
    memory.run(as_messages(found, 1))
    assert memory.table("events")["version"].to_pylist() == [0, 1]
    assert memory.table("events")["sequence"].to_pylist() == [None, 2**63 - 1]
    [letter] = memory.rows("dead_letters")
    assert (letter["seq"], letter["reason"]) == (2, "event")
    assert letter["detail"] == "version 9223372036854775808 is none of a hub"
    assert memory.rows("version_gaps") == []


def test_content_that_is_not_of_its_type_is_an_event_and_a_dead_letter() -> None:
    message: Any = EVENT_TYPES["resourcechanged"].message()
    message.resource_id.device_id, message.resource_id.href = DEVICES[0], "/light/1"
    message.content.data, message.content.content_type = b"\xff", "application/vnd.ocf+cbor"
    out = encode(message, owner="a")
    memory = Memory(Settings(buckets=1))
    memory.run(as_messages([Delivery(0, out.subject, out.payload, "")], 1))
    [event], [letter] = memory.rows("events"), memory.rows("dead_letters")
    assert (event["content"], event["content_json"]) == (b"\xff", None)
    assert (letter["seq"], letter["reason"], letter["data"]) == (1, "content", out.payload)
    assert memory.rows("version_gaps") == []


def test_a_damaged_message_may_name_no_device() -> None:
    message: Any = EVENT_TYPES["resourcechanged"].message()
    message.resource_id.device_id, message.resource_id.href = DEVICES[0], "/light/1"
    message.event_metadata.version = 3
    whole = encode(message, owner="a")
    damaged = Envelope(version=3, event_type="resourcechanged", aggregate_id="of nobody")
    payloads = [damaged.SerializeToString(), whole.payload]
    memory = Memory(Settings(buckets=1))
    memory.run(as_messages([Delivery(0, whole.subject, one, "") for one in payloads], 1))
    [letter] = memory.rows("dead_letters")
    assert (letter["device_id"], letter["aggregate_id"]) == (None, "of nobody")
    assert len(memory.table("events")) == 1


def test_a_snapshot_may_say_of_its_change_what_cannot_be() -> None:
    message: Any = EVENT_TYPES["resourcestatesnapshottaken"].message()
    message.resource_id.device_id, message.resource_id.href = DEVICES[0], "/light/1"
    message.event_metadata.version = 16
    change = message.latest_resource_change
    change.status, change.event_metadata.version = 1, 2**64 - 1
    out = encode(message, owner="a")
    memory = Memory(Settings(buckets=1))
    memory.run(as_messages([Delivery(0, out.subject, out.payload, "")], 1))
    assert memory.table("events")["version"].to_pylist() == [16]
    assert memory.rows("twin_latest") == []
