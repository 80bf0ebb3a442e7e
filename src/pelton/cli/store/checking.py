"""``pelton store ls``, ``check``, ``verify`` and ``repair``: a store folder without a server."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from pelton.cli.output import number, plural, print_table, size
from pelton.cli.session import Session, command
from pelton.cli.store.opening import more_files, vault
from pelton.cli.store.session import (
    DAMAGED,
    SOUND,
    STREAMS,
    progress,
    show_json,
    store_argument,
    style,
)
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from pelton.store.reports import Problem, StoreReport, StreamReport

_COLUMNS = (
    "account",
    "stream",
    "messages",
    "bytes",
    "segments",
    "on disk",
    "first",
    "last",
    "last time",
    "consumers",
    "state",
)
_NUMBERS = frozenset(("messages", "bytes", "segments", "on disk", "first", "last", "consumers"))


def _look(
    session: Session, store: str, streams: tuple[str, ...], what: str, *, whole: bool
) -> StoreReport:
    from pelton.core.base.readonly_disk import ReadOnlyDisk
    from pelton.store.checks import look_at, size_of
    from pelton.store.layout import find

    more_files()
    disk = ReadOnlyDisk()
    found = find(disk, store, vault())
    places = found.chosen(streams)
    started = time.monotonic()
    with progress(session, what, size_of(disk, places)) as done:
        report = look_at(disk, found, places, whole=whole, progress=done)
    report.seconds = round(time.monotonic() - started, 3)
    return report


@click.command()
@store_argument
@STREAMS
@command
@click.pass_obj
def ls(session: Session, store: str, streams: tuple[str, ...]) -> int:
    """List the streams of the folder STORE."""
    report = _look(session, store, streams, "looking", whole=False)
    if session.as_json:
        show_json(report)
        return SOUND
    rows = [
        (
            f"{each.domain}/{each.account}" if each.domain else each.account,
            each.stream,
            number(each.messages),
            size(each.bytes),
            number(each.segments),
            size(each.disk_bytes),
            number(each.first_seq),
            number(each.last_seq),
            each.last_time[:19].replace("T", " "),
            number(len(each.consumers)),
            each.state,
        )
        for each in report.streams
    ]
    print_table(_COLUMNS, rows, right=_NUMBERS)
    _say_used(report)
    return SOUND


@click.command()
@store_argument
@STREAMS
@command
@click.pass_obj
def check(session: Session, store: str, streams: tuple[str, ...]) -> int:
    """Report what a start of the server would find in STORE, without changing anything.

    Trusts valid index files, as a start does; verify reads every byte.
    """
    report = _look(session, store, streams, "checking", whole=False)
    return _tell(session, report)


@click.command()
@store_argument
@STREAMS
@command
@click.pass_obj
def verify(session: Session, store: str, streams: tuple[str, ...]) -> int:
    """Read every record, block and file of STORE (or of a backup) and check it."""
    from pelton.core.base.disk import Disk
    from pelton.store.manifests import is_backup

    if is_backup(Disk(), store):
        from pelton.cli.store.backups import verify_backup

        return verify_backup(session, store)
    report = _look(session, store, streams, "verifying", whole=True)
    return _tell(session, report)


def _tell(session: Session, report: StoreReport) -> int:
    status = SOUND if report.sound else DAMAGED
    if session.as_json:
        show_json(report)
        return status
    for each in report.streams:
        name = f"{each.account}/{each.stream}"
        if each.domain:
            name = f"{each.domain}/{name}"
        print(f"{style(each.state.ljust(15), each.state)}  {shown(name)}  {_facts(each)}")
        for problem in each.problems:
            show_problem(problem, each.folder)
    for problem in report.problems:
        show_problem(problem, report.store)
    _say_used(report)
    _say_sum(report)
    return status


def _facts(each: StreamReport) -> str:
    facts = [plural(each.messages, "message"), size(each.disk_bytes)]
    if each.consumers:
        facts.append(plural(len(each.consumers), "consumer"))
    if each.checked_bytes:
        facts.append(f"{size(each.checked_bytes)} read")
    return ", ".join(facts)


def show_problem(problem: Problem, folder: str) -> None:
    """Print a finding on two lines: place and fault, then what a repair does."""
    where = problem.file.removeprefix(f"{folder}/")
    if problem.offset or (problem.length and ".torn-" not in problem.file):
        where = f"{where} at {problem.offset} ({number(problem.length)} bytes)"
    what = f"{_sequences(problem)}{problem.reason}"
    print(f"  {style(problem.kind, problem.kind).ljust(5)} {shown(f'{where}: {what}')}")
    print(f"        repair: {problem.repair}")


def _sequences(problem: Problem) -> str:
    if problem.count == 0:
        return ""
    if problem.count == 1:
        return f"message {problem.first_seq}, "
    return f"messages {problem.first_seq} to {problem.first_seq + problem.count - 1}, "


def _say_used(report: StoreReport) -> None:
    if report.used_by is not None:
        who = f"pid {report.used_by}" if report.used_by else "another process"
        print(f"a server ({who}) uses this store; the report shows the store at one moment")


def _say_sum(report: StoreReport) -> None:
    checked = sum(each.checked_bytes for each in report.streams)
    lost = sum(each.lost for each in report.streams)
    worn = sum(len(each.of_kind("worn")) for each in report.streams)
    unread = sum(each.state == "encrypted" for each in report.streams)
    bad = sum(each.state not in ("sound", "encrypted") for each in report.streams)
    parts = [plural(len(report.streams), "stream")]
    if bad:
        parts.append(f"{number(bad)} damaged")
    if unread:
        parts.append(f"{number(unread)} encrypted, not all of which could be looked at")
    if not bad and not unread:
        parts.append("all sound")
    if lost:
        parts.append(f"{plural(lost, 'message')} lost")
    if worn:
        parts.append(f"{plural(worn, 'file')} worn, which a repair restores")
    if checked and report.seconds:
        speed = size(int(checked / report.seconds))
        parts.append(f"{size(checked)} read in {report.seconds:.2f} s, {speed}/s")
    print("; ".join(parts))
