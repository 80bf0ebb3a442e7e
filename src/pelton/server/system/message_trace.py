"""Message traces: events about the way of a message with a ``Nats-Trace-Dest`` header, published to that
subject.

The core calls `begin` for such a message, records events in a list (core/broker/reactor, Trace) during
the publish, and calls `end` with the list. With ``Nats-Trace-Only`` the message is not delivered or
stored. An account may also have a destination for messages with a sampled W3C ``traceparent``.

    in  the server received it         sm  a mapping changed its subject   js  a stream stored it
    eg  a client received it           si  it passed a service import     se  it passed a stream import
"""

import json
import random
from typing import Any

from pelton.api.times import format_time
from pelton.core.broker.reactor import Connection, Trace
from pelton.core.protocol.subjects import literal
from pelton.server.monitor.encoding import present, text
from pelton.server.monitor.server_state import ServerState, account_of, client_of, leaf_of
from pelton.server.monitor.slices import finish
from pelton.server.settings.accounts import SYSTEM_ACCOUNT
from pelton.server.system.envelope import compressed, server_info, written

DESTINATION = "Nats-Trace-Dest"
ONLY = "Nats-Trace-Only"
ORIGIN = "Nats-Trace-Origin-Account"
DISABLED = "trace disabled"
_CLIENT = 0  # kind of a client's connection
_LEAF = 4
_WORDS = {"message size exceeds maximum allowed": "maximum payload exceeded"}
_EXPECTED = {
    "Nats-Expected-Last-Subject-Sequence": "last sequence by subject mismatch",
    "Nats-Expected-Last-Sequence": "last sequence mismatch",
}
_SERVICES = {
    "$SYS.REQ.USER.INFO": "$SYS.REQ.USER.{}.INFO",
    "$SYS.REQ.ACCOUNT.PING.CONNZ": "$SYS.REQ.ACCOUNT.{}.CONNZ",
    "$SYS.REQ.ACCOUNT.PING.STATZ": "$SYS.REQ.ACCOUNT.{}.STATZ",
    "$SYS.REQ.SERVER.PING.CONNZ": "$SYS.REQ.ACCOUNT.{}.CONNZ",
}
_YES = {"1", "true", "on"}


class TracedMessage(Trace):
    """A traced message: the destination of the trace, and the facts before the publish."""

    __slots__ = ("destination", "encoding", "headers", "size", "subject")

    destination: str
    encoding: str
    headers: dict[str, list[str]]
    size: int
    subject: str


class MessageTraces:
    """Makes the traces of one server."""

    def __init__(self, server_state: ServerState) -> None:
        """`reactor` gives the time, `accounts` the accounts."""
        self._server_state = server_state

    def begin(
        self, connection: Connection, subject: str, block: bytes, size: int
    ) -> Trace | bool | None:
        """See core/broker/session. None: the message is not traced. False: it is dropped."""
        headers = parse(block)
        wanted = _first(headers, DESTINATION)
        external = not wanted
        if external and not _sampled(headers):
            return None
        if wanted == DISABLED:
            return None
        only = not external and _first(headers, ONLY).lower() in _YES
        if external:
            wanted = self._accounts_destination(connection)
            if not wanted:
                return None
        if ORIGIN in headers or not literal(wanted):
            return False if only else None
        permits = connection.permissions
        if permits is not None and not permits.may_publish(wanted, self._server_state.now_ns):
            refusal = f'Permissions Violation for Publish to "{wanted}"'
            connection.write(f"-ERR '{refusal}'\r\n".encode())
            return False
        trace = TracedMessage(only)
        trace.destination = wanted
        trace.encoding = _first(headers, "Accept-Encoding").lower()
        trace.headers, trace.size, trace.subject = headers, size, subject
        return trace

    def _accounts_destination(self, connection: Connection) -> str:
        """The account's destination for sampled messages; empty when it has none or the message is
        not drawn.
        """
        party = client_of(connection) or leaf_of(connection)
        account = party.account if party is not None else None
        if account is None or not account.settings.trace_destination:
            return ""
        sampling = account.settings.trace_sampling
        if 0 < sampling < 100 and random.randrange(100) >= sampling:
            return ""
        return account.settings.trace_destination

    def end(self, connection: Connection, trace: Trace, error: str = "") -> None:
        """Publish the events of a message in its sender's account."""
        if not isinstance(trace, TracedMessage):
            return
        account = self._server_state.account(account_of(connection))
        if account is None:
            return
        now = format_time(self._server_state.now_ns)
        account_name = account.name
        events = [_ingress(connection, trace, account_name, now, error)]
        reached = trace.events or _service(trace.subject, account_name)
        exported = ""  # the exporter's subject of a stream import
        for each in reached:
            exported = each[3] if each[0] == "se" else exported
            event = _event(each, account_name, now, trace.headers)
            if exported and event.get("acc", account_name) != account_name and "sub" in event:
                event["sub"] = exported
            events.append(event)
        body = {
            "server": server_info(self._server_state),
            "request": present(header=dict(sorted(trace.headers.items())), msgsize=trace.size),
            "events": events,
        }
        headers, data = finish(compressed(written(body), trace.encoding))
        account.router.publish_message(trace.destination, data, headers=headers)


