"""``pelton server report``: gateways, leafnodes, routes, downgrade."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pelton.api.streams import REQUIRED_LEVEL_KEY
from pelton.cli.output import number, size
from pelton.cli.server.asking import sound
from pelton.cli.server.reporting import GLOBAL, REVERSE, Column, Report, Row, Table, report, total
from pelton.cli.values import Whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pelton.cli.server.asking import Source

"""The metadata in which a server says which API level a stream or consumer needs."""

_LINK_BY: dict[str, Callable[[Row], Any]] = {
    "server": lambda row: row["server"],
    "name": lambda row: row["name"],
    "account": lambda row: row["account"],
    "cluster": lambda row: row.get("cluster", ""),
    "subs": lambda row: row["subscriptions"],
    "in-bytes": lambda row: row["in_bytes"],
    "out-bytes": lambda row: row["out_bytes"],
    "in-msgs": lambda row: row["in_msgs"],
    "out-msgs": lambda row: row["out_msgs"],
}
_LINK = ("in_msgs", "out_msgs", "in_bytes", "out_bytes", "subscriptions")
_LINK_COLUMNS = (
    Column("In msgs", "in_msgs", number),
    Column("Out msgs", "out_msgs", number),
    Column("In bytes", "in_bytes", size),
    Column("Out bytes", "out_bytes", size),
    Column("Subs", "subscriptions", number),
)


def _link(server: str, cluster: str, name: str, data: Row) -> dict[str, Any]:
    return {
        "server": server,
        "cluster": cluster,
        "name": name,
        "account": data.get("account") or "",
        "address": f"{data.get('ip', '')}:{data.get('port', 0)}",
        "rtt": data.get("rtt") or "",
        "uptime": data.get("uptime") or "",
        **{field: data.get(field) or 0 for field in _LINK},
    }


def _yes(value: bool) -> str:
    return "yes" if value else ""


@report("server", "name", "account", "subs", "in-bytes", "out-bytes", "in-msgs", "out-msgs")
@click.option("--account", default="", help="Only leaf nodes of this account.")
def leafnodes(servers: Source, account: str, sort: str, reverse: bool) -> Report:
    """List the leaf nodes of servers; LIMIT is how many servers to wait for."""
    rows = []
    for answer in sound(servers.ask("LEAFZ", {"account": account})):
        for each in answer.data.get("leafs") or ():
            row = _link(answer.name, answer.cluster, each.get("name") or "", each)
            row |= {
                "compression": each.get("compression") or "",
                "spoke": bool(each.get("is_spoke")),
            }
            row["account"] = row["account"] or GLOBAL
            if account in ("", row["account"]):
                rows.append(row)
    rows.sort(key=_LINK_BY[sort], reverse=reverse)
    columns = (
        Column("Server", "server"),
        Column("Name", "name"),
        Column("Account", "account"),
        Column("Address", "address"),
        Column("RTT", "rtt"),
        *_LINK_COLUMNS,
        Column("Compression", "compression"),
        Column("Spoke", "spoke", _yes),
    )
    return Report([Table(columns, rows)], rows)


@report("server", "cluster", "name", "account", "subs", "in-bytes", "out-bytes")
def routes(servers: Source, sort: str, reverse: bool) -> Report:
    """List the routes inside of clusters; LIMIT is how many servers to wait for."""
    rows = []
    for answer in sound(servers.ask("ROUTEZ")):
        for each in answer.data.get("routes") or ():
            name = each.get("remote_name") or each.get("remote_id") or ""
            rows.append({**_link(answer.name, answer.cluster, name, each), "rid": each.get("rid")})
    rows.sort(
        key=lambda row: (_LINK_BY[sort](row), row["server"], row["name"], row["account"]),
        reverse=reverse,
    )
    columns = (
        Column("Server", "server"),
        Column("Cluster", "cluster"),
        Column("Name", "name"),
        Column("Account", "account"),
        Column("Address", "address"),
        Column("ID", "rid"),
        Column("Uptime", "uptime"),
        Column("RTT", "rtt"),
        *_LINK_COLUMNS,
    )
    sums = total(rows, *_LINK, server="Total")
    return Report([Table(columns, rows, sums if len(rows) > 1 else None)], rows)


@report("cluster", "server")
@click.option("--filter-name", default="", help="Only gateways to this cluster.")
def gateways(servers: Source, filter_name: str, sort: str, reverse: bool) -> Report:
    """List the gateways between clusters; LIMIT is how many servers to wait for."""
    rows: list[dict[str, Any]] = []
    for answer in sound(servers.ask("GATEWAYZ", {"name": filter_name, "accounts": True})):
        for kind, name, each in _gateways(answer.data):
            found = each.get("connection") or {}
            row = _link(answer.name, answer.cluster, name, found)
            row |= {
                "kind": kind,
                "cid": found.get("cid"),
                "accounts": len(each.get("accounts") or ()),
            }
            rows.append(row)
    first, second = ("cluster", "server") if sort == "cluster" else ("server", "cluster")
    rows.sort(key=lambda row: (row[first], row[second], row["kind"], row["name"]), reverse=reverse)
    columns = (
        Column("Server", "server"),
        Column("Cluster", "cluster"),
        Column("Kind", "kind"),
        Column("Gateway", "name"),
        Column("Address", "address"),
        Column("ID", "cid"),
        Column("Uptime", "uptime"),
        Column("RTT", "rtt"),
        Column("In bytes", "in_bytes", size),
        Column("Out bytes", "out_bytes", size),
        Column("Accounts", "accounts", number),
    )
    sums = total(rows, "in_bytes", "out_bytes", server="Total")
    return Report([Table(columns, rows, sums if len(rows) > 1 else None)], rows)


def _gateways(page: Row) -> Iterator[tuple[str, str, Row]]:
    for name, each in sorted((page.get("outbound_gateways") or {}).items()):
        yield "outbound", name, each
    for name, many in sorted((page.get("inbound_gateways") or {}).items()):
        for each in many:
            yield "inbound", name, each


@report()
@click.argument("level", type=Whole(0))
@click.option("--all", "all_", is_flag=True, help="Also consumers of streams that are in the list.")
@REVERSE
def downgrade(servers: Source, level: int, all_: bool, reverse: bool) -> Report:
    """List the streams and consumers that a server with the API LEVEL could not load.

    Ends with 1 if there are any.
    """
    rows: list[dict[str, Any]] = []
    wanted = {"accounts": True, "streams": True, "consumer": True, "config": True, "limit": 10_000}
    for answer in sound(servers.ask("JSZ", wanted)):
        for account in answer.data.get("account_details") or ():
            for stream in account.get("stream_detail") or ():
                rows += _too_new(account.get("name", ""), stream, level, all_)
    unique = {(row["account"], row["stream"], row["consumer"]): row for row in rows}
    found = [unique[key] for key in sorted(unique, reverse=reverse)]
    columns = tuple(Column(name.title(), name) for name in ("account", "stream", "consumer"))
    shown = (*columns, Column("API level", "api_level", number))
    return Report([Table(shown, found)], found, 1 if found else 0)


def _too_new(account: str, stream: Row, level: int, all_: bool) -> Iterator[dict[str, Any]]:
    name = stream.get("name", "")
    needed = _level(stream.get("config") or {})
    if needed > level:
        yield {"account": account, "stream": name, "consumer": "", "api_level": needed}
        if not all_:
            return
    for each in stream.get("consumer_detail") or ():
        wanted = _level(each.get("config") or {})
        if wanted > level:
            yield {
                "account": account,
                "stream": name,
                "consumer": each.get("name", ""),
                "api_level": wanted,
            }


def _level(config: Row) -> int:
    text = str((config.get("metadata") or {}).get(REQUIRED_LEVEL_KEY) or "0")
    return int(text) if text.isdigit() else 0
