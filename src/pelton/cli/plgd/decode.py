"""``pelton plgd decode``: events in a form that people and programs read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from pelton.api.times import format_time
from pelton.cli.failures import DONE, FAILED
from pelton.cli.inputs import read_input
from pelton.cli.output import form_in_use, print_json, print_json_line, print_table
from pelton.cli.plgd.lines import needs, read, stream_of
from pelton.cli.session import Session, command
from pelton.cli.values import Whole
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

COLUMNS = ("seq", "time", "event", "device", "resource", "version", "what")
RIGHT = frozenset({"seq", "version"})
WHAT_MAX = 100


class _Raw(NamedTuple):
    """A message: its sequence or line, its subject, and its bytes."""

    number: int
    subject: str
    payload: bytes


@click.command()
@click.argument("file", required=False, type=click.Path(allow_dash=True))
@click.option("--stream", default="", help="Read this stream instead of a file.")
@click.option("--subject", default="", help="FILE is the payload of one message with this subject.")
@click.option(
    "--filter", "name", default="all", show_default=True, help="Which events of a stream."
)
@click.option("--owner", default="*", help="Owner claim, for --filter.")
@click.option("--device", default="*", help="Device id, for --filter.")
@click.option("--href", default="*", help="Path of a resource, for --filter.")
@click.option("--from", "first", type=Whole(1), default=1, help="First sequence.")
@click.option("--count", type=Whole(1), default=None, help="At most so many messages.")
@command
@click.pass_obj
def decode(session: Session, /, file: str | None, stream: str, subject: str, **asked: Any) -> int:
    """Print events: of a stream, of lines as `pelton plgd fleet` writes them, or of one message.

    Standard input is read without FILE. Filters are those of `named_filter`: all, changed, updated,
    links, metadata, registrations ... A message that is no event is printed with the reason, and
    the exit status is then 1.

    \b
    pelton plgd decode --stream EVENTS --filter changed --href /light/1
    pelton plgd decode events.jsonl --format jsonl
    pelton plgd decode --subject plgd.owners.... payload.bin
    """
    try:
        import pelton.plgd  # noqa: F401  # says early that the extra is missing
    except ImportError as problem:
        raise needs(problem) from None
    if stream and (file or subject):
        raise click.UsageError("--stream excludes FILE and --subject")
    if stream:
        return show(session, of_stream(session, stream, **asked))
    if subject:
        data = sys.stdin.buffer.read() if file in (None, "-") else _bytes(str(file))
        return show(session, [_Raw(1, subject, data)])
    if file in (None, "-"):
        return show(session, _lines(sys.stdin, "-", asked["count"]))
    try:
        with Path(str(file)).open(encoding="utf-8") as opened:
            return show(session, _lines(opened, str(file), asked["count"]))
    except OSError as error:
        raise click.ClickException(f"cannot read {file}: {error.strerror}") from None


def _bytes(name: str) -> bytes:
    try:
        return read_input(Path(name))
    except OSError as error:
        raise click.ClickException(f"cannot read {name}: {error.strerror}") from None


def _lines(file: Any, name: str, count: int | None) -> Iterator[_Raw]:
    for place, line in enumerate(read(file, name)):
        if count is not None and place >= count:
            return
        yield _Raw(line.number, line.subject, line.payload)


def of_stream(
    session: Session,
    stream: str,
    *,
    name: str,
    owner: str,
    device: str,
    href: str,
    first: int,
    count: int | None,
) -> Iterator[_Raw]:
    """The messages of a stream that a filter names."""
    from pelton.client.sync.columns import read_range
    from pelton.client.sync.gets import read_stored
    from pelton.plgd import named_filter

    try:
        subjects = named_filter(name, owner=owner, device=device, href=href)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--filter") from None
    with session.connect() as client:
        js = session.jetstream(client)
        info = stream_of(js, stream)
        read_messages = read_range if info.config.retention == "limits" else read_stored
        stop = info.state.last_seq + 1
        left = count
        for columns in read_messages(
            js, stream, max(first, info.state.first_seq), stop, filter_subjects=subjects
        ):
            for seq, _, subject, _, payload in columns.rows():
                yield _Raw(seq, subject, payload)
                if left is not None:
                    left -= 1
                    if left == 0:
                        return


def show(session: Session, messages: Iterable[_Raw]) -> int:
    """Print messages in the form that was asked for; the exit status."""
    form = form_in_use()
    bad = False
    rows: list[dict[str, Any]] = []
    for message in messages:
        row = described(message)
        bad = bad or "error" in row
        if form == "jsonl":
            print_json_line(row)
        elif form == "table" and not sys.stdout.isatty():
            print(text_of(row))
        else:
            rows.append(row)
    if session.as_json and form != "jsonl":
        print_json(rows)
    elif rows or form in ("csv", "md"):
        print_table(COLUMNS, [cells(row) for row in rows], right=RIGHT)
    return FAILED if bad else DONE


def described(message: _Raw) -> dict[str, Any]:
    """A message as data; with ``error`` and ``detail`` if it is no event, or its content is none."""
    from google.protobuf.json_format import MessageToDict

    from pelton.plgd import UndecodableEventError
    from pelton.plgd import decode as decode_event
    from pelton.plgd.content import plain

    row: dict[str, Any] = {"seq": message.number, "subject": message.subject}
    try:
        event = decode_event(message.subject, message.payload)
        row |= {
            "event_type": event.type.name,
            "time": format_time(event.timestamp_ns),
            "device_id": event.device_id,
            "href": event.href,
            "aggregate_id": event.aggregate_id,
            "version": event.version,
            "message": MessageToDict(event.message, preserving_proto_field_name=True),
        }
        row["content"] = plain(event.content_value())
    except UndecodableEventError as error:
        from pelton.cli.output import payload

        row |= {"error": error.reason.value, "detail": error.detail} | payload(message.payload)
    return row


def cells(row: dict[str, Any]) -> list[str]:
    """A row of the table."""
    version = "" if row.get("version") is None else str(row["version"])
    return [
        str(row["seq"]),
        row.get("time", ""),
        row.get("event_type", "no event"),
        row.get("device_id") or "",
        row.get("href") or "",
        version,
        what(row),
    ]


def what(row: dict[str, Any]) -> str:
    """A short text of an event."""
    import json

    if "error" in row:
        return f"{row['error']}: {row['detail']}"
    message = row["message"]
    parts = [str(message[name]) for name in ("status", "owner") if name in message]
    connection = message.get("connection")
    if row["event_type"].startswith("devicemetadataupdated"):
        parts.append((connection or {}).get("status", "OFFLINE"))
        parts.append((message.get("twin_synchronization") or {}).get("state", "OUT_OF_SYNC"))
    if row.get("content") is not None:
        parts.append(json.dumps(row["content"], ensure_ascii=False))
    parts += [
        each.get("href", "") for each in message.get("resources", ()) if isinstance(each, dict)
    ]
    parts += message.get("hrefs", [])
    parts += message.get("device_ids", [])
    text = " ".join(parts)
    return text if len(text) <= WHAT_MAX else text[: WHAT_MAX - 1] + "…"


def text_of(row: dict[str, Any]) -> str:
    """A line for a pipe, as soon as it is known."""
    return "  ".join(shown(cell) for cell in cells(row) if cell)
