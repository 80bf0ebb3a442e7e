"""``pelton pub``: publish messages, into streams too, at once or as schedules."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from pelton.cli.messages.scheduling import schedule, scheduled, wants_schedule
from pelton.cli.messages.showing import body_of, headers_of, hear_out, lines_of_stdin
from pelton.cli.messages.templates import filled, random_letters
from pelton.cli.output import as_data, print_json, print_json_line
from pelton.cli.session import Session, command
from pelton.cli.values import DURATION, Whole, Word
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.client.base.models import PubAck
    from pelton.client.sync import Client
    from pelton.client.sync.jetstream import JetStream


class Sending(NamedTuple):
    """The messages to publish, and the options."""

    subject: str
    headers: dict[str, list[str]]
    reply: str
    msg_id: str | None
    sleep_s: float
    templates: bool
    quiet: bool


@click.command()
@click.argument("subject")
@click.argument("body", required=False)
@click.option("-H", "--header", "header", multiple=True, help='A header, as "name: value".')
@click.option("--reply", default="", help="Subject for answers.")
@click.option("--count", default=1, type=Whole(1), help="How many times.")
@click.option("--sleep", type=DURATION, default=0, help="Wait between messages.")
@click.option("-J", "--jetstream", "acked", is_flag=True, help="Wait until a stream has stored it.")
@click.option("--atomic", is_flag=True, help="Store all messages or none (implies -J).")
@click.option("--id", "msg_id", default=None, help="Message id, for deduplication (implies -J).")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing when it is done.")
@click.option("--force-stdin", is_flag=True, help="Read standard input even if BODY is given.")
@click.option(
    "--send-on",
    type=Word(["eof", "newline"]),
    default="eof",
    show_default=True,
    help="Standard input is one message, or each line is one.",
)
@click.option("--templates/--no-templates", default=True, help="Fill in {{Count}} and the like.")
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
    sleep: int,
    acked: bool,
    atomic: bool,
    msg_id: str | None,
    quiet: bool,
    force_stdin: bool,
    send_on: str,
    templates: bool,
    **times: Any,
) -> None:
    """Publish BODY (or standard input) to SUBJECT.

    {{Count}}, {{Time}}, {{TimeStamp}}, {{Unix}}, {{UnixNano}}, {{ID}} and {{Random 10 100}} in SUBJECT
    and BODY are filled in for each message. With --at, --after, --every or --cron, SUBJECT stores a
    schedule in a stream, and the stream publishes BODY to --schedule-dest.
    """
    later = wants_schedule(times)
    if later and (reply or msg_id or count > 1 or atomic):
        raise click.UsageError("a schedule has no --reply, --id, --count and --atomic")
    text = None if force_stdin else body
    if reply and (acked or atomic or msg_id):
        raise click.UsageError("--reply and --jetstream exclude each other")
    if send_on == "newline" and text not in (None, "-"):
        raise click.UsageError("--send-on newline reads standard input: leave out BODY")
    sending = Sending(subject, headers_of(header), reply, msg_id, sleep / 1e9, templates, quiet)
    bodies = lines_of_stdin() if send_on == "newline" else _repeated(body_of(text), count)
    with session.connect() as client:
        if later:
            data = next(iter(bodies))
            js = session.jetstream(client)
            _tell_stored(session, schedule(js, subject, data, sending.headers, times), quiet)
        elif atomic:
            _publish_atomic(session, session.jetstream(client), sending, bodies)
        elif acked or msg_id is not None:
            js = session.jetstream(client)
            for to, data in _messages(client, sending, bodies):
                ack = js.publish(to, data, headers=sending.headers, msg_id=msg_id)
                _tell_stored(session, ack, quiet)
        else:
            _publish(session, client, sending, bodies)


def _repeated(data: bytes, count: int) -> Iterator[bytes]:
    for _ in range(count):
        yield data


def _messages(
    client: Client, sending: Sending, bodies: Iterator[bytes]
) -> Iterator[tuple[str, bytes]]:
    """Subject and body of each message, with templates filled in and waits between."""
    for number, data in enumerate(bodies, 1):
        if number > 1 and sending.sleep_s:
            time.sleep(sending.sleep_s)
        subject = sending.subject
        if sending.templates:
            given = (number, time.time_ns(), client.new_id, random_letters)
            subject = filled(subject, *given)
            if b"{{" in data:
                text = data.decode("utf-8", "surrogateescape")
                data = filled(text, *given).encode("utf-8", "surrogateescape")
        yield subject, data


def _publish(session: Session, client: Client, sending: Sending, bodies: Iterator[bytes]) -> None:
    count = size = 0
    for subject, data in _messages(client, sending, bodies):
        client.publish(subject, data, reply=sending.reply, headers=sending.headers)
        count, size = count + 1, size + len(data)
        if sending.sleep_s:
            client.flush()
    hear_out(client)
    if session.as_json:
        print_json({"subject": sending.subject, "count": count, "bytes": size})
    elif not sending.quiet:
        what = f"{count} message{'' if count == 1 else 's'} of {size // max(count, 1)} bytes"
        print(shown(f"published {what} to {sending.subject}"))


def _publish_atomic(
    session: Session, js: JetStream, sending: Sending, bodies: Iterator[bytes]
) -> None:
    """Store all messages, or none."""
    batch = js.atomic_batch()
    for subject, data in _messages(js.client, sending, bodies):
        batch.add(subject, data, headers=sending.headers)
    if not batch.count:
        raise click.ClickException("there is no message to publish")
    ack = batch.commit()
    _tell_stored(session, ack, sending.quiet)


def _tell_stored(session: Session, ack: PubAck, quiet: bool) -> None:
    if session.as_json:
        print_json_line(as_data(ack))
    elif not quiet:
        again = " (duplicate)" if ack.duplicate else ""
        print(f"stored in {ack.stream} at sequence {ack.seq}{again}")
