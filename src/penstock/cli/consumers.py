"""``penstock consumer``: list, create, show, remove, fetch from."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.failures import DONE, FAILED
from penstock.cli.messages import show_message
from penstock.cli.output import (
    NO_REASON,
    as_data,
    duration,
    limit,
    moment,
    number,
    payload,
    print_facts,
    print_json,
    print_json_line,
    print_names,
    print_table,
    print_unavailable,
)
from penstock.cli.session import OFFLINE, Session, check_readable, command
from penstock.cli.values import DURATION

if TYPE_CHECKING:
    from penstock.client import ConsumerConfig, ConsumerInfo


@click.command()
@click.argument("stream")
@click.option("--names", is_flag=True, help="Only the names.")
@command
@click.pass_obj
def ls(session: Session, stream: str, names: bool) -> int:
    """List the consumers of STREAM. Offline ones have the reason, and give exit status 1."""
    with session.connect() as client:
        listing = session.jetstream(client).consumer_listing(stream)
    status = FAILED if listing.unavailable else DONE
    if names:
        print_names(session, sorted([*(info.name for info in listing.found), *listing.unavailable]))
        return status
    if session.as_json:
        print_json(
            [as_data(info) for info in listing.found]
            + [
                {"name": name, "offline": True, "offline_reason": reason or NO_REASON}
                for name, reason in listing.unavailable.items()
            ]
        )
        return status
    rows = [
        (
            info.name,
            "push" if info.config and info.config.deliver_subject else "pull",
            info.config.ack_policy if info.config else "",
            number(info.num_pending),
            number(info.num_ack_pending),
            number(info.num_redelivered),
            number(info.num_waiting),
            number(info.ack_floor.stream_seq),
        )
        for info in listing.found
    ]
    columns = (
        "Name",
        "Mode",
        "Ack",
        "Unprocessed",
        "Pending",
        "Redelivered",
        "Waiting",
        "Floor",
    )
    print_table(columns, rows, right=frozenset(columns[3:]))
    if listing.unavailable:
        print_unavailable("consumers", listing.unavailable)
    return status


@click.command()
@click.argument("stream")
@click.argument("name")
@click.option("--filter", "filters", multiple=True, help="Only messages on this subject.")
@click.option("--ack", type=click.Choice(["explicit", "all", "none"]), default="explicit")
@click.option(
    "--deliver",
    default="all",
    show_default=True,
    help="Where to begin: all, last, new, subject (the last of each), or a sequence.",
)
@click.option("--wait", "ack_wait", type=DURATION, default=0, help="How long to wait for an ack.")
@click.option("--max-deliver", type=int, default=-1, help="Limit of deliveries of a message.")
@click.option("--max-pending", type=int, default=0, help="Limit of unacknowledged messages.")
@click.option("--target", default="", help="Push to this subject instead of waiting for pulls.")
@click.option("--queue", default="", help="Queue group of a push consumer.")
@click.option("--ephemeral", is_flag=True, help="Remove it when it is unused.")
@click.option("--inactive", type=DURATION, default=0, help="How long it may be unused.")
@click.option("--headers-only", is_flag=True, help="Deliver headers without payloads.")
@command
@click.pass_obj
def add(
    session: Session,
    /,
    stream: str,
    name: str,
    filters: tuple[str, ...],
    deliver: str,
    ephemeral: bool,
    **fields: Any,
) -> None:
    """Create the consumer NAME of STREAM."""
    from penstock.client import ConsumerConfig, Nanoseconds

    config = ConsumerConfig(
        name=name,
        ack_policy=fields["ack"],
        ack_wait=Nanoseconds(fields["ack_wait"]),
        max_deliver=fields["max_deliver"],
        max_ack_pending=fields["max_pending"],
        deliver_subject=fields["target"],
        deliver_group=fields["queue"],
        inactive_threshold=Nanoseconds(fields["inactive"]),
        headers_only=fields["headers_only"],
    )
    if not ephemeral:
        config.durable_name = name
    if len(filters) == 1:
        config.filter_subject = filters[0]
    else:
        config.filter_subjects = list(filters)
    _begin_at(config, deliver)
    with session.connect() as client:
        show(session, session.jetstream(client).create_consumer(stream, config, action="create"))


def _begin_at(config: ConsumerConfig, deliver: str) -> None:
    if deliver in ("all", "last", "new"):
        config.deliver_policy = deliver  # type: ignore[assignment]  # one of the allowed words
    elif deliver == "subject":
        config.deliver_policy = "last_per_subject"
    elif deliver.isdigit() and int(deliver) > 0:
        config.deliver_policy = "by_start_sequence"
        config.opt_start_seq = int(deliver)
    else:
        raise click.UsageError(
            f'"{deliver}" is no place to begin at: all, last, new, subject or a sequence'
        )


@click.command()
@click.argument("stream")
@click.argument("name")
@command
@click.pass_obj
def info(session: Session, stream: str, name: str) -> None:
    """Show the consumer NAME of STREAM."""
    with session.connect() as client:
        show(session, session.jetstream(client).consumer_info(stream, name))


def show(session: Session, info: ConsumerInfo) -> None:
    """A consumer with its state."""
    if session.as_json:
        print_json(as_data(info))
        return
    if info.config is not None:
        config = info.config
        filters = [config.filter_subject] if config.filter_subject else config.filter_subjects
        print_facts(
            f"Consumer {info.name} of stream {info.stream_name}",
            [
                ("Description", config.description),
                ("Durable", "yes" if config.durable_name else "no"),
                ("Mode", f"push to {config.deliver_subject}" if config.deliver_subject else "pull"),
                ("Queue group", config.deliver_group),
                ("Filters", ", ".join(filters)),
                ("Begins at", f"{config.deliver_policy} {config.opt_start_seq or ''}".strip()),
                ("Ack policy", config.ack_policy),
                ("Ack wait", duration(config.ack_wait)),
                ("Max deliveries", limit(config.max_deliver)),
                ("Max ack pending", limit(config.max_ack_pending)),
                ("Inactive threshold", duration(config.inactive_threshold)),
                ("Created", moment(info.created)),
            ],
        )
    print_facts(
        "State",
        [
            ("Last delivered", _place(info.delivered.consumer_seq, info.delivered.stream_seq)),
            ("Ack floor", _place(info.ack_floor.consumer_seq, info.ack_floor.stream_seq)),
            ("Ack pending", number(info.num_ack_pending)),
            ("Redelivered", number(info.num_redelivered)),
            ("Waiting pulls", number(info.num_waiting)),
            ("Unprocessed", number(info.num_pending)),
        ],
    )


def _place(consumer_seq: int, stream_seq: int) -> str:
    return f"consumer {number(consumer_seq)}, stream {number(stream_seq)}"


@click.command()
@click.argument("stream")
@click.argument("name")
@click.option("-f", "--force", is_flag=True, help="Do not ask.")
@OFFLINE
@command
@click.pass_obj
def rm(session: Session, stream: str, name: str, force: bool, offline: bool) -> None:
    """Remove the consumer NAME of STREAM; an offline one only with --offline."""
    if not force:
        click.confirm(f"Really remove consumer {name} of stream {stream}?", abort=True, err=True)
    with session.connect() as client:
        jetstream = session.jetstream(client)
        check_readable(
            lambda: jetstream.consumer_info(stream, name),
            f"consumer {name} of stream {stream}",
            offline,
        )
        jetstream.delete_consumer(stream, name)
    if session.as_json:
        print_json({"removed": name})
    else:
        print(f"removed consumer {name} of stream {stream}")


@click.command(name="next")
@click.argument("stream")
@click.argument("name")
@click.option("-n", "--count", default=1, type=click.IntRange(1), help="How many messages.")
@click.option("--wait", type=DURATION, default="1s", show_default=True, help="How long to wait.")
@click.option("--no-ack", is_flag=True, help="Do not acknowledge them.")
@click.option("-r", "--raw", is_flag=True, help="Only the payloads, each with a line end.")
@command
@click.pass_obj
def next_(
    session: Session, stream: str, name: str, count: int, wait: int, no_ack: bool, raw: bool
) -> None:
    """Fetch messages from the pull consumer NAME of STREAM and acknowledge them."""
    with session.connect() as client:
        handle = session.jetstream(client).pull(stream, name)
        messages = handle.fetch(count, timeout=wait / 1e9)
        for message in messages:
            place = message.metadata
            if session.as_json:
                data: dict[str, object] = {
                    "subject": message.subject,
                    "stream_seq": place.stream_seq,
                    "consumer_seq": place.consumer_seq,
                    "deliveries": place.delivered,
                    "pending": place.pending,
                }
                if message.raw_headers:
                    data["headers"] = message.headers
                print_json_line(data | payload(message.data))
            elif raw:
                sys.stdout.buffer.write(message.data + b"\n")
            else:
                show_message(message, f"[#{place.stream_seq}, delivery {place.delivered}] ")
            if not no_ack:
                message.ack()
        client.flush()
    if not messages:
        raise click.ClickException(f"no message for consumer {name} of stream {stream}")
