"""``pelton store repair``: repairs a store, and keeps the replaced files."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import click

from pelton.cli.output import number, plural, size
from pelton.cli.session import Session, command
from pelton.cli.store.checking import show_problem
from pelton.cli.store.opening import more_files, vault
from pelton.cli.store.session import (
    DAMAGED,
    SOUND,
    STREAMS,
    locked,
    progress,
    show_json,
    store_argument,
    style,
)
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from pelton.store.repair import RepairReport


@click.command()
@store_argument
@STREAMS
@click.option("--dry-run", is_flag=True, help="Only show the changes.")
@command
@click.pass_obj
def repair(session: Session, store: str, streams: tuple[str, ...], dry_run: bool) -> int:
    """Repair flipped bits, index files and unfinished ends in STORE. Deletes nothing.

    Replaced files are kept in the folder `aside` of the stream. No server may use the store.
    """
    from pelton.core.base.disk import Disk
    from pelton.core.base.readonly_disk import ReadOnlyDisk
    from pelton.store.checks import size_of
    from pelton.store.layout import StoreError, find
    from pelton.store.repair import repair as put_right

    more_files()
    disk = ReadOnlyDisk()
    found = find(disk, store, vault())
    places = found.chosen(streams)
    with contextlib.ExitStack() as stack:
        for root in sorted({place.root for place in places}):
            if dry_run and root in found.owners():
                raise StoreError(f"{root} is in use by a server; stop it first")
            if not dry_run:
                stack.enter_context(locked(root))
        done = stack.enter_context(progress(session, "reading", size_of(disk, places)))
        target = None if dry_run else Disk()
        reports = [put_right(disk, place, target, done) for place in places]
    left = any(report.after.state != "sound" for report in reports)
    if session.as_json:
        show_json({"store": store, "dry_run": dry_run, "streams": reports})
    else:
        for report in reports:
            _tell(report, dry_run)
    return DAMAGED if left else SOUND


def _tell(report: RepairReport, dry_run: bool) -> None:
    name = shown("/".join(filter(None, (report.domain, report.account, report.stream))))
    state = report.after.state
    if not report.changes:
        print(f"{style(state.ljust(15), state)}  {name}  nothing to do")
    else:
        before = report.before.lost - report.after.lost
        would = "would be " if dry_run else ""
        facts = [f"{plural(len(report.changes), 'file')} {would}changed"]
        if report.mended:
            facts.append(f"{plural(report.mended, 'flipped bit')} {would}corrected")
        if before > 0:
            facts.append(f"{plural(before, 'message')} {would}recovered")
        print(f"{style(state.ljust(15), state)}  {name}  {', '.join(facts)}")
    folder = report.before.folder
    for change in report.changes:
        where = change.file.removeprefix(f"{folder}/")
        kept = change.kept.removeprefix(f"{folder}/")
        print(f"  {change.what} {shown(where)} ({size(change.bytes)}): {change.why}")
        if kept:
            print(f"        kept: {shown(kept)}")
    for problem in report.after.problems:
        if problem.kind == "lost":
            show_problem(problem, folder)
    if report.after.lost:
        print(f"  {number(report.after.lost)} messages stay lost")
