"""``pelton bench js``: publish into a stream, consume it, get its messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pelton.cli.session import Session, command
from pelton.cli.values import DURATION, SIZE, STORAGE, Whole, Word

from .load import Load, names, options, run_load

if TYPE_CHECKING:
    from collections.abc import Callable

    from pelton.client.base.models import StreamInfo
    from pelton.client.sync.jetstream import JetStream

    from .links import Link, Role

F = TypeVar("F", bound="Callable[..., object]")

STREAM = "benchstream"
ATOMIC_MAX = 1000
ACK_PENDING = 1000  # as a consumer of the server's defaults: requests rarely wait for acks
_SECRET_BYTES = 8

_stream = click.option(
    "--stream", default=STREAM, show_default=True, help="The stream to use, or to create."
)
_purge = click.option("--purge", is_flag=True, help="Remove all messages of the stream before.")
_filter = click.option(
    "--filter", "filters", multiple=True, help="Only these subjects; repeatable, or with commas."
)


def _batch(text: str) -> Callable[[F], F]:
    return click.option("--batch", type=Whole(1), default=500, show_default=True, help=text)


def _store_options(function: F) -> F:
    for each in reversed(
        (
            click.option("--create", is_flag=True, help="Create the stream, or change it."),
            _purge,
            click.option(
                "--storage",
                type=STORAGE,
                default="file",
                show_default=True,
                help="With --create: where the stream keeps messages.",
            ),
            click.option("--replicas", type=Whole(1, 5), default=1, help="With --create: copies."),
            click.option(
                "--maxbytes",
                type=SIZE,
                default="1GB",
                show_default=True,
                help="With --create: limit of the stream; the oldest messages give way.",
            ),
            click.option("--dedup", is_flag=True, help="Give each message an id."),
            click.option(
                "--dedupwindow",
                type=DURATION,
                default="2m",
                show_default=True,
                help="With --create: how long ids are remembered.",
            ),
            click.option(
                "--persistasync",
                is_flag=True,
                help="With --create: ack before the message is on the disk.",
            ),
        )
    ):
        function = each(function)
    return function


def _ready(
    js: JetStream, name: str, subjects: list[str], asked: dict[str, Any], **features: Any
) -> StreamInfo:
    """The stream, as the options of a publisher want it."""
    from pelton.client.base.durations import Nanoseconds
    from pelton.client.base.models import StreamConfig

    if asked["create"]:
        config = StreamConfig(
            name=name,
            subjects=subjects,
            storage=asked["storage"],
            num_replicas=asked["replicas"],
            max_bytes=asked["maxbytes"],
            duplicate_window=Nanoseconds(asked["dedupwindow"]),
            allow_direct=True,
            **features,
        )
        if asked["persistasync"]:
            config.persist_mode = "async"
        info = js.create_or_update_stream(config)
    else:
        info = js.stream_info(name)
    if asked["purge"]:
        js.purge_stream(name)
    return info


def _publish(
    session: Session,
    subject: str,
    asked: dict[str, Any],
    what: str,
    make: Callable[[Load, Any, Link, int, int], Role],
    **features: Any,
) -> None:
    load = Load.of(asked)
    subjects = load.subjects(subject)
    wanted = f"{subject}.*" if load.many else subject
    with session.connect() as client:
        _ready(session.jetstream(client), asked["stream"], [wanted], asked, **features)
    facts: dict[str, object] = {"subject": wanted, "stream": asked["stream"]}
    if "batch" in asked:
        facts["batch"] = asked["batch"]

    def role(link: Link, share: int, first: int) -> Role:
        return make(load, subjects, link, share, first)

    run_load(session, what, load, role, facts=facts)


def _windowed(window: int, dedup: bool) -> Callable[[Load, Any, Link, int, int], Role]:
    from secrets import token_hex

    run = token_hex(_SECRET_BYTES)

    def make(load: Load, subjects: Any, link: Link, share: int, first: int) -> Role:
        from .roles import store
        from .supply import Supply

        supply = Supply(
            subjects,
            load.payload,
            lines=load.lines,
            numbered=f"Nats-Msg-Id: {run}-".encode() if dedup else b"",
            reply=f"{link.inbox}.".encode(),
            first=first,
            max_payload=link.max_payload,
        )
        return store(link, supply, share, load.pace(), window=window)

    return make


@click.command()
@click.argument("subject")
@_stream
@options("common", "subjects", "messages", "sleep", "rate")
@_store_options
@command
@click.pass_obj
def pub_sync(session: Session, /, subject: str, **asked: Any) -> None:
    """Publish to SUBJECT, each message when the stream has stored the last one."""
    make = _windowed(1, asked["dedup"])
    _publish(session, subject, asked, "JetStream synchronous publish", make)


@click.command()
@click.argument("subject")
@_stream
@_batch("How many messages of a client may be without their ack.")
@options("common", "subjects", "messages", "sleep", "rate")
@_store_options
@command
@click.pass_obj
def pub_async(session: Session, /, subject: str, **asked: Any) -> None:
    """Publish to SUBJECT with many messages on the way to the stream at once."""
    make = _windowed(asked["batch"], asked["dedup"])
    _publish(session, subject, asked, "JetStream asynchronous publish", make)


@click.command()
@click.argument("subject")
@_stream
@_batch("Messages of a batch.")
@options("common", "subjects", "messages", "sleep", "rate")
@_store_options
@command
@click.pass_obj
def pub_atomic(session: Session, /, subject: str, **asked: Any) -> None:
    """Publish to SUBJECT in batches that are stored as a whole. The latencies are those of batches."""
    if asked["batch"] > ATOMIC_MAX:
        raise click.BadParameter(f"{ATOMIC_MAX} at most", param_hint="--batch")
    if asked["dedup"]:
        raise click.UsageError("an atomic batch has no --dedup here")

    def make(load: Load, subjects: Any, link: Link, share: int, first: int) -> Role:
        from .batches import Atomic

        return Atomic(
            link,
            subjects,
            load.payload,
            share,
            load.pace(),
            batch=asked["batch"],
            lines=load.lines,
            first=first,
        )

    _publish(session, subject, asked, "JetStream atomic batch publish", make, allow_atomic=True)


@click.command()
@click.argument("subject")
@_stream
@_batch("Messages between two answers of the stream.")
@click.option(
    "--max-outstanding-acks",
    type=Whole(1, 65_535),
    default=1,
    show_default=True,
    help="How many answers may be outstanding.",
)
@options("common", "subjects", "messages", "sleep", "rate")
@_store_options
@command
@click.pass_obj
def pub_fast(session: Session, /, subject: str, **asked: Any) -> None:
    """Publish to SUBJECT in a fast batch: the stream answers once for many messages."""
    if asked["dedup"]:
        raise click.UsageError("a fast batch has no --dedup here")

    def make(load: Load, subjects: Any, link: Link, share: int, first: int) -> Role:
        from .batches import Fast

        return Fast(
            link,
            subjects,
            load.payload,
            share,
            load.pace(),
            batch=asked["batch"],
            unanswered=asked["max_outstanding_acks"],
            lines=load.lines,
            first=first,
        )

    _publish(session, subject, asked, "JetStream fast batch publish", make, allow_batched=True)


def _consumer_options(function: F) -> F:
    for each in reversed(
        (
            click.option(
                "--consumer",
                default="nats-bench",
                show_default=True,
                help="The durable consumer; it is created, or changed.",
            ),
            click.option(
                "--acks",
                type=Word(["explicit", "none", "all"]),
                default="explicit",
                show_default=True,
                help="Ack policy: each message, nothing, all up to the last one.",
            ),
            click.option(
                "--doubleack/--no-doubleack",
                default=False,
                help="Let the server confirm the acks.",
            ),
            _filter,
            _purge,
        )
    ):
        function = each(function)
    return function


def _pull(session: Session, asked: dict[str, Any], what: str, *, overlapped: bool) -> None:
    """Clients that share a durable consumer."""
    from pelton.api.subjects import Api
    from pelton.cli.consumers.fields import filters_of
    from pelton.client.base.models import ConsumerConfig

    load = Load.of(asked)
    name, stream, batch, acks = asked["consumer"], asked["stream"], asked["batch"], asked["acks"]
    with session.connect() as client:
        js = session.jetstream(client)
        info = js.stream_info(stream)
        if asked["purge"]:
            js.purge_stream(stream)
        config = ConsumerConfig(
            durable_name=name,
            ack_policy=acks,
            max_ack_pending=-1 if acks == "none" else max(ACK_PENDING, batch * load.clients),
            inactive_threshold=10,
            num_replicas=info.config.num_replicas,
            **filters_of(tuple(names(asked["filters"]))),
        )
        js.create_or_update_consumer(stream, config)
        prefix = js.subjects.prefix
    subject = Api(prefix).next_message(stream, name)

    def role(link: Link, share: int, first: int) -> Role:
        from .roles import pull

        return pull(
            link,
            subject,
            share,
            batch=batch,
            overlapped=overlapped,
            acks=acks,
            confirmed=asked["doubleack"],
            sleep_ns=load.sleep_ns,
        )

    facts = {"stream": stream, "consumer": name, "acks": acks, "batch": batch}
    run_load(session, what, load, role, facts=facts, limit=False)


@click.command()
@_stream
@_batch("How many messages are requested ahead.")
@options("common", "sleep")
@_consumer_options
@command
@click.pass_obj
def consume(session: Session, /, **asked: Any) -> None:
    """Consume a stream: clients share a durable consumer, and ask for messages ahead."""
    _pull(session, asked, "JetStream consume", overlapped=True)


@click.command()
@_stream
@_batch("Messages of a request.")
@options("common", "sleep")
@_consumer_options
@command
@click.pass_obj
def fetch(session: Session, /, **asked: Any) -> None:
    """Fetch from a stream: clients share a durable consumer, each request follows the last one.

    The latencies are those of requests.
    """
    _pull(session, asked, "JetStream fetch", overlapped=False)


@click.command()
@_stream
@_batch("How many messages are requested ahead.")
@options("common", "sleep")
@_filter
@_purge
@command
@click.pass_obj
def ordered(session: Session, /, **asked: Any) -> None:
    """Consume a stream: each client has its own consumer without acks, and gets --msgs messages."""
    from pelton.api.subjects import Api
    from pelton.cli.consumers.fields import filters_of
    from pelton.client.base.models import ConsumerConfig

    load = Load.of(asked)
    stream = asked["stream"]
    with session.connect() as client:
        js = session.jetstream(client)
        if asked["purge"]:
            js.purge_stream(stream)
        prefix = js.subjects.prefix
        config = ConsumerConfig(
            ack_policy="none",
            mem_storage=True,
            num_replicas=1,
            inactive_threshold=60,
            **filters_of(tuple(names(asked["filters"]))),
        )
        made = [js.create_consumer(stream, config).name for _ in range(load.clients)]
        consumers = iter(made)

        def role(link: Link, share: int, first: int) -> Role:
            from .roles import pull

            return pull(
                link,
                Api(prefix).next_message(stream, next(consumers)),
                share,
                batch=asked["batch"],
                overlapped=True,
                acks="none",
                confirmed=False,
                sleep_ns=load.sleep_ns,
            )

        facts = {"stream": stream, "batch": asked["batch"]}
        what = "JetStream ordered consume"
        try:
            run_load(session, what, load, role, facts=facts, each_has_all=True, limit=False)
        finally:
            for name in made:
                js.delete_consumer(stream, name)


@click.command()
@_stream
@click.option(
    "--acks",
    type=Word(["explicit", "none"]),
    default="explicit",
    show_default=True,
    help="Ack policy: each message, nothing.",
)
@_filter
@_purge
@options("common")
@command
@click.pass_obj
def push(session: Session, /, **asked: Any) -> None:
    """Receive messages from push consumers: each client has its own consumer, and gets --msgs
    messages.

    With acks, up to 1,000 messages of a client may wait for theirs.
    """
    from pelton.cli.consumers.fields import filters_of
    from pelton.client.base.models import ConsumerConfig

    load = Load.of(asked)
    stream, acks = asked["stream"], asked["acks"]
    with session.connect() as client:
        js = session.jetstream(client)
        if asked["purge"]:
            js.purge_stream(stream)
        js.stream_info(stream)
        made: list[str] = []

        def role(link: Link, share: int, first: int) -> Role:
            from pelton.core.load.roles import Listen

            listening = Listen(link, link.inbox, share, acks=acks == "explicit")
            config = ConsumerConfig(
                deliver_subject=link.inbox,
                ack_policy=acks,
                mem_storage=True,
                num_replicas=1,
                inactive_threshold=60,
                **filters_of(tuple(names(asked["filters"]))),
            )
            made.append(js.create_consumer(stream, config).name)
            return listening

        facts = {"stream": stream, "acks": acks}
        what = "JetStream push"
        try:
            run_load(session, what, load, role, facts=facts, each_has_all=True, limit=False)
        finally:
            for name in made:
                js.delete_consumer(stream, name)


def _stored(session: Session, stream: str, load: Load) -> tuple[str, bool, int]:
    """Prefix of the API, whether direct gets are allowed, first sequence; checks the number of messages."""
    with session.connect() as client:
        js = session.jetstream(client)
        info = js.stream_info(stream)
        if info.state.messages < load.msgs:
            raise click.UsageError(
                f"stream {stream} has {info.state.messages} messages: give --msgs, or publish more"
            )
        return js.subjects.prefix, info.config.allow_direct, info.state.first_seq


@click.command()
@_stream
@options("common", "sleep")
@command
@click.pass_obj
def get_sync(session: Session, /, **asked: Any) -> None:
    """Get the messages of a stream by sequence, one at a time."""
    from pelton.api.subjects import Api

    load = Load.of(asked)
    stream = asked["stream"]
    prefix, direct, first_seq = _stored(session, stream, load)
    api = Api(prefix)
    subject = api.direct_get(stream) if direct else api.stream("MSG.GET", stream)

    def role(link: Link, share: int, first: int) -> Role:
        from pelton.core.load.roles import Requests

        from .roles import ask

        requests = Requests(subject, b'{"seq":', first=first_seq + first, tail=b"}")
        return ask(link, share, subject, requests, load.pace(), api=not direct)

    facts = {"stream": stream, "direct": str(direct).lower()}
    run_load(session, "JetStream get", load, role, facts=facts)


@click.command()
@_stream
@_batch("Messages of a request.")
@click.option("--filter", "filter_subject", default=">", show_default=True, help="Subjects.")
@options("common", "sleep")
@command
@click.pass_obj
def get_batch(session: Session, /, **asked: Any) -> None:
    """Get the messages of a stream in batches, which the stream must allow (allow_direct).

    Each client gets its share of --msgs from the first message on.
    """
    from pelton.api.subjects import Api

    load = Load.of(asked)
    stream = asked["stream"]
    prefix, direct, first_seq = _stored(session, stream, load)
    if not direct:
        raise click.ClickException(
            f"stream {stream} allows no direct gets; edit it: --allow-direct"
        )
    subject = Api(prefix).direct_get(stream)

    def role(link: Link, share: int, first: int) -> Role:
        from .roles import ask_batches

        def body(last_seq: int, wanted: int) -> bytes:
            found = {
                "seq": max(last_seq + 1, first_seq),
                "batch": wanted,
                "next_by_subj": asked["filter_subject"],
            }
            return json.dumps(found).encode()

        return ask_batches(link, share, subject, body, load.pace(), batch=asked["batch"])

    facts = {"stream": stream, "batch": asked["batch"], "filter": asked["filter_subject"]}
    run_load(session, "JetStream batch get", load, role, facts=facts)
