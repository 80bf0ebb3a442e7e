"""Events from bytes and to bytes: the hub's own messages, random ones, and damaged ones."""

import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.plgd import (
    EVENT_TYPES,
    Encoded,
    Era,
    Kind,
    LeadType,
    Reason,
    UndecodableEventError,
    content_json,
    decode,
    decode_content,
    encode,
    encode_registration,
    ids,
    named_filter,
    parse_subject,
)
from pelton.plgd.codec import Envelope, pack, type_of
from pelton.plgd.subjects import FILTERS
from tests.plgd import vectors
from tests.plgd.strategies import messages

ROOT = Path(__file__).parents[2]


def encoded(message: Any, **options: Any) -> Encoded:
    if type_of(message).kind is Kind.REGISTRATIONS:
        return encode_registration(message)
    return encode(message, owner="a", **options)


def refusal(function: Callable[..., Any], *args: Any) -> Reason | None:
    """The reason for which a call is refused; None if it is not."""
    try:
        function(*args)
    except UndecodableEventError as bad:
        return bad.reason if bad.detail else None
    return None


def reason(subject: str, payload: bytes) -> Reason | None:
    return refusal(decode, subject, payload)


def test_ids_are_those_of_the_hub() -> None:
    assert {href: ids.href_id(href) for href in vectors.HREF_IDS} == vectors.HREF_IDS
    assert {t: ids.type_id(t) for t in vectors.TYPE_IDS} == vectors.TYPE_IDS
    device = vectors.DEVICE
    assert {h: ids.aggregate_id(device, h) for h in vectors.AGGREGATES} == vectors.AGGREGATES
    assert ids.links_id(device) == vectors.LINKS_AGGREGATE
    assert ids.metadata_id(device) == vectors.METADATA_AGGREGATE


UPPER = "1B4DB7EB-4057-5DDF-91E0-36DEC72071F5"
UUID_FORMS = [UPPER, f"{{{UPPER}}}", f"urn:uuid:{UPPER}", f"URN:UUID:{UPPER.lower()}"]
UUID_FORMS.append(UPPER.replace("-", ""))
NO_UUIDS = [f"uuid:{UPPER}", f" {UPPER}", f"{{{UPPER}", UPPER[:-1], UPPER.replace("-", ":")]
NO_UUIDS += [f"é{UPPER}é", ids.NIL_UUID.replace("-", ""), f"urn:uuid:{ids.NIL_UUID}"]


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ("a", vectors.OWNER_A),
        ("1", "b80c8fef-a677-5340-85fb-2c162d75df03"),
        ("", "1b4db7eb-4057-5ddf-91e0-36dec72071f5"),
        ("*", "*"),
        (vectors.DEVICE, vectors.DEVICE),
        # as google/uuid parses them; the hub uses the claim itself
        *((form, form) for form in UUID_FORMS),
        *((form, str(uuid.uuid5(uuid.NAMESPACE_URL, form))) for form in NO_UUIDS),
        (ids.NIL_UUID, str(uuid.uuid5(uuid.NAMESPACE_URL, ids.NIL_UUID))),
    ],
)
def test_an_owner_that_is_a_uuid_is_its_own_id(claim: str, expected: str) -> None:
    assert ids.owner_id(claim) == expected


def test_an_older_hub_hashes_every_owner() -> None:
    hashed = str(uuid.uuid5(uuid.NAMESPACE_URL, vectors.DEVICE))
    assert ids.owner_id(vectors.DEVICE, uuid_as_is=False) == hashed


def test_a_changed_resource_of_the_hub_decodes() -> None:
    event = decode(vectors.CHANGED_SUBJECT, vectors.CHANGED)
    assert (event.version, event.href, event.device_id) == (7, "/light/1", vectors.DEVICE)
    assert event.aggregate_id == vectors.AGGREGATES["/light/1"]
    assert event.timestamp_ns == 1721815756000000000
    assert event.hub_id == vectors.HUB
    assert event.content_value() == {"state": True, "power": 42, "name": "Light"}
    message = event.message
    assert message.content.data == vectors.CONTENT
    assert message.etag == bytes(range(1, 9))
    assert (message.audit_context.owner, message.audit_context.user_id) == ("a", "1")
    assert (message.event_metadata.connection_id, message.event_metadata.sequence) == (
        "10.1.2.3:48312",
        19,
    )
    again = encode(message, owner="a")
    assert again.subject == vectors.CHANGED_SUBJECT
    assert decode(again.subject, again.payload) == event


def test_a_registration_of_the_hub_decodes() -> None:
    event = decode(vectors.REGISTERED_SUBJECT, vectors.REGISTERED)
    assert (event.version, event.aggregate_id, event.device_id) == (None, None, None)
    assert event.message.owner == "a"
    assert list(event.message.device_ids) == [vectors.DEVICE]
    assert event.timestamp_ns == 1721815749000000000
    assert encode_registration(event.message).subject == vectors.REGISTERED_SUBJECT


