"""``pelton kv``: create, change, show, list and compact buckets."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.bucket_options import F, bucket_options, shared_changes
from pelton.cli.kv.entries import entry_data, entry_value
from pelton.cli.output import (
    age,
    as_data,
    duration,
    limit,
    moment,
    number,
    plural,
    print_facts,
    print_json,
    print_names,
    print_table,
    size,
    size_limit,
)
from pelton.cli.prompts import confirm
from pelton.cli.session import Session, command
from pelton.cli.values import DURATION, SIZE_32, STORAGE, Whole

if TYPE_CHECKING:
    from pelton.client.keyvalue.config import KeyValueConfig, KeyValueStatus
    from pelton.client.sync.jetstream import JetStream

_configured = bucket_options(
    "bucket",
    values="values",
    compressed="the bucket",
    own=[
        click.option(
            "--history",
            type=Whole(1, 64),
            default=None,
            help="How many revisions of each key are kept; 1 by default.",
        ),
        click.option(
            "--marker-ttl",
            type=DURATION,
            default=None,
            help="Allow keys to expire, and keep the marker of an expired key for this time.",
        ),
        click.option(
            "--max-value-size", type=SIZE_32, default=None, help="Limit of the size of a value."
        ),
    ],
    last=[
        click.option(
            "--atomic/--no-atomic", default=None, help="Allow to change several keys at once."
        ),
        click.option(
            "--republish-source", default=None, help="Keys to publish again, as a subject."
        ),
        click.option("--republish-destination", default=None, help="Subject to publish them to."),
        click.option("--republish-headers", is_flag=True, help="Publish only headers again."),
    ],
)
_FIELDS = {
    "history": "history",
    "max_value_size": "max_value_size",
    "atomic": "allow_atomic",
    "mirror": "mirror",
}


def _changes(given: dict[str, Any]) -> dict[str, Any]:
    """The fields of a KeyValueConfig that the options change."""
    from pelton.client.base.durations import Nanoseconds
    from pelton.client.base.models import Republish

    found = shared_changes(given, _FIELDS)
    if given["marker_ttl"] is not None:
        found["limit_marker_ttl"] = Nanoseconds(given["marker_ttl"])
    if given.get("source"):
        found["sources"] = list(given["source"])
    if given["republish_destination"]:
        found["republish"] = Republish(
            src=given["republish_source"] or ">",
            dest=given["republish_destination"],
            headers_only=given["republish_headers"],
        )
    elif given["republish_source"] or given["republish_headers"]:
        raise click.UsageError("--republish-destination is missing")
    return found


def _copying(function: F) -> F:
    """Options that name other buckets."""
    options = (
        click.option("--mirror", default=None, help="Bucket that this one copies."),
        click.option("--mirror-domain", default="", help="JetStream domain of that bucket."),
        click.option("--source", multiple=True, help="Bucket whose keys are copied; repeatable."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def _origin(mirror: str | None, domain: str) -> Any:
    """The bucket to mirror, also one of another domain."""
    from pelton.client.base.models import ExternalStream, StreamSource

    if not domain:
        return mirror
    if mirror is None:
        raise click.UsageError("--mirror-domain needs --mirror")
    return StreamSource(name=mirror, external=ExternalStream(api=f"$JS.{domain}.API"))


@click.command()
@click.argument("bucket")
@_configured
@click.option(
    "--storage",
    type=STORAGE,
    default="file",
    show_default=True,
    help="Where it is kept.",
)
@_copying
@command
@click.pass_obj
def add(session: Session, /, bucket: str, mirror_domain: str, **given: Any) -> None:
    """Create the key-value bucket BUCKET.

    Does nothing if the bucket exists with the same configuration.
    """
    from pelton.client.keyvalue.config import KeyValueConfig

    changes = _changes(given)
    with session.connect() as client:
        js = session.jetstream(client)
        if mirror_domain:
            changes["mirror"] = _origin(given["mirror"], mirror_domain)
        made = js.create_key_value(KeyValueConfig(bucket=bucket, **changes))
        show(session, made.status())


@click.command()
@click.argument("bucket")
@_configured
@_copying
@click.option("--no-mirror", is_flag=True, help="Stop copying the bucket of --mirror.")
@command
@click.pass_obj
def edit(
    session: Session, /, bucket: str, mirror_domain: str, no_mirror: bool, **given: Any
) -> None:
    """Change the configuration of BUCKET. Options that are not given change nothing.

    Buckets named with --source take the place of those before; the keys that were copied stay. A
    bucket can stop to mirror another one, but not begin to.
    """
    changes = _changes(given)
    if no_mirror and (mirror_domain or given["mirror"]):
        raise click.UsageError("--mirror and --no-mirror exclude each other")
    if mirror_domain:
        changes["mirror"] = _origin(given["mirror"], mirror_domain)
    if no_mirror:
        changes["mirror"] = None
    if not changes:
        raise click.UsageError("nothing to change: give an option")
    with session.connect() as client:
        js = session.jetstream(client)
        config = js.key_value(bucket).status().config
        show(session, js.update_key_value(_changed(config, changes)).status())


def _changed(config: KeyValueConfig, changes: dict[str, Any]) -> KeyValueConfig:
    return dataclasses.replace(config, **changes)


@click.command()
@click.argument("bucket")
@command
@click.pass_obj
def info(session: Session, bucket: str) -> None:
    """Show the bucket BUCKET."""
    with session.connect() as client:
        show(session, session.jetstream(client).key_value(bucket).status())


@click.command()
@click.argument("bucket", required=False)
@click.argument("filters", nargs=-1, metavar="[FILTER]...")
@click.option("-n", "--names", is_flag=True, help="Only the names of the buckets.")
@click.option("-v", "--verbose", is_flag=True, help="Show revisions and times of the keys, too.")
@click.option("--display-value", is_flag=True, help="Show the values of the keys, too.")
@command
@click.pass_obj
def ls(
    session: Session,
    bucket: str | None,
    filters: tuple[str, ...],
    names: bool,
    verbose: bool,
    display_value: bool,
) -> None:
    """List the buckets, or the keys of BUCKET that match a FILTER.

    In a FILTER such as "eu.>", * stands for a token, and > for the rest.
    """
    with session.connect() as client:
        js = session.jetstream(client)
        if bucket is not None:
            _list_keys(session, js, bucket, filters, verbose, display_value)
        elif names:
            print_names(session, js.key_value_names())
        else:
            _list_buckets(session, js.key_values())


def _list_buckets(session: Session, found: list[KeyValueStatus]) -> None:
    if session.as_json:
        print_json([status_data(each) for each in found])
        return
    now_ns = time.time_ns()
    rows = [
        (
            each.bucket,
            each.config.description,
            moment(each.stream_info.created),
            size(each.bytes),
            number(each.values),
            age(each.stream_info.state.last_ts, now_ns),
        )
        for each in found
    ]
    columns = ("Bucket", "Description", "Created", "Size", "Values", "Last Update")
    print_table(columns, rows, right=frozenset(columns[3:]))


def _list_keys(
    session: Session,
    js: JetStream,
    bucket: str,
    filters: tuple[str, ...],
    verbose: bool,
    display_value: bool,
) -> None:
    opened = js.key_value(bucket)
    if not verbose and not display_value:
        print_names(session, opened.keys(*filters))
        return
    with opened.watch(*filters, ignore_deletes=True, without_values=not display_value) as watch:
        found = {entry.key: entry for entry in watch.initial()}
    entries = [found[key] for key in sorted(found)]
    if session.as_json:
        print_json([entry_data(entry, value=display_value) for entry in entries])
        return
    columns = ["Key"]
    if verbose:
        columns += ["Revision", "Created", "Size"]
    if display_value:
        columns.append("Value")
    rows = []
    for entry in entries:
        row = [entry.key]
        if verbose:
            row += [number(entry.revision), moment(entry.created_ns), size(entry.size)]
        if display_value:
            row.append(entry_value(entry))
        rows.append(row)
    print_table(columns, rows, right=frozenset(("Revision", "Size")))


@click.command()
@click.argument("bucket")
@click.option(
    "--older-than",
    type=DURATION,
    default="30m",
    show_default=True,
    help="Keep younger markers, which others may still have to see.",
)
@click.option("-f", "--force", is_flag=True, help="Do not ask.")
@command
@click.pass_obj
def compact(session: Session, bucket: str, older_than: int, force: bool) -> None:
    """Remove the markers of deleted keys of BUCKET, and the values before them."""
    from pelton.client.base.durations import Nanoseconds

    if not force:
        confirm(f"Really remove deleted keys of bucket {bucket}?")
    with session.connect() as client:
        opened = session.jetstream(client).key_value(bucket)
        removed = opened.purge_deletes(Nanoseconds(older_than))
    if session.as_json:
        print_json({"removed": removed})
    else:
        print(f"removed {plural(removed, 'message')} of bucket {bucket}")


def status_data(status: KeyValueStatus) -> dict[str, object]:
    """A bucket in JSON, with the info of its stream."""
    config = status.config
    return {
        "bucket": status.bucket,
        "description": config.description,
        "values": status.values,
        "bytes": status.bytes,
        "revision": status.revision,
        "history": status.history,
        "ttl_ns": int(status.ttl),
        "marker_ttl_ns": int(status.limit_marker_ttl),
        "stream": as_data(status.stream_info),
    }


def show(session: Session, status: KeyValueStatus) -> None:
    """A bucket with its state."""
    if session.as_json:
        print_json(status_data(status))
        return
    config, stream = status.config, status.stream_info.config
    sources = ", ".join(each.name.removeprefix("KV_") for each in stream.sources)
    republish = stream.republish
    print_facts(
        f"Bucket {status.bucket}",
        [
            ("Description", config.description),
            ("History", number(status.history)),
            ("TTL", duration(status.ttl) or "unlimited"),
            ("Marker TTL", duration(status.limit_marker_ttl)),
            ("Max value size", size_limit(config.max_value_size)),
            ("Max bucket size", size_limit(config.max_bytes)),
            ("Storage", config.storage),
            ("Replicas", limit(config.replicas)),
            ("Compressed", "yes" if config.compression else "no"),
            ("Atomic changes", "yes" if config.allow_atomic else ""),
            ("Mirror", stream.mirror.name.removeprefix("KV_") if stream.mirror else ""),
            ("Sources", sources),
            ("Republish", f"{republish.src} to {republish.dest}" if republish else ""),
            ("Metadata", ", ".join(f"{key}={each}" for key, each in config.metadata.items())),
            ("Created", moment(status.stream_info.created)),
        ],
    )
    print_facts(
        "State",
        [
            ("Values", number(status.values)),
            ("Size", size(status.bytes)),
            ("Revision", number(status.revision)),
            ("Stream", stream.name),
        ],
    )
