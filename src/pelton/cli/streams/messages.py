"""``pelton stream get``, ``view`` and ``rmm``: single stored messages."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from pelton.cli.messages.decoding import Decoder, decoded
from pelton.cli.output import moment, print_json, print_json_line
from pelton.cli.prompts import Asked, confirm, may_ask
from pelton.cli.session import Session, command
from pelton.cli.values import DURATION, Whole
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from pelton.client.base.models import StoredMessage


@click.command()
@click.argument("name", cls=Asked)
@click.argument("seq", type=Whole(1), required=False)
@click.option("-S", "--last-for", "last_for", default=None, help="The newest message on this.")
@click.option("-r", "--raw", is_flag=True, help="Only the payload.")
@decoded
@command
@click.pass_obj
def get(
    session: Session,
    name: str,
    seq: int | None,
    last_for: str | None,
    raw: bool,
    decoder: Decoder,
) -> None:
    """Print the message with sequence SEQ of the stream NAME."""
    if (seq is None) == (last_for is None):
        raise click.UsageError("give a sequence or --last-for, one of them")
    with session.connect() as client:
        found = session.jetstream(client).get_message(name, seq, last_by_subject=last_for)
    if session.as_json:
        print_json(_data(found, decoder))
    elif raw:
        sys.stdout.buffer.write(decoder.raw(found.subject, found.data))
    else:
        _show(found, decoder)


@click.command()
@click.argument("name", cls=Asked)
@click.argument("count", type=Whole(1), default=10)
@click.option("--id", "--seq", "seq", type=Whole(1), help="Begin with this sequence.")
@click.option("--since", type=DURATION, default=None, help="Begin with messages of this age.")
@click.option("--subject", default=None, help="Only messages of this subject.")
@click.option("-r", "--raw", is_flag=True, help="Only the payloads, each with a line end.")
@decoded
@command
@click.pass_obj
def view(
    session: Session,
    name: str,
    count: int,
    seq: int | None,
    since: int | None,
    subject: str | None,
    raw: bool,
    decoder: Decoder,
) -> None:
    """Print the messages of the stream NAME, COUNT (10) at a time.

    A terminal is asked whether to go on; without one, COUNT messages are printed. Nothing in the
    stream changes. Exit status 1 if there is no message.
    """
    from pelton.cli.streams.searching import stored_messages

    if seq is not None and since is not None:
        raise click.UsageError("--id and --since exclude each other")
    shown_now = 0
    with session.connect() as client:
        js = session.jetstream(client)
        begin_ns = None if since is None else time.time_ns() - since
        for message in stored_messages(js, name, subject, seq, begin_ns):
            if shown_now and shown_now % count == 0:
                asks = may_ask() and not session.as_json
                if not asks or not click.confirm("Next page?", default=True, err=True):
                    break
            shown_now += 1
            if session.as_json:
                print_json_line(_data(message, decoder))
            elif raw:
                sys.stdout.buffer.write(decoder.raw(message.subject, message.data) + b"\n")
                sys.stdout.buffer.flush()
            else:
                _show(message, decoder)
    if not shown_now:
        chosen = not (seq is None and since is None and subject is None)
        raise click.ClickException(f"stream {name} has no {'such ' * chosen}message")


@click.command()
@click.argument("name", cls=Asked)
@click.argument("seq", type=Whole(1))
@click.option("-f", "--force", is_flag=True, help="Do not ask.")
@click.option("--no-erase", is_flag=True, help="Do not overwrite its bytes on the disk.")
@command
@click.pass_obj
def rmm(session: Session, name: str, seq: int, force: bool, no_erase: bool) -> None:
    """Remove the message with sequence SEQ of the stream NAME, and erase its bytes."""
    if not force:
        confirm(f"Really remove message {seq} of stream {name}?")
    with session.connect() as client:
        session.jetstream(client).delete_message(name, seq, erase=not no_erase)
    if session.as_json:
        print_json({"stream": name, "removed": seq})
    else:
        print(f"removed message {seq} of stream {name}")


def _data(message: StoredMessage, decoder: Decoder) -> dict[str, object]:
    data: dict[str, object] = {
        "subject": message.subject,
        "seq": message.seq,
        "time": moment(message.timestamp_ns),
    }
    if message.headers:
        data["headers"] = message.headers.lists()
    return data | decoder.data(message.subject, message.data)


def _show(message: StoredMessage, decoder: Decoder) -> None:
    print(f"[#{message.seq}] {shown(message.subject)} {moment(message.timestamp_ns)}")
    for header, values in message.headers.lists().items():
        for value in values:
            print(shown(f"{header}: {value}"))
    print(decoder.text(message.subject, message.data), flush=True)
