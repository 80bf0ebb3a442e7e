"""``pelton plgd publish``: events into a stream, from lines or from a made-up fleet."""

from __future__ import annotations

import sys
import time
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import click

from pelton.cli.failures import DONE
from pelton.cli.output import print_json
from pelton.cli.plgd.lines import needs, read, stream_of
from pelton.cli.plgd.making import config_of, fleet_options
from pelton.cli.progress import stages_bar
from pelton.cli.session import Session, command
from pelton.cli.values import Whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pelton.client.sync.jetstream import JetStream

DUPLICATE_WINDOW_NS = 600 * 10**9
TELL_EVERY = 1000


class _Item(Protocol):
    """An event as bytes."""

    @property
    def subject(self) -> str:
        """The subject."""

    @property
    def payload(self) -> bytes:
        """The payload."""

    @property
    def message_id(self) -> str:
        """The message id, which makes a repeated publish harmless."""


@click.command()
@click.argument("file", required=False, type=click.Path(allow_dash=True))
@fleet_options
@click.option("--stream", default="EVENTS", show_default=True, help="The stream of the events.")
@click.option("--create", is_flag=True, help="Create the stream for plgd.> if it is missing.")
@click.option("--rate", type=Whole(1), default=None, help="Events a second, at most.")
@command
@click.pass_obj
def publish(
    session: Session,
    /,
    file: str | None,
    stream: str,
    create: bool,
    rate: int | None,
    **asked: Any,
) -> int:
    """Publish events into a stream, each once.

    FILE has lines as `pelton plgd fleet` writes them; - is standard input. Without FILE a
    simulated fleet is published. Events carry message ids, so a repetition within the stream's
    duplicate window stores nothing twice.

    \b
    pelton plgd publish events.jsonl
    pelton plgd publish --devices 20 --for 10m --create
    """
    try:
        from pelton.plgd.bus import NoEventStreamError
        from pelton.plgd.fleet import FleetRun
    except ImportError as problem:
        raise needs(problem) from None
    items: Iterable[_Item]
    if file is None:
        items = FleetRun(config_of(asked)).deliveries()
    else:
        items = read(_opened(file), file)
    with session.connect() as client:
        js = session.jetstream(client)
        if create:
            _create(js, stream)
        before = stream_of(js, stream).state.messages
        waiting: Iterator[_Item] = iter(items)
        first = next(waiting, None)
        count = 0
        if first is not None:
            if stream not in js.stream_names(first.subject):
                raise NoEventStreamError(first.subject)
            count = _publish(js, chain([first], waiting), rate)
        after = js.stream_info(stream).state.messages
    if session.as_json:
        print_json({"stream": stream, "published": count, "messages": after, "new": after - before})
    else:
        print(
            f"{count:,} events published, {after - before:,} new; {stream} has {after:,} messages"
        )
    return DONE


def _opened(file: str) -> TextIO:
    """The lines: standard input, or a file that stays open until it is published."""
    if file == "-":
        return sys.stdin
    try:
        return Path(file).open(encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"cannot read {file}: {error.strerror}") from None


def _create(js: JetStream, name: str) -> None:
    """Create the stream as a hub's, if it is missing."""
    from pelton.client.base.durations import Nanoseconds
    from pelton.client.base.models import StreamConfig
    from pelton.errors import StreamNotFoundError

    try:
        js.stream_info(name)
    except StreamNotFoundError:
        window = Nanoseconds(DUPLICATE_WINDOW_NS)
        js.create_stream(StreamConfig(name=name, subjects=["plgd.>"], duplicate_window=window))


def _publish(js: JetStream, items: Iterator[_Item], rate: int | None) -> int:
    """Publish with many acks outstanding; how many."""
    count = 0
    started = time.monotonic()
    with stages_bar() as tell, js.publisher() as publisher:
        for count, item in enumerate(items, 1):  # the count is the answer
            publisher.publish(item.subject, item.payload, msg_id=item.message_id or None)
            if count % TELL_EVERY == 0:
                tell("publishing events", count, None)
            if rate is not None and (wait := started + count / rate - time.monotonic()) > 0.01:
                time.sleep(wait)
    return count
