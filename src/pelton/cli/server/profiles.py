"""``pelton server request profile``: profiles of servers, a file for each."""

from __future__ import annotations

import base64
import os
import time
from pathlib import Path
from typing import Any

import click

from pelton.cli.output import print_json
from pelton.cli.server.asking import Answer, Live, Where
from pelton.cli.server.requests import server_options
from pelton.cli.session import Session, command
from pelton.cli.values import Word
from pelton.core.base.quoting import shown

NAMES = ("allocs", "heap", "goroutine", "mutex", "threadcreate", "block", "cpu")
_GRACE_NS = 2_000_000_000


@click.command()
@click.argument("profile", type=Word(NAMES))
@click.argument(
    "folder", type=click.Path(exists=True, file_okay=False, path_type=Path), default=Path()
)
@click.option("--level", default=0, help="Level of detail.")
@server_options
@click.option(
    "--limit", type=int, hidden=True, help="Accepted for scripts; profiles have no pages."
)
@click.option("--offset", type=int, hidden=True, help="Accepted for scripts.")
@click.option(
    "--archive",
    type=click.Path(exists=True, dir_okay=False),
    default=None,
    help="Read an audit archive instead.",
)
@command
@click.pass_obj
def profile(
    session: Session,
    /,
    profile: str,
    folder: Path,
    level: int,
    name: str,
    host: str,
    cluster: str,
    tags: tuple[str, ...],
    archive: str | None,
    **_: int | None,
) -> int:
    """Write the PROFILE of each server into FOLDER (the current one).

    A CPU profile takes as long as --timeout says.
    """
    if archive is None:
        answers = _asked(session, profile, level, Where(name, host, cluster, tags))
    else:
        answers = _archived(archive, profile, level, name, cluster)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    written = [_write(each, folder / f"{profile}-{stamp}-") for each in answers]
    if session.as_json:
        print_json(written)
    for each in written:
        if not session.as_json and "file" in each:
            print(shown(f"{each['server']}: {each['file']}"))
        if "error" in each:
            click.echo(shown(f"pelton: {each['server']}: {each['error']}"), err=True)
    return 1 if any("error" in each for each in written) else 0


def _asked(session: Session, profile: str, level: int, where: Where) -> list[Answer]:
    wanted: dict[str, Any] = {"name": profile, "debug": level}
    if profile == "cpu":
        wanted["duration"] = session.timeout
        session.timeout += _GRACE_NS  # for the way of the answer
    with session.connect() as client:
        return Live(client, where).ask("PROFILEZ", wanted)


def _archived(archive: str, profile: str, level: int, name: str, cluster: str) -> list[Answer]:
    """The profiles in an archive, as the servers' answers; ClickException if there is none."""
    from pelton.cli.audit.archive import ArchiveError, Reader

    called = f"{profile}_{level}" if level else profile
    found = []
    try:
        for tags, raw in Reader(Path(archive)).profiles():
            fits = name in ("", tags["server"]) and cluster in ("", tags["cluster"])
            if fits and tags["profile_name"] == called:
                data = {"profile": base64.b64encode(raw).decode()}
                found.append(Answer({"server": {"name": tags["server"]}, "data": data}))
    except ArchiveError as error:
        raise click.ClickException(str(error)) from None
    if not found:
        raise click.ClickException(f"the archive has no profile {called}")
    return found


def _write(answer: Answer, prefix: Path) -> dict[str, str]:
    error = answer.error or str(answer.data.get("error") or "")
    if error:
        return {"server": answer.name, "error": error}
    name = answer.name.replace("/", "_").replace("\\", "_")
    path = prefix.with_name(prefix.name + name)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(base64.b64decode(answer.data.get("profile") or ""))
    return {"server": answer.name, "file": str(path)}
