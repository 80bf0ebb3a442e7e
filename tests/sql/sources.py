"""The same messages in every source: as a list, in a store folder, in running servers."""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from pelton import StreamConfig
from pelton.api.streams import StreamConfig as StoredConfig
from pelton.arrow import HEADERS, TIMESTAMP
from pelton.core.base.disk import Disk
from pelton.core.log import maintenance
from pelton.core.log.recovery import open_log
from pelton.engine.files.files import FORMAT, AccountFiles, StreamFile
from pelton.sql.tables import SCHEMA
from pelton.sync import connect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.sql import Database

BORN = 1_700_000_000_000_000_000
SUBJECTS = ("M.a", "M.b", "M.a.c", "M.a.d", "M.ü", "M.quo'te", 'M.quo"te')
STREAM = "M"


@dataclass(frozen=True)
class Stored:
    """A message as it should be in a table."""

    seq: int
    ts_ns: int
    subject: str
    headers: dict[str, list[str]] | None
    data: bytes


def drawn(pick: random.Random, count: int) -> list[tuple[str, dict[str, list[str]], bytes]]:
    """Messages to store: JSON, texts, bytes that are no text, empty ones; some with headers."""
    payloads = [b"", b"\xff\xfe", b"text", b'{"n":1}', "grün".encode(), b"x" * 300]
    return [
        (
            pick.choice(SUBJECTS),
            {"Kind": ["a", "b"][: pick.randint(1, 2)]} if pick.random() < 0.3 else {},
            pick.choice(payloads) if pick.random() < 0.5 else b'{"n":%d}' % pick.randint(0, 9),
        )
        for _ in range(count)
    ]


def table_of(messages: list[Stored]) -> pa.Table:
    """The messages as a table of the same columns, made without anything of the sources."""
    rows = [
        {
            "seq": each.seq,
            "ts": each.ts_ns // 1000,
            "subject": each.subject,
            "headers": None if each.headers is None else list(each.headers.items()),
            "data": each.data,
            "text": _text(each.data),
            "ts_ns": each.ts_ns,
        }
        for each in messages
    ]
    kinds = {"ts": TIMESTAMP, "headers": HEADERS}
    columns = {
        name: pa.array([row.get(name) for row in rows], kinds.get(name, SCHEMA.field(name).type))
        for name in SCHEMA.names
        if name != "size"
    }
    return pa.table(columns)


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def in_folder(
    path: Path, pick: random.Random, count: int = 300, stream: str = STREAM
) -> list[Stored]:
    """A store with small segments, some messages deleted, several of the same time."""
    files = AccountFiles(Disk(), str(path), "$G")
    files.open()
    folder = files.stream(stream)
    folder.create()
    config = StoredConfig(name=stream, subjects=[f"{stream}.>"])
    folder.write(StreamFile(format=FORMAT, created=BORN, config=config))
    log = open_log(folder.log_folder, segment_bytes=4096)
    log.compress = pick.random() < 0.3
    stored = []
    ns = BORN
    for subject, headers, data in drawn(pick, count):
        ns += pick.choice((0, 1, 999, 1000, 5000))
        lines = "".join(f"{n}: {v}\r\n" for n, values in headers.items() for v in values)
        block = f"NATS/1.0\r\n{lines}\r\n".encode() if headers else b""
        seq = log.add(ns, subject, data, block)
        stored.append(Stored(seq, ns, subject, headers or None, data))
    removed = {pick.randint(1, count) for _ in range(count // 10)}
    for seq in removed:
        maintenance.delete(log, seq)
    log.flush()
    while maintenance.maintain(log):
        pass
    maintenance.close(log)
    return [each for each in stored if each.seq not in removed]


def in_server(
    url: str, pick: random.Random, count: int = 300, stream: str = STREAM, **config: object
) -> list[Stored]:
    """A stream of a server with such messages; what it stored, as the server tells it."""
    with connect(url) as client:
        js = client.jetstream()
        with contextlib.suppress(Exception):
            js.delete_stream(stream)
        made = StreamConfig(name=stream, subjects=[f"{stream}.>"], **config)  # type: ignore[arg-type]  # fields by name
        js.create_stream(made)
        for subject, headers, data in drawn(pick, count):
            js.publish(f"{stream}{subject[1:]}", data, headers=headers or None)
        for seq in {pick.randint(2, count) for _ in range(count // 10)}:
            js.delete_message(stream, seq)
        stored = []
        for seq in range(1, count + 1):
            with contextlib.suppress(Exception):
                found = js.get_message(stream, seq)
                headers = found.headers.lists()
                stored.append(
                    Stored(seq, found.timestamp_ns, found.subject, headers or None, found.data)
                )
        return stored


def answers(database: Database, query: str) -> list[object]:
    """The rows in an order of their own."""
    rows = database.rows(query).read_all().to_pylist()
    return sorted(repr(row) for row in rows)


@contextlib.contextmanager
def unpushed(messages: list[Stored]) -> Iterator[Database]:
    """A database whose table M is made of the list: DuckDB filters it itself."""
    from pelton.sql.database import Database

    class Listed:
        def streams(self) -> list[str]:
            return []

        stream_rows = consumer_rows = streams

    with Database(Listed()) as database:  # type: ignore[arg-type]  # it is asked for names alone
        table = table_of(messages)
        database.connection.register("listed", table)
        database.connection.execute("CREATE TABLE M AS SELECT * FROM listed")
        yield database
