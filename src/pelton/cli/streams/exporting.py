"""``pelton stream export``: messages of a stream into files."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from pelton.cli.output import number, print_json, size
from pelton.cli.progress import progress_bar
from pelton.cli.prompts import Asked
from pelton.cli.session import Session, command
from pelton.cli.streams.files import (
    ARCHIVE,
    FACTS,
    FORMS,
    Archive,
    JsonLines,
    ParquetFile,
    ParquetFolder,
    Writer,
    form_of,
    is_folder,
    last_line,
    synced,
)
from pelton.cli.streams.ranges import Range, bounds, columns_of, range_options
from pelton.cli.values import Whole, Word

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.client.base.models import StreamInfo


@click.command(name="export")
@click.argument("name", cls=Asked)
@click.argument("target", type=click.Path(allow_dash=True, path_type=Path), metavar="FILE")
@click.option(
    "-f", "--format", "form", type=Word(FORMS), help="By default as the name of FILE says."
)
@range_options
@click.option("--resume", is_flag=True, help="Continue an export that was interrupted.")
@click.option("--force", is_flag=True, help="Replace FILE.")
@click.option(
    "--rows-per-file",
    type=Whole(1),
    default=1_000_000,
    show_default=True,
    help="Rows of each file in a folder of Parquet files.",
)
@command
@click.pass_obj
def export(session: Session, /, name: str, target: Path, form: str | None, **asked: Any) -> None:
    """Write messages of the stream NAME into FILE: as JSON lines, Parquet or NATSARC1.

    FILE ends with .jsonl, .parquet or .natsarc; "-" prints JSON lines. With --format and another name it
    is a folder: of Parquet files, or a backup that `pelton stream restore` and the `nats` command take.
    Nothing in the stream changes. An interrupted export leaves FILE.part, or complete Parquet files.
    """
    wanted = Range.of(asked)
    form = form_of(target, form)
    folder = is_folder(target, form) and str(target) != "-"
    resumable = form == "jsonl" or (form == "parquet" and folder)
    if asked["resume"] and (not resumable or str(target) == "-"):
        raise click.UsageError("--resume needs JSON lines in a file, or a folder of Parquet files")
    after = _begun(target, form) if asked["resume"] else _free(target, asked["force"])
    started = time.monotonic()
    with session.connect() as client:
        js = session.jetstream(client)
        info = js.stream_info(name)
        first, stop = bounds(js, info, wanted)
        first = max(first, after + 1)
        count = written = 0
        with (
            progress_bar(f"exporting {name}", wanted=str(target) != "-") as progress,
            _writer(target, form, info, asked, folder) as writer,
        ):
            for columns in columns_of(js, info, first, stop, wanted.subjects):
                writer.write(columns)
                count += columns.count
                written += columns.nbytes
                progress(written, None if wanted.subjects else info.state.bytes)
            writer.end()
    if str(target) == "-":
        return
    if session.as_json:
        print_json({"stream": name, "file": str(target), "messages": count, "bytes": written})
        return
    took = f"{time.monotonic() - started:.1f} s"
    more = " more" if after else ""
    print(f"exported {number(count)}{more} messages, {size(written)}, into {target} in {took}")


def _free(target: Path, force: bool) -> int:
    if str(target) != "-" and os.path.lexists(target):
        if not force:
            raise click.UsageError(f"{target} already exists; --force replaces it")
        if target.is_dir():
            unknown = [
                each.name
                for each in target.iterdir()
                if each.suffix not in (".parquet", ".part") and each.name not in (FACTS, ARCHIVE)
            ]
            if unknown:
                raise click.UsageError(f"{target} has other files, such as {min(unknown)}")
            shutil.rmtree(target)
    return 0


def _begun(target: Path, form: str) -> int:
    """The sequence that an interrupted export has reached."""
    if form == "parquet":
        return ParquetFolder.last_seq(target) if target.is_dir() else 0
    part = _part(target)
    if target.exists():
        raise click.UsageError(f"{target} is complete")
    if not part.exists():
        return 0
    whole, seq = last_line(part)
    os.truncate(part, whole)
    return seq


def _part(target: Path) -> Path:
    return target.with_name(target.name + ".part")


@contextlib.contextmanager
def _writer(
    target: Path, form: str, info: StreamInfo, asked: dict[str, Any], folder: bool
) -> Iterator[Writer]:
    """The writer; when it succeeds, its file gets its name."""
    if str(target) == "-":
        if form != "jsonl":
            raise click.UsageError(f"{form} needs a file")
        yield JsonLines(sys.stdout.buffer)
        return
    if form == "parquet" and folder:
        yield ParquetFolder(target, info.config, asked["rows_per_file"])
        return
    if folder:
        yield from _backup(target, info)
        return
    part = _part(target)
    with open(part, "ab" if asked["resume"] else "wb", opener=_private) as file:
        try:
            yield _one(file, form, info, target.parent)
        except BaseException:
            if form != "jsonl":
                part.unlink()
            raise
        synced(file)
    part.rename(target)


def _one(file: BinaryIO, form: str, info: StreamInfo, beside: Path) -> Writer:
    if form == "jsonl":
        return JsonLines(file)
    if form == "parquet":
        return ParquetFile(file, info.config)
    return Archive(file, beside)


def _backup(target: Path, info: StreamInfo) -> Iterator[Writer]:
    import msgspec

    from pelton.api.codec import encode

    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = target / f"{ARCHIVE}.part"
    with open(part, "wb", opener=_private) as file:
        archive = Archive(file, target)
        try:
            yield archive
        except BaseException:
            part.unlink()
            raise
        synced(file)
    facts = {"config": msgspec.json.decode(encode(info.config)), "state": archive.state}
    with open(target / FACTS, "wb", opener=_private) as file:
        file.write(msgspec.json.format(msgspec.json.encode(facts)) + b"\n")
        synced(file)
    part.rename(target / ARCHIVE)


def _private(path: str, flags: int) -> int:
    # a user who may not read the stream may not read a copy of it either
    return os.open(path, flags, 0o600)
