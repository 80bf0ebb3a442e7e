"""``pelton events``: prints advisories, metrics and events of servers, as they come or out of a stream."""

from __future__ import annotations

import json
import re
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.messages.showing import arrived, hear_out, told_of_losses
from pelton.cli.output import print_json_line
from pelton.cli.session import Session, command
from pelton.cli.values import DURATION, PATTERN_ERRORS, Whole
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.client.sync import Client
    from pelton.client.sync.jetstream import JetStream

ADVISORIES = "$JS.EVENT.ADVISORY.>"
METRICS = "$JS.EVENT.METRIC.>"
SERVERS = ("$SYS.ACCOUNT.*.CONNECT", "$SYS.ACCOUNT.*.DISCONNECT", "$SYS.SERVER.*.CLIENT.AUTH.ERR")
_FETCH_MAX = 256


@click.command()
@click.option("-a", "--all", "everything", is_flag=True, help="All kinds of events.")
@click.option("--js-metric/--no-js-metric", default=False, help="Metrics of JetStream.")
@click.option("--js-advisory/--no-js-advisory", default=False, help="Advisories of JetStream.")
@click.option(
    "--srv-advisory/--no-srv-advisory",
    default=True,
    show_default=True,
    help="Connects and disconnects; needs a user of the system account.",
)
@click.option("--subjects", multiple=True, help="Events on this subject; repeatable.")
@click.option("--stream", default=None, help="Events out of this stream.")
@click.option("--since", type=DURATION, default=0, help="With --stream: of this age at most.")
@click.option("--filter", "pattern", default="", help="Only events that this expression matches.")
@click.option("--short", is_flag=True, help="One line for each event.")
@click.option("--cloudevent", is_flag=True, help="Print CloudEvents, one on each line.")
@click.option("-n", "--count", default=0, type=Whole(0), help="End after this many.")
@command
@click.pass_obj
def events(session: Session, /, **asked: Any) -> None:
    """Print what happens in JetStream and on servers, until interrupted.

    --filter is a regular expression over the whole event, without regard to case.
    """
    try:
        matches = re.compile(asked["pattern"], re.IGNORECASE).search
    except PATTERN_ERRORS as error:
        raise click.BadParameter(f"no expression: {error}", param_hint="--filter") from None
    stream = asked["stream"]
    chosen = asked["everything"] or asked["js_metric"] or asked["js_advisory"] or asked["subjects"]
    if stream and chosen:
        raise click.UsageError("--stream excludes the other kinds of events")
    if asked["since"] and not stream:
        raise click.UsageError("--since needs --stream")
    subjects = [] if stream else _subjects(asked, session.event_prefix.rstrip("."))
    if not (stream or subjects):
        raise click.UsageError("no events were chosen; see --all")
    taken = 0
    with told_of_losses(), session.connect(lasting=True) as client:
        if stream:
            coming = _stored(session.jetstream(client), stream, asked["since"])
        else:
            coming = _arriving(client, subjects)
        _tell_listening(session, asked, subjects)
        for subject, data in coming:
            if not matches(data.decode("utf-8", "replace")):
                continue
            _show(session, asked, subject, data)
            taken += 1
            if taken == asked["count"]:
                return


def _subjects(asked: dict[str, Any], prefix: str) -> list[str]:
    def of(subject: str) -> str:
        return f"{prefix}.{subject.removeprefix('$JS.EVENT.')}" if prefix else subject

    found = []
    if asked["everything"] or asked["js_advisory"]:
        found.append(of(ADVISORIES))
    if asked["everything"] or asked["js_metric"]:
        found.append(of(METRICS))
    if asked["everything"] or asked["srv_advisory"]:
        found += SERVERS
    return found + [name for each in asked["subjects"] for name in each.split(",") if name]


def _tell_listening(session: Session, asked: dict[str, Any], subjects: list[str]) -> None:
    if session.as_json or asked["cloudevent"]:
        return
    if asked["stream"]:
        print(shown(f"listening for events in stream {asked['stream']}"), file=sys.stderr)
    for subject in subjects:
        print(shown(f"listening for events on {subject}"), file=sys.stderr)
    sys.stderr.flush()


def _arriving(client: Client, subjects: list[str]) -> Iterator[tuple[str, bytes]]:
    listening = [client.subscribe(subject) for subject in subjects]
    hear_out(client)

    def coming() -> Iterator[tuple[str, bytes]]:
        while client.wait_until(lambda: any(each.pending for each in listening), float("inf")):
            for each in listening:
                for message in arrived(each):
                    yield message.subject, message.data

    return coming()


def _stored(js: JetStream, stream: str, since: int) -> Iterator[tuple[str, bytes]]:
    begin_ns = time.time_ns() - since if since else None
    consumer = js.ordered_consumer(stream, start_time=begin_ns)
    consumer.info()  # StreamNotFoundError now, not later

    def coming() -> Iterator[tuple[str, bytes]]:
        while True:
            for message in consumer.fetch(_FETCH_MAX, timeout=1.0):
                yield message.subject, message.data

    return coming()


def _show(session: Session, asked: dict[str, Any], subject: str, data: bytes) -> None:
    from pelton.cli.live.event_texts import cloud_event, facts_of, line_of, title_of

    try:
        event = json.loads(data)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        print(shown(f"not an event on {subject}: {data[:200]!r}"), file=sys.stderr, flush=True)
        return
    if asked["cloudevent"]:
        print_json_line(cloud_event(event, subject))
        return
    if session.as_json:
        print_json_line(event)
        return
    when = str(event.get("timestamp") or "")[11:19] or time.strftime("%H:%M:%S")
    if asked["short"]:
        print(shown(f"{when} {line_of(event)}"), flush=True)
        return
    mark = f" [{event['id']}]" if event.get("id") else ""
    print(shown(f"[{when}]{mark} {title_of(event)}"))
    print()
    facts = facts_of(event)
    width = max((len(label) for label, _ in facts), default=0)
    for label, text in facts:
        print(shown(f"  {label.rjust(width)}: {text}"))
    print(flush=True)
