"""``pelton replay``: publish the messages of a stream again, in the rhythm in which they came."""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.output import moment, number, print_json, print_json_line
from pelton.cli.prompts import Asked, confirm
from pelton.cli.session import Session, command
from pelton.cli.streams.importing import DROPPED, mapping
from pelton.cli.streams.ranges import Range, bounds, range_options, rows_of
from pelton.cli.values import DURATION, Whole
from pelton.core.base.quoting import shown
from pelton.core.protocol.subjects import matches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.cli.streams.importing import Map
    from pelton.cli.streams.ranges import Row
    from pelton.client.base.models import StreamInfo
    from pelton.client.sync import Client
    from pelton.client.sync.jetstream import JetStream

_SPEED = re.compile(r"(\d+(?:\.\d+)?)x?")
_LATE_NS = 2_000_000


if TYPE_CHECKING:
    _Kind = click.ParamType[Any]
else:
    _Kind = click.ParamType  # not generic in every supported version of click


class _Speed(_Kind):
    name = "speed"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """How many times as fast; 0: without waiting."""
        text = str(value)
        if text == "max":
            return 0.0
        found = _SPEED.fullmatch(text)
        if found is None or not float(found[1]):
            return self.fail(f'"{text}" is not a speed such as 10x, 0.5x or max', param, ctx)
        return float(found[1])


@click.command()
@click.argument("name", cls=Asked)
@range_options
@click.option("--speed", type=_Speed(), default="1x", show_default=True, help="10x, 0.5x, or max.")
@click.option(
    "--map", "maps", multiple=True, metavar="FROM:TO", help="Subjects, as in a transform."
)
@click.option("--publish-to", default=None, metavar="SUBJECT", help="One subject for all messages.")
@click.option(
    "--max-wait", type=DURATION, default=None, help="Wait no longer than this for any one."
)
@click.option("-n", "--count", default=0, type=Whole(0), help="End after this many.")
@click.option(
    "-J", "--jetstream", "acked", is_flag=True, help="Wait until streams have stored them."
)
@click.option("--headers/--no-headers", default=True, help="Also the headers.")
@click.option("--ids", is_flag=True, help="Also Nats-Msg-Id, by which a stream knows duplicates.")
@click.option("--target-server", default=None, metavar="URL", help="Publish to another server.")
@click.option(
    "--target-context", default=None, metavar="NAME", help="Publish to that of a context."
)
@click.option(
    "--dry-run", is_flag=True, help="Print the messages and their times without publishing them."
)
@click.option("-f", "--force", is_flag=True, help="Do not ask.")
@command
@click.pass_obj
def replay(session: Session, /, name: str, **asked: Any) -> None:
    """Publish the messages of the stream NAME again, as fast as they came, or --speed times as fast.

    The messages are those that the stream holds now. Without --map and --publish-to their subjects are the
    same, so that the stream takes them again, which is asked first. With --store they come out of a folder.
    """
    wanted = Range.of(asked)
    mapped = mapping(asked["maps"], asked["publish_to"])
    with session.connect() as source:
        js = session.jetstream(source)
        info = js.stream_info(name)
        first, stop = bounds(js, info, wanted)
        rows = _limited(rows_of(js, info, first, stop, wanted.subjects), asked["count"])
        if asked["dry_run"]:
            _show_plan(session, rows, mapped, asked)
            return
        target = _target(session, asked)
        with target.connect(live=True) as client:
            own = target.jetstream(client)
            if not asked["force"]:
                _ask(own, info, wanted, mapped, same=target is session and not session.store)
            done = _publish(client, own, rows, mapped, asked)
    if session.as_json:
        print_json({"stream": name, **done})
        return
    late = f", {number(done['late'])} of them late" if done["late"] else ""
    print(f"published {number(done['messages'])} messages in {done['seconds']:.1f} s{late}")


def _limited(rows: Iterator[Row], most: int) -> Iterator[Row]:
    for index, row in enumerate(rows, 1):
        yield row
        if index == most:
            return


def _target(session: Session, asked: dict[str, Any]) -> Session:
    server, context = asked["target_server"], asked["target_context"]
    if server and context:
        raise click.UsageError("--target-server and --target-context exclude each other")
    if server or context:
        return replace(session, server=server or "", context=context or "", store="", _stored=None)
    return session


def _ask(js: JetStream, info: StreamInfo, wanted: Range, mapped: Map, *, same: bool) -> None:
    """Ask when the stream itself takes the messages again."""
    if not same:
        return
    name, own = info.config.name, info.config.subjects
    found: set[str] = set()
    for pattern in wanted.subjects or (">",):
        found.update(js.stream_info(name, subjects_filter=pattern).state.subjects)
    if any(matches(mapped(subject), each) for subject in found for each in own):
        confirm(f"Really publish subjects of {name} itself, so that it grows?")


class Rhythm:
    """When each message is due; ``speed`` 0: at once. Pure: the caller gives the times."""

    def __init__(self, speed: float, wait_max_ns: int | None) -> None:
        """``wait_max_ns``: the longest wait between two messages."""
        self._speed, self._most = speed, wait_max_ns
        self._before: int | None = None  # the time of the message before
        self._due = 0.0  # since the first one

    def due_ns(self, ts_ns: int) -> int:
        """How long after the first message this one is published."""
        if self._speed and self._before is not None:
            wait = max(ts_ns - self._before, 0) / self._speed
            self._due += wait if self._most is None else min(wait, self._most)
        self._before = max(ts_ns, self._before or ts_ns)
        return int(self._due)


def _publish(
    client: Client,
    js: JetStream,
    rows: Iterator[Row],
    mapped: Map,
    asked: dict[str, Any],
) -> dict[str, Any]:
    rhythm = Rhythm(asked["speed"], asked["max_wait"])
    count = late = 0
    begun = time.monotonic_ns()
    with contextlib.ExitStack() as stack:
        publisher = stack.enter_context(js.publisher()) if asked["acked"] else None
        send = client.publish if publisher is None else publisher.publish
        for row in rows:
            due = begun + rhythm.due_ns(row.ts_ns)
            if due > time.monotonic_ns():
                client._flush_output()
                # the connection is served meanwhile
                client.wait_until(lambda: False, max(due - time.monotonic_ns(), 0) / 1e9)
            elif asked["speed"] and time.monotonic_ns() - due > _LATE_NS:
                late += 1
            send(mapped(row.subject), row.data, headers=_headers(row, asked))
            count += 1
    client.flush()
    return {"messages": count, "late": late, "seconds": (time.monotonic_ns() - begun) / 1e9}


def _headers(row: Row, asked: dict[str, Any]) -> dict[str, list[str]] | None:
    if not asked["headers"] or not row.headers:
        return None
    left = DROPPED if asked["ids"] else DROPPED | {"Nats-Msg-Id"}
    return {name: values for name, values in row.decoded().items() if name not in left}


def _show_plan(session: Session, rows: Iterator[Row], mapped: Map, asked: dict[str, Any]) -> None:
    rhythm = Rhythm(asked["speed"], asked["max_wait"])
    for row in rows:
        after = rhythm.due_ns(row.ts_ns) / 1e9
        subject = mapped(row.subject)
        if session.as_json:
            told = {"seq": row.seq, "time": moment(row.ts_ns), "after": after, "subject": subject}
            print_json_line(told | {"size": len(row.data)})
        else:
            print(f"{after:12.6f} s  [#{row.seq}] {shown(subject)}, {number(len(row.data))} bytes")
