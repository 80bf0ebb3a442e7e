"""``pelton server watch``: tables that follow what servers say of themselves every few seconds.

At a terminal a table is drawn again and again; elsewhere each one follows the one before. With ``--json`` each is one
line.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pelton.cli.output import number, print_json_line, size
from pelton.cli.server.asking import Answer, Live, Where, gather
from pelton.cli.server.reporting import Column, Row, Table, total
from pelton.cli.session import Session, command
from pelton.cli.values import DURATION, Whole, Word
from pelton.core.base.quoting import shown
from pelton.errors import PeltonError

if TYPE_CHECKING:
    from pelton.client.sync import Client

F = TypeVar("F", bound=Callable[..., Any])


def watch(*sorts: str) -> Callable[[F], click.Command]:
    """A command that shows a table again and again; the function makes the table of the sort order."""

    def wrap(function: F) -> click.Command:
        @click.option(
            "--sort", type=Word(sorts), default=sorts[0], show_default=True, help="Order."
        )
        @click.option("-n", "--number", "top", default=0, help="Only so many rows.")
        @click.option(
            "--interval",
            type=DURATION,
            default="5s",
            show_default=True,
            help="Time between tables.",
        )
        @click.option("--count", type=Whole(0), default=0, help="End after this many.")
        @command
        @click.pass_obj
        def watched(session: Session, sort: str, top: int, interval: int, count: int) -> None:
            with session.connect(lasting=True) as client:
                source = function(client)
                done = 0
                while True:
                    try:
                        rows, columns = source(sort)
                        draw(session, rows[:top] if top else rows, columns)
                    except (click.ClickException, PeltonError) as error:
                        if not done:
                            raise
                        click.echo(f"pelton: {shown(str(error))}", err=True)  # it goes on
                    done += 1
                    if count and done >= count:
                        return
                    time.sleep(interval / 1e9)

        watched.__name__, watched.__doc__ = function.__name__, function.__doc__
        return click.command()(watched)

    return wrap


def draw(session: Session, rows: list[Row], columns: tuple[Column, ...]) -> None:
    """Print a table in place of the one before; with ``--json`` a line."""
    if session.as_json:
        print_json_line(rows)
        return
    if sys.stdout.isatty():
        print("\x1b[2J\x1b[H", end="")
    numbers = [each.field for each in columns if each.numeric]
    sums = total(rows, *numbers, **{columns[0].field: "Total"})
    Table(columns, rows, sums if len(rows) > 1 else None).print()
    sys.stdout.flush()


_Tables = Callable[[str], tuple[list[Row], tuple[Column, ...]]]
_SERVER_BY: dict[str, str] = {
    "conns": "connections",
    "subs": "subscriptions",
    "slow": "slow_consumers",
    "mem": "mem",
    "cpu": "cpu",
    "routes": "routes",
    "gateways": "gateways",
    "sent": "sent_bytes",
    "received": "received_bytes",
}


def _percent(value: float) -> str:
    return f"{value:.1f} %"


@watch(*_SERVER_BY)
def servers(client: Client) -> _Tables:
    """Follow the load of servers. Needs a user of the system account."""

    def table(sort: str) -> tuple[list[Row], tuple[Column, ...]]:
        rows = [_server_row(each) for each in _statistics(client)]
        rows.sort(key=lambda row: row[_SERVER_BY[sort]], reverse=True)
        return rows, (
            Column("Server", "server"),
            Column("Connections", "connections", number),
            Column("Subscriptions", "subscriptions", number),
            Column("Slow", "slow_consumers", number),
            Column("Memory", "mem", size),
            Column("CPU", "cpu", _percent),
            Column("Cores", "cores"),
            Column("Routes", "routes", number),
            Column("Gateways", "gateways", number),
            Column("Sent", "sent_bytes", size),
            Column("Received", "received_bytes", size),
        )

    return table


def _statistics(client: Client) -> list[Answer]:
    count = Live(client, Where()).expected()
    return sorted(gather(client, "$SYS.REQ.SERVER.PING", {}, count), key=lambda each: each.name)


def _server_row(answer: Answer) -> Row:
    found = answer.whole.get("statsz") or {}
    plain = ("connections", "subscriptions", "slow_consumers", "mem", "cpu", "cores")
    return {
        "server": answer.name,
        **{name: found.get(name) or 0 for name in plain},
        "routes": len(found.get("routes") or ()),
        "gateways": len(found.get("gateways") or ()),
        "sent_bytes": (found.get("sent") or {}).get("bytes") or 0,
        "received_bytes": (found.get("received") or {}).get("bytes") or 0,
    }


_JETSTREAM_BY = {
    "assets": "ha_assets",
    "mem": "memory",
    "file": "storage",
    "api": "api",
    "err": "errors",
    "pending": "pending",
}


@watch(*_JETSTREAM_BY)
def jetstream(client: Client) -> _Tables:
    """Follow the JetStream of servers. Needs a user of the system account."""

    def table(sort: str) -> tuple[list[Row], tuple[Column, ...]]:
        rows = [_jetstream_row(each) for each in _statistics(client)]
        rows = [each for each in rows if each]
        rows.sort(key=lambda row: row[_JETSTREAM_BY[sort]], reverse=True)
        return rows, (
            Column("Server", "server"),
            Column("HA assets", "ha_assets", number),
            Column("Memory", "memory", size),
            Column("File", "storage", size),
            Column("API", "api", number),
            Column("API errors", "errors", number),
            Column("Pending", "pending", number),
        )

    return table


def _jetstream_row(answer: Answer) -> Row:
    found = (answer.whole.get("statsz") or {}).get("jetstream")
    if not found:
        return {}
    stats, api = found.get("stats") or {}, (found.get("stats") or {}).get("api") or {}
    return {
        "server": answer.name,
        "ha_assets": stats.get("ha_assets") or 0,
        "memory": stats.get("memory") or 0,
        "storage": stats.get("storage") or 0,
        "api": api.get("total") or 0,
        "errors": api.get("errors") or 0,
        "pending": (found.get("meta") or {}).get("pending") or 0,
    }


_ACCOUNT_BY = {
    "conns": "conns",
    "leafnodes": "leafnodes",
    "subs": "num_subscriptions",
    "slow": "slow_consumers",
    "sent": "sent_bytes",
    "received": "received_bytes",
}


@watch(*_ACCOUNT_BY)
def accounts(client: Client) -> _Tables:
    """Follow the accounts that have clients. Needs a user of the system account."""

    def table(sort: str) -> tuple[list[Row], tuple[Column, ...]]:
        rows = _by_account(_statistics_of_accounts(client))
        rows.sort(key=lambda row: row[_ACCOUNT_BY[sort]], reverse=True)
        return rows, (
            Column("Account", "account"),
            Column("Servers", "servers", number),
            Column("Connections", "conns", number),
            Column("Leaf nodes", "leafnodes", number),
            Column("Subscriptions", "num_subscriptions", number),
            Column("Slow", "slow_consumers", number),
            Column("Sent", "sent_bytes", size),
            Column("Received", "received_bytes", size),
        )

    return table


def _statistics_of_accounts(client: Client) -> list[Row]:
    """The current figures of all accounts on all servers."""
    found: list[Row] = []
    count = Live(client, Where()).expected()
    for answer in gather(client, "$SYS.REQ.ACCOUNT.PING.STATZ", {}, count):
        found += answer.data.get("account_statz") or ()
    return found


def _by_account(found: list[Row]) -> list[Row]:
    sums: dict[str, dict[str, Any]] = {}
    for each in found:
        name = str(each.get("acc", ""))
        row = sums.setdefault(
            name, {"account": name, "servers": 0, **dict.fromkeys(_ACCOUNT_BY.values(), 0)}
        )
        row["servers"] += 1
        for field_ in ("conns", "leafnodes", "num_subscriptions", "slow_consumers"):
            row[field_] += each.get(field_) or 0
        row["sent_bytes"] += (each.get("sent") or {}).get("bytes") or 0
        row["received_bytes"] += (each.get("received") or {}).get("bytes") or 0
    return list(sums.values())
