"""``pelton req`` and ``reply``: ask, and answer."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import click

from pelton.cli.messages.decoding import Decoder, decoded
from pelton.cli.messages.showing import (
    body_of,
    headers_of,
    hear_out,
    lines_of_stdin,
    print_answer,
    told_of_losses,
)
from pelton.cli.messages.templates import filled, random_letters
from pelton.cli.output import print_json_line
from pelton.cli.session import Session, command
from pelton.cli.values import DURATION, Whole, Word
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from pelton.client.sync import Client
    from pelton.client.sync.messages import Message


@click.command()
@click.argument("subject")
@click.argument("body", required=False)
@click.option("-H", "--header", "header", multiple=True, help='A header, as "name: value".')
@click.option("-r", "--raw", is_flag=True, help="Only the payload.")
@click.option("--count", default=1, type=Whole(1), help="How many requests.")
@click.option(
    "--replies",
    default=1,
    type=Whole(0),
    show_default=True,
    help="Wait for so many answers; 0 for all that come in --timeout.",
)
@click.option("--reply-timeout", type=DURATION, default="300ms", help="Longest time between them.")
@click.option("--wait-for-empty", is_flag=True, help="Wait for answers until an empty one.")
@click.option("-w", "--wait/--no-wait", default=True, help="Without: publish the request only.")
@click.option("--force-stdin", is_flag=True, help="Read standard input even if BODY is given.")
@click.option(
    "--send-on",
    type=Word(["eof", "newline"]),
    default="eof",
    show_default=True,
    help="Standard input is one request, or each line is one.",
)
@click.option("--templates/--no-templates", default=True, help="Fill in {{Count}} and the like.")
@decoded
@command
@click.pass_obj
def req(
    session: Session,
    subject: str,
    body: str | None,
    header: tuple[str, ...],
    raw: bool,
    count: int,
    replies: int,
    reply_timeout: int,
    wait_for_empty: bool,
    wait: bool,
    force_stdin: bool,
    send_on: str,
    templates: bool,
    decoder: Decoder,
) -> None:
    """Send BODY (or standard input) to SUBJECT and print the answer.

    The payload goes to standard output, the subject and the headers of the answer to standard error.
    """
    text = None if force_stdin else body
    if send_on == "newline" and text not in (None, "-"):
        raise click.UsageError("--send-on newline reads standard input: leave out BODY")
    headers = headers_of(header)
    of_2020 = session.of_2020 and not (raw or session.as_json)
    if of_2020 and text is None:
        _stamp("Reading payload from STDIN")
    bodies = lines_of_stdin() if send_on == "newline" else iter([body_of(text)] * count)
    many = replies != 1 or wait_for_empty
    with session.connect() as client:
        for number, data in enumerate(bodies, 1):
            to = subject
            if templates:
                to, data = filled_request(client, to, data, number)
            if of_2020:
                _stamp(f"Sending request on [{shown(to)}]")
            if not wait:
                client.publish(to, data, headers=headers)
                continue
            if not many and session.of_2020:
                # answers of the preview's API may come on any subject
                from pelton.cli.early.asking import receive

                answers = iter([receive(client, to, data, session.timeout / 1e9, headers=headers)])
            elif not many:
                answers = iter([_one(client, to, data, headers)])
            else:
                answers = client.request_many(
                    to,
                    data,
                    headers=headers,
                    max_messages=None if wait_for_empty or not replies else replies,
                    stall=reply_timeout / 1e9 if replies and not wait_for_empty else None,
                    sentinel=wait_for_empty,
                )
            for answer in answers:
                if of_2020:
                    text = answer.data.decode("utf-8", "replace")
                    _stamp(f"Received on [{shown(answer.subject)}]: '{text}'")
                else:
                    print_answer(session, answer, raw, decoder)


def _stamp(text: str) -> None:
    """Print a line behind the time of day, as `nats` did in 2020."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def _one(client: Client, subject: str, data: bytes, headers: dict[str, list[str]]) -> Message:
    from pelton.errors import PeltonTimeoutError

    try:
        return client.request(subject, data, headers=headers)
    except PeltonTimeoutError as late:
        raise client.last_error or late from None