@given(
    messages(),
    st.sampled_from(Era),
    st.none() | st.builds(LeadType, choice=st.sampled_from(["first", "last", ""])),
)
def test_every_event_comes_back(message: Any, era: Era, lead: LeadType | None) -> None:
    if lead is not None and not all(
        t.isascii() and t.isalnum() for t in getattr(message, "resource_types", [])
    ):
        lead = None
    out = encoded(message, era=era, lead=lead)
    event = decode(out.subject, out.payload)
    assert event.message == message
    assert event.type.name == event.subject.event_type
    assert encoded(message, era=era, lead=lead).message_id == out.message_id


@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from(["plgd", "owners", "devices", "events", "a", "*", ">"])).map(
        ".".join
    )
)
def test_any_subject_is_parsed_or_refused(subject: str) -> None:
    assert refusal(parse_subject, subject) in {None, Reason.SUBJECT, Reason.EVENT_TYPE}


@given(
    st.binary(max_size=80), st.sampled_from([vectors.CHANGED_SUBJECT, vectors.REGISTERED_SUBJECT])
)
def test_any_payload_is_decoded_or_refused(payload: bytes, subject: str) -> None:
    reason(subject, payload)


@given(st.data())
def test_a_damaged_payload_is_decoded_or_refused(data: st.DataObject) -> None:
    damaged = bytearray(vectors.CHANGED)
    for place in data.draw(st.lists(st.integers(0, len(damaged) - 1), min_size=1, max_size=4)):
        damaged[place] = data.draw(st.integers(0, 255))
    reason(vectors.CHANGED_SUBJECT, bytes(damaged))
    reason(vectors.CHANGED_SUBJECT, vectors.CHANGED[: data.draw(st.integers(0, 300))])


def envelope(**changes: Any) -> bytes:
    whole = Envelope.FromString(vectors.CHANGED)
    for name, value in changes.items():
        setattr(whole, name, value)
    return whole.SerializeToString()


@pytest.mark.parametrize(
    ("subject", "payload", "expected"),
    [
        ("orders.new", vectors.CHANGED, Reason.SUBJECT),
        ("plgd.owners.a.devices", vectors.CHANGED, Reason.SUBJECT),
        ("plgd..owners.a.devices.b", vectors.CHANGED, Reason.SUBJECT),
        (vectors.CHANGED_SUBJECT + ".other", vectors.CHANGED, Reason.SUBJECT),
        (vectors.CHANGED_SUBJECT + "x", vectors.CHANGED, Reason.EVENT_TYPE),
        ("plgd.owners.a.devices.b.metadata.resourcechanged", b"", Reason.EVENT_TYPE),
        (vectors.CHANGED_SUBJECT, b"", Reason.ENVELOPE),
        (vectors.CHANGED_SUBJECT, b"\xff\xff", Reason.ENVELOPE),
        (vectors.CHANGED_SUBJECT, envelope(event_type="resourcemoved"), Reason.EVENT_TYPE),
        (vectors.CHANGED_SUBJECT, envelope(event_type="resourceupdated"), Reason.MISMATCH),
        (vectors.CHANGED_SUBJECT, envelope(group_id="other"), Reason.MISMATCH),
        (vectors.CHANGED_SUBJECT, envelope(data=b""), Reason.SNAPPY),
        (vectors.CHANGED_SUBJECT, envelope(data=b"\xff\x06\x00\x00sNaPpY"), Reason.SNAPPY),
        (vectors.CHANGED_SUBJECT, envelope(data=b"\xff\xff\xff\xff\x0f\x00"), Reason.SNAPPY),
        (vectors.CHANGED_SUBJECT, envelope(data=b"\x02\x04\xff\xff"), Reason.EVENT),
        (vectors.REGISTERED_SUBJECT, b"\x00", Reason.ENVELOPE),
        (vectors.REGISTERED_SUBJECT, b"\x02\x04\xff\xff", Reason.ENVELOPE),
        (
            vectors.REGISTERED_SUBJECT.replace("registered", "unregistered"),
            vectors.REGISTERED,
            Reason.MISMATCH,
        ),
    ],
)
def test_a_bad_message_has_a_reason(subject: str, payload: bytes, expected: Reason) -> None:
    assert reason(subject, payload) is expected


def test_the_device_of_subject_and_event_may_not_hide_a_large_block() -> None:
    """A block of a few bytes that claims gigabytes is refused before memory is taken."""
    bomb = envelope(data=b"\xff\xff\xff\xff\x07")
    assert reason(vectors.CHANGED_SUBJECT, bomb) is Reason.SNAPPY


