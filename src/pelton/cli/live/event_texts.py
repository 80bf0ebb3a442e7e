"""Advisories, metrics and events of servers as texts: one line, or a page of names and values.

Each kind of event has a title, a line for ``--short`` and the fields of its page. An event of another kind is shown
with all that it has.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pelton.api.times import format_duration
from pelton.cli.output import number, size

Event = dict[str, Any]

ADVISORY = "io.nats.jetstream.advisory.v1."
METRIC = "io.nats.jetstream.metric.v1."
SERVER = "io.nats.server.advisory.v1."
_COMMON = ("type", "id", "timestamp", "schema")


class Text(NamedTuple):
    """How a kind of event is shown."""

    title: str
    short: str
    """A line; a name in braces is a field, with dots into objects."""
    fields: tuple[tuple[str, str], ...]
    """Label and field, in the order of the page."""


_STREAM = ("Stream", "stream")
_CONSUMER = ("Consumer", "consumer")
_SEQUENCES = (("Stream sequence", "stream_seq"), ("Consumer sequence", "consumer_seq"))
_DELIVERIES = ("Deliveries", "deliveries")
_CLIENT = (
    ("User", "client.user"),
    ("Account", "client.acc"),
    ("Client", "client.name"),
    ("Connection", "client.id"),
    ("Host", "client.host"),
    ("Language", "client.lang"),
    ("Version", "client.ver"),
)
_DOMAIN = ("Domain", "domain")
_LEADER = (("Leader", "leader"), ("Copies", "replicas"))
_SENT = (
    ("Messages sent", "sent.msgs"),
    ("Bytes sent", "sent.bytes"),
    ("Messages received", "received.msgs"),
    ("Bytes received", "received.bytes"),
)

TEXTS: dict[str, Text] = {
    ADVISORY + "stream_action": Text(
        "Stream {action}", "{action} {stream}", (_STREAM, ("Action", "action"), _DOMAIN)
    ),
    ADVISORY + "consumer_action": Text(
        "Consumer {action}",
        "{action} {stream} > {consumer}",
        (_STREAM, _CONSUMER, ("Action", "action"), _DOMAIN),
    ),
    ADVISORY + "max_deliver": Text(
        "Delivery attempts used up",
        "{stream} ({stream_seq}) > {consumer}: {deliveries} deliveries",
        (_STREAM, _CONSUMER, ("Stream sequence", "stream_seq"), _DELIVERIES, _DOMAIN),
    ),
    ADVISORY + "nak": Text(
        "Message was not acknowledged",
        "{stream} ({stream_seq}) > {consumer} ({consumer_seq}): {deliveries} deliveries",
        (_STREAM, _CONSUMER, *_SEQUENCES, _DELIVERIES, _DOMAIN),
    ),
    ADVISORY + "terminated": Text(
        "Message was terminated",
        "{stream} ({stream_seq}) > {consumer} ({consumer_seq}): {deliveries} deliveries {reason}",
        (_STREAM, _CONSUMER, *_SEQUENCES, _DELIVERIES, ("Reason", "reason"), _DOMAIN),
    ),
    ADVISORY + "api_audit": Text(
        "JetStream API call",
        "{subject} by {client.user} of {client.acc}",
        (
            ("Server", "server"),
            ("Subject", "subject"),
            *_CLIENT,
            ("Request", "request"),
            ("Response", "response"),
            _DOMAIN,
        ),
    ),
    ADVISORY + "snapshot_create": Text(
        "Backup began",
        "{stream}",
        (
            _STREAM,
            ("Messages", "state.messages"),
            ("Bytes", "state.bytes"),
            *_CLIENT,
            _DOMAIN,
        ),
    ),
    ADVISORY + "snapshot_complete": Text(
        "Backup ended",
        "{stream} {error}",
        (_STREAM, ("Begun", "start"), ("Ended", "end"), ("Error", "error"), *_CLIENT, _DOMAIN),
    ),
    ADVISORY + "restore_create": Text("Restore began", "{stream}", (_STREAM, *_CLIENT, _DOMAIN)),
    ADVISORY + "restore_complete": Text(
        "Restore ended",
        "{stream}",
        (_STREAM, ("Begun", "start"), ("Ended", "end"), ("Bytes", "bytes"), *_CLIENT, _DOMAIN),
    ),
    ADVISORY + "stream_leader_elected": Text(
        "Stream leader elected", "{stream}: {leader}", (_STREAM, *_LEADER, _DOMAIN)
    ),
    ADVISORY + "consumer_leader_elected": Text(
        "Consumer leader elected",
        "{stream} > {consumer}: {leader}",
        (_STREAM, _CONSUMER, *_LEADER, _DOMAIN),
    ),
    ADVISORY + "domain_leader_elected": Text(
        "JetStream leader elected", "{leader} of {cluster}", (("Cluster", "cluster"), *_LEADER)
    ),
    ADVISORY + "stream_quorum_lost": Text(
        "Stream lost its quorum", "{stream}", (_STREAM, ("Copies", "replicas"), _DOMAIN)
    ),
    ADVISORY + "consumer_quorum_lost": Text(
        "Consumer lost its quorum",
        "{stream} > {consumer}",
        (_STREAM, _CONSUMER, ("Copies", "replicas"), _DOMAIN),
    ),
    ADVISORY + "stream_batch_abandoned": Text(
        "Batch was abandoned",
        "{stream} {batch}: {reason}",
        (("Account", "account"), _STREAM, ("Batch", "batch"), ("Reason", "reason"), _DOMAIN),
    ),
    ADVISORY + "consumer_pause": Text(
        "Consumer paused or resumed",
        "{stream} > {consumer} paused: {paused}",
        (_STREAM, _CONSUMER, ("Paused", "paused"), ("Until", "pause_until"), _DOMAIN),
    ),
    ADVISORY + "consumer_group_pinned": Text(
        "Client was pinned",
        "{stream} > {consumer} ({group}): {pinned_id}",
        (_STREAM, _CONSUMER, ("Group", "group"), ("Pin", "pinned_id"), _DOMAIN),
    ),
    ADVISORY + "consumer_group_unpinned": Text(
        "Client was unpinned",
        "{stream} > {consumer} ({group}): {reason}",
        (_STREAM, _CONSUMER, ("Group", "group"), ("Reason", "reason"), _DOMAIN),
    ),
    ADVISORY + "server_out_of_space": Text(
        "Server has no space",
        "{server} {stream}",
        (("Server", "server"), ("ID", "server_id"), ("Cluster", "cluster"), _STREAM, _DOMAIN),
    ),
    ADVISORY + "server_removed": Text(
        "Server was removed",
        "{server}",
        (("Server", "server"), ("ID", "server_id"), ("Cluster", "cluster"), _DOMAIN),
    ),
    METRIC + "consumer_ack": Text(
        "Ack sample",
        "{stream} ({stream_seq}) > {consumer} ({consumer_seq}): {deliveries} deliveries, ack in {ack_time}",
        (_STREAM, _CONSUMER, *_SEQUENCES, _DELIVERIES, ("Time to ack", "ack_time"), _DOMAIN),
    ),
    SERVER + "client_connect": Text(
        "Client connected",
        "{client.name} {client.host} user {client.user} of {client.acc}",
        (("Server", "server.name"), ("Cluster", "server.cluster"), *_CLIENT),
    ),
    SERVER + "client_disconnect": Text(
        "Client disconnected",
        "{client.name} {client.host} user {client.user} of {client.acc}: {reason}",
        (
            ("Reason", "reason"),
            ("Server", "server.name"),
            ("Cluster", "server.cluster"),
            *_CLIENT,
            ("Round trip", "client.rtt"),
            ("Connected at", "client.start"),
            ("Disconnected at", "client.stop"),
            *_SENT,
        ),
    ),
    SERVER + "account_connections": Text(
        "Connections of an account",
        "{acc}: {conns} clients, {leafnodes} leaf nodes",
        (
            ("Account", "acc"),
            ("Clients", "conns"),
            ("Leaf nodes", "leafnodes"),
            ("Server", "server.name"),
            *_SENT,
        ),
    ),
    "io.nats.server.metric.v1.service_latency": Text(
        "Service latency",
        "{responder.name} > {requestor.name}: {total}",
        (
            ("Status", "status"),
            ("Error", "description"),
            ("Requester", "requestor.name"),
            ("Responder", "responder.name"),
            ("Service time", "service"),
            ("System time", "system"),
            ("Total", "total"),
        ),
    ),
}
_DURATIONS = ("ack_time", "client.rtt", "service", "system", "total")
_SIZES = ("bytes", "state.bytes", "sent.bytes", "received.bytes")


def value_at(event: Event, path: str) -> Any:
    """The value at a path of names with dots; None for none."""
    found: Any = event
    for name in path.split("."):
        if not isinstance(found, dict):
            return None
        found = found.get(name)
    return found


def text_of(event: Event, path: str) -> str:
    """The value at a path for people; "" for none."""
    value = value_at(event, path)
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        if path in _DURATIONS:
            return format_duration(value)
        return size(value) if path in _SIZES else number(value)
    if isinstance(value, list):
        names = (each.get("name", each) if isinstance(each, dict) else each for each in value)
        return ", ".join(str(each) for each in names)
    return str(value)


def _filled(template: str, event: Event) -> str:
    text, rest = "", template
    while rest:
        before, brace, rest = rest.partition("{")
        text += before
        if brace:
            path, _, rest = rest.partition("}")
            text += text_of(event, path) or "-"
    return text.removesuffix(" -").removesuffix(": -")


def title_of(event: Event) -> str:
    """A short text of the event; its type for an event of another kind."""
    kind = str(event.get("type") or "event")
    known = TEXTS.get(kind)
    return _filled(known.title, event) if known else kind


def line_of(event: Event) -> str:
    """The event on one line."""
    known = TEXTS.get(str(event.get("type")))
    if known is None:
        rest = ", ".join(f"{path}={text_of(event, path)}" for path in _paths(event))
        return f"[{title_of(event)}] {rest}"
    return f"[{title_of(event)}] {_filled(known.short, event)}"


def facts_of(event: Event) -> list[tuple[str, str]]:
    """Names and values of the page; what the event does not have is left out."""
    known = TEXTS.get(str(event.get("type")))
    fields = known.fields if known else tuple((path, path) for path in _paths(event))
    found = [(label, text_of(event, path)) for label, path in fields]
    return [(label, text) for label, text in found if text]


def _paths(event: Event, before: str = "") -> list[str]:
    """The paths of all values, without those of every event."""
    found = []
    for name, value in event.items():
        if isinstance(value, dict):
            found += _paths(value, f"{before}{name}.")
        elif before or name not in _COMMON:
            found.append(before + name)
    return found


def cloud_event(event: Event, subject: str) -> Event:
    """The event in the form of CloudEvents 1.0."""
    kind = str(event.get("type") or "event")
    made = {
        "specversion": "1.0",
        "type": kind,
        "source": "urn:nats:jetstream" if ".jetstream." in kind else "urn:nats",
        "subject": subject,
        "id": str(event.get("id") or ""),
        "time": event.get("timestamp"),
        "datacontenttype": "application/json",
        "data": {name: value for name, value in event.items() if name not in _COMMON},
    }
    return {name: value for name, value in made.items() if value is not None}
