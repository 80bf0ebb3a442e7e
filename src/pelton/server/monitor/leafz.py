"""/leafz: the leaf node connections, in both directions."""

from typing import Any

import msgspec

from pelton.api.times import format_duration, format_time
from pelton.core.broker.reactor import Connection
from pelton.server.leaf.node import LeafNode
from pelton.server.monitor.encoding import present, text
from pelton.server.monitor.query import Query
from pelton.server.monitor.server_state import ServerState, leaf_of
from pelton.server.monitor.slices import Pace, Slices, each_of


class Options(msgspec.Struct):
    """Filter by account, and whether subscriptions are shown."""

    subscriptions: bool = False
    account: str = ""


def from_query(query: Query) -> Options:
    """Parse the query. Raises QueryError."""
    return Options(subscriptions=query.flag("subs"), account=query.text("acc"))


def report(server_state: ServerState, options: Options) -> Slices[dict[str, Any]]:
    """One row for each connection."""
    pace, rows = Pace(), []
    for connection, node in joined_leafs(server_state):
        if options.account in ("", node.account_name) and not connection.closed:
            rows.append((yield from _row(connection, node, options.subscriptions, pace)))
        if pace.over(10):
            yield
    return {
        "server_id": server_state.server_id,
        "now": format_time(server_state.now_ns),
        "leafnodes": len(rows),
        "leafs": rows,
    }


def joined_leafs(server_state: ServerState) -> list[tuple[Connection, LeafNode]]:
    """The joined leaf node connections, with their LeafNode."""
    found = ((each, leaf_of(each)) for each in server_state.reactor.all_connections())
    return [(each, node) for each, node in found if node is not None and node.joined]


def _row(
    connection: Connection, node: LeafNode, subscriptions: bool, pace: Pace
) -> Slices[dict[str, Any]]:
    row: dict[str, Any] = {
        "id": connection.id,
        "name": node.name,
        "is_spoke": node.is_spoke,
    }
    row |= present(is_isolated=node.is_isolated)
    row |= {
        "account": node.account_name,
        "ip": node.host,
        "port": node.port,
        "rtt": format_duration(connection.rtt_ns),
        "in_msgs": connection.in_msgs,
        "out_msgs": connection.out_msgs,
        "in_bytes": connection.in_bytes,
        "out_bytes": connection.out_bytes,
        "subscriptions": connection.subscription_count(),
    }
    if subscriptions:
        listed = connection.all_subscriptions()
        row |= present(
            subscriptions_list=(
                yield from each_of(listed, lambda each: text(each.subject), pace, 1)
            )
        )
    return row | present(compression=node.compression)
