"""``pelton object``: store, write, show, list, delete and watch objects."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pelton.cli.messages.showing import end_of_wait, headers_of, told_of_losses
from pelton.cli.objects.buckets import opened, show_store, store_data
from pelton.cli.output import (
    duration,
    moment,
    number,
    print_facts,
    print_json,
    print_json_line,
    print_names,
    print_table,
    size,
    size_limit,
)
from pelton.cli.progress import progress_bar
from pelton.cli.prompts import confirm
from pelton.cli.session import Session, command
from pelton.cli.values import DURATION, SIZE, Whole, pairs
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from pelton.client.objects.models import ObjectInfo, ObjectStoreStatus
    from pelton.client.sync.objectstore import ObjectStore

_BUCKET = click.argument("bucket")
_PROGRESS = click.option("--progress/--no-progress", default=True, help="Show a progress bar.")
_HEADER = click.option("-H", "--header", multiple=True, help='A header, as "name: value".')
_METADATA = click.option("--metadata", multiple=True, metavar="NAME=VALUE", help="Metadata.")
_DESCRIPTION = click.option("--description", default=None, help="The object's description.")


@click.command()
@_BUCKET
@click.argument("file", type=click.Path(allow_dash=True, path_type=Path), default="-")
@click.option("--name", default="", help="Name of the object; FILE by default.")
@_DESCRIPTION
@_HEADER
@_METADATA
@click.option("--chunk-size", type=SIZE, default=None, help="Bytes of one message; 128KB.")
@_PROGRESS
@click.option("-f", "--force", is_flag=True, help="Replace an object without asking.")
@command
@click.pass_obj
def put(
    session: Session,
    bucket: str,
    file: Path,
    name: str,
    description: str | None,
    header: tuple[str, ...],
    metadata: tuple[str, ...],
    chunk_size: int | None,
    progress: bool,
    force: bool,
) -> None:
    """Store FILE (or standard input) in the object store BUCKET.

    An object of that name is replaced when the new one is complete. A transfer ends after four times
    --timeout without progress.
    """
    stdin = str(file) == "-"
    if stdin and not name:
        raise click.UsageError("--name is missing: standard input has no name")
    if not stdin and not file.is_file() and not file.is_fifo():
        raise click.UsageError(f"{file} is not a file")
    name = name or str(file)
    headers, properties = headers_of(header), pairs(metadata, "--metadata")
    with session.connect() as client:
        store = opened(session.jetstream(client), bucket)
        if not force:
            _ask_to_replace(store, name, stdin)
        with progress_bar(name, wanted=progress and not session.as_json) as bar:
            stored = store.put(
                name,
                sys.stdin.buffer if stdin else file,
                description=description or "",
                headers=headers,
                metadata=properties,
                chunk_size=chunk_size,
                progress=bar,
                timeout=_transfer_timeout(session),
            )
    show_object(session, stored)


def _transfer_timeout(session: Session) -> float:
    """How long a transfer may make no progress; it outlives a restart of the server, or a vote for a leader."""
    return 4 * session.timeout / 1e9


def _ask_to_replace(store: ObjectStore, name: str, stdin: bool) -> None:
    from pelton.errors import ObjectNotFoundError

    try:
        found = store.info(name)
    except ObjectNotFoundError:
        return
    if stdin:
        text = f"bucket {store.bucket} has an object {name}; -f replaces it"
        raise click.ClickException(text)
    question = f"Really replace object {name} of {size(found.size)}?"
    confirm(question)


@click.command()
@_BUCKET
@click.argument("name")
@click.option(
    "-O",
    "--output",
    type=click.Path(allow_dash=True, path_type=Path),
    default=None,
    help="File to write; - for standard output. By default the last part of NAME.",
)
@_PROGRESS
@click.option("-f", "--force", is_flag=True, help="Replace a file without asking.")
@command
@click.pass_obj
def get(
    session: Session, bucket: str, name: str, output: Path | None, progress: bool, force: bool
) -> None:
    """Write the object NAME of BUCKET to a file.

    The file appears when it is complete and its digest is checked.
    """
    target = Path(Path(name).name) if output is None else output
    if not target.name or target.name == "..":
        raise click.UsageError(f"{name} is not the name of a file: give --output")
    stdout = str(target) == "-" and output is not None
    if stdout and session.as_json:
        raise click.UsageError("--json and an object on standard output exclude each other")
    if not stdout and not force and target.exists():
        confirm(f"Really replace file {target}?")
    with session.connect() as client:
        store = opened(session.jetstream(client), bucket)
        with progress_bar(name, wanted=progress and not session.as_json) as bar:
            found = store.get_file(
                name,
                sys.stdout.buffer if stdout else target,
                progress=bar,
                timeout=_transfer_timeout(session),
            )
    if stdout:
        sys.stdout.buffer.flush()
    elif session.as_json:
        print_json(object_data(found) | {"file": str(target)})
    else:
        print(shown(f"wrote {size(found.size)} to {target}"))


@click.command()
@_BUCKET
@click.argument("name", required=False)
@command
@click.pass_obj
def info(session: Session, bucket: str, name: str | None) -> None:
    """Show the object store BUCKET, or its object NAME."""
    with session.connect() as client:
        store = opened(session.jetstream(client), bucket)
        if name is None:
            show_store(session, store.status())
        else:
            show_object(session, store.info(name))


@click.command()
@click.argument("bucket", required=False)
@click.option("-n", "--names", is_flag=True, help="Only the names.")
@click.option("--deleted", is_flag=True, help="Also show deleted objects.")
@command
@click.pass_obj
def ls(session: Session, bucket: str | None, names: bool, deleted: bool) -> None:
    """List the object stores, or the objects of BUCKET."""
    with session.connect() as client:
        js = session.jetstream(client)
        if bucket is not None:
            objects = opened(js, bucket).list(show_deleted=deleted)
            if names:
                print_names(session, [each.name for each in objects])
            else:
                _list_objects(session, objects)
        elif names:
            print_names(session, js.object_store_names())
        else:
            _list_stores(session, js.object_stores())


def _list_stores(session: Session, found: list[ObjectStoreStatus]) -> None:
    if session.as_json:
        print_json([store_data(each) for each in found])
        return
    columns = ("Bucket", "Description", "Created", "Size", "TTL", "Sealed")
    rows = [
        (
            each.bucket,
            each.description,
            moment(each.stream_info.created),
            size(each.size),
            duration(each.ttl) or "unlimited",
            "yes" if each.sealed else "no",
        )
        for each in found
    ]
    print_table(columns, rows, right=frozenset(("Size",)))


def _list_objects(session: Session, found: list[ObjectInfo]) -> None:
    if session.as_json:
        print_json([object_data(each) for each in found])
        return
    rows = [
        (
            each.name,
            "deleted" if each.deleted else _link_text(each) or size(each.size),
            moment(each.mtime_ns),
            each.description,
        )
        for each in found
    ]
    print_table(("Name", "Size", "Time", "Description"), rows, right=frozenset(("Size",)))


@click.command()
@_BUCKET
@click.argument("name")
@click.option("--rename", default=None, help="A new name.")
@_DESCRIPTION
@_HEADER
@_METADATA
@command
@click.pass_obj
def update(
    session: Session,
    bucket: str,
    name: str,
    rename: str | None,
    description: str | None,
    header: tuple[str, ...],
    metadata: tuple[str, ...],
) -> None:
    """Change the name, description, headers or metadata of the object NAME of BUCKET.

    The bytes and all fields that are not given stay unchanged.
    """
    headers, properties = headers_of(header), pairs(metadata, "--metadata")
    if rename is None and description is None and not headers and not properties:
        raise click.UsageError("nothing to change: give an option")
    with session.connect() as client:
        changed = opened(session.jetstream(client), bucket).update_meta(
            name,
            rename=rename,
            description=description,
            headers=headers or None,
            metadata=properties or None,
        )
    show_object(session, changed)


@click.command(name="del")
@_BUCKET
@click.argument("name", required=False)
@click.option("-f", "--force", is_flag=True, help="Do not ask.")
@command
@click.pass_obj
def del_(session: Session, bucket: str, name: str | None, force: bool) -> None:
    """Delete the object NAME of BUCKET, or without NAME the whole object store."""
    what = f"object {name} of {bucket}"
    if name is None:
        what = f"object store {bucket} with all its objects"
    if not force:
        confirm(f"Really delete {what}?")
    with session.connect() as client:
        store = opened(session.jetstream(client), bucket)
        store.destroy() if name is None else store.delete(name)
    gone = {"bucket": bucket} if name is None else {"bucket": bucket, "name": name}
    print_json({"removed": gone}) if session.as_json else print(shown(f"deleted {what}"))


@click.command()
@_BUCKET
@click.option("--updates", is_flag=True, help="Begin with nothing: only changes from now on.")
@click.option("--deletes/--no-deletes", default=True, help="Also show deleted objects.")
@click.option("-n", "--count", default=0, type=Whole(0), help="End after this many.")
@click.option("--wait", type=DURATION, default=0, help="End after this time without a change.")
@command
@click.pass_obj
def watch(
    session: Session, bucket: str, updates: bool, deletes: bool, count: int, wait: int
) -> None:
    """Print the objects of BUCKET, and then every change, until interrupted."""
    with told_of_losses(), session.connect(lasting=True) as client:
        store = opened(session.jetstream(client), bucket)
        with store.watch(updates_only=updates, ignore_deletes=not deletes) as changes:
            seen = 0
            while not count or seen < count:
                found = changes.next(wait / 1e9 if wait else None)
                if found is None:
                    end_of_wait(client)
                    return
                seen += 1
                _show_change(session, found)


def _show_change(session: Session, found: ObjectInfo) -> None:
    if session.as_json:
        print_json_line(object_data(found))
        return
    operation = "DEL" if found.deleted else "PUT"
    if sys.stdout.isatty():
        operation = click.style(operation, fg="red" if found.deleted else "green")
    place = shown(f"{found.bucket} > {found.name}")
    what = "" if found.deleted else f": {_link_text(found) or size(found.size)}"
    print(f"[{moment(found.mtime_ns)}] {operation} {place}{what}", flush=True)


def _link_text(found: ObjectInfo) -> str:
    """Where a link leads to; "" for an object."""
    if found.link is None:
        return ""
    return f"link to {found.link.bucket}" + (f" > {found.link.name}" if found.link.name else "")


def hex_digest(digest: str) -> str:
    """The hash as ``sha256sum`` prints it; "" for a digest of another kind."""
    import base64

    kind, _, text = digest.partition("=")
    if kind != "SHA-256":
        return ""
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).hex()
    except ValueError:
        return ""


def object_data(found: ObjectInfo) -> dict[str, object]:
    """An object in JSON; missing properties are left out."""
    data: dict[str, object] = {
        "bucket": found.bucket,
        "name": found.name,
        "size": found.size,
        "chunks": found.chunks,
        "nuid": found.nuid,
    }
    link = None
    if found.link is not None:
        link = {"bucket": found.link.bucket, "name": found.link.name}
    optional: dict[str, object] = {
        "digest": found.digest,
        "sha256": hex_digest(found.digest),
        "description": found.description,
        "headers": dict(found.headers),
        "metadata": dict(found.metadata),
        "chunk_size": found.chunk_size,
        "mtime": moment(found.mtime_ns),
        "link": link,
        "deleted": found.deleted,
    }
    return data | {name: value for name, value in optional.items() if value}


def show_object(session: Session, found: ObjectInfo) -> None:
    """An object with its properties."""
    if session.as_json:
        print_json(object_data(found))
        return
    headers = [(name, value) for name, values in found.headers.items() for value in values]
    print_facts(
        f"Object {found.bucket} > {found.name}",
        [
            ("Description", found.description),
            ("Link", _link_text(found).removeprefix("link to ")),
            ("Size", size(found.size)),
            ("Chunks", number(found.chunks)),
            ("Chunk size", size_limit(found.chunk_size) if found.chunk_size else ""),
            ("Digest", found.digest),
            ("SHA-256", hex_digest(found.digest)),
            ("Stored", moment(found.mtime_ns)),
            *((f"Header {name}", value) for name, value in headers),
            *((f"Metadata {name}", value) for name, value in found.metadata.items()),
        ],
    )
