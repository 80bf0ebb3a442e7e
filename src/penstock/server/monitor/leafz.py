"""/leafz: the connections to leaf nodes, and as a leaf node to others."""

from typing import Any

import msgspec

from penstock.api.times import format_duration, format_time
from penstock.core.broker.reactor import Connection
from penstock.server.leaf.peer import LeafPeer
from penstock.server.monitor.facts import Facts, leaf_of
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
        _row(connection, peer, options.subscriptions)
        for connection, peer in joined_leafs(facts)
        if options.account in ("", peer.account_name)
    ]
    return {
        "server_id": facts.server_id,
        "now": format_time(facts.now_ns),
        "leafnodes": len(rows),
        "leafs": rows,
    }


def joined_leafs(facts: Facts) -> list[tuple[Connection, LeafPeer]]:
    """The connections to leaf nodes over which messages flow, with what is kept of them."""
    found = ((each, leaf_of(each)) for each in facts.reactor.all_connections())
    return [(each, peer) for each, peer in found if peer is not None and peer.joined]


def _row(connection: Connection, peer: LeafPeer, subscriptions: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": connection.id,
        "name": peer.name,
        "is_spoke": peer.is_spoke,
    }
    row |= present(is_isolated=peer.is_isolated)
    row |= {
        "account": peer.account_name,
        "ip": peer.host,
        "port": peer.port,
        "rtt": format_duration(connection.rtt_ns),
        "in_msgs": connection.in_msgs,
        "out_msgs": connection.out_msgs,
        "in_bytes": connection.in_bytes,
        "out_bytes": connection.out_bytes,
        "subscriptions": connection.subscription_count(),
    }
    if subscriptions:
        row |= present(subscriptions_list=[text(s.subject) for s in connection.all_subscriptions()])
    return row | present(compression=peer.compression)
