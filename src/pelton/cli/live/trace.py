"""``pelton trace``: the way of a message through servers, with the message traces of nats-server 2.11."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from pelton.api.times import parse_time
from pelton.cli.messages.showing import body_of, headers_of
from pelton.cli.output import number, print_json
from pelton.cli.session import Session, command
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

DESTINATION, ONLY, HOP = "Nats-Trace-Dest", "Nats-Trace-Only", "Nats-Trace-Hop"
ENCODING = "Accept-Encoding"
KINDS = {0: "Client", 1: "Router", 2: "Gateway", 3: "System", 4: "Leafnode", 5: "JetStream"}
ARROWS = {"Client": "--C", "Router": "-->", "Gateway": "==>", "Leafnode": "~~>", "JetStream": "--J"}
_STALL_S = 0.25
"""How long to wait for further answers when it is not known whether there are any."""


@dataclass
class Hop:
    """The report of one server: its events, and the servers after it."""

    server: dict[str, Any]
    events: list[dict[str, Any]]
    expected: int = 0
    """To how many servers it has sent the message."""
    behind: dict[str, Hop] = field(default_factory=dict)
    """The servers by the name of the hop."""


def tree_of(answers: list[dict[str, Any]]) -> Hop | None:
    """The answers as a tree, from the server that the message was published to; None without that."""
    hops: dict[str, Hop] = {}
    for answer in answers:
        header = (answer.get("request") or {}).get("header") or {}
        (name, *_) = header.get(HOP) or [""]
        hops[name] = Hop(
            answer.get("server") or {}, answer.get("events") or [], answer.get("hops") or 0
        )
    for name, hop in hops.items():
        for event in hop.events:
            towards = event.get("hop") if event.get("type") == "eg" else None
            if towards and towards != name and towards in hops:
                hop.behind[towards] = hops[towards]
    return hops.get("")


def complete(answers: list[dict[str, Any]]) -> bool:
    """Whether every server that the message was sent to has answered."""
    awaited = sum(answer.get("hops") or 0 for answer in answers)
    first = any(
        not ((answer.get("request") or {}).get("header") or {}).get(HOP) for answer in answers
    )
    return first and len(answers) == awaited + 1


@click.command()
@click.argument("subject")
@click.argument("payload", required=False)
@click.option("--deliver", is_flag=True, help="Deliver the message, too, and store it.")
@click.option("-T", "--timestamp", is_flag=True, help="With the time of each step.")
@click.option("-H", "--header", "header", multiple=True, help='A header, as "name: value".')
@command
@click.pass_obj
def trace(
    session: Session,
    subject: str,
    payload: str | None,
    deliver: bool,
    timestamp: bool,
    header: tuple[str, ...],
) -> int:
    """Show which clients, streams and servers get a message to SUBJECT.

    The message is not delivered and not stored, unless --deliver is given. Exit status 1 if no client,
    stream or server would get it.
    """
    headers = headers_of(header)
    for name in (DESTINATION, ONLY, HOP):
        if name in headers:
            raise click.BadParameter(f"{name} is set by this command", param_hint="--header")
    answers = _ask(session, subject, body_of(payload or ""), headers, deliver)
    root = tree_of(answers)
    if root is None:
        raise click.ClickException(
            "the first server sent no trace; traces need nats-server 2.11 or newer"
        )
    egress = Counter(_targets(root))
    if session.as_json:
        print_json({"subject": subject, "delivered": deliver, "servers": answers})
        return 0 if egress else 1
    how = "with delivery" if deliver else "without delivery"
    print(shown(f"Tracing a message to {subject}, {how}"))
    print()
    for line in lines_of(root, timestamp=timestamp):
        print(shown(line))
    print("\nLegend: " + "  ".join(f"{kind} {arrow}" for kind, arrow in ARROWS.items()))
    if egress:
        print("\nReached:")
        for kind, count in sorted(egress.items()):
            print(f"  {kind.rjust(9)}: {number(count)}")
    if egress["JetStream"] > 1:
        print(f"\n{egress['JetStream']} streams get the message")
    return 0 if egress else 1


def _ask(
    session: Session, subject: str, body: bytes, headers: dict[str, list[str]], deliver: bool
) -> list[dict[str, Any]]:
    """Publish the message, and gather the reports of the servers."""
    with session.connect() as client:
        inbox = client.new_inbox()
        listening = client.subscribe(inbox)
        headers = {**headers, DESTINATION: [inbox]}
        if not deliver:
            headers[ONLY] = ["true"]
        client.publish(subject, body, headers=headers)
        client.flush()
        if client.last_error is not None:
            raise client.last_error
        answers: list[dict[str, Any]] = []
        deadline = time.monotonic() + session.timeout / 1e9
        while time.monotonic() < deadline and not complete(answers):
            wait = deadline - time.monotonic() if not answers else _wait(answers, deadline)
            answer = listening.next(wait)
            if answer is None:
                break
            answers.append(json.loads(answer.data))
    if not answers:
        text = "no server told of the message: it needs nats-server 2.11, or was refused"
        raise click.ClickException(text)
    return answers


def _wait(answers: list[dict[str, Any]], deadline: float) -> float:
    """How long to wait for the next answer."""
    known = any(answer.get("hops") for answer in answers)
    return max(0.0, deadline - time.monotonic()) if known else _STALL_S


def _targets(hop: Hop) -> Iterator[str]:
    """The kinds of all that got the message."""
    for event in hop.events:
        if event.get("error"):
            continue
        if event.get("type") == "js" and not event.get("nointerest"):
            yield "JetStream"
        elif event.get("type") == "eg":
            yield KINDS.get(event.get("kind", 0), "Other")
    for each in hop.behind.values():
        yield from _targets(each)


def lines_of(
    hop: Hop, *, timestamp: bool = False, depth: int = 0, start: int | None = None
) -> Iterator[str]:
    """The steps of the message, indented by server."""
    before = "    " * depth
    found = False
    for event in hop.events:
        now = _ns(event)
        start = now if start is None else start
        mark = f"[{(now - start) / 1e6:+.3f}ms] " if timestamp else ""
        for line in _event_lines(event, hop.server):
            yield f"{before}{mark}{line}"
        kind = event.get("type")
        found = found or kind in ("eg", "js") or (kind == "in" and bool(event.get("error")))
        behind = hop.behind.get(str(event.get("hop"))) if kind == "eg" else None
        if behind is not None:
            yield from lines_of(behind, timestamp=timestamp, depth=depth + 1, start=start)
    if not found and not hop.behind:
        yield f"{before}--X No active interest"


def _ns(event: dict[str, Any]) -> int:
    return parse_time(str(event["ts"])) if event.get("ts") else 0


def _pairs(**values: object) -> str:
    return "".join(f" {name}:{json.dumps(value)}" for name, value in values.items() if value)


def _event_lines(event: dict[str, Any], server: dict[str, Any]) -> Iterator[str]:
    kind = event.get("type")
    refused = f"--X Error: {event['error']}" if event.get("error") else ""
    if kind == "in":
        what = KINDS.get(event.get("kind", 0), "Other")
        yield f"{what}{_named(event)}" + _pairs(
            cluster=server.get("cluster"), server=server.get("name"), version=server.get("ver")
        )
    elif kind == "sm":
        yield f"    Mapping{_pairs(subject=event.get('to'))}"
    elif kind == "si":
        yield "    Service import" + _pairs(
            **{"from": event.get("from")}, to=event.get("to"), account=event.get("acc")
        )
    elif kind == "se":
        yield f"    Stream export{_pairs(subject=event.get('to'), account=event.get('acc'))}"
    elif kind == "js":
        action = "no interest" if event.get("nointerest") else "stored"
        action = "refused" if refused else action
        yield f"{ARROWS['JetStream']} JetStream" + _pairs(
            action=action, stream=event.get("stream"), subject=event.get("subject")
        )
    elif kind == "eg":
        what = KINDS.get(event.get("kind", 0), "Other")
        yield f"{ARROWS.get(what, '-->')} {what}{_named(event)}" + _pairs(
            account=event.get("acc"), subject=event.get("sub"), queue=event.get("queue")
        )
    if refused:
        yield f"    {refused}"


def _named(event: dict[str, Any]) -> str:
    name = f" {json.dumps(event['name'])}" if event.get("name") else ""
    return f"{name} cid:{event.get('cid', 0)}"
