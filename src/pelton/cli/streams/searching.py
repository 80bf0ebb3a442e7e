"""``pelton stream find`` and ``search``: find streams by their properties, and messages by their contents."""

from __future__ import annotations

import json
import re
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.failures import DONE, FAILED
from pelton.cli.output import (
    age,
    as_data,
    moment,
    number,
    payload,
    print_json,
    print_json_line,
    print_names,
    print_table,
    readable,
    size,
)
from pelton.cli.session import Session, command
from pelton.cli.streams.selecting import selected, selecting
from pelton.cli.values import DURATION, PATTERN_ERRORS, Whole
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pelton.client.base.models import StoredMessage
    from pelton.client.sync.jetstream import JetStream

    Test = Callable[[StoredMessage], bool]

_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")


@click.command()
@selecting
@click.option("-n", "--names", is_flag=True, help="Only the names.")
@command
@click.pass_obj
def find(session: Session, /, names: bool, **asked: Any) -> int:
    """Find the streams that meet every given condition. Exit status 1 if none does.

    --expression takes the language Expr, with config, state and info as stream info --json has them:
    'state.messages > 1000 and "orders.>" in config.subjects', 'info.cluster.name in ["lon", "sfo"]'.
    """
    with session.connect() as client:
        found = selected(session.jetstream(client), asked)
    now_ns = time.time_ns()
    if names:
        print_names(session, [each.config.name for each in found])
    elif session.as_json:
        print_json([as_data(each) for each in found])
    elif found:
        columns = ("Name", "Subjects", "Messages", "Size", "Last")
        rows = [
            (
                each.config.name,
                ", ".join(each.config.subjects),
                number(each.state.messages),
                size(each.state.bytes),
                age(each.state.last_ts, now_ns),
            )
            for each in found
        ]
        print_table(columns, rows, right=frozenset(columns[2:]))
    return DONE if found else FAILED


@click.command()
@click.argument("stream")
@click.argument("text", required=False)
@click.option("-S", "--subject", default=None, help="Only messages of this subject.")
@click.option("-H", "--header", "headers", multiple=True, help='"NAME" or "NAME: VALUE".')
@click.option(
    "--json-path", "paths", multiple=True, help='A value in a JSON body: "a.b[0]=VALUE" or "a.b".'
)
@click.option("-E", "--regex", is_flag=True, help="TEXT is a regular expression.")
@click.option("-i", "--ignore-case", is_flag=True, help="TEXT in any case.")
@click.option("--seq", type=Whole(1), default=None, help="Begin with this sequence.")
@click.option("--since", type=DURATION, default=None, help="Begin with messages of this age.")
@click.option("-n", "--count", default=0, type=Whole(0), help="End after this many.")
@click.option("-r", "--raw", is_flag=True, help="Only the payloads, each with a line end.")
@command
@click.pass_obj
def search(
    session: Session,
    stream: str,
    text: str | None,
    subject: str | None,
    headers: tuple[str, ...],
    paths: tuple[str, ...],
    regex: bool,
    ignore_case: bool,
    seq: int | None,
    since: int | None,
    count: int,
    raw: bool,
) -> int:
    """Print the messages of STREAM whose body contains TEXT, and for which all options hold.

    The messages are read, and nothing is changed or acknowledged. Exit status 1 if none matches.
    """
    if seq is not None and since is not None:
        raise click.UsageError("--seq and --since exclude each other")
    tests = [*map(_header_test, headers), *map(_path_test, paths)]
    if text is not None:
        tests.append(_text_test(text, regex, ignore_case))
    found = 0
    with session.connect() as client:
        js = session.jetstream(client)
        begin_ns = None if since is None else time.time_ns() - since
        for message in stored_messages(js, stream, subject, seq, begin_ns):
            if all(test(message) for test in tests):
                found += 1
                _show(session, message, raw)
                if found == count:
                    break
    return DONE if found else FAILED


def stored_messages(
    js: JetStream, stream: str, subject: str | None, seq: int | None, begin_ns: int | None
) -> Iterator[StoredMessage]:
    """The messages that a stream holds now, in order; without a consumer, so nothing is changed."""
    from pelton.errors import MessageNotFoundError

    info = js.stream_info(stream)
    last_seq = info.state.last_seq
    if info.config.allow_direct:
        given = {"start_time": begin_ns} if begin_ns is not None else {"seq": seq or 1}
        for message in js.get_batch(stream, subject=subject, **given):
            if message.seq > last_seq:
                return
            yield message
        return
    following = max(seq or 1, info.state.first_seq)
    while following <= last_seq:
        try:
            message = js.get_message(stream, following, next_by_subject=subject or ">")
        except MessageNotFoundError:
            return
        following = message.seq + 1
        if begin_ns is None or message.timestamp_ns >= begin_ns:
            yield message


def _text_test(text: str, regex: bool, ignore_case: bool) -> Test:
    pattern = text if regex else re.escape(text)
    try:
        found = re.compile(
            pattern.encode("utf-8", "surrogateescape"), re.IGNORECASE if ignore_case else 0
        )
    except PATTERN_ERRORS as error:
        raise click.UsageError(f'"{text}" is not a regular expression: {error}') from None
    return lambda message: found.search(message.data) is not None


def _header_test(given: str) -> Test:
    name, colon, value = given.partition(":")
    name, value = name.strip(), value.strip()
    if not name:
        raise click.UsageError(f'"{given}" is not a header; write it as "name" or "name: value"')
    if not colon:
        return lambda message: name in message.headers
    return lambda message: value in message.headers.get_all(name)


def _path_test(given: str) -> Test:
    path, equals, value = given.partition("=")
    steps = steps_of(path)

    def test(message: StoredMessage) -> bool:
        try:
            found = json.loads(message.data)
        except (ValueError, RecursionError):
            return False
        for step in steps:
            inside = isinstance(found, dict) and isinstance(step, str) and step in found
            inside |= isinstance(found, list) and isinstance(step, int) and step < len(found)
            if not inside:
                return False
            found = found[step]
        text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
        return not equals or text == value

    return test


def steps_of(path: str) -> list[str | int]:
    """The steps of a path such as "a.b[0]" or "$.a"; UsageError."""
    rest = path.removeprefix("$")
    steps: list[str | int] = []
    at = 0
    while at < len(rest):
        match = _STEP.match(rest, at)
        if match is None or (match[1] is not None and at and rest[at] != "."):
            steps = []
            break
        steps.append(int(match[2]) if match[1] is None else match[1])
        at = match.end()
    if not steps:
        raise click.UsageError(f'"{path}" is not a path such as a.b[0]')
    return steps


def _show(session: Session, message: StoredMessage, raw: bool) -> None:
    stamp = moment(message.timestamp_ns)
    if session.as_json:
        data: dict[str, object] = {"subject": message.subject, "seq": message.seq, "time": stamp}
        if message.headers:
            data["headers"] = message.headers.lists()
        print_json_line(data | payload(message.data))
    elif raw:
        sys.stdout.buffer.write(message.data + b"\n")
        sys.stdout.buffer.flush()
    else:
        print(f"[#{message.seq}] {shown(message.subject)} {stamp}")
        for name, values in message.headers.lists().items():
            for value in values:
                print(shown(f"{name}: {value}"))
        print(readable(message.data), flush=True)
