"""/leafz: the connections to leaf nodes, and as a leaf node to others."""

from typing import Any

import msgspec

from penstock.api.times import format_duration, format_time
from penstock.core.hub import Connection
from penstock.server.monitor.facts import Facts, account_name, is_leaf, party_of
from penstock.server.monitor.form import present, text
from penstock.server.monitor.query import Query


class Options(msgspec.Struct):
    """Of which account, and whether subscriptions are shown."""

    subscriptions: bool = False
    account: str = ""


def from_query(query: Query) -> Options:
    """QueryError."""
    return Options(subscriptions=query.flag("subs"), account=query.text("acc"))


def report(facts: Facts, options: Options) -> dict[str, Any]:
    """A row for each."""
    rows = [
        _row(connection, options.subscriptions)
        for connection in leaf_connections(facts)
        if options.account in ("", account_name(party_of(connection)))
    ]
    return {
        "server_id": facts.server_id,
        "now": format_time(facts.now_ns),
        "leafnodes": len(rows),
        "leafs": rows,
    }


def leaf_connections(facts: Facts) -> list[Connection]:
    """The connections that are leaf nodes."""
    return [
        each
        for each in facts.hub.all_connections()
        if is_leaf(party_of(each)) and getattr(party_of(each), "joined", True)
    ]


def _row(connection: Connection, subscriptions: bool) -> dict[str, Any]:
    client = party_of(connection)
    row: dict[str, Any] = {
        "id": connection.id,
        "name": getattr(client, "name", ""),
        "is_spoke": bool(getattr(client, "is_spoke", False)),
    }
    row |= present(is_isolated=getattr(client, "is_isolated", False))
    row |= {
        "account": account_name(client),
        "ip": getattr(client, "host", ""),
        "port": getattr(client, "port", 0),
        "rtt": format_duration(connection.rtt_ns),
        "in_msgs": connection.in_msgs,
        "out_msgs": connection.out_msgs,
        "in_bytes": connection.in_bytes,
        "out_bytes": connection.out_bytes,
        "subscriptions": connection.subscription_count(),
    }
    if subscriptions:
        row |= present(subscriptions_list=[text(s.subject) for s in connection.all_subscriptions()])
    return row | present(compression=getattr(client, "compression", ""))
