"""``pelton consumer ls``, ``info``, ``state`` and ``rm``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pelton.cli.failures import DONE, FAILED
from pelton.cli.output import (
    as_data,
    duration,
    limit,
    moment,
    number,
    print_facts,
    print_json,
    print_names,
    print_table,
    print_unavailable,
    size,
)
from pelton.cli.prompts import NO_SELECT, Asked, confirm
from pelton.cli.session import OFFLINE, Session, check_readable, command

if TYPE_CHECKING:
    from pelton.client.base.models import ConsumerConfig, ConsumerInfo


@click.command()
@click.argument("stream", cls=Asked)
@click.option("-n", "--names", is_flag=True, help="Only the names.")
@NO_SELECT
@command
@click.pass_obj
def ls(session: Session, stream: str, names: bool) -> int:
    """List the consumers of STREAM. Offline ones have the reason, and give exit status 1.

    --json prints the names; consumer report --json prints everything.
    """
    with session.connect() as client:
        listing = session.jetstream(client).consumer_listing(stream)
    status = FAILED if listing.unavailable else DONE
    if names or session.as_json:  # JSON has the names, as with nats; report has the rest
        print_names(session, sorted([*(info.name for info in listing.found), *listing.unavailable]))
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
@click.argument("stream", cls=Asked)
@click.argument("name", cls=Asked, of="stream")
@NO_SELECT
@command
@click.pass_obj
def info(session: Session, stream: str, name: str) -> None:
    """Show the consumer NAME of STREAM."""
    with session.connect() as client:
        if session.of_2020 and session.as_json:
            from pelton.cli.early.nats import print_data

            print_data(client, f"$JS.STREAM.{stream}.CONSUMER.{name}.INFO")
            return
        show(session, session.jetstream(client).consumer_info(stream, name))


@click.command()
@click.argument("stream", cls=Asked)
@click.argument("name", cls=Asked, of="stream")
@NO_SELECT
@command
@click.pass_obj
def state(session: Session, stream: str, name: str) -> None:
    """Show the state of the consumer NAME of STREAM."""
    with session.connect() as client:
        found = session.jetstream(client).consumer_info(stream, name)
    print_json(as_data(found)) if session.as_json else _print_state(found)


def show(session: Session, info: ConsumerInfo) -> None:
    """A consumer with its state."""
    if session.as_json:
        print_json(as_data(info))
        return
    if session.of_2020:
        from pelton.cli.early.pages import consumer_page

        print(consumer_page(info))
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
                ("Backoff", ", ".join(duration(each) for each in config.backoff)),
                ("Replay", config.replay_policy if config.replay_policy != "instant" else ""),
                (
                    "Rate limit",
                    f"{number(config.rate_limit_bps)} bit/s" if config.rate_limit_bps else "",
                ),
                ("Sampled acks", config.sample_freq),
                ("Headers only", "yes" if config.headers_only else ""),
                ("Flow control", "yes" if config.flow_control else ""),
                ("Heartbeat", duration(config.idle_heartbeat)),
                ("Max waiting pulls", number(config.max_waiting) if config.max_waiting > 0 else ""),
                ("Max pull batch", number(config.max_batch) if config.max_batch > 0 else ""),
                ("Max pull expiry", duration(config.max_expires)),
                ("Max pull bytes", size(config.max_bytes) if config.max_bytes > 0 else ""),
                ("Max deliveries", limit(config.max_deliver)),
                ("Max ack pending", limit(config.max_ack_pending)),
                ("Inactive threshold", duration(config.inactive_threshold)),
                ("State in memory", "yes" if config.mem_storage else ""),
                ("Priority", _priority(config)),
                ("Metadata", ", ".join(f"{k}={v}" for k, v in config.metadata.items())),
                ("Created", moment(info.created)),
            ],
        )
    _print_state(info)


def _priority(config: ConsumerConfig) -> str:
    if not config.priority_groups:
        return ""
    return f"{config.priority_policy}: {', '.join(config.priority_groups)}"


def _print_state(info: ConsumerInfo) -> None:
    pinned = (
        f"{each.group}: {each.pinned_client_id}"
        for each in info.priority_groups
        if each.pinned_client_id
    )
    left = duration(info.pause_remaining // 10**9 * 10**9) if info.paused else ""
    print_facts(
        "State",
        [
            ("Last delivered", _place(info.delivered.consumer_seq, info.delivered.stream_seq)),
            ("Ack floor", _place(info.ack_floor.consumer_seq, info.ack_floor.stream_seq)),
            ("Ack pending", number(info.num_ack_pending)),
            ("Redelivered", number(info.num_redelivered)),
            ("Waiting pulls", number(info.num_waiting)),
            ("Unprocessed", number(info.num_pending)),
            ("Paused", f"for {left}" if info.paused else ""),
            ("Bound", "yes" if info.push_bound else ""),
            ("Pinned clients", ", ".join(pinned)),
        ],
    )


def _place(consumer_seq: int, stream_seq: int) -> str:
    return f"consumer {number(consumer_seq)}, stream {number(stream_seq)}"


@click.command()
@click.argument("stream", cls=Asked)
@click.argument("name", cls=Asked, of="stream")
@click.option("-f", "--force", is_flag=True, help="Do not ask.")
@OFFLINE
@command
@click.pass_obj
def rm(session: Session, stream: str, name: str, force: bool, offline: bool) -> None:
    """Remove the consumer NAME of STREAM; an offline one only with --offline."""
    if not force:
        if session.of_2020:
            from pelton.cli.early.nats import sure

            sure(f"Really delete Consumer {stream} > {name}")
        else:
            confirm(f"Really remove consumer {name} of stream {stream}?")
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
    elif not session.of_2020:
        print(f"removed consumer {name} of stream {stream}")
