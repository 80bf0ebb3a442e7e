"""``pelton object``: create, change and seal object stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pelton.api.streams import SERVERS_OWN
from pelton.cli.bucket_options import bucket_options, shared_changes
from pelton.cli.output import (
    as_data,
    duration,
    limit,
    moment,
    print_facts,
    print_json,
    size,
    size_limit,
)
from pelton.cli.prompts import confirm
from pelton.cli.session import Session, command
from pelton.cli.values import STORAGE

if TYPE_CHECKING:
    from pelton.client.objects.models import ObjectStoreStatus
    from pelton.client.sync.jetstream import JetStream
    from pelton.client.sync.objectstore import ObjectStore

_configured = bucket_options("object store", values="objects", compressed="objects")


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
@command
@click.pass_obj
def add(session: Session, /, bucket: str, **given: Any) -> None:
    """Create the object store BUCKET.

    Does nothing if it exists with the same configuration.
    """
    from pelton.client.objects.models import ObjectStoreConfig

    config = ObjectStoreConfig(bucket=bucket, **shared_changes(given))
    with session.connect() as client:
        show_store(session, session.jetstream(client).create_object_store(config).status())


@click.command()
@click.argument("bucket")
@_configured
@command
@click.pass_obj
def edit(session: Session, /, bucket: str, **given: Any) -> None:
    """Change the configuration of the object store BUCKET. Options that are not given change nothing."""
    from pelton.client.objects.models import ObjectStoreConfig

    changes = shared_changes(given)
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
            "placement": now.stream_info.config.placement,
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


def opened(js: JetStream, bucket: str) -> ObjectStore:
    """An object store that exists; ClickException when it does not."""
    from pelton.errors import BucketNotFoundError

    try:
        return js.object_store(bucket)
    except BucketNotFoundError:
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
        "stream": as_data(status.stream_info),
    }


def show_store(session: Session, status: ObjectStoreStatus) -> None:
    """An object store with its state."""
    if session.as_json:
        print_json(store_data(status))
        return
    metadata = {
        key: each for key, each in status.metadata.items() if not key.startswith(SERVERS_OWN)
    }
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
            ("Created", moment(status.stream_info.created)),
            ("Stream", status.stream_info.config.name),
        ],
    )
