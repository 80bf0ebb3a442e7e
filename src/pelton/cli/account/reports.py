"""``pelton account report``: the connections and the traffic of one's own account, without a system account."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pelton.cli.output import number, size
from pelton.cli.server.asking import Answer, gather, sound
from pelton.cli.server.reporting import Column, Report, Table, show_report, total
from pelton.cli.server.reports import connection_report
from pelton.cli.server.requests import STATES
from pelton.cli.session import Session, command
from pelton.cli.values import Word

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pelton.cli.server.reporting import Row
    from pelton.client.sync import Client

_SORTS = ("subs", "cid", "uptime", "in-bytes", "out-bytes", "in-msgs", "out-msgs")
_PAGE = 1024


def _answers(client: Client, page: str, wanted: Mapping[str, Any]) -> list[Answer]:
    return sound(list(gather(client, f"$SYS.REQ.ACCOUNT.PING.{page}", wanted)))


@click.command()
@click.option(
    "--sort",
    type=Word(_SORTS),
    default="subs",
    show_default=True,
    help="Order of the rows.",
)
@click.option("--top", default=1000, show_default=True, help="Only the last so many rows.")
@click.option("--subject", default="", help="Only those that listen to this subject.")
@click.option("--username", default="", help="Only those of this user.")
@click.option("-R", "--reverse", is_flag=True, help="The other way round.")
@click.option("--state", type=Word(list(STATES)), default="open", show_default=True, help="State.")
@click.option("--closed-reason", default="", help="Only those that were closed for this reason.")
@command
@click.pass_obj
def connections(
    session: Session,
    sort: str,
    top: int,
    subject: str,
    username: str,
    reverse: bool,
    state: str,
    closed_reason: str,
) -> int:
    """List the connections of the account on all servers. The largest value is the last row."""
    wanted = {
        "auth": True,
        "state": STATES[state],
        "user": username,
        "filter_subject": subject,
        "limit": _PAGE,
    }
    found: list[tuple[Answer, Row]] = []
    with session.connect() as client:
        offset = 0
        while True:
            answers = _answers(client, "CONNZ", {**wanted, "offset": offset})
            for answer in answers:
                found += [(answer, each) for each in answer.data.get("connections") or ()]
            offset += _PAGE
            if all(int(answer.data.get("total") or 0) <= offset for answer in answers):
                break
    if closed_reason:
        reason = closed_reason.lower()
        found = [each for each in found if reason in str(each[1].get("reason", "")).lower()]
    made = connection_report(found, top, sort, reverse, reasons=state != "open")
    return show_report(session, made)


@click.command()
@command
@click.pass_obj
def statistics(session: Session) -> int:
    """Show the connections and the traffic of the account on each server."""
    with session.connect() as client:
        answers = _answers(client, "STATZ", {})
    rows: list[dict[str, Any]] = []
    for answer in answers:
        for each in answer.data.get("account_statz") or ():
            sent, received = each.get("sent") or {}, each.get("received") or {}
            rows.append(
                {
                    "server": answer.name,
                    "cluster": answer.cluster,
                    "version": str(answer.server.get("ver", "")),
                    "tags": ", ".join(answer.server.get("tags") or ()),
                    "connections": each.get("conns") or 0,
                    "subscriptions": each.get("num_subscriptions") or 0,
                    "leafnodes": each.get("leafnodes") or 0,
                    "sent_bytes": sent.get("bytes") or 0,
                    "sent_msgs": sent.get("msgs") or 0,
                    "received_bytes": received.get("bytes") or 0,
                    "received_msgs": received.get("msgs") or 0,
                    "slow_consumers": each.get("slow_consumers") or 0,
                }
            )
    rows.sort(key=lambda row: str(row["server"]))
    columns = (
        Column("Server", "server"),
        Column("Cluster", "cluster"),
        Column("Version", "version"),
        Column("Tags", "tags"),
        Column("Connections", "connections", number),
        Column("Subscriptions", "subscriptions", number),
        Column("Leaf nodes", "leafnodes", number),
        Column("Sent bytes", "sent_bytes", size),
        Column("Sent msgs", "sent_msgs", number),
        Column("Received bytes", "received_bytes", size),
        Column("Received msgs", "received_msgs", number),
        Column("Slow", "slow_consumers", number),
    )
    numbers = [column.field for column in columns if column.numeric]
    sums = total(rows, *numbers, server="Total") if len(rows) > 1 else None
    return show_report(session, Report([Table(columns, rows, sums)], rows))
