"""A backup of a stream that is read message by message, so that it continues where it was interrupted.

    <folder>/backup.part.json    {"created", "offset", "state"}: what is complete in messages.part
    <folder>/messages.part       the messages so far, as entries of an archive
    <folder>/stream.tar.s2       the archive at the end: state.json, consumers, messages
    <folder>/backup.json

No server has to keep a snapshot meanwhile. The server does not say which messages behind the ack floor a
consumer has acknowledged; a restored consumer gets all of them again.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click
import msgspec

from pelton.api.archives import END, MAGIC, STATE, packed
from pelton.api.codec import encode
from pelton.api.times import format_time
from pelton.cli.streams.ranges import columns_of
from pelton.core.base.s2 import FrameWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import BinaryIO

    from pelton.client.base.models import ConsumerInfo, StreamInfo
    from pelton.client.sync.jetstream import JetStream
    from pelton.core.bulk.columns import Columns

NO_TIME = "0001-01-01T00:00:00Z"
FACTS, ARCHIVE = "backup.json", "stream.tar.s2"
_PIECE = 1 << 20
_SYNC_BYTES = 64 << 20
"""Messages of this size are on the disk at the latest before the next ones are read."""


class Progress(msgspec.Struct):
    """The state of an interrupted backup."""

    created: int
    offset: int = 0
    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    first_ts: int = 0
    last_seq: int = 0
    last_ts: int = 0

    def take(self, columns: Columns, size: int) -> None:
        """The messages of a batch are written."""
        seq, times = columns.seq.view("q"), columns.timestamp_ns.view("q")
        if not self.messages:
            self.first_seq, self.first_ts = seq[0], times[0]
        self.last_seq, self.last_ts = seq[columns.count - 1], times[columns.count - 1]
        self.messages += columns.count
        self.bytes += size + 16 * columns.count
        self.offset += size

    def state(self, consumers: int, info: StreamInfo) -> dict[str, Any]:
        """The state of the stream in the archive; behind the last message as the stream has it."""
        last = max(self.last_seq, info.state.last_seq)
        return {
            "messages": self.messages,
            "bytes": self.bytes,
            "first_seq": self.first_seq or last + 1,
            "first_ts": format_time(self.first_ts) if self.messages else NO_TIME,
            "last_seq": last,
            "last_ts": format_time(self.last_ts) if self.messages else NO_TIME,
            "consumer_count": consumers,
        }


def back_up(
    js: JetStream,
    name: str,
    folder: Path,
    *,
    consumers: bool,
    report: Callable[[int, int | None], None],
) -> Progress:
    """Begin or continue a backup, and complete it. UsageError: the folder is of another stream."""
    info = js.stream_info(name)
    noted, messages = folder / "backup.part.json", folder / "messages.part"
    progress = _begun(noted, messages, info)
    with open(messages, "ab", opener=_private) as file:
        file.truncate(progress.offset)
        unsynced = 0
        stop = info.state.last_seq + 1
        for columns in columns_of(js, info, progress.last_seq + 1, stop):
            entries = [
                packed(subject, ts, seq, head, data)
                for seq, ts, subject, head, data in columns.rows()
            ]
            size = file.write(b"".join(entries))
            progress.take(columns, size)
            report(progress.bytes, max(progress.bytes, info.state.bytes))
            unsynced += size
            if unsynced >= _SYNC_BYTES:
                _note(file, noted, progress)
                unsynced = 0
        _note(file, noted, progress)
    found = [each for each in js.consumers(name) if _durable(each)] if consumers else []
    state = progress.state(len(found), info)
    _write(folder / ARCHIVE, state, found, messages)
    facts = {"config": msgspec.json.decode(encode(info.config)), "state": state}
    with open(folder / FACTS, "wb", opener=_private) as file:
        file.write(msgspec.json.format(msgspec.json.encode(facts)) + b"\n")
    noted.unlink()
    messages.unlink()
    return progress


def _begun(noted: Path, messages: Path, info: StreamInfo) -> Progress:
    if not (noted.exists() and messages.exists()):
        return Progress(info.created)
    try:
        progress = msgspec.json.decode(noted.read_bytes(), type=Progress)
    except msgspec.DecodeError as error:
        raise click.UsageError(f"{noted}: {error}") from None
    if progress.created != info.created:
        raise click.UsageError(
            f"{noted.parent} has a part of another stream {info.config.name}; remove it to begin again"
        )
    if progress.offset > messages.stat().st_size:
        return Progress(info.created)
    return progress


def _note(file: BinaryIO, noted: Path, progress: Progress) -> None:
    """The messages are on the disk, then the note that says so."""
    file.flush()
    os.fsync(file.fileno())
    part = noted.with_name(noted.name + ".tmp")
    with open(part, "wb", opener=_private) as note:
        note.write(msgspec.json.encode(progress))
        note.flush()
        os.fsync(note.fileno())
    part.rename(noted)


def _durable(info: ConsumerInfo) -> bool:
    return info.config is not None and bool(info.config.durable_name)


def _consumer(info: ConsumerInfo) -> bytes:
    """A consumer's entry. Messages that were delivered and not acknowledged are delivered again."""
    assert info.config is not None
    waits = info.config.ack_policy != "none"
    reached = info.ack_floor if waits else info.delivered
    place = {"consumer_seq": reached.consumer_seq, "stream_seq": reached.stream_seq}
    state = {"delivered": place, "ack_floor": place}
    config = msgspec.json.decode(encode(info.config))
    body = msgspec.json.encode({"config": config, "state": state})
    return packed(f"consumers/{info.name}", 0, 0, b"", body)


def _write(
    target: Path, state: dict[str, Any], consumers: list[ConsumerInfo], messages: Path
) -> None:
    part = target.with_name(target.name + ".part")
    with open(part, "wb", opener=_private) as file:
        frames = FrameWriter()

        def put(piece: bytes) -> None:
            frames.put(piece)
            while len(frames):
                file.write(frames.take(_PIECE))

        put(MAGIC + packed(STATE, 0, 0, b"", msgspec.json.encode(state)))
        for each in consumers:
            put(_consumer(each))
        with messages.open("rb") as read:
            while piece := read.read(_PIECE):
                put(piece)
        frames.put(END)
        frames.finish()
        put(b"")
        file.flush()
        os.fsync(file.fileno())
    part.rename(target)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
