"""``pelton account backup`` and ``restore``: all streams of an account, with consumers, buckets and object stores.

<folder>/STREAM/backup.json, stream.tar.s2    as ``pelton stream backup`` writes them
<folder>/account.json                         while a backup is under way: what it consists of

An interrupted backup or restore goes on with the next call: streams that are complete are passed over.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.output import number, print_facts, print_json, size
from pelton.cli.prompts import confirm
from pelton.cli.session import Session, command
from pelton.cli.streams import backups as backups
from pelton.core.base.quoting import shown
from pelton.core.log.store_lock import make_private

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pelton.client.base.models import StreamInfo
    from pelton.client.sync.jetstream import JetStream

_UNDER_WAY = "account.json"


@click.command()
@click.argument("target", type=click.Path(file_okay=False, path_type=Path))
@click.option("--check", is_flag=True, help="Make the server read all messages first.")
@click.option("--consumers/--no-consumers", default=True, help="Include the consumers.")
@click.option(
    "-w", "--critical-warnings", is_flag=True, help="Streams that can't be backed up are failures."
)
@click.option("-f", "--force", is_flag=True, help="Do not ask.")
@command
@click.pass_obj
def backup(
    session: Session,
    target: Path,
    check: bool,
    consumers: bool,
    critical_warnings: bool,
    force: bool,
) -> int:
    """Back up all streams of the account into the folder TARGET, each stream in its own folder.

    Buckets and object stores are streams, too. After an interruption the same call goes on. Streams in
    memory are read message by message, because not every server makes archives of them. Ends with 1 if
    a stream failed.
    """
    with session.connect() as client:
        jetstream = session.jetstream(client)
        found = jetstream.streams()
        resumed = _under_way(target)
        if not resumed and target.exists() and any(target.iterdir()):
            raise click.ClickException(f"{target} is not empty, and no backup that was interrupted")
        streams = sorted(found, key=lambda each: each.config.name)
        missing = _unavailable(jetstream, streams)
        _tell_plan(session, target, streams, resumed)
        if not force:
            confirm(f"Back up {len(streams)} streams?")
        make_private(str(target))
        mark = target / _UNDER_WAY
        mark.write_text(json.dumps({"started": int(time.time()), "streams": len(streams)}) + "\n")
        results = [_one(session, jetstream, each, target, consumers, check) for each in streams]
    results += [{"stream": name, "state": "failed", "text": text} for name, text in missing.items()]
    bad = [each for each in results if each["state"] == "failed"]
    warned = [each for each in results if each["state"] == "warning"]
    if not bad:
        mark.unlink()
    _tell(session, target, results)
    return 1 if bad or (warned and critical_warnings) else 0


def _under_way(target: Path) -> bool:
    return (target / _UNDER_WAY).is_file()


def _unavailable(jetstream: JetStream, streams: Sequence[StreamInfo]) -> dict[str, str]:
    """Streams that the server can't describe."""
    names = {each.config.name for each in streams}
    return {
        name: "the server can't read it" for name in jetstream.stream_names() if name not in names
    }


def _tell_plan(
    session: Session, target: Path, streams: Sequence[StreamInfo], resumed: bool
) -> None:
    if session.as_json:
        return
    print_facts(
        f"Backup of all streams to {target}",
        [
            ("Streams", number(len(streams))),
            ("Size", size(sum(each.state.bytes for each in streams))),
            ("Consumers", number(sum(each.state.consumer_count for each in streams))),
            ("Goes on", "after an interruption" if resumed else ""),
        ],
    )


def _one(
    session: Session,
    jetstream: JetStream,
    stream: StreamInfo,
    target: Path,
    consumers: bool,
    check: bool,
) -> dict[str, Any]:
    """Back up one stream; what became of it."""
    from pelton.client.sync.backup import BackupError
    from pelton.errors import ApiError, PeltonTimeoutError

    name = stream.config.name
    folder = target / name
    if backups.complete(folder):
        return _said(session, {"stream": name, "state": "kept", "text": "is complete already"})
    memory = stream.config.storage == "memory"
    started = time.monotonic()
    try:
        if memory:  # not every server makes an archive of it
            received = _by_message(session, jetstream, name, folder, consumers)
        else:
            coming = backups.begin(jetstream, name, consumers, check)
            received, _ = backups.receive(coming, folder, progress=not session.as_json)
    except (ApiError, BackupError, PeltonTimeoutError) as error:
        state = "warning" if memory and isinstance(error, ApiError) else "failed"
        return _said(session, {"stream": name, "state": state, "text": str(error)})
    text = f"{size(received)} in {time.monotonic() - started:.1f} s"
    return _said(session, {"stream": name, "state": "done", "text": text, "bytes": received})


