"""``pelton stream backup`` and ``restore``: backup folders in the form of the ``nats`` command.

<folder>/backup.json      {"config": …, "state": …} of the stream
<folder>/stream.tar.s2    the archive, as the server sent it
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from pelton.cli.inputs import read_input
from pelton.cli.output import as_data, number, print_json, size
from pelton.cli.progress import progress_bar
from pelton.cli.session import Session, command
from pelton.cli.streams.basics import show
from pelton.cli.values import SIZE, Whole
from pelton.core.log.store_lock import make_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pelton.api.calls import StreamRestoreRequest
    from pelton.api.streams import StreamConfig
    from pelton.client.base.models import StreamInfo
    from pelton.client.sync.backup import Backup
    from pelton.client.sync.jetstream import JetStream

_FACTS = "backup.json"
_ARCHIVE = "stream.tar.s2"
_NOTE = "backup.part.json"  # of a backup by message that is not complete
_READ_BYTES = 1 << 20


@click.command()
@click.argument("name")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--check", is_flag=True, help="Make the server read all messages first.")
@click.option("--consumers/--no-consumers", default=True, help="Include the consumers.")
@click.option("--chunk-size", type=SIZE, default=0, help="Bytes per chunk.")
@click.option("--window-size", type=SIZE, default=0, help="Bytes that may wait for an ack.")
@click.option("--resume", is_flag=True, help="Read message by message; the same command continues.")
@click.option("--progress/--no-progress", default=True, help="Show a bar at a terminal.")
@command
@click.pass_obj
def backup(
    session: Session,
    name: str,
    folder: Path,
    check: bool,
    consumers: bool,
    chunk_size: int,
    window_size: int,
    progress: bool,
    resume: bool,
) -> None:
    """Back up the stream NAME into FOLDER, which must not have a backup yet.

    The server makes the archive, and an interruption ends it. With --resume this command reads
    single messages, and continues when you run it again; a restored consumer then gets every
    message after its ack floor again.
    """
    goes_on = resume and (folder / _NOTE).exists()
    for each in (_FACTS, _ARCHIVE):
        if (folder / each).exists() and not goes_on:
            raise click.UsageError(f"{folder / each} already exists")
    if resume:
        if check or chunk_size or window_size:
            raise click.UsageError("--resume goes without --check, --chunk-size, --window-size")
        _by_message(session, name, folder, consumers)
        return
    started = time.monotonic()
    with session.connect() as client:
        coming = begin(session.jetstream(client), name, consumers, check, chunk_size, window_size)
        if not session.as_json:
            print(f'Starting backup of Stream "{name}" with {size(coming.state.bytes)}', flush=True)
        received, chunks = receive(coming, folder, progress=progress)
    if session.as_json:
        print_json({"stream": name, "bytes": received, "chunks": chunks})
        return
    took = f"{time.monotonic() - started:.1f} s"
    print(f'Received {size(received)} in {number(chunks)} chunks for stream "{name}" in {took}')


def _by_message(session: Session, name: str, folder: Path, consumers: bool) -> None:
    from pelton.cli.progress import progress_bar
    from pelton.cli.streams.backup_by_message import back_up

    make_private(str(folder))
    with session.connect() as client, progress_bar(f"backing up {name}") as report:
        js = session.jetstream(client)
        done = back_up(js, name, folder, consumers=consumers, report=report)
    if session.as_json:
        print_json({"stream": name, "messages": done.messages, "bytes": done.bytes})
    else:
        print(f'Backed up {number(done.messages)} messages of Stream "{name}", {size(done.bytes)}')


def begin(
    jetstream: JetStream,
    name: str,
    consumers: bool,
    check: bool,
    chunk_bytes: int = 0,
    window_bytes: int = 0,
) -> Backup:
    """Begin the backup of a stream; ApiError if it is not possible."""
    from pelton.client.sync.backup import Backup

    return Backup(
        jetstream,
        name,
        consumers=consumers,
        check=check,
        chunk_bytes=chunk_bytes,
        window_bytes=window_bytes,
    )


def receive(coming: Backup, folder: Path, *, progress: bool) -> tuple[int, int]:
    """Write a backup into a folder; the numbers of bytes and of chunks. If it breaks off, no files are left."""
    from pelton.api.calls import StreamRestoreRequest
    from pelton.api.codec import encode

    received = chunks = 0
    make_private(str(folder))
    unfinished = folder / f"{_ARCHIVE}.part"
    unfinished.unlink(missing_ok=True)
    try:
        with (
            open(unfinished, "wb", opener=_private) as file,
            progress_bar(coming.stream, wanted=progress) as tell,
        ):
            for chunk in coming:
                file.write(chunk)
                received += len(chunk)
                chunks += 1
                tell(received, None)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        unfinished.unlink()
        raise
    facts = encode(StreamRestoreRequest(config=coming.config, state=coming.state))
    with open(folder / _FACTS, "wb", opener=_private) as file:
        file.write(msgspec.json.format(facts) + b"\n")
    unfinished.rename(folder / _ARCHIVE)
    return received, chunks


def complete(folder: Path) -> bool:
    """Whether a folder has a whole backup: the archive gets its name last."""
    return (folder / _FACTS).exists() and (folder / _ARCHIVE).exists()


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=None,
    help="A JSON file with another configuration for the stream, of the same name.",
)
@click.option("--cluster", default="", help="Place the stream in this cluster.")
@click.option("--tag", "tags", multiple=True, help="Place it on servers with this tag.")
@click.option("--replicas", type=Whole(1, 5), help="Number of copies.")
@click.option("--progress/--no-progress", default=True, help="Show a bar at a terminal.")
@command
@click.pass_obj
def restore(
    session: Session,
    folder: Path,
    config: Path | None,
    cluster: str,
    tags: Sequence[str],
    replicas: int | None,
    progress: bool,
) -> None:
    """Restore the stream that was backed up into FOLDER."""
    facts = facts_of(folder)
    wanted = facts.config if config is None else _config(config, facts)
    place(wanted, cluster, tags, replicas)
    archive = folder / _ARCHIVE
    if not session.as_json:
        what = f'Starting restore of Stream "{wanted.name}" from {archive}'
        print(f"{what} with {size(archive.stat().st_size)}", flush=True)
    with session.connect() as client:
        info = send(session.jetstream(client), folder, wanted, facts, progress=progress)
    print_json(as_data(info)) if session.as_json else show(session, info)


def place(
    config: StreamConfig, cluster: str, tags: Sequence[str], replicas: int | None = None
) -> None:
    """Say where a restored stream shall be."""
    from pelton.api.streams import Placement

    if cluster or tags:
        config.placement = Placement(cluster=cluster, tags=list(tags))
    if replicas is not None:
        config.num_replicas = replicas


def send(
    jetstream: JetStream,
    folder: Path,
    config: StreamConfig,
    facts: StreamRestoreRequest,
    *,
    progress: bool = True,
) -> StreamInfo:
    """Restore the stream in a folder; ApiError if the server refuses, and then there is none."""
    from pelton.client.sync.backup import restore as restore_stream

    archive = folder / _ARCHIVE
    with progress_bar(config.name, wanted=progress) as tell:
        return restore_stream(jetstream, config, _pieces(archive, tell), facts.state)


def _private(path: str, flags: int) -> int:
    # a user who may not read the store may not read a copy of it either
    return os.open(path, flags, 0o600)


def facts_of(folder: Path) -> StreamRestoreRequest:
    """The stream's information in a backup; UsageError for a file that can't be one."""
    from pelton.api.calls import StreamRestoreRequest
    from pelton.api.codec import JsonError, decode_request

    path = folder / _FACTS
    if not path.exists():
        raise click.UsageError(f"{folder} has no backup: there is no {_FACTS} in it")
    try:
        facts = decode_request(StreamRestoreRequest, read_input(path), strict=False)
    except JsonError as error:
        raise click.UsageError(f"{path}: {error}") from None
    if not facts.config.name:
        raise click.UsageError(f"{path} names no stream")
    return facts


def _config(path: Path, facts: StreamRestoreRequest) -> StreamConfig:
    from pelton.api.codec import decode_response
    from pelton.api.streams import StreamConfig
    from pelton.cli.changes import read_fields

    text = read_input(path)
    config = decode_response(StreamConfig, read_fields(text, str(path), StreamConfig))
    if config.name not in ("", facts.config.name):
        raise click.UsageError(f"{path} is of stream {config.name}; a restore can't rename")
    config.name = facts.config.name
    return config


def _pieces(path: Path, tell: Callable[[int, int | None], None]) -> Iterator[bytes]:
    total, done = path.stat().st_size, 0
    with path.open("rb") as file:
        while piece := file.read(_READ_BYTES):
            yield piece
            done += len(piece)
            tell(done, total)
