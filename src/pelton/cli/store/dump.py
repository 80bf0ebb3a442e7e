"""``pelton store dump``: prints the content of a stream from its folder."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from pelton.api.times import format_time, parse_time
from pelton.cli.output import payload, print_json, print_json_line, readable
from pelton.cli.session import Session, command
from pelton.cli.store.opening import more_files, vault
from pelton.cli.store.session import (
    DAMAGED,
    SOUND,
    complain,
    store_argument,
)
from pelton.cli.values import Whole
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from pelton.core.base.readonly_disk import ReadOnlyDisk
    from pelton.store.dump import Row
    from pelton.store.layout import StreamFolder

_HEX_BYTES = 16
_DAMAGE_SHOWN_BYTES = 4096


@click.command()
@store_argument
@click.argument("stream")
@click.option("--subject", "subjects", multiple=True, help="Only matching subjects; repeatable.")
@click.option("--from", "start", default="", help="First sequence, or time (2026-11-21T04:00:00Z).")
@click.option("--to", "end", default="", help="Last sequence, or time (not included).")
@click.option("-n", "--count", default=0, type=Whole(0), help="End after this many messages.")
@click.option("--headers", is_flag=True, help="Show the headers.")
@click.option("-r", "--raw", is_flag=True, help="Only the payloads, each with a line end.")
@click.option("--damaged", is_flag=True, help="Instead: damaged bytes, in hex.")
@click.option("--consumers", is_flag=True, help="Instead: the consumers and their states.")
@click.option("--config", is_flag=True, help="Instead: the configuration.")
@command
@click.pass_obj
def dump(
    session: Session,
    store: str,
    stream: str,
    subjects: tuple[str, ...],
    start: str,
    end: str,
    count: int,
    headers: bool,
    raw: bool,
    damaged: bool,
    consumers: bool,
    config: bool,
) -> int:
    """Print the messages of STREAM in the folder STORE, also if it cannot be recovered."""
    from pelton.core.base.readonly_disk import ReadOnlyDisk
    from pelton.store.dump import MessageFilter, messages
    from pelton.store.layout import find

    if damaged + consumers + config + raw > 1:
        raise click.UsageError("--damaged, --consumers, --config and --raw exclude each other")
    more_files()
    disk = ReadOnlyDisk()
    place = find(disk, store, vault()).one(stream)
    if damaged:
        return _damaged(session, disk, place)
    if consumers or config:
        return _described(session, disk, place, consumers)
    first, since_ns = _limit(start)
    last, until_ns = _limit(end)
    choice = MessageFilter(first or 1, last, since_ns, until_ns, subjects)
    for index, row in enumerate(messages(disk, place, choice), 1):
        _show(session, row, headers, raw)
        if index == count:
            break
    return SOUND


def _limit(text: str) -> tuple[int, int]:
    """(sequence, time in ns), one of them 0."""
    if not text:
        return 0, 0
    if text.isdigit():
        return int(text), 0
    try:
        return 0, parse_time(text)
    except ValueError:
        raise click.UsageError(f'"{text}" is neither a sequence nor a time') from None


def _show(session: Session, row: Row, headers: bool, raw: bool) -> None:
    seq, ts_ns, subject, block, data = row
    if raw:
        sys.stdout.buffer.write(data + b"\n")
    elif session.as_json:
        told: dict[str, object] = {"seq": seq, "time": format_time(ts_ns), "subject": subject}
        if headers and block:
            told["headers"] = block.decode("utf-8", "replace")
        print_json_line(told | payload(data))
    else:
        print(f"[#{seq}] {shown(subject)} {format_time(ts_ns)}")
        if headers and block:
            print(readable(block.replace(b"\r\n", b"\n").strip()))
        print(readable(data))


def _damaged(session: Session, disk: ReadOnlyDisk, place: StreamFolder) -> int:
    from pelton.store.dump import damages

    status = SOUND
    for each in damages(disk, place):
        status = DAMAGED
        name = each.file.rpartition("/")[2]
        if session.as_json:
            lost = [{"first_seq": f, "count": n, "reason": why} for f, n, why in each.lost]
            told = {"file": name, "offset": each.offset, "length": len(each.data), "lost": lost}
            print_json_line(told | {"hex": each.data.hex()})
            continue
        said = "; ".join(
            f"message {first}: {why}" if n == 1 else f"{n} messages from {first}: {why}"
            for first, n, why in each.lost
        )
        print(
            f"{name} at {each.offset}, {len(each.data)} bytes ({said or 'no message is missing'})"
        )
        print(hex_lines(each.offset, each.data[:_DAMAGE_SHOWN_BYTES]))
        if len(each.data) > _DAMAGE_SHOWN_BYTES:
            print(f"  ... {len(each.data) - _DAMAGE_SHOWN_BYTES} bytes more; --json has all")
    return status


def hex_lines(offset: int, data: bytes) -> str:
    """Bytes in hex and as text, 16 per line."""
    lines = []
    for at in range(0, len(data), _HEX_BYTES):
        piece = data[at : at + _HEX_BYTES]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)
        lines.append(f"  {offset + at:08x}  {piece.hex(' '):47}  {text}")
    return "\n".join(lines)


def _described(session: Session, disk: ReadOnlyDisk, place: StreamFolder, consumers: bool) -> int:
    from pelton.store.describe import configuration, consumer_states

    told, problems = (consumer_states if consumers else configuration)(disk, place)
    print_json(told)
    for problem in problems:
        complain(problem)
    return DAMAGED if problems else SOUND
