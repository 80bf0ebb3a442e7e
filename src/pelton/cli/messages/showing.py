"""The common part of commands that publish and print messages: bodies, headers, the form of a message."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import TYPE_CHECKING

import click

from pelton.cli.messages.decoding import Decoder
from pelton.cli.output import print_json_line
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.cli.session import Session
    from pelton.client.sync import Client
    from pelton.client.sync.messages import Message
    from pelton.client.sync.subscription import Subscription

AS_IT_IS = Decoder()


def lines_of_stdin() -> Iterator[bytes]:
    """Each line as it comes, without its end."""
    for line in sys.stdin.buffer:
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def body_of(text: str | None) -> bytes:
    """The message: the argument, or standard input if there is none (or it is "-")."""
    if text is not None and text != "-":
        return text.encode("utf-8", "surrogateescape")
    if text is None and sys.stdin.isatty():
        return b""
    return sys.stdin.buffer.read()


def headers_of(given: tuple[str, ...]) -> dict[str, list[str]]:
    """The headers of options; UsageError."""
    headers: dict[str, list[str]] = {}
    for each in given:
        name, colon, value = each.partition(":")
        if not colon or not name.strip():
            raise click.UsageError(f'"{each}" is not a header; write it as "name: value"')
        headers.setdefault(name.strip(), []).append(value.strip())
    return headers


def hear_out(client: Client) -> None:
    """Wait until the server has read everything; raises its refusal, such as a permission."""
    client.flush()
    if client.last_error is not None:
        raise client.last_error


def arrived(subscription: Subscription) -> Iterator[Message]:
    """The messages that are here, without waiting for others."""
    while (message := subscription.next(0)) is not None:
        yield message


@contextlib.contextmanager
def told_of_losses() -> Iterator[None]:
    """Prints the client's log lines about lost connections and its attempts on stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("pelton: %(message)s"))
    logger = logging.getLogger("pelton.client")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


def end_of_wait(client: Client) -> None:
    """Nothing came within --wait; raises ConnectionLostError without a connection, as something may have."""
    from pelton.errors import ConnectionLostError

    if not client.connected:
        raise ConnectionLostError(
            "--wait ended without a connection: it is unknown what came meanwhile"
        )


def data_of(message: Message, decoder: Decoder = AS_IT_IS) -> dict[str, object]:
    """A message in JSON."""
    data: dict[str, object] = {"subject": message.subject}
    if message.reply:
        data["reply"] = message.reply
    if message.raw_headers:
        data["headers"] = message.headers.lists()
    return data | decoder.data(message.subject, message.data)


def print_message(
    session: Session, message: Message, raw: bool, mark: str, decoder: Decoder = AS_IT_IS
) -> None:
    """Print a message in the form that was asked for; ``mark`` stands before it for people."""
    if session.as_json:
        print_json_line(data_of(message, decoder))
    elif raw:
        sys.stdout.buffer.write(decoder.raw(message.subject, message.data) + b"\n")
        sys.stdout.buffer.flush()
    else:
        show_message(message, mark, decoder)


def print_answer(session: Session, answer: Message, raw: bool, decoder: Decoder) -> None:
    """Print the answer to a request: its payload on stdout, all else on stderr unless JSON is asked for."""
    if session.as_json or raw:
        print_message(session, answer, raw, "", decoder)
        return
    print(shown(answer.subject), file=sys.stderr)
    for name, values in answer.headers.lists().items():
        for value in values:
            print(shown(f"{name}: {value}"), file=sys.stderr)
    print(decoder.text(answer.subject, answer.data), flush=True)


def show_message(
    message: Message, mark: str = "", decoder: Decoder = AS_IT_IS, *, body: bool = True
) -> None:
    """Print a message for people."""
    print(shown(f"{mark}{message.subject}{_origin(message)}"), flush=not body)
    if message.raw_headers:
        for name, values in message.headers.lists().items():
            for value in values:
                print(shown(f"{name}: {value}"), flush=not body)
    if body:
        print(decoder.text(message.subject, message.data), flush=True)


def _origin(message: Message) -> str:
    """Where an answer is awaited; of a message that a consumer delivered, where it is in the stream."""
    from pelton.api.subjects import parse_ack

    place = parse_ack(message.reply)
    if place is not None:
        return f" stream {place.stream} seq {place.stream_seq} pending {place.pending}"
    return f" reply {message.reply}" if message.reply else ""
