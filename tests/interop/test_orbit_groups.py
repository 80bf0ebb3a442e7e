"""Consumer groups send what orbit's do, byte by byte where others read it, and take up what orbit left.

`orbit/pcgroups.json` was recorded from orbit's Go package, which neither PyPI nor npm nor Debian has: its
head names the versions.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pelton import (
    ConsumerConfig,
    ElasticGroupConfig,
    KeyValueConfig,
    MemberMapping,
    PartitioningFilter,
    StaticGroupConfig,
    StreamConfig,
)
from pelton.api import decode_response, encode
from pelton.client.groups import ELASTIC_BUCKET, STATIC_BUCKET
from pelton.sync import connect
from tests.client.shells import SHELLS, connected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.peers import ServerProcess

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "orbit" / "pcgroups.json").read_text()
)["cases"]
WAIT_S = 60
TAPPED = ("$KV.*.>", "$JS.API.STREAM.CREATE.*", "$JS.API.CONSUMER.CREATE.>")
API = "$JS.API.CONSUMER.CREATE."


@pytest.fixture(params=CASES, ids=[f"{case['group']['kind']}-{case['stream']}" for case in CASES])
def case(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(request.param)


@pytest.fixture
def shell(case: dict[str, Any]) -> str:
    """The shells take turns: what they do is decided in one place."""
    return SHELLS[CASES.index(case) % len(SHELLS)]


@pytest.fixture
def admin(server: ServerProcess, case: dict[str, Any]) -> Iterator[Any]:
    """Another client, with the stream of the case: the groups of a case are gone at its end."""
    with connect(server.url, timeout=WAIT_S) as client:
        js = client.jetstream()
        stream = case["stream"]
        js.create_stream(StreamConfig(name=stream, subjects=[f"never.{stream}"]))
        yield client
        bucket = ELASTIC_BUCKET if case["group"]["kind"] == "elastic" else STATIC_BUCKET
        for name in (stream, f"{stream}-g", f"KV_{bucket}"):
            if name in js.stream_names():
                js.delete_stream(name)


def mappings(group: dict[str, Any]) -> list[MemberMapping]:
    return [MemberMapping(each["member"], each["partitions"]) for each in group.get("mappings", [])]


def filters(group: dict[str, Any]) -> list[PartitioningFilter]:
    return [
        PartitioningFilter(each["filter"], each["partitioning_wildcards"])
        for each in group.get("partitioning_filters", [])
    ]


def make_group(js: Any, case: dict[str, Any]) -> Any:
    """Do with our client what the recording did with orbit's."""
    stream, group = case["stream"], case["group"]
    if group["kind"] == "static":
        config = StaticGroupConfig(
            max_members=group["max_members"],
            filters=group.get("filters", []),
            members=group.get("members", []),
            mappings=mappings(group),
        )
        return js.create_static_group(stream, "g", config)
    elastic = js.create_elastic_group(
        stream,
        "g",
        ElasticGroupConfig(
            max_members=group["max_members"],
            partitioning_filters=filters(group),
            max_buffered_msgs=group.get("max_buffered_msgs", 0),
            max_buffered_bytes=group.get("max_buffered_bytes", 0),
        ),
    )
    if group.get("members"):
        elastic.add_members(*group["members"])
    else:
        elastic.set_mappings(mappings(group))
    return elastic


def template(case: dict[str, Any]) -> ConsumerConfig | None:
    ack_wait_ns = case["group"].get("ack_wait")
    return None if ack_wait_ns is None else ConsumerConfig(ack_wait=ack_wait_ns / 1e9)


def member_of(subject: str, case: dict[str, Any]) -> str:
    """The member whose consumer a request makes."""
    name = subject.rpartition(".")[2]
    return name.removeprefix("g-") if case["group"]["kind"] == "static" else name


def consume_once(group: Any, member: str, case: dict[str, Any]) -> None:
    """Join as a member until its consumer is there, and leave."""

    def handle(_: Any) -> None:
        """There are no messages."""

    with group.consume(member, handle, auto_ack=True, config=template(case)) as messages:
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            messages.run(timeout=0.02)
            if member in group.active_members():
                return
        raise AssertionError(f"{member} has not become active")


