"""``penstock object``: create, change and seal object stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.cli.output import (
    as_data,
    duration,
    limit,
    moment,
    print_facts,
    print_json,
    size,
    size_limit,
)
from penstock.cli.prompts import confirm
from penstock.cli.session import Session, command
from penstock.cli.values import DURATION, SIZE, pairs

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.client import BlockingJetStream, BlockingObjectStore, ObjectStoreStatus

F = TypeVar("F", bound="Callable[..., object]")

_OPTIONS = [
    click.option("--description", default=None, help="What the object store is for."),
    click.option("--ttl", type=DURATION, default=None, help="How long objects are kept."),
    click.option(
        "--max-bucket-size", type=SIZE, default=None, help="Limit of the size of the store."
    ),
    click.option(
        "--replicas", type=click.IntRange(1, 5), default=None, help="Copies in a cluster."
    ),
    click.option(
        "--compress/--no-compress", default=None, help="Compress objects on the server's disk."
    ),
    click.option("--metadata", multiple=True, metavar="NAME=VALUE", help="Metadata; repeatable."),
    click.option("--cluster", default=None, help="Cluster that should hold the store."),
    click.option("--tags", multiple=True, help="Tag that its servers must have; repeatable."),
]


def _configured(function: F) -> F:
    """The options that add and edit share."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def _changes(given: dict[str, Any]) -> dict[str, Any]:
    """The fields of an ObjectStoreConfig that the options change."""
    from penstock.client import Nanoseconds, Placement

    found: dict[str, Any] = {
        field: given[option]
        for option, field in (
            ("description", "description"),
            ("max_bucket_size", "max_bytes"),
            ("replicas", "replicas"),
            ("compress", "compression"),
            ("storage", "storage"),
        )
        if given.get(option) is not None
    }
    if given["ttl"] is not None:
        found["ttl"] = Nanoseconds(given["ttl"])
    if given["metadata"]:
        found["metadata"] = pairs(given["metadata"], "--metadata")
    if given["cluster"] or given["tags"]:
        found["placement"] = Placement(cluster=given["cluster"] or "", tags=list(given["tags"]))
    return found


@click.command()
@click.argument("bucket")
@_configured
@click.option(
    "--storage",
    type=click.Choice(["file", "memory"]),
    default="file",
    show_default=True,
    help="Where it is kept.",
)
@command
@click.pass_obj
def add(session: Session, /, bucket: str, **given: Any) -> None:
    """Create the object store BUCKET.

    Does nothing if it exists with the same configuration.
    """
    from penstock.client import ObjectStoreConfig

    config = ObjectStoreConfig(bucket=bucket, **_changes(given))
    with session.connect() as client:
        show_store(session, session.jetstream(client).create_object_store(config).status())


@click.command()
@click.argument("bucket")
@_configured
@command
@click.pass_obj
def edit(session: Session, /, bucket: str, **given: Any) -> None:
    """Change the configuration of the object store BUCKET. What is not given stays as it is."""
    from penstock.client import ObjectStoreConfig

    changes = _changes(given)
    if not changes:
        raise click.UsageError("nothing to change: give an option")
    with session.connect() as client:
        js = session.jetstream(client)
        now = opened(js, bucket).status()
        present: dict[str, Any] = {
            "description": now.description,
            "ttl": now.ttl,
            "max_bytes": now.max_bytes,
            "storage": now.storage,
            "replicas": now.replicas,
            "compression": now.compressed,
            "placement": now.stream.config.placement,
            "metadata": now.metadata,
        }
        config = ObjectStoreConfig(bucket=bucket, **(present | changes))
        show_store(session, js.update_object_store(config).status())


@click.command()
@click.argument("bucket")
@click.option("-f", "--force", is_flag=True, help="Do not ask.")
@command
@click.pass_obj
def seal(session: Session, bucket: str, force: bool) -> None:
    """Seal the object store BUCKET: nothing in it can be changed any more, for ever."""
    if not force:
        question = f"Really seal object store {bucket}? This cannot be undone."
        confirm(question)
    with session.connect() as client:
        status = opened(session.jetstream(client), bucket).seal()
    show_store(session, status)


def opened(js: BlockingJetStream, bucket: str) -> BlockingObjectStore:
    """An object store that exists; ClickException when it does not."""
    from penstock.errors import BucketNotFound

    try:
        return js.object_store(bucket)
    except BucketNotFound:
        text = f"there is no object store {bucket}: create it, or check the name and domain"
        raise click.ClickException(text) from None


def store_data(status: ObjectStoreStatus) -> dict[str, object]:
    """An object store in JSON, with the info of its stream."""
    return {
        "bucket": status.bucket,
        "description": status.description,
        "bytes": status.size,
        "sealed": status.sealed,
        "compressed": status.compressed,
        "ttl_ns": int(status.ttl),
        "stream": as_data(status.stream),
    }


def show_store(session: Session, status: ObjectStoreStatus) -> None:
    """An object store with its state."""
    if session.as_json:
        print_json(store_data(status))
        return
    metadata = {key: each for key, each in status.metadata.items() if not key.startswith("_nats.")}
    print_facts(
        f"Object store {status.bucket}",
        [
            ("Description", status.description),
            ("TTL", duration(status.ttl) or "unlimited"),
            ("Max size", size_limit(status.max_bytes)),
            ("Storage", status.storage),
            ("Replicas", limit(status.replicas)),
            ("Compressed", "yes" if status.compressed else "no"),
            ("Sealed", "yes" if status.sealed else "no"),
            ("Size", size(status.size)),
            ("Metadata", ", ".join(f"{key}={each}" for key, each in metadata.items())),
            ("Created", moment(status.stream.created)),
            ("Stream", status.stream.config.name),
        ],
    )
