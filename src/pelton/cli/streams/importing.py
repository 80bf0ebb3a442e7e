"""``pelton stream import``: messages out of files into a stream, each of them once.

Each message names the last sequence that it expects. So the stream takes the messages of this
import one after the other or not at all, also when messages of a killed import arrive late, or
another client publishes. So the progress of an import is the number of messages in the stream after
the sequence at which it began; that sequence is kept beside the file.

    FILE.<stream>.import    {"stream", "created", "base", "skipped", "plan"}
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from pelton.cli.output import number, print_json
from pelton.cli.session import Session, command
from pelton.cli.streams.files import encoded, form_of, read_lines, read_parquet
from pelton.cli.streams.ranges import Limit, Range, Row, range_options, rows_of
from pelton.cli.values import Word
from pelton.core.protocol.subjects import matches
from pelton.errors import ApiError, MessageNotFoundError, PublishFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pelton.client.base.models import StreamInfo
    from pelton.client.sync.jetstream import JetStream

    Map = Callable[[str], str]

EXPECTED = "Nats-Expected-Last-Sequence"
WRONG_LAST_SEQ = 10071
CHUNK = 2048
SEARCHED = 10_000
DROPPED = frozenset(
    (
        "Nats-Expected-Last-Sequence",
        "Nats-Expected-Last-Msg-Id",
        "Nats-Expected-Stream",
        "Nats-Expected-Last-Subject-Sequence",
        "Nats-Expected-Last-Subject-Sequence-Subject",
        "Nats-Batch-Id",
        "Nats-Batch-Sequence",
        "Nats-Batch-Commit",
        "Nats-Stream-Source",
    )
)
"""Headers that said something about the first publish."""


class Checkpoint(msgspec.Struct):
    """Where an import began. ``skipped``: messages of the file that the stream has not taken."""

    stream: str
    created: int
    base: int
    plan: str
    skipped: int = 0


class ImportStopped(click.ClickException):
    """An import that cannot continue; its messages in the stream stay."""


@click.command(name="import")
@click.argument("name")
@click.argument("file", type=click.Path(allow_dash=True, path_type=Path))
@click.option(
    "-f",
    "--format",
    "form",
    type=Word(("jsonl", "parquet", "archive")),
    help="By default as the name of FILE says; archive: a backup or a store, too.",
)
@range_options
@click.option(
    "--map", "maps", multiple=True, metavar="FROM:TO", help="Subjects, as in a transform."
)
@click.option("--publish-to", default=None, metavar="SUBJECT", help="One subject for all messages.")
@click.option("--source", default=None, help="The stream in a backup or a store that has several.")
@click.option("--drop-header", "dropped", multiple=True, metavar="NAME", help="Repeatable.")
@click.option("--time-header", default=None, metavar="NAME", help="Keep the time in this header.")
@click.option(
    "--seq-header", default=None, metavar="NAME", help="Keep the sequence in this header."
)
@click.option(
    "--on-refusal",
    type=Word(("stop", "skip")),
    default="stop",
    show_default=True,
    help="What happens to a message that the stream refuses.",
)
@click.option(
    "--guard/--no-guard",
    default=True,
    help="Send Nats-Expected-Last-Sequence, which the stream keeps; without it nothing can be continued.",
)
@click.option(
    "--restart", is_flag=True, help="Begin again, and ignore the progress of an earlier import."
)
@click.option("--dry-run", is_flag=True, help="Read and check the file, publish nothing.")
@command
@click.pass_obj
def import_(session: Session, /, name: str, file: Path, form: str | None, **asked: Any) -> None:
    """Publish the messages of FILE (from `pelton stream export`, a backup, SQL) into the stream NAME.

    Ids and headers are kept, sequences and times are new. No other client may publish into the
    stream meanwhile. The same command continues an import that was interrupted: no message is
    missing or there twice. A message is left out if the stream has its id already.
    """
    plan = _Plan(asked)
    with session.connect() as client, _rows(session, file, form, asked["source"]) as rows:
        js = session.jetstream(client)
        chosen = plan.chosen(rows)
        info = js.stream_info(name)
        if asked["dry_run"]:
            count = sum(1 for _ in chosen)
            _tell(session, f"{file} has {number(count)} messages to import", {"messages": count})
            return
        done = _Import(js, info, file, plan, restart=asked["restart"], guard=asked["guard"])
        done.run(chosen, skip=asked["on_refusal"] == "skip")
    report = {"stream": name, "imported": done.stored, "left_out": done.left_out}
    if done.continued:
        report["imported_before"] = done.continued
    left = f"; left out {number(done.left_out)}" if done.left_out else ""
    before = f" (after {number(done.continued)} before)" if done.continued else ""
    _tell(session, f"imported {number(done.stored)} messages into {name}{before}{left}", report)


def _tell(session: Session, text: str, report: dict[str, Any]) -> None:
    print_json(report) if session.as_json else print(text)


class _Plan:
    """Which messages of a file are published, and as what."""

    def __init__(self, asked: dict[str, Any]) -> None:
        """UsageError for a wrong mapping."""
        named = {k: asked[k] for k in ("maps", "publish_to", "source", "dropped")}
        headers = {k: asked[k] for k in ("time_header", "seq_header")}
        self.range = Range.of(asked)
        text = repr((sorted(named.items()), sorted(headers.items()), self.range))
        self.digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
        self._map = mapping(asked["maps"], asked["publish_to"])
        self._dropped = (
            DROPPED | {each.title() for each in asked["dropped"]} | set(asked["dropped"])
        )
        self._time, self._seq = asked["time_header"], asked["seq_header"]

    def chosen(self, rows: Iterable[Row]) -> Iterator[Row]:
        """The messages to publish, with their new subjects and headers."""
        first, last, subjects = self.range.first, self.range.last, self.range.subjects
        for row in rows:
            if _before(row, first) or _behind(row, last):
                continue
            if subjects and not any(matches(row.subject, each) for each in subjects):
                continue
            subject = self._map(row.subject)
            if not subject:
                raise click.UsageError("a message has no subject; give --publish-to")
            yield row._replace(subject=subject, headers=self._headers(row))

    def _headers(self, row: Row) -> bytes:
        if not (row.headers or self._time or self._seq):
            return b""
        kept = {k: v for k, v in row.decoded().items() if k not in self._dropped}
        if self._time and row.ts_ns:
            from pelton.api.times import format_time

            kept[self._time] = [format_time(row.ts_ns)]
        if self._seq and row.seq:
            kept[self._seq] = [str(row.seq)]
        return encoded(kept) if kept else b""


def _before(row: Row, first: Limit) -> bool:
    return row.seq < first.seq or row.ts_ns < first.ts_ns


def _behind(row: Row, last: Limit) -> bool:
    return bool((last.seq and row.seq > last.seq) or (last.ts_ns and row.ts_ns >= last.ts_ns))


def mapping(maps: tuple[str, ...], constant: str | None = None) -> Map:
    """The function of FROM:TO texts; a subject that none matches stays. UsageError."""
    from pelton.engine.base.transforms import TransformError, parse

    if constant is not None and maps:
        raise click.UsageError("--publish-to and --map exclude each other")
    if constant is not None:
        return lambda subject: constant
    transforms = []
    for each in maps:
        source, colon, target = each.partition(":")
        if not (source and colon and target):
            raise click.UsageError(f'"{each}" is not FROM:TO, such as "orders.>:copy.>"')
        try:
            transforms.append(parse(source, target, random.randrange))
        except TransformError as error:
            raise click.UsageError(f"{each}: {error}") from None

    def mapped(subject: str) -> str:
        for transform in transforms:
            found = transform.apply(subject)
            if found is not None:
                return found
        return subject

    return mapped


# -- sources ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _rows(
    session: Session, file: Path, form: str | None, source: str | None
) -> Iterator[Iterator[Row]]:
    """The messages of a file. UsageError: it is none; NotStoredError, StoreError."""
    if str(file) == "-":
        yield read_lines(sys.stdin.buffer, "standard input")
        return
    if not file.exists():
        raise click.UsageError(f"{file} does not exist")
    if form is None and file.is_dir() and not any(file.glob("*.parquet")):
        form = "archive"
    form = form_of(file, form)
    if form == "jsonl":
        with file.open("rb") as opened:
            yield read_lines(opened, str(file))
    elif form == "parquet":
        yield read_parquet(file)
    else:
        with _stored(session, file, source) as rows:
            yield rows


@contextlib.contextmanager
def _stored(session: Session, path: Path, source: str | None) -> Iterator[Iterator[Row]]:
    from pelton.cli.store.opening import key_of_store, more_files
    from pelton.embedded.stored import StoredServer

    more_files()
    with (
        StoredServer(str(path), key=key_of_store()) as server,
        server.connect_sync() as client,
    ):
        js = client.jetstream()
        names = js.stream_names()
        if source is None and len(names) != 1:
            raise click.UsageError(f"{path} has the streams {', '.join(names)}; give --source")
        info = js.stream_info(source or names[0])
        yield rows_of(js, info, 1, info.state.last_seq + 1)


# -- publishing -----------------------------------------------------------------------------------------


class _Import:
    """One import into one stream."""

    def __init__(
        self,
        js: JetStream,
        info: StreamInfo,
        file: Path,
        plan: _Plan,
        *,
        restart: bool,
        guard: bool,
    ) -> None:
        """Find the checkpoint, or make one. UsageError: it is of another import."""
        self.stored = self.left_out = self.continued = 0
        self._js, self._info, self._name = js, info, info.config.name
        self._file = file
        self._path: Path | None = None
        fresh = Checkpoint(self._name, info.created, info.state.last_seq, plan.digest)
        self._at = fresh
        self._guard = guard
        if str(file) == "-" or not guard:
            return
        self._path = file.with_name(f"{file.name}.{self._name}.import")
        if self._path.exists() and not restart:
            self._at = _checkpoint(self._path)
            if self._at.created != info.created:
                raise click.UsageError(
                    f"{self._path} is of an earlier stream {self._name}; --restart begins again"
                )
            if self._at.plan != plan.digest:
                raise click.UsageError(
                    f"{self._path} is of an import with other options; repeat them, or --restart"
                )
        else:
            self._save()

    def _save(self) -> None:
        if self._path is None:
            return
        part = self._path.with_name(self._path.name + ".tmp")
        with part.open("wb") as file:
            file.write(msgspec.json.encode(self._at) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        part.rename(self._path)

    def run(self, rows: Iterator[Row], *, skip: bool) -> None:
        """Publish all messages; ImportStopped says how far it came."""
        self._reach(rows)
        chunk: list[Row] = []
        size = CHUNK
        with self._js.publisher(window=CHUNK) as publisher:
            while True:
                for row in rows:
                    chunk.append(row)
                    if len(chunk) >= size:
                        break
                if not chunk:
                    break
                sent, rest = chunk[:size], chunk[size:]
                before = publisher.duplicates
                try:
                    for offset, row in enumerate(sent):
                        self._publish(publisher, row, self._expected() + offset)
                    publisher.flush()
                except PublishFailedError as failed:
                    twice = publisher.duplicates - before
                    if self._guard:
                        chunk = self._refused(sent, rest, failed, twice=twice, skip=skip)
                        size = 32
                    else:
                        self._count(len(sent), twice, failed, skip=skip)
                        chunk = rest
                else:  # with a guard only the last ones can be there already
                    self._count(len(sent), publisher.duplicates - before, None, skip=skip)
                    chunk, size = rest, min(2 * size, CHUNK)
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _count(
        self, sent: int, twice: int, failed: PublishFailedError | None, *, skip: bool
    ) -> None:
        refused = len(failed.failures) if failed is not None else 0
        self.stored += sent - twice - refused
        if twice + refused:
            self._leave_out(twice + refused)
        if failed is not None and not skip:
            raise ImportStopped(f"{failed}; {number(self.stored)} messages are imported")

    def _expected(self) -> int:
        return self._at.base + self.continued + self.stored

    def _publish(self, publisher: Any, row: Row, expected: int) -> None:
        guard = {EXPECTED: [str(expected)]} if self._guard else {}
        headers = row.decoded() | guard
        publisher.publish(row.subject, row.data, headers=headers)

    def _leave_out(self, count: int) -> None:
        self.left_out += count
        self._at.skipped += count
        self._save()

    def _refused(
        self,
        sent: list[Row],
        rest: list[Row],
        failed: PublishFailedError,
        *,
        twice: int,
        skip: bool,
    ) -> list[Row]:
        """The messages that are still to publish when the stream has refused a part of a chunk. ImportStopped."""
        reached = self._js.stream_info(self._name).state.last_seq
        taken = reached - self._expected()
        first = failed.failures[0][2]
        foreign = isinstance(first, ApiError) and first.err_code == WRONG_LAST_SEQ
        if not 0 <= taken <= len(sent) or (foreign and not twice):
            raise ImportStopped(
                f"somebody else publishes into {self._name}: {first}; {number(self.stored)} messages "
                "are imported"
            )
        self.stored += taken
        if taken == len(sent):  # only acks were lost
            return rest
        row = sent[taken]
        if not twice and not skip:
            raise ImportStopped(
                f"message {row.seq or self.continued + self.stored + 1} ({row.subject}): {first}; "
                f"{number(self.stored)} messages are imported, the same command continues"
            )
        self._leave_out(1)
        return [*sent[taken + 1 :], *rest]

    def _reach(self, rows: Iterator[Row]) -> None:
        """Skip the messages that an earlier run has published. ImportStopped: the stream has other messages."""
        taken = self._info.state.last_seq - self._at.base
        if not taken and not self._at.skipped:
            return
        if taken < 0:
            raise ImportStopped(f"stream {self._name} has lost messages; --restart begins again")
        self.continued, self.left_out = taken, self._at.skipped
        row = None
        for _ in range(taken + self._at.skipped):
            row = next(rows, None)
            if row is None:
                raise ImportStopped(f"{self._file} has fewer messages than were imported of it")
        if not taken:
            return
        try:
            last = self._js.get_message(self._name, self._info.state.last_seq)
        except MessageNotFoundError:
            return  # removed by a limit: its sequence counts
        searched = 0
        while row is not None and not _is(row, last):
            # messages that were left out, and the stop came before that was noted
            searched += 1
            row = next(rows, None) if searched < SEARCHED else None
        if row is None:
            raise ImportStopped(
                f"message {last.seq} of {self._name} is not of this import: somebody else has published; "
                "--restart begins again"
            )
        if searched:
            self._leave_out(searched)


def _is(row: Row, message: Any) -> bool:
    headers = {k: v for k, v in message.headers.lists().items() if k != EXPECTED}
    return (row.subject, row.data, row.decoded()) == (message.subject, message.data, headers)


def _checkpoint(path: Path) -> Checkpoint:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Checkpoint)
    except msgspec.DecodeError as error:
        raise click.UsageError(f"{path}: {error}") from None
