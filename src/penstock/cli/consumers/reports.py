"""``penstock consumer report`` and ``find``: consumers compared, and by what they are."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.failures import DONE, FAILED
from penstock.cli.output import (
    Figure,
    as_data,
    duration,
    number,
    print_json,
    print_names,
    print_table,
)
from penstock.cli.prompts import Asked
from penstock.cli.session import Session, command
from penstock.cli.values import DURATION

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.client import ConsumerInfo

_COLUMNS = (
    "Consumer",
    "Mode",
    "Ack policy",
    "Ack wait",
    "Ack pending",
    "Redelivered",
    "Unprocessed",
    "Share",
    "Ack floor",
)


@click.command()
@click.argument("stream", cls=Asked)
@click.option("-r", "--raw", is_flag=True, help="Numbers without separators.")
@click.option("-l", "--leaders", is_flag=True, help="Also how many consumers each server leads.")
@command
@click.pass_obj
def report(session: Session, stream: str, raw: bool, leaders: bool) -> None:
    """Compare the consumers of STREAM: what is pending, what is not delivered yet."""
    with session.connect() as client:
        js = session.jetstream(client)
        messages = js.stream_info(stream).state.messages
        found = js.consumers(stream)
    if session.as_json:
        print_json([as_data(info) for info in found])
        return
    rows = [_row(info, messages, raw) for info in found]
    print_table(_COLUMNS, rows, right=frozenset(_COLUMNS[4:]))
    if leaders:
        from penstock.cli.streams.reports import print_leaders

        print()
        print_leaders(info.cluster.leader for info in found if info.cluster)


def _row(info: ConsumerInfo, messages: int, raw: bool) -> tuple[str, ...]:
    config = info.config
    share = Figure(f"{info.num_pending / messages:.0%}" if messages else "0%", info.num_pending)
    cells = (
        info.name,
        ("push" if config.deliver_subject else "pull") if config else "",
        config.ack_policy if config else "",
        duration(config.ack_wait) if config else "",
        number(info.num_ack_pending),
        number(info.num_redelivered),
        number(info.num_pending),
        str(share),
        number(info.ack_floor.stream_seq),
    )
    if not raw:
        return cells
    return tuple(str(cell.value) if isinstance(cell, Figure) else cell for cell in cells)


@click.command()
@click.argument("stream", cls=Asked)
@click.option("--pull", is_flag=True, help="Pull consumers.")
@click.option("--push", is_flag=True, help="Push consumers.")
@click.option("--bound", is_flag=True, help="With a subscriber, or with waiting pulls.")
@click.option("--waiting", type=click.IntRange(0), help="With fewer waiting pulls.")
@click.option("--ack-pending", type=click.IntRange(0), help="With fewer unacknowledged messages.")
@click.option("--pending", type=click.IntRange(0), help="With fewer messages not delivered yet.")
@click.option("--idle", type=DURATION, help="Without a delivery for this time.")
@click.option("--created", type=DURATION, help="Created longer ago than this.")
@click.option("--replicas", type=click.IntRange(0), help="With at most so many replicas.")
@click.option("--leader", help="Led by this server.")
@click.option("--pinned", is_flag=True, help="Each of its priority groups has a pinned client.")
@click.option("--invert", is_flag=True, help="The consumers that do not match.")
@click.option("-n", "--names", is_flag=True, help="Only the names.")
@command
@click.pass_obj
def find(session: Session, /, stream: str, invert: bool, names: bool, **asked: Any) -> int:
    """Find consumers of STREAM for which everything holds that is asked for.

    Exit status 1 if there is none.
    """
    if asked["pull"] and asked["push"]:
        raise click.UsageError("--pull and --push exclude each other")
    now_ns = time.time_ns()
    with session.connect() as client:
        everything = session.jetstream(client).consumers(stream)
    found = [each for each in everything if _matches(each, asked, now_ns) != invert]
    if names:
        print_names(session, [each.name for each in found])
    elif session.as_json:
        print_json([as_data(each) for each in found])
    elif found:
        columns = ("Name", "Mode", "Ack pending", "Unprocessed", "Waiting")
        rows = [
            (
                each.name,
                "push" if each.config and each.config.deliver_subject else "pull",
                number(each.num_ack_pending),
                number(each.num_pending),
                number(each.num_waiting),
            )
            for each in found
        ]
        print_table(columns, rows, right=frozenset(columns[2:]))
    return DONE if found else FAILED


def _is_push(info: ConsumerInfo) -> bool:
    return bool(info.config and info.config.deliver_subject)


def _is_pinned(info: ConsumerInfo) -> bool:
    groups = info.priority_groups
    return bool(groups) and all(group.pinned_client_id for group in groups)


_TESTS: dict[str, Callable[[ConsumerInfo, Any, int], bool]] = {
    "pull": lambda info, _, now: not _is_push(info),
    "push": lambda info, _, now: _is_push(info),
    "bound": lambda info, _, now: info.push_bound or info.num_waiting > 0,
    "waiting": lambda info, limit, now: info.num_waiting < limit,
    "ack_pending": lambda info, limit, now: info.num_ack_pending < limit,
    "pending": lambda info, limit, now: info.num_pending < limit,
    "idle": lambda info, span, now: now - _last_active(info) >= span,
    "created": lambda info, span, now: now - info.created >= span,
    "replicas": lambda info, limit, now: _replicas(info) <= limit,
    "leader": lambda info, name, now: info.cluster is not None and info.cluster.leader == name,
    "pinned": lambda info, _, now: _is_pinned(info),
}


def _replicas(info: ConsumerInfo) -> int:
    return info.config.num_replicas if info.config else 0


def _last_active(info: ConsumerInfo) -> int:
    return info.delivered.last_active or info.created


def _matches(info: ConsumerInfo, asked: dict[str, Any], now_ns: int) -> bool:
    return all(
        test(info, asked[name], now_ns)
        for name, test in _TESTS.items()
        if asked[name] is not None and asked[name] is not False
    )