@pytest.mark.parametrize(
    ("data", "content_type", "content_format", "value"),
    [
        (
            vectors.CONTENT,
            "application/vnd.ocf+cbor",
            10000,
            {"state": True, "power": 42, "name": "Light"},
        ),
        (b"\x80", "application/cbor", 60, []),
        (b"\x80", "", 60, []),
        (b'{"a":1}', "application/json", 50, {"a": 1}),
        ("grün".encode(), "text/plain; charset=utf-8", 0, "grün"),
        (b"", "", -1, None),
        (b"\x01\x02", "application/octet-stream", 42, b"\x01\x02"),
    ],
)
def test_content_is_what_its_type_says(
    data: bytes, content_type: str, content_format: int, value: Any
) -> None:
    assert decode_content(data, content_type, content_format) == value


@pytest.mark.parametrize(
    ("data", "content_type"),
    [
        (b"\xa1", "application/cbor"),
        (b"\x80\x80", "application/cbor"),
        (b"\x81" * 5000 + b"\x80", "application/cbor"),
        (b"{", "application/json"),
        (b"\xff", "text/plain"),
    ],
)
def test_content_of_another_type_is_refused(data: bytes, content_type: str) -> None:
    with pytest.raises(UndecodableEventError) as bad:
        decode_content(data, content_type)
    assert bad.value.reason is Reason.CONTENT


@given(st.binary(max_size=40))
def test_any_content_is_decoded_or_refused(data: bytes) -> None:
    for content_type in ["application/vnd.ocf+cbor", "application/json", "text/plain"]:
        assert refusal(content_json, data, content_type) in {None, Reason.CONTENT}


def test_json_has_what_cbor_has_and_json_lacks() -> None:
    value = {1: b"\x01", "a": [float("nan"), None, {"b": 2**70}]}
    assert content_json(cbor2.dumps(value), "application/cbor") == (
        '{"1":"AQ==","a":[null,null,{"b":1180591620717411303424}]}'
    )


def test_a_lead_type_is_chosen_by_regex_then_by_place() -> None:
    types = ["oic.wk.d", "core.light"]
    assert LeadType().tokens(types) == ".leadrt"
    assert LeadType(choice="first").tokens(types) == ".leadrt.oic.wk.d"
    assert LeadType(choice="last").tokens(types) == ".leadrt.core.light"
    assert LeadType(choice="last").tokens([]) == ".leadrt"
    assert LeadType(("^core",), "first").tokens(types) == ".leadrt.core.light"
    assert LeadType(choice="first").tokens(["a*>$"]) == ".leadrt.a___"
    by_uuid = LeadType(choice="last", as_uuid=True)
    assert by_uuid.tokens(types) == f".leadrt.{vectors.TYPE_IDS['core.light']}"


def matches(pattern: str, subject: str) -> bool:
    """Whether a subject matches a pattern, token by token."""
    left, right = pattern.split("."), subject.split(".")
    for place, token in enumerate(left):
        if token == ">":
            return len(right) > place
        if place >= len(right) or token not in {"*", right[place]}:
            return False
    return len(left) == len(right)


@pytest.mark.parametrize("name", FILTERS)
def test_a_named_filter_finds_its_events_with_and_without_lead_type(name: str) -> None:
    patterns = named_filter(name, owner="a", device=vectors.DEVICE, href="/light/1")
    changed = vectors.CHANGED_SUBJECT
    for end in ["", ".leadrt", ".leadrt.core.light"]:
        found = sum(matches(pattern, changed + end) for pattern in patterns)
        assert found == (name in {"all", "owner", "device", "resources", "resource", "changed"})
    registered = any(matches(pattern, vectors.REGISTERED_SUBJECT) for pattern in patterns)
    assert registered == (name in {"all", "owner", "registrations"})


def test_a_filter_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="no filter 'lights'; there are all"):
        named_filter("lights")


def test_only_what_is_published_is_encoded() -> None:
    heartbeat = EVENT_TYPES["ServiceMetadataUpdated"].message()
    with pytest.raises(ValueError, match="not published"):
        encode(heartbeat, owner="a")
    registered = EVENT_TYPES["devicesregistered"].message()
    with pytest.raises(ValueError, match="encode_registration"):
        encode(registered, owner="a")
    with pytest.raises(ValueError, match="no registration"):
        encode_registration(EVENT_TYPES["resourcechanged"].message())


def test_the_hub_leaves_out_what_is_zero() -> None:
    changed = EVENT_TYPES["resourcechanged"].message()
    out = Envelope.FromString(encode(changed, owner="a").payload)
    assert (out.version, out.is_snapshot, out.timestamp) == (0, False, 0)
    assert pack(changed) == b"\x00"


def test_the_compiled_messages_are_those_of_the_proto_files(tmp_path: Path) -> None:
    tool = [sys.executable, str(ROOT / "tools/gen_plgd_proto.py"), str(tmp_path)]
    folder = Path("pelton/plgd/wire")
    (tmp_path / folder).mkdir(parents=True)
    subprocess.run(tool, check=True)
    made = sorted(path.name for path in (tmp_path / folder).iterdir())
    assert made
    for file in made:
        theirs = (ROOT / "src" / folder / file).read_text()
        assert (tmp_path / folder / file).read_text() == theirs, f"{file}: run `make plgd-proto`"
