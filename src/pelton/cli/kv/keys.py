"""``pelton kv``: store, print, delete and watch the keys of a bucket."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from pelton.cli.kv.entries import entry_data, print_entries
from pelton.cli.messages.showing import body_of, end_of_wait, told_of_losses
from pelton.cli.output import moment, print_json, print_json_line, readable
from pelton.cli.prompts import confirm
from pelton.cli.session import Session, command
from pelton.cli.values import DURATION, Whole
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from pelton.client.keyvalue.entries import KvEntry

_BUCKET, _KEY = click.argument("bucket"), click.argument("key")
_FORCE = click.option("-f", "--force/--no-force", default=False, help="Do not ask.")


def _stored(session: Session, bucket: str, key: str, revision: int, data: bytes) -> None:
    """Print the stored value on stdout, as the ``nats`` command does, or as JSON."""
    if session.as_json:
        print_json({"bucket": bucket, "key": key, "revision": revision})
    else:
        print(readable(data))


def _missing(bucket: str, key: str, revision: int = 0) -> click.ClickException:
    at = f" at revision {revision}" if revision else ""
    return click.ClickException(f"bucket {bucket} has no value of key {key}{at}")


@click.command()
@_BUCKET
@_KEY
@click.argument("value", required=False)
@command
@click.pass_obj
def put(session: Session, bucket: str, key: str, value: str | None) -> None:
    """Store VALUE (or standard input) under KEY of BUCKET, whatever the key holds."""
    data = body_of(value)
    with session.connect() as client:
        revision = session.jetstream(client).key_value(bucket).put(key, data)
    _stored(session, bucket, key, revision, data)


@click.command()
@_BUCKET
@_KEY
@click.argument("value", required=False)
@click.option("--ttl", type=DURATION, default=None, help="Let the key expire after this time.")
@command
@click.pass_obj
def create(session: Session, bucket: str, key: str, value: str | None, ttl: int | None) -> None:
    """Store VALUE (or standard input) under KEY of BUCKET, unless the key has a value.

    --ttl needs a bucket with --marker-ttl.
    """
    from pelton.client.base.durations import Nanoseconds

    data = body_of(value)
    lifetime = None if ttl is None else Nanoseconds(ttl)
    with session.connect() as client:
        revision = session.jetstream(client).key_value(bucket).create(key, data, ttl=lifetime)
    _stored(session, bucket, key, revision, data)


@click.command()
@_BUCKET
@_KEY
@click.argument("value", required=False)
@click.argument("revision", type=Whole(0), required=False)
@click.option("--revision", "expected", type=Whole(0), help="The expected revision.")
@command
@click.pass_obj
def update(
    session: Session,
    bucket: str,
    key: str,
    value: str | None,
    revision: int | None,
    expected: int | None,
) -> None:
    """Store VALUE under KEY of BUCKET if REVISION is the newest of the key.

    Give the revision after the value, or with --revision and the value on standard input.
    Revision 0: if the key never had a value.
    """
    wanted = revision if expected is None else expected
    if wanted is None or None not in (revision, expected):
        raise click.UsageError("give the expected revision, once")
    data = body_of(value)
    with session.connect() as client:
        stored = session.jetstream(client).key_value(bucket).update(key, data, wanted)
    _stored(session, bucket, key, stored, data)


@click.command()
@_BUCKET
@_KEY
@click.option("--revision", type=Whole(1), default=None, help="An earlier revision.")
@click.option("-r", "--raw", is_flag=True, help="Only the value.")
@command
@click.pass_obj
def get(session: Session, bucket: str, key: str, revision: int | None, raw: bool) -> None:
    """Print the value of KEY of BUCKET."""
    with session.connect() as client:
        entry = session.jetstream(client).key_value(bucket).get(key, revision)
    if entry is None:
        raise _missing(bucket, key, revision or 0)
    if session.as_json:
        print_json(entry_data(entry))
    elif raw:
        sys.stdout.buffer.write(entry.data)
        sys.stdout.buffer.flush()
    else:
        place = shown(f"{bucket} > {key}")
        print(f"{place} revision: {entry.revision} created @ {moment(entry.created_ns)}\n")
        print(readable(entry.data))


@click.command(name="del")
@_BUCKET
@click.argument("key", required=False)
@_FORCE
@command
@click.pass_obj
def del_(session: Session, bucket: str, key: str | None, force: bool) -> None:
    """Delete KEY of BUCKET, or without KEY the whole bucket.

    Earlier values of the key stay in its history; `pelton kv purge` removes them, too.
    """
    what = f"bucket {bucket} with all its values" if key is None else f"key {key} of {bucket}"
    if not force:
        confirm(f"Really delete {what}?")
    with session.connect() as client:
        js = session.jetstream(client)
        if key is None:
            js.delete_key_value(bucket)
        else:
            js.key_value(bucket).delete(key)
    gone = {"bucket": bucket} if key is None else {"bucket": bucket, "key": key}
    print_json({"removed": gone}) if session.as_json else print(shown(f"deleted {what}"))


@click.command()
@_BUCKET
@_KEY
@click.option("--ttl", type=DURATION, default=None, help="How long the marker stays.")
@_FORCE
@command
@click.pass_obj
def purge(session: Session, bucket: str, key: str, ttl: int | None, force: bool) -> None:
    """Delete KEY of BUCKET with its history. Only a marker stays."""
    from pelton.client.base.durations import Nanoseconds

    what = f"key {key} of {bucket} with its history"
    if not force:
        confirm(f"Really delete {what}?")
    lifetime = None if ttl is None else Nanoseconds(ttl)
    with session.connect() as client:
        session.jetstream(client).key_value(bucket).purge(key, ttl=lifetime)
    gone = {"bucket": bucket, "key": key}
    print_json({"removed": gone}) if session.as_json else print(shown(f"deleted {what}"))


@click.command()
@_BUCKET
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@command
@click.pass_obj
def history(session: Session, bucket: str, keys: tuple[str, ...]) -> None:
    """Show the kept revisions of KEY of BUCKET, oldest first, deletes included.

    A KEY may be a filter such as "eu.>".
    """
    with session.connect() as client:
        entries = session.jetstream(client).key_value(bucket).history(*keys)
    if not entries:
        raise click.ClickException(f"bucket {bucket} has no history of {', '.join(keys)}")
    if session.as_json:
        print_json([entry_data(entry) for entry in entries])
    else:
        print_entries(entries)


@click.command()
@_BUCKET
@_KEY
@click.argument("revision", type=Whole(1))
@_FORCE
@command
@click.pass_obj
def revert(session: Session, bucket: str, key: str, revision: int, force: bool) -> None:
    """Store the value that KEY of BUCKET had at REVISION again.

    Fails if another client changes the key meanwhile.
    """
    with session.connect() as client:
        opened = session.jetstream(client).key_value(bucket)
        earlier = opened.get(key, revision)
        if earlier is None:
            raise _missing(bucket, key, revision)
        newest = opened.history(key)[-1].revision
        if newest == revision:
            raise click.ClickException(f"revision {revision} is the newest of key {key}")
        if not force:
            confirm(f"Really revert key {key} to {revision}?")
        stored = opened.update(key, earlier.data, newest)
    _stored(session, bucket, key, stored, earlier.data)


@click.command()
@_BUCKET
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@click.option("--history", is_flag=True, help="Begin with all kept revisions.")
@click.option("--updates", is_flag=True, help="Begin with nothing: only changes from now on.")
@click.option("--revision", type=Whole(1), help="Begin with this revision.")
@click.option("--deletes/--no-deletes", default=True, help="Also show what deletes keys.")
@click.option("-n", "--count", default=0, type=Whole(0), help="End after this many.")
@click.option("--wait", type=DURATION, default=0, help="End after this time without a change.")
@command
@click.pass_obj
def watch(
    session: Session,
    bucket: str,
    keys: tuple[str, ...],
    history: bool,
    updates: bool,
    revision: int | None,
    deletes: bool,
    count: int,
    wait: int,
) -> None:
    """Print the values of KEY of BUCKET, and then every change, until interrupted.

    A KEY may be a filter such as "eu.>"; without one, all keys are watched. The watch continues
    after a lost connection, and neither misses nor repeats a change that the bucket still holds.
    """

    with told_of_losses(), session.connect(lasting=True) as client:
        opened = session.jetstream(client).key_value(bucket)
        with opened.watch(
            *keys,
            history=history,
            updates_only=updates,
            from_revision=revision,
            ignore_deletes=not deletes,
        ) as changes:
            seen = 0
            while not count or seen < count:
                entry = changes.next(wait / 1e9 if wait else None)
                if entry is None:
                    end_of_wait(client)
                    return
                seen += 1
                _show_change(session, entry)


def _show_change(session: Session, entry: KvEntry[bytes]) -> None:
    if session.as_json:
        print_json_line(entry_data(entry))
        return
    stamp = moment(entry.created_ns)
    place = shown(f"{entry.bucket} > {entry.key}")
    operation: str = entry.operation
    if sys.stdout.isatty():
        operation = click.style(operation, fg="red" if entry.deleted else "green")
    reason = f" ({entry.marker_reason})" if entry.marker_reason else ""
    value = reason if entry.deleted else f": {readable(entry.data)}"
    print(f"[{stamp}] {operation} {place}{value}", flush=True)
