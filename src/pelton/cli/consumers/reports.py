"""``pelton consumer report`` and ``find``: compare consumers, and find them by their properties."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.consumers.selecting import selected, selecting
from pelton.cli.failures import DONE, FAILED
from pelton.cli.output import (
    Figure,
    as_data,
    duration,
    number,
    print_json,
    print_names,
    print_table,
)
from pelton.cli.prompts import Asked
from pelton.cli.session import Session, command

if TYPE_CHECKING:
    from pelton.client.base.models import ConsumerInfo

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
    """Compare the consumers of STREAM: pending and undelivered messages."""
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
        from pelton.cli.streams.reports import print_leaders

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
@selecting
@click.option("-n", "--names", is_flag=True, help="Only the names.")
@command
@click.pass_obj
def find(session: Session, /, stream: str, names: bool, **asked: Any) -> int:
    """Find the consumers of STREAM that meet every given condition.

    Prints a table at a terminal and names in a pipe. Exit status 1 if none does.

    --expression takes the language Expr, with config, state and info as
    consumer info --json has them: 'state.num_pending > 100 and config.ack_policy == "explicit"'.
    """
    with session.connect() as client:
        found = selected(session.jetstream(client), stream, asked)
    if names or (session.form == "table" and not sys.stdout.isatty()):  # as with nats
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
