"""``pelton server report``: accounts, connections, cpu, mem, health, jetstream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pelton.cli.output import number, size
from pelton.cli.server.asking import sound
from pelton.cli.server.reporting import (
    COMPACT,
    REVERSE,
    Column,
    Report,
    Row,
    Table,
    compacted,
    connections,
    report,
    total,
)
from pelton.cli.server.requests import STATES, health_request, health_scope
from pelton.cli.values import Word

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pelton.cli.server.asking import Answer, Source

_TRAFFIC = ("in_msgs", "out_msgs", "in_bytes", "out_bytes", "subscriptions")
_TRAFFIC_COLUMNS = (
    Column("In msgs", "in_msgs", number),
    Column("Out msgs", "out_msgs", number),
    Column("In bytes", "in_bytes", size),
    Column("Out bytes", "out_bytes", size),
    Column("Subs", "subscriptions", number),
)
_BY: dict[str, Callable[[Row], Any]] = {
    "subs": lambda row: row.get("subscriptions", 0),
    "conns": lambda row: row.get("connections", 0),
    "cid": lambda row: row.get("cid", 0),
    "in-bytes": lambda row: row.get("in_bytes", 0),
    "out-bytes": lambda row: row.get("out_bytes", 0),
    "in-msgs": lambda row: row.get("in_msgs", 0),
    "out-msgs": lambda row: row.get("out_msgs", 0),
}
_TOP = click.option("--top", default=1000, show_default=True, help="Only the last so many rows.")


@report("subs", "conns", "in-bytes", "out-bytes", "in-msgs", "out-msgs")
@click.argument("account", required=False)
@_TOP
def accounts(servers: Source, account: str | None, top: int, sort: str, reverse: bool) -> Report:
    """Compare the accounts: connections and traffic; or list the connections of ACCOUNT.

    LIMIT is how many servers to wait for. The busiest account is the last row.
    """
    if account is not None:
        order = sort if sort != "conns" else "subs"
        return connection_report(connections(servers, _wanted(account)), top, order, reverse)
    found: dict[str, list[Row]] = {}
    for _, each in connections(servers, {"auth": True}):
        found.setdefault(each["account"], []).append(each)
    rows = [
        total(each, *_TRAFFIC, account=name, connections=len(each)) for name, each in found.items()
    ]
    rows.sort(key=lambda row: (_BY[sort](row), row["account"]), reverse=reverse)
    rows = _best(rows, top, reverse)
    columns = (
        Column("Account", "account"),
        Column("Connections", "connections", number),
        *_TRAFFIC_COLUMNS,
    )
    sums = total(rows, "connections", *_TRAFFIC, account="Total")
    return Report([Table(columns, rows, sums if len(rows) > 1 else None)], rows)


@report("subs", "cid", "uptime", "in-bytes", "out-bytes", "in-msgs", "out-msgs")
@click.option("--account", default="", help="Only connections of this account.")
@_TOP
@click.option("--subject", default="", help="Only those that listen to this subject.")
@click.option("--username", default="", help="Only those of this user.")
@click.option("--state", type=Word(list(STATES)), default="open", show_default=True, help="State.")
@click.option("--closed-reason", default="", help="Only those that were closed for this reason.")
@click.option(
    "--filter", "expression", metavar="EXPR", help="Only those for which this expression is true."
)
def connections_(
    servers: Source,
    account: str,
    top: int,
    subject: str,
    username: str,
    state: str,
    closed_reason: str,
    expression: str | None,
    sort: str,
    reverse: bool,
) -> Report:
    """List the connections of all servers; LIMIT is how many servers to wait for.

    --filter takes the language Expr, with conn and server as --json has them:
    'conn.lang == "python" and conn.pending_bytes > 1024', 'server.name startsWith "east"'.
    """
    if closed_reason and expression:
        raise click.UsageError("--closed-reason and --filter exclude each other")
    condition = _condition(expression)
    wanted = {**_wanted(account, subject, username), "state": STATES[state]}
    found = connections(servers, wanted)
    if closed_reason:
        reason = closed_reason.lower()
        found = [each for each in found if reason in str(each[1].get("reason", "")).lower()]
    if condition is not None:
        found = [each for each in found if condition(*each)]
    return connection_report(found, top, sort, reverse, reasons=state != "open")


_CONNECTION_FIELDS: dict[str, Any] = {
    **dict.fromkeys(("pending_bytes", "in_msgs", "out_msgs", "in_bytes", "out_bytes"), 0),
    **dict.fromkeys(("subscriptions", "cid", "port"), 0),
    **dict.fromkeys(("name", "lang", "version", "reason", "account", "authorized_user"), ""),
    **dict.fromkeys(("kind", "type", "ip", "rtt", "uptime", "idle", "start", "last_activity"), ""),
    **dict.fromkeys(("tls_version", "tls_cipher_suite", "name_tag", "mqtt_client", "stop"), ""),
    "tags": [],
}
"""Fields that a server leaves out when they are empty; an expression has them all."""


def _condition(expression: str | None) -> Callable[[Answer, Row], bool] | None:
    """The condition over a server and a connection; UsageError."""
    if expression is None:
        return None
    import datetime

    from pelton.cli.expressions import given_condition
    from pelton.cli.expressions.go_names import with_go_names

    names = ("conn", "server", "Conn", "Server", "conns", "Conns")
    condition = given_condition(expression, names)
    now = datetime.datetime.now(datetime.UTC)

    def holds(answer: Answer, connection: Row) -> bool:
        values = {"conn": {**_CONNECTION_FIELDS, **connection}, "server": dict(answer.server)}
        values["conns"] = values["conn"]  # the nats command has these names, too
        upper = {name.title(): with_go_names(value) for name, value in values.items()}
        return condition.holds({**values, **upper}, now)

    return holds


def _wanted(account: str, subject: str = "", user: str = "") -> dict[str, Any]:
    if subject and not account:
        raise click.UsageError("--subject needs --account")
    return {"auth": True, "acc": account, "filter_subject": subject, "user": user}


def connection_report(
    found: Sequence[tuple[Answer, Row]],
    top: int,
    sort: str,
    reverse: bool,
    *,
    reasons: bool = False,
) -> Report:
    """Connections and how many each server has."""
    data = [{**each, "server": dict(answer.server)} for answer, each in found]
    if sort == "uptime":
        data.sort(key=lambda row: str(row.get("start", "")), reverse=not reverse)
    else:
        data.sort(key=lambda row: (_BY[sort](row), row.get("cid", 0)), reverse=reverse)
    shown = _best(data, top, reverse)
    columns = [
        Column("CID", "cid"),
        Column("Name", "name"),
        Column("Server", "server", lambda server: str(server.get("name", ""))),
        Column("Cluster", "server", lambda server: str(server.get("cluster") or "")),
        Column("Address", "address"),
        Column("Account", "account"),
        Column("Uptime", "uptime"),
        *_TRAFFIC_COLUMNS,
    ]
    if reasons:
        columns.append(Column("Reason", "reason"))
    rows = [
        {
            **row,
            "cid": row["cid"] if row.get("kind", "Client") == "Client" else f"L{row['cid']}",
            "address": f"{row.get('ip', '')}:{row.get('port', 0)}",
        }
        for row in shown
    ]
    sums = total(
        data, *_TRAFFIC, cid="", name=f"Total of {number(len(data))} connections", server={}
    )
    counts: dict[tuple[str, str], int] = {}
    for answer, _ in found:
        key = (answer.name, answer.cluster)
        counts[key] = counts.get(key, 0) + 1
    per_server = [
        {"server": name, "cluster": cluster, "connections": count}
        for (name, cluster), count in sorted(counts.items(), key=lambda each: each[1])
    ]
    tables = [
        Table(columns, rows, sums if len(data) > 1 else None),
        Table(
            (
                Column("Server", "server"),
                Column("Cluster", "cluster"),
                Column("Connections", "connections", number),
            ),
            per_server,
        ),
    ]
    return Report(tables if per_server else tables[:1], data)


def _best(rows: list[dict[str, Any]], top: int, reverse: bool) -> list[dict[str, Any]]:
    """The rows with the largest values."""
    if top <= 0 or top >= len(rows):
        return rows
    return rows[:top] if reverse else rows[-top:]


@report()
@REVERSE
def cpu(servers: Source, reverse: bool) -> Report:
    """Compare how busy the processors of servers are; LIMIT is how many servers to wait for."""
    return _usage(servers, "cpu", "CPU", lambda value: f"{value:.0f} %", reverse)


@report()
@REVERSE
def mem(servers: Source, reverse: bool) -> Report:
    """Compare how much memory servers use; LIMIT is how many servers to wait for."""
    return _usage(servers, "mem", "Memory", size, reverse)


def _usage(
    servers: Source, name: str, title: str, show: Callable[[Any], str], reverse: bool
) -> Report:
    usage = {each.name: each.data.get(name) or 0 for each in sound(servers.ask("VARZ"))}
    top = max(usage.values(), default=0) or 1
    width = 30
    rows = [
        {"server": server, "value": value, "bar": "█" * round(value / top * width)}
        for server, value in sorted(usage.items(), key=lambda each: each[1], reverse=reverse)
    ]
    columns = (Column("Server", "server"), Column(title, "value", show), Column("", "bar"))
    return Report([Table(columns, rows)], usage)


@report()
@health_scope
@click.option("--account", default="", help="Look at this account only.")
@click.option("--stream", default="", help="Look at this stream only.")
@click.option("--consumer", default="", help="Look at this consumer only.")
@REVERSE
def health(
    servers: Source,
    js_enabled: bool,
    server_only: bool,
    account: str,
    stream: str,
    consumer: str,
    reverse: bool,
) -> Report:
    """Show which servers are healthy, and the problems of the others.

    Ends with 1 if one is not healthy. LIMIT is how many servers to wait for.
    """
    wanted = health_request(js_enabled, server_only, account, stream, consumer)
    answers = sound(servers.ask("HEALTHZ", wanted))
    rows: list[Row] = []
    bad = 0
    for each in sorted(answers, key=lambda each: each.name, reverse=reverse):
        code = int(each.data.get("status_code") or 200)
        bad += code != 200
        rows.append(
            {
                "server": each.name,
                "cluster": each.cluster,
                "domain": each.server.get("domain") or "",
                "status": f"{each.data.get('status', '')} ({code})",
            }
        )
        found = each.data.get("errors") or ()
        if not found and each.data.get("error"):
            found = [{"type": "", "error": each.data["error"]}]
        rows += [{"type": what.get("type", ""), "error": what.get("error", "")} for what in found]
    columns = tuple(
        Column(name.title(), name)
        for name in ("server", "cluster", "domain", "status", "type", "error")
    )
    data = [{"server": dict(each.server), **each.data} for each in answers]
    return Report([Table(columns, rows)], data, 1 if bad else 0)


_JS_BY: dict[str, Callable[[Row], Any]] = {
    "cluster": lambda row: row["cluster"],
    "name": lambda row: row["server"],
    "streams": lambda row: row["streams"],
    "consumers": lambda row: row["consumers"],
    "msgs": lambda row: row["messages"],
    "mbytes": lambda row: row["bytes"],
    "bytes": lambda row: row["bytes"],
    "mem": lambda row: row["memory"],
    "file": lambda row: row["storage"],
    "store": lambda row: row["storage"],
    "api": lambda row: row["api"],
    "err": lambda row: row["errors"],
}


@report(*_JS_BY)
@click.option("--account", default="", help="The streams and usage of this account.")
@click.option("-l", "--leaders", is_flag=True, help="Also how many leaders each server has.")
@COMPACT
def jetstream(
    servers: Source, account: str, leaders: bool, compact: bool, sort: str, reverse: bool
) -> Report:
    """Compare the JetStream of servers; LIMIT is how many servers to wait for."""
    wanted: dict[str, Any] = {"raft": True}
    if account:
        wanted |= {"account": account, "streams": True, "consumer": True, "limit": 10_000}
    answers = [each for each in sound(servers.ask("JSZ", wanted)) if not each.data.get("disabled")]
    if not answers:
        raise click.ClickException("no server that answers has JetStream")
    rows = [_jetstream_row(each, account) for each in answers]
    names = [str(row["server"]) for row in rows]
    rows.sort(key=lambda row: (_JS_BY[sort](row), row["server"]), reverse=reverse)
    short = dict(zip(names, compacted(names), strict=True)) if compact else {}
    numbers = ("streams", "consumers", "messages", "bytes", "memory", "storage", "api", "errors")
    columns = [
        Column("Server", "server", lambda name: short.get(name, name)),
        Column("Cluster", "cluster"),
    ]
    if any(row["domain"] for row in rows):
        columns.append(Column("Domain", "domain"))
    columns += [
        Column("Streams", "streams", number),
        Column("Consumers", "consumers", number),
        Column("Messages", "messages", number),
        Column("Bytes", "bytes", size),
        Column("Memory", "memory", size),
        Column("File", "storage", size),
        Column("API Req", "api", number),
        Column("API Err", "errors", number),
        Column("Pending", "pending", number),
    ]
    sums = total(rows, *numbers, "pending", server="Total")
    tables = [Table(columns, rows, sums if len(rows) > 1 else None)]
    if peers := _meta_group(answers):
        tables.append(_peer_table(peers))
    if leaders:
        tables += _leader_tables(rows)
    return Report(tables, rows)


def _jetstream_row(answer: Answer, account: str) -> dict[str, Any]:
    data = answer.data
    detail: Row = data
    if account:
        detail = next(
            (each for each in data.get("account_details") or () if each.get("name") == account), {}
        )
    streams = detail.get("stream_detail") or () if account else ()
    states = [each.get("state") or {} for each in streams]
    counted = (
        {
            "streams": len(streams),
            "consumers": sum(each.get("consumer_count", 0) for each in states),
            "messages": sum(each.get("messages", 0) for each in states),
            "bytes": sum(each.get("bytes", 0) for each in states),
        }
        if account
        else {name: data.get(name) or 0 for name in ("streams", "consumers", "messages", "bytes")}
    )
    api = detail.get("api") or {}
    return {
        "server": answer.name,
        "cluster": answer.cluster,
        "domain": (data.get("config") or {}).get("domain") or answer.server.get("domain") or "",
        **counted,
        "memory": detail.get("memory") or 0,
        "storage": detail.get("storage") or 0,
        "api": api.get("total") or 0,
        "errors": api.get("errors") or 0,
        "pending": (data.get("meta_cluster") or {}).get("pending") or 0,
        "stream_leaders": data.get("streams_leader") or 0,
        "consumer_leaders": data.get("consumers_leader") or 0,
    }


def _meta_group(answers: Sequence[Answer]) -> list[Row]:
    """The servers of the JetStream cluster, as its leader sees them."""
    for each in answers:
        meta = each.data.get("meta_cluster") or {}
        if meta.get("leader") == each.name:
            leader = {"name": each.name, "current": True, "offline": False, "active": 0, "lag": 0}
            peers = [*(meta.get("replicas") or ()), {**leader, "peer": meta.get("peer", "")}]
            peers.sort(key=lambda peer: str(peer.get("name", "")))
            return [{**peer, "leader": peer["name"] == each.name} for peer in peers]
    return []


def _peer_table(peers: Sequence[Row]) -> Table:
    from pelton.cli.output import duration

    def yes(value: bool) -> str:
        return "yes" if value else ""

    columns = (
        Column("Server", "name"),
        Column("ID", "peer"),
        Column("Leader", "leader", yes),
        Column("Current", "current", yes),
        Column("Offline", "offline", yes),
        Column("Active", "active", duration),
        Column("Lag", "lag", number),
    )
    return Table(columns, peers, title="Servers of the JetStream cluster")


def _leader_tables(rows: Sequence[Row]) -> list[Table]:
    return [
        Table(
            (Column("Server", "server"), Column("Leaders", field, number)),
            rows,
            title=f"Leaders of {what}",
        )
        for what, field in (("streams", "stream_leaders"), ("consumers", "consumer_leaders"))
    ]
