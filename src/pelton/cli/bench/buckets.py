"""``pelton bench kv``: put and get keys of a bucket."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.session import Session, command
from pelton.cli.values import SIZE, STORAGE, Whole

from .load import Load, options, run_load

if TYPE_CHECKING:
    from .links import Link, Role

BUCKET = "benchbucket"
_HISTORY_MAX = 64

_bucket = click.option(
    "--bucket", default=BUCKET, show_default=True, help="The bucket; put creates it."
)
_randomize = click.option(
    "--randomize",
    type=Whole(0),
    default=0,
    help="Pick keys below this number at random; 0: one key after the other.",
)


@click.command()
@_bucket
@_randomize
@click.option(
    "--history",
    type=Whole(1, _HISTORY_MAX),
    default=1,
    show_default=True,
    help="Revisions of each key that a new bucket keeps.",
)
@click.option(
    "--storage",
    type=STORAGE,
    default="file",
    show_default=True,
    help="Where a new bucket keeps values.",
)
@click.option("--replicas", type=Whole(1, 5), default=1, help="Copies of a new bucket.")
@click.option(
    "--maxbytes", type=SIZE, default="1GB", show_default=True, help="Limit of a new bucket."
)
@click.option("--purge", is_flag=True, help="Remove all keys before.")
@options("common", "messages", "sleep", "rate")
@command
@click.pass_obj
def put(session: Session, /, bucket: str, randomize: int, **asked: Any) -> None:
    """Put the keys 0, 1, 2 ... of a bucket, each when the last one is stored."""
    from pelton.api.subjects import API_PREFIX
    from pelton.client.keyvalue.config import prefixes
    from pelton.errors import BucketNotFoundError

    from .supply import Subjects

    load = Load.of(asked)
    with session.connect() as client:
        js = session.jetstream(client)
        try:
            opened = js.key_value(bucket)
        except BucketNotFoundError:
            opened = js.create_key_value(
                bucket,
                history=asked["history"],
                storage=asked["storage"],
                replicas=asked["replicas"],
                max_bytes=asked["maxbytes"],
            )
        if asked["purge"]:
            js.purge_stream(opened.stream)
        config = js.stream_info(opened.stream).config
        written = prefixes(config, js.subjects.prefix, API_PREFIX)[1]
    subjects = Subjects(
        written.rstrip("."), many=True, most=randomize, shuffled=bool(randomize), plain=True
    )

    def role(link: Link, share: int, first: int) -> Role:
        from .roles import store
        from .supply import Supply

        supply = Supply(
            subjects,
            load.payload,
            lines=load.lines,
            reply=f"{link.inbox}.".encode(),
            first=first,
            max_payload=link.max_payload,
        )
        return store(link, supply, share, load.pace(), window=1)

    run_load(session, "KV put", load, role, facts={"bucket": bucket})


@click.command()
@_bucket
@_randomize
@options("common", "sleep")
@command
@click.pass_obj
def get(session: Session, /, bucket: str, randomize: int, **asked: Any) -> None:
    """Get the keys that put has stored, each when the value of the last one is there."""
    from pelton.api.subjects import API_PREFIX, Api
    from pelton.client.keyvalue.config import prefixes

    load = Load.of(asked)
    with session.connect() as client:
        js = session.jetstream(client)
        opened = js.key_value(bucket)
        info = js.stream_info(opened.stream)
        prefix = js.subjects.prefix
        stored, _ = prefixes(info.config, prefix, API_PREFIX)
        count = info.state.messages
    if count < (randomize or load.msgs):
        raise click.UsageError(f"bucket {bucket} has {count} values: give --msgs, or put more")
    start = Api(prefix).direct_get(opened.stream, stored)

    def role(link: Link, share: int, first: int) -> Role:
        from pelton.core.load.roles import Requests

        from .roles import ask

        requests = Requests(
            start, first=first, numbered=True, below=randomize, seed=random.getrandbits(63)
        )
        return ask(link, share, f"{start}*", requests, load.pace())

    run_load(session, "KV get", load, role, facts={"bucket": bucket})