def parse(block: bytes) -> dict[str, list[str]]:
    """The headers of a block: name -> values. Empty names and values are left out."""
    found: dict[str, list[str]] = {}
    for line in block.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        value = value.strip(b" \t")
        if colon and name and value:
            found.setdefault(text(name), []).append(text(value))
    return found


def _first(headers: dict[str, list[str]], name: str) -> str:
    return headers.get(name, [""])[0]


def _sampled(headers: dict[str, list[str]]) -> bool:
    """Whether a W3C traceparent has the sampled flag."""
    value = next((v[0] for name, v in headers.items() if name.lower() == "traceparent"), "")
    parts = value.split("-")
    if len(parts) != 4 or len(parts[3]) != 2:
        return False
    try:
        return int(parts[3], 16) & 1 == 1
    except ValueError:
        return False


def _ingress(
    connection: Connection, trace: TracedMessage, account: str, now: str, error: str
) -> dict[str, Any]:
    event = {"type": "in", "ts": now} | _end_of(connection)
    event |= {"acc": account, "subj": trace.subject}
    return event | present(error=error)


def _end_of(connection: Connection) -> dict[str, Any]:
    """Kind, id and name of the other side of a connection."""
    peer = leaf_of(connection)
    party = peer or client_of(connection)
    end: dict[str, Any] = {"kind": _CLIENT if peer is None else _LEAF, "cid": connection.id}
    return end | present(name=party.name if party is not None else "")


def _service(subject: str, account: str) -> list[tuple[Any, ...]]:
    """The import event of a request to a service of the system account, which is not an import in
    the core.
    """
    target = _SERVICES.get(subject)
    return [("si", SYSTEM_ACCOUNT, subject, target.format(account))] if target else []


def _why(error: str, headers: dict[str, list[str]]) -> str:
    """The reason of a stream's refusal, in the words of a trace."""
    kind, _, seen = error.partition(": ")
    if kind == "wrong last sequence":
        for name, words in _EXPECTED.items():
            if name in headers:
                return f"{words}: {headers[name][0]} vs {seen}"
    if kind == "wrong last msg ID":
        asked = _first(headers, "Nats-Expected-Last-Msg-Id")
        return f"last msgid mismatch: {json.dumps(asked)} vs {json.dumps(seen)}"
    return _WORDS.get(error, error)


def _event(
    what: tuple[Any, ...], account_name: str, now: str, headers: dict[str, list[str]]
) -> dict[str, Any]:
    """An event of the core as JSON fields."""
    kind = what[0]
    event: dict[str, Any] = {"type": kind, "ts": now}
    if kind == "eg":
        _, subscription, error = what
        return event | _egress(subscription, error, account_name)
    if kind == "js":
        _, stream, subject, unwanted, error = what
        event["stream"] = stream
        if not error:
            event |= present(subject=subject, nointerest=unwanted)
        return event | present(error=_why(error, headers))
    if kind == "sm":
        return event | {"to": what[1]}
    if kind == "se":
        return event | {"acc": what[1], "to": what[2]}
    return event | {"acc": what[1], "from": what[2], "to": what[3]}


def _egress(subscription: Any, error: str, account_name: str) -> dict[str, Any]:
    connection = subscription.client()
    event = _end_of(connection)
    account = account_of(connection)
    event |= present(acc=account if account != account_name else "")
    if event["kind"] != _LEAF:
        event |= present(sub=text(subscription.subject), queue=text(subscription.queue))
    return event | present(error=error)
