"""``penstock pub``, ``sub`` and ``req``: messages of core NATS, and publishing into streams."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.output import as_data, payload, print_json, print_json_line, readable
from penstock.cli.scheduling import schedule, scheduled, wants_schedule
from penstock.cli.session import Session, command
from penstock.cli.values import DURATION
from penstock.core.base.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.client import BlockingClient, PubAck
    from penstock.client.blocking.messages import BlockingMessage


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


def _hear_out(client: BlockingClient) -> None:
    """Wait until the server has read everything; raises its refusal, such as a permission."""
    client.flush()
    if client.last_error is not None:
        raise client.last_error


@click.command()
@click.argument("subject")
@click.argument("body", required=False)
@click.option("-H", "--header", "header", multiple=True, help='A header, as "name: value".')
@click.option("--reply", default="", help="Subject for answers.")
@click.option("--count", default=1, type=click.IntRange(1), help="How many times.")
@click.option("-J", "--jetstream", "acked", is_flag=True, help="Wait until a stream has stored it.")
@click.option("--id", "msg_id", default=None, help="Message id, for deduplication (implies -J).")
@scheduled
@command
@click.pass_obj
def pub(
    session: Session,
    /,
    subject: str,
    body: str | None,
    header: tuple[str, ...],
    reply: str,
    count: int,
    acked: bool,
    msg_id: str | None,
    **times: Any,
) -> None:
    """Publish BODY (or standard input) to SUBJECT.

    With --at, --after, --every or --cron, SUBJECT stores a schedule in a stream, and the stream
    publishes BODY to --schedule-dest.
    """
    later = wants_schedule(times)
    if later and (reply or msg_id or count > 1):
        raise click.UsageError("a schedule has no --reply, --id and --count")
    data, headers = body_of(body), headers_of(header)
    if later:
        with session.connect() as client:
            ack = schedule(session.jetstream(client), subject, data, headers, times)
        _tell_stored(session, ack)
        return
    if reply and (acked or msg_id):
        raise click.UsageError("--reply and --jetstream exclude each other")
    with session.connect() as client:
        if acked or msg_id is not None:
            jetstream = session.jetstream(client)
            for _ in range(count):
                _tell_stored(
                    session, jetstream.publish(subject, data, headers=headers, msg_id=msg_id)
                )
            return
        for _ in range(count):
            client.publish(subject, data, reply=reply, headers=headers)
        _hear_out(client)
        if session.as_json:
            print_json({"subject": subject, "count": count, "bytes": len(data) * count})
        else:
            plural = "s" if count > 1 else ""
            print(f"published {count} message{plural} of {len(data)} bytes to {subject}")


def _tell_stored(session: Session, ack: PubAck) -> None:
    if session.as_json:
        print_json_line(as_data(ack))
        return
    again = " (duplicate)" if ack.duplicate else ""
    print(f"stored in {ack.stream} at sequence {ack.seq}{again}")


@click.command()
@click.argument("subject")
@click.option("-q", "--queue", default="", help="Queue group.")
@click.option(
    "-n", "--count", default=0, type=click.IntRange(0), help="End after this many messages."
)
@click.option("--wait", type=DURATION, default=0, help="End after this time without a message.")
@click.option("-r", "--raw", is_flag=True, help="Only the payloads, each with a line end.")
@command
@click.pass_obj
def sub(session: Session, subject: str, queue: str, count: int, wait: int, raw: bool) -> None:
    """Print the messages that arrive on SUBJECT until interrupted.

    When the connection breaks, the command connects and subscribes again. Messages that are
    published meanwhile are missed.
    """
    from penstock.errors import Timeout

    with told_of_losses(), session.connect(lasting=True) as client:
        subscription = client.subscribe(subject, queue=queue, max_msgs=count)
        _hear_out(client)
        if not raw and not session.as_json:
            print(f"listening on {subject}", file=sys.stderr, flush=True)
        received = 0
        while not count or received < count:
            try:
                message = subscription.next(wait / 1e9 if wait else float("inf"))
            except Timeout:
                return
            received += 1
            _show(session, message, raw, received)


@contextlib.contextmanager
def told_of_losses() -> Iterator[None]:
    """Prints the client's log lines about lost connections and its attempts on stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("penstock: %(message)s"))
    logger = logging.getLogger("penstock.client")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


@click.command()
@click.argument("subject")
@click.argument("body", required=False)
@click.option("-H", "--header", "header", multiple=True, help='A header, as "name: value".')
@click.option("-r", "--raw", is_flag=True, help="Only the payload.")
@command
@click.pass_obj
def req(
    session: Session, subject: str, body: str | None, header: tuple[str, ...], raw: bool
) -> None:
    """Send BODY (or standard input) to SUBJECT and print the answer."""
    from penstock.errors import Timeout

    data, headers = body_of(body), headers_of(header)
    with session.connect() as client:
        try:
            answer = client.request(subject, data, headers=headers)
        except Timeout as late:
            raise client.last_error or late from None
        _show(session, answer, raw, 0)


def _show(session: Session, message: BlockingMessage, raw: bool, index: int) -> None:
    if session.as_json:
        data: dict[str, object] = {"subject": message.subject}
        if message.reply:
            data["reply"] = message.reply
        if message.raw_headers:
            data["headers"] = message.headers
        print_json_line(data | payload(message.data))
    elif raw:
        sys.stdout.buffer.write(message.data + b"\n")
        sys.stdout.buffer.flush()
    else:
        show_message(message, f"[#{index}] " if index else "")


def show_message(message: BlockingMessage, mark: str = "") -> None:
    """Print a message for people."""
    reply = f" reply {message.reply}" if message.reply else ""
    print(shown(f"{mark}{message.subject}{reply}"))
    if message.raw_headers:
        for name, values in message.headers.items():
            for value in values:
                print(shown(f"{name}: {value}"))
    print(readable(message.data), flush=True)