def test_our_requests_are_those_of_orbit(
    shell: str, server: ServerProcess, case: dict[str, Any], admin: Any
) -> None:
    """Documents byte by byte; streams and consumers field by field, with defaults filled in."""
    taps = [admin.subscribe(each) for each in TAPPED]
    admin.flush()
    with connected(shell, server.url, timeout=WAIT_S) as client:
        group = make_group(client.jetstream(), case)
        for subject, _ in case["consumers"]:
            consume_once(group, member_of(subject, case), case)
    admin.flush()
    documents, streams, requests = [[*drained(tap)] for tap in taps]
    assert [[subject, ordered(data.decode(), case)] for subject, data in documents] == [
        [subject, ordered(document, case)] for subject, document in case["documents"]
    ]
    ours = {
        subject: json.loads(data)
        for subject, data in requests
        if subject.startswith(f"{API}{case['stream']}") and "JS_SRC" not in subject
    }
    for subject, request in case["consumers"]:
        assert subject in ours, (subject, [*ours])
        assert filled(ConsumerConfig, ours[subject]["config"]) == filled(
            ConsumerConfig, {**request["config"], "name": ours[subject]["config"]["name"]}
        )
    if case["work_queue"] is not None:
        (made,) = [data for subject, data in streams if subject.endswith("-g")]
        theirs = {**case["work_queue"], "max_consumers": -1, "max_msgs_per_subject": -1}
        assert unlimited(filled(StreamConfig, json.loads(made))) == unlimited(
            filled(StreamConfig, theirs)
        )


def test_we_take_up_what_orbit_left(
    shell: str, server: ServerProcess, case: dict[str, Any], admin: Any
) -> None:
    """Its documents, stream and consumers, as another client stores them: read, listed and joined."""
    js = admin.jetstream()
    kind = case["group"]["kind"]
    bucket = js.create_key_value(
        KeyValueConfig(bucket=STATIC_BUCKET if kind == "static" else ELASTIC_BUCKET)
    )
    for subject, document in case["documents"]:
        bucket.put(subject.split(".", 2)[2], document.encode())
    if case["work_queue"] is not None:
        name = f"{case['stream']}-g"
        answer = admin.request(
            f"$JS.API.STREAM.CREATE.{name}", json.dumps(case["work_queue"]).encode()
        )
        assert b'"error"' not in answer.data, answer.data
    for subject, request in case["consumers"]:
        answer = admin.request(subject, json.dumps(request).encode())
        assert b'"error"' not in answer.data, answer.data
    with connected(shell, server.url, timeout=WAIT_S) as client:
        ours = client.jetstream()
        opened = ours.static_group if kind == "static" else ours.elastic_group
        group = opened(case["stream"], "g")
        config = group.config()
        assert config.encode().decode() == case["documents"][-1][1]
        assert set(config.members) == set(case["group"].get("members", []))
        assert config.mappings == mappings(case["group"])
        listed = ours.static_group_names if kind == "static" else ours.elastic_group_names
        assert listed(case["stream"]) == ["g"]
        for subject, _ in case["consumers"]:
            consume_once(group, member_of(subject, case), case)


def drained(tap: Any) -> Iterator[tuple[str, bytes]]:
    """The messages that a subscription has got."""
    while tap.pending:
        message = tap.next()
        yield message.subject, message.data


def ordered(document: str, case: dict[str, Any]) -> str:
    """A document whose members are in order when orbit stores them in any order."""
    if case["group"]["kind"] == "static":
        return document
    fields = json.loads(document)
    members = fields.get("members", [])
    written = json.dumps(members, separators=(",", ":"))
    return document.replace(written, json.dumps(sorted(members), separators=(",", ":")))


def filled(kind: Any, fields: dict[str, Any]) -> Any:
    """A configuration with its defaults."""
    return json.loads(encode(decode_response(kind, json.dumps(fields).encode())))


def unlimited(fields: dict[str, Any]) -> dict[str, Any]:
    """Limits of 0 and of -1 are the same to a server."""
    return {name: value for name, value in fields.items() if value not in (0, -1, "none", {}, [])}