def filled_request(client: Client, subject: str, data: bytes, number: int) -> tuple[str, bytes]:
    """Subject and body of request ``number``, templates filled in."""
    if "{{" not in subject and b"{{" not in data:
        return subject, data
    given = (number, time.time_ns(), client.new_id, random_letters)
    readable = data.decode("utf-8", "surrogateescape")
    body = filled(readable, *given).encode("utf-8", "surrogateescape")
    return filled(subject, *given), body


@click.command()
@click.argument("subject")
@click.argument("body", required=False)
@click.option("--echo", is_flag=True, help="Answer with the request, and headers that describe it.")
@click.option("--command", "program", default=None, help="Answer with the output of this command.")
@click.option("-q", "--queue", default="NATS-RPLY-22", show_default=True, help="Queue group.")
@click.option("--sleep", type=DURATION, default=0, help="Wait a random time up to this.")
@click.option("-H", "--header", "header", multiple=True, help='A header, as "name: value".')
@click.option("-n", "--count", default=0, type=Whole(0), help="End after this many.")
@command
@click.pass_obj
def reply(
    session: Session,
    subject: str,
    body: str | None,
    echo: bool,
    program: str | None,
    queue: str,
    sleep: int,
    header: tuple[str, ...],
    count: int,
) -> None:
    """Answer the requests on SUBJECT with BODY, until interrupted.

    {{Count}}, {{Request}}, {{Time}} and their siblings in BODY are filled in. A --command is run by a
    shell and reads the request; {{N}} in it is token N of the subject, {{Request}} is the request.
    """
    if sum((body is not None, echo, program is not None)) != 1:
        raise click.UsageError("give BODY, --echo or --command, one of them")
    headers = headers_of(header)
    answered = 0
    with told_of_losses(), session.connect(lasting=True) as client:
        subscription = client.subscribe(subject, queue=queue)
        hear_out(client)
        if not session.as_json:
            print(shown(f"listening on {subject}"), file=sys.stderr, flush=True)
        while not count or answered < count:
            asked = subscription.next(float("inf"))
            if asked is None or not asked.reply:
                continue
            answered += 1
            if sleep:
                time.sleep(random.uniform(0, sleep / 1e9))
            given = dict(headers)
            data = asked.data
            if echo:
                given |= asked.headers.lists()
                given |= {"NATS-Request-Subject": [asked.subject]}
            elif program is not None:
                data = _output_of(session, program, asked)
            else:
                data = _filled_body(client, body or "", asked, answered)
            client.publish(asked.reply, data, headers=given)
            client.flush()
            _tell(session, asked, answered)


def _filled_body(client: Client, body: str, asked: Message, number: int) -> bytes:
    request = asked.data.decode("utf-8", "surrogateescape")
    made = filled(body, number, time.time_ns(), client.new_id, random_letters, request)
    return made.encode("utf-8", "surrogateescape")


def _output_of(session: Session, program: str, asked: Message) -> bytes:
    """The output of the command; if it fails, an error on stderr and an empty answer."""
    import shlex

    request = asked.data.decode("utf-8", "surrogateescape")
    line = program.replace("{{Request}}", shlex.quote(request))
    for index, token in enumerate(asked.subject.split(".")):
        line = line.replace(f"{{{{{index}}}}}", shlex.quote(token))
    seconds = session.timeout / 1e9
    try:
        done = subprocess.run(
            line, shell=True, input=asked.data, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        print(f"pelton: the command takes longer than {seconds:g} s", file=sys.stderr)
        return b""
    if done.returncode:
        text = done.stderr.decode("utf-8", "replace").strip()
        print(shown(f"pelton: the command ended with {done.returncode}: {text}"), file=sys.stderr)
        return b""
    return done.stdout


def _tell(session: Session, asked: Message, number: int) -> None:
    if session.as_json:
        print_json_line({"subject": asked.subject, "bytes": len(asked.data), "count": number})
    else:
        print(shown(f"[#{number}] {asked.subject}: {len(asked.data)} bytes"), flush=True)
