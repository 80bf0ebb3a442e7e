"""``pelton consumer next`` and ``sub``: messages of a consumer, with acks."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from pelton.cli.messages.decoding import Decoder, decoded
from pelton.cli.messages.showing import show_message, told_of_losses
from pelton.cli.output import print_json_line
from pelton.cli.prompts import Asked
from pelton.cli.session import Session, command
from pelton.cli.values import DURATION, Whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.client.sync import Client
    from pelton.client.sync.consumers import Consumer
    from pelton.client.sync.messages import Message

_PULL_S = 30.0
"""How long one pull waits while there is no message."""


@click.command(name="next")
@click.argument("stream", cls=Asked)
@click.argument("name", cls=Asked, of="stream")
@click.option("-n", "--count", default=1, type=Whole(1), help="How many messages.")
@click.option("--wait", type=DURATION, default="1s", show_default=True, help="How long to wait.")
@click.option("--ack/--no-ack", default=True, help="Acknowledge them; the default.")
@click.option("--nak", is_flag=True, help="Have them delivered again.")
@click.option("--term", is_flag=True, help="Have them never delivered again.")
@click.option("-r", "--raw", is_flag=True, help="Only the payloads, each with a line end.")
@decoded
@command
@click.pass_obj
def next_(
    session: Session,
    stream: str,
    name: str,
    count: int,
    wait: int,
    ack: bool,
    nak: bool,
    term: bool,
    raw: bool,
    decoder: Decoder,
) -> None:
    """Fetch messages from the pull consumer NAME of STREAM and acknowledge them."""
    if nak and term:
        raise click.UsageError("--nak and --term exclude each other")
    from pelton.errors import NoRespondersError

    with session.connect() as client:
        js = session.jetstream(client)
        try:
            messages = js.consumer(stream, name, verify=False).fetch(count, timeout=wait / 1e9)
        except NoRespondersError:
            js.consumer_info(
                stream, name
            )  # says what is missing: JetStream, the stream, the consumer
            raise
        for message in messages:
            _print(session, message, raw, decoder)
            _answer(message, ack, nak, term)
        client.flush()
    if not messages:
        raise click.ClickException(f"no message for consumer {name} of stream {stream}")


@click.command()
@click.argument("stream", cls=Asked)
@click.argument("name", cls=Asked, of="stream")
@click.option("--ack/--no-ack", default=True, help="Acknowledge them; the default.")
@click.option("-n", "--count", default=0, type=Whole(0), help="End after this many.")
@click.option("--wait", type=DURATION, default=0, help="End after this time without a message.")
@click.option("--deliver-group", default="", help="Accepted; the consumer knows its group.")
@click.option("-r", "--raw", is_flag=True, help="Only the payloads, each with a line end.")
@decoded
@command
@click.pass_obj
def sub(
    session: Session,
    stream: str,
    name: str,
    ack: bool,
    count: int,
    wait: int,
    deliver_group: str,
    raw: bool,
    decoder: Decoder,
) -> None:
    """Print the messages of the consumer NAME of STREAM and acknowledge them, until interrupted."""
    received = 0
    with told_of_losses(), session.connect(lasting=True) as client:
        js = session.jetstream(client)
        config = js.consumer_info(stream, name).config
        seconds = wait / 1e9 if wait else None
        if config is not None and config.deliver_subject:
            coming = _pushed(client, config.deliver_subject, config.deliver_group, seconds)
        else:
            coming = _pulled(js.consumer(stream, name), seconds)
        for message in coming:
            received += 1
            _print(session, message, raw, decoder)
            _answer(message, ack, nak=False, term=False)
            if received == count:
                break
        client.flush()


def _pushed(client: Client, subject: str, group: str, seconds: float | None) -> Iterator[Message]:
    """The messages that arrive, until none comes for this time; heartbeats are answered and left out."""

    subscription = client.subscribe(subject, queue=group)
    while True:
        message = subscription.next(float("inf") if seconds is None else seconds)
        if message is None:
            return
        if not message.status:
            yield message
        elif message.reply:
            client.publish(message.reply)


def _pulled(handle: Consumer, seconds: float | None) -> Iterator[Message]:
    """The messages that can be pulled, until none comes for this time."""
    while True:
        message = handle.next(_PULL_S if seconds is None else seconds)
        if message is not None:
            yield message
        elif seconds is not None:
            return


def _answer(message: Message, ack: bool, nak: bool, term: bool) -> None:
    if nak:
        message.nak()
    elif term:
        message.term()
    elif ack:
        message.ack()


def _print(session: Session, message: Message, raw: bool, decoder: Decoder) -> None:
    place = message.metadata
    if session.as_json:
        data: dict[str, object] = {
            "subject": message.subject,
            "stream_seq": place.stream_seq,
            "consumer_seq": place.consumer_seq,
            "deliveries": place.delivered,
            "pending": place.pending,
        }
        if message.raw_headers:
            data["headers"] = message.headers.lists()
        print_json_line(data | decoder.data(message.subject, message.data))
    elif raw:
        sys.stdout.buffer.write(decoder.raw(message.subject, message.data) + b"\n")
        sys.stdout.buffer.flush()
    else:
        mark = f"[#{place.stream_seq}, delivery {place.delivered}] "
        show_message(message, mark, decoder)