def _by_message(
    session: Session, jetstream: JetStream, name: str, folder: Path, consumers: bool
) -> int:
    """Back up a stream out of its single messages; the number of bytes."""
    from pelton.cli.progress import progress_bar
    from pelton.cli.streams.backup_by_message import back_up

    make_private(str(folder))
    with progress_bar(name, wanted=not session.as_json) as report:
        return back_up(jetstream, name, folder, consumers=consumers, report=report).bytes


def _said(session: Session, result: dict[str, Any]) -> dict[str, Any]:
    line = shown(f"{result['stream']}: {result['text']}")
    if result["state"] in ("failed", "warning"):
        click.echo(f"pelton: {line}", err=True)
    elif not session.as_json:
        print(line, flush=True)
    return result


def _tell(session: Session, folder: Path, results: Sequence[dict[str, Any]]) -> None:
    if session.as_json:
        print_json({"folder": str(folder), "streams": list(results)})
        return
    names = ("done", "kept", "warning", "failed")
    counts = {name: sum(each["state"] == name for each in results) for name in names}
    print(
        f"{len(results)} streams: "
        + ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    )


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--cluster", default="", help="Place the streams in this cluster.")
@click.option("--tag", "tags", multiple=True, help="Place them on servers with this tag.")
@click.option("-f", "--force", is_flag=True, help="Do not ask.")
@command
@click.pass_obj
def restore(session: Session, folder: Path, cluster: str, tags: Sequence[str], force: bool) -> int:
    """Restore all streams of the account backup in FOLDER.

    A stream that already equals the backup is skipped, so an interrupted restore can continue. A
    folder without a whole backup fails, and so does another stream of that name; the others are
    restored, and then it ends with 1.
    """
    if _under_way(folder) and not force:
        confirm(f"The backup in {folder} was interrupted. Restore what it has?")
    folders = sorted(each for each in folder.iterdir() if each.is_dir())
    whole = [each for each in folders if backups.complete(each)]
    if not whole:
        raise click.ClickException(f"{folder} has no backups of streams")
    under_way = _under_way(folder)
    with session.connect() as client:
        jetstream = session.jetstream(client)
        present = {each.config.name: each for each in jetstream.streams()}
        if not session.as_json:
            print(shown(f"Restore of {len(whole)} streams from {folder}"), flush=True)
        results = [
            _restore_one(session, jetstream, each, present, cluster, tags)
            if each in whole
            else _unsound(session, each.name)
            for each in folders
            if each in whole or not under_way
        ]
    _tell(session, folder, results)
    return 1 if any(each["state"] == "failed" for each in results) else 0


def _unsound(session: Session, name: str) -> dict[str, Any]:
    text = "the folder has no whole backup of a stream"
    return _said(session, {"stream": name, "state": "failed", "text": text})


def _restore_one(
    session: Session,
    jetstream: JetStream,
    folder: Path,
    present: dict[str, StreamInfo],
    cluster: str,
    tags: Sequence[str],
) -> dict[str, Any]:
    from pelton.errors import ApiError, PeltonTimeoutError

    try:
        facts = backups.facts_of(folder)
    except (click.ClickException, OSError) as error:
        text = error.format_message() if isinstance(error, click.ClickException) else str(error)
        return _said(session, {"stream": folder.name, "state": "failed", "text": text})
    name = facts.config.name
    there = present.get(name)
    if there is not None:
        was, now = facts.state, there.state
        if (was.messages, was.first_seq, was.last_seq) == (
            now.messages,
            now.first_seq,
            now.last_seq,
        ):
            return _said(session, {"stream": name, "state": "kept", "text": "is there already"})
        text = "there is another stream of that name"
        return _said(session, {"stream": name, "state": "failed", "text": text})
    backups.place(facts.config, cluster, tags)
    try:
        info = backups.send(jetstream, folder, facts.config, facts)
    except (ApiError, PeltonTimeoutError, OSError) as error:
        return _said(session, {"stream": name, "state": "failed", "text": str(error)})
    text = f"{number(info.state.messages)} messages, {number(info.state.consumer_count)} consumers"
    count = {"messages": info.state.messages, "consumers": info.state.consumer_count}
    return _said(session, {"stream": name, "state": "done", "text": text, **count})
