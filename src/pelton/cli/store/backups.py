"""``pelton store backup``, ``backups``, ``restore`` and ``prune``: incremental backups of stores."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

import click

from pelton.cli.output import number, plural, print_table, size
from pelton.cli.session import Session, command
from pelton.cli.store.opening import more_files
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
from pelton.cli.values import DURATION, Whole
from pelton.core.base.quoting import shown
from pelton.core.log.store_lock import make_private

if TYPE_CHECKING:
    from pelton.store.manifests import BackupFolder, Manifest

_FOLDER = click.Path(file_okay=False)
_COLUMNS = ("backup", "time", "streams", "messages", "size", "new", "state")


def _open(target: str) -> BackupFolder:
    from pelton.core.base.disk import Disk
    from pelton.store.manifests import BackupFolder

    folder = BackupFolder(Disk(), target.rstrip("/"))
    folder.open()
    return folder


@click.command()
@store_argument
@click.argument("target", type=_FOLDER)
@STREAMS
@click.option("--reread", is_flag=True, help="Read unchanged files too.")
@command
@click.pass_obj
def backup(
    session: Session, store: str, target: str, streams: tuple[str, ...], reread: bool
) -> int:
    """Add a backup of the folder STORE to the backup folder TARGET, which is created if necessary.

    A server may use the store: the backup has every message that was acknowledged before it began.
    """
    from pelton.core.base.disk import Disk
    from pelton.core.base.readonly_disk import ReadOnlyDisk
    from pelton.store.backup import back_up, size_of
    from pelton.store.layout import find
    from pelton.store.manifests import BackupFolder

    more_files()
    disk = ReadOnlyDisk()
    found = find(disk, store)
    places = found.chosen(streams)
    folder = BackupFolder(Disk(), target.rstrip("/"))
    make_private(target)
    started = time.monotonic()
    unread: list[str] = []
    with locked(target):
        folder.make()
        with progress(session, "backing up", size_of(disk, places)) as done:
            made = back_up(
                disk,
                found,
                places,
                folder,
                time.time_ns(),
                reread=reread,
                progress=done,
                report=unread.append,
            )
    seconds = time.monotonic() - started
    status = DAMAGED if unread else SOUND
    if session.as_json:
        show_json(made)
        return status
    for stream in made.streams:
        facts = f"{number(stream.messages)} messages up to {number(stream.last_seq)}"
        print(f"{style(stream.state, stream.state)}  {shown(stream.label)}  {facts}")
    what = f"{size(made.total_bytes)}, of which {size(made.new_bytes)} new"
    count = plural(len(made.streams), "stream")
    for each in unread:
        print(f"{style('lost', 'lost')}  {shown(each)}")
    print(f"backup {made.id}: {count}, {what}, in {seconds:.2f} s")
    return status


@click.command()
@click.argument("target", type=_FOLDER)
@command
@click.pass_obj
def backups(session: Session, target: str) -> int:
    """List the backups in the folder TARGET."""
    from pelton.store.manifests import BadManifestError

    folder = _open(target)
    rows: list[tuple[str, ...]] = []
    manifests: list[dict[str, object]] = []
    status = SOUND
    for name in folder.ids():
        try:
            made = folder.read(name)
        except BadManifestError as error:
            status = DAMAGED
            manifests.append({"id": name, "error": str(error)})
            rows.append((name, "", "", "", "", "", "damaged"))
            continue
        manifests.append(_summary(made))
        rows.append(_row(made))
    if session.as_json:
        show_json(manifests)
    else:
        print_table(_COLUMNS, rows, right=frozenset(_COLUMNS[2:6]))
    return status


def _summary(made: Manifest) -> dict[str, object]:
    return {
        "id": made.id,
        "time": made.time,
        "store": made.store,
        "complete": made.complete,
        "streams": [each.label for each in made.streams],
        "messages": sum(each.messages for each in made.streams),
        "total_bytes": made.total_bytes,
        "new_bytes": made.new_bytes,
    }


def _row(made: Manifest) -> tuple[str, ...]:
    return (
        made.id,
        made.time[:19].replace("T", " "),
        number(len(made.streams)),
        number(sum(each.messages for each in made.streams)),
        size(made.total_bytes),
        size(made.new_bytes),
        "complete" if made.complete else "some streams",
    )


@click.command()
@click.argument("target", type=_FOLDER)
@click.argument("store", type=_FOLDER)
@STREAMS
@click.option("--at", "name", default="", help="Id of the backup; by default the newest.")
@command
@click.pass_obj
def restore(session: Session, target: str, store: str, streams: tuple[str, ...], name: str) -> int:
    """Put streams of a backup in TARGET into the folder STORE, which no server may use.

    Never touches existing streams: if one has the same name, the restore is refused.
    """
    from pelton.core.base.disk import Disk
    from pelton.core.base.readonly_disk import ReadOnlyDisk
    from pelton.store.layout import StoreError, check_place
    from pelton.store.restore import chosen, roots_of
    from pelton.store.restore import restore as put_back

    folder = _open(target)
    names = folder.ids()
    if not names:
        raise StoreError(f"{target} has no backups")
    manifest = folder.read(name or names[-1])
    wanted = chosen(manifest, streams)
    store = store.rstrip("/") or "/"
    check_place(ReadOnlyDisk(), os.path.abspath(store))
    started = time.monotonic()
    total = sum(file.size for each in wanted for file in each.files)
    with contextlib.ExitStack() as stack:
        for root in roots_of(wanted, store):
            make_private(root)
            stack.enter_context(locked(root))
        done = stack.enter_context(progress(session, "restoring", total))
        damage = put_back(Disk(), folder, wanted, store, progress=done)
    seconds = time.monotonic() - started
    if session.as_json:
        told = [{"stream": each.label, "messages": each.messages} for each in wanted]
        facts = {"backup": manifest.id, "store": store, "streams": told, "bytes": total}
        show_json(facts | {"damage": damage})
        return DAMAGED if damage else SOUND
    for each in wanted:
        print(
            f"{shown(each.label)}: {number(each.messages)} messages up to {number(each.last_seq)}"
        )
    count = plural(len(wanted), "stream")
    for text in damage:
        print(shown(text))
    print(f"restored {count} of backup {manifest.id}, {size(total)}, in {seconds:.2f} s")
    return DAMAGED if damage else SOUND


@click.command()
@click.argument("target", type=_FOLDER)
@click.option("--keep", default=0, type=Whole(0), help="Keep this many of the newest.")
@click.option("--older-than", type=DURATION, default=0, help="Remove backups older than this: 30d.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only show the backups to remove.")
@command
@click.pass_obj
def prune(
    session: Session, target: str, keep: int, older_than: int, yes: bool, dry_run: bool
) -> int:
    """Remove old backups of the folder TARGET, and files that no backup needs. Asks first."""
    from pelton.store.restore import plan_prune
    from pelton.store.restore import prune as remove

    if not keep and not older_than:
        raise click.UsageError("give --keep, --older-than or both")
    folder = _open(target)
    with locked(target):
        names = folder.ids()
        going = names[: max(len(names) - keep, 0)]
        if older_than:
            limit = time.strftime(
                "%Y%m%dT%H%M%SZ", time.gmtime((time.time_ns() - older_than) / 1e9)
            )
            going = [each for each in going if each < limit]
        if len(going) == len(names) and names:
            going.remove(names[-1])  # the newest one is never pruned
        plan = plan_prune(folder, going)
        freed = sum(os.path.getsize(path) for path in plan.objects)
        if session.as_json:
            told = {"backups": plan.backups, "files": len(plan.objects), "bytes": freed}
            show_json(told | {"removed": not dry_run and yes})
        else:
            for each in plan.backups:
                print(f"backup {each}")
            count = f"{plural(len(plan.backups), 'backup')} and {plural(len(plan.objects), 'file')}"
            print(f"{count}, {size(freed)}, {'would be' if dry_run else 'to be'} removed")
        if dry_run or not (plan.backups or plan.objects):
            return SOUND
        if not yes and (session.as_json or not click.confirm("Remove them?", default=False)):
            return SOUND
        remove(folder, plan)
    return SOUND


def verify_backup(session: Session, target: str) -> int:
    """Hash every file of a backup folder again, and check its manifests."""
    from pelton.store.restore import size_of, verify

    folder = _open(target)
    started = time.monotonic()
    with progress(session, "verifying", size_of(folder)) as done:
        result = verify(folder, done)
    result.seconds = round(time.monotonic() - started, 6)  # small stores take less than 1 ms
    status = SOUND if result.sound else DAMAGED
    if session.as_json:
        show_json(result)
        return status
    for each in result.backups:
        state = "damaged" if each.problems else "sound"
        count = f"{plural(each.streams, 'stream')}, {plural(each.files, 'file')}"
        facts = f"{count}, {size(each.bytes)}"
        print(f"{style(state.ljust(7), state)}  {each.id}  {facts}")
        for problem in each.problems:
            print(f"  {style('lost', 'lost')}  {shown(problem)}")
    speed = f", {size(int(result.bytes / result.seconds))}/s" if result.seconds else ""
    what = (
        f"{plural(result.objects, 'file')}, {size(result.bytes)} hashed in {result.seconds:.2f} s"
    )
    print(f"{plural(len(result.backups), 'backup')}; {what}{speed}")
    if result.unreferenced:
        print(f"{plural(result.unreferenced, 'file')} that no backup uses; prune removes them")
    return status
