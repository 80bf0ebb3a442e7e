"""/accstatz: the traffic of each account."""

from collections.abc import Iterable
from typing import Any

import msgspec

from pelton.api.times import format_time
from pelton.core.broker.reactor import Connection
from pelton.server.accounts.registry import ServerAccount
from pelton.server.monitor.query import Query
from pelton.server.monitor.server_state import (
    ServerState,
    account_of,
    leaf_of,
    tag_of,
)
from pelton.server.monitor.slices import Pace, Slices


class Options(msgspec.Struct):
    """The accounts (none: all), and whether to include those without connections."""

    accounts: list[str] = []
    include_unused: bool = False


def from_query(query: Query) -> Options:
    """Parse the query. Raises QueryError."""
    return Options(include_unused=query.flag("unused"))


def report(server_state: ServerState, options: Options) -> Slices[dict[str, Any]]:
    """One row for each account with connections; with `include_unused`, for every account."""
    by_account = connections_by_account(server_state)
    yield
    pace, rows = Pace(), []
    wanted = frozenset(options.accounts)
    for account in server_state.accounts():
        if wanted and account.name not in wanted:
            continue
        connections = by_account.get(account.name, [])
        if options.include_unused or connections:
            rows.append(statistics(server_state, account, connections))
            if pace.over(10 + len(connections)):
                yield
    return {
        "server_id": server_state.server_id,
        "now": format_time(server_state.now_ns),
        "account_statz": rows,
    }


def connections_by_account(server_state: ServerState) -> dict[str, list[Connection]]:
    """The open connections, for each account that has some."""
    found: dict[str, list[Connection]] = {}
    for connection in server_state.reactor.all_connections():
        found.setdefault(account_of(connection), []).append(connection)
    return found


def statistics(
    server_state: ServerState, account: ServerAccount, connections: Iterable[Connection]
) -> dict[str, Any]:
    """One account: its open connections, and its traffic including closed connections."""
    gone = server_state.clients.closed_totals(account.name)
    sent, received = [gone.out_msgs, gone.out_bytes], [gone.in_msgs, gone.in_bytes]
    leafs_sent, leafs_received = [0, 0], [0, 0]
    clients = leafs = 0
    for each in connections:
        if leaf_of(each) is not None:
            leafs += 1
            _add(leafs_sent, each.out_msgs, each.out_bytes)
            _add(leafs_received, each.in_msgs, each.in_bytes)
        else:
            clients += 1
        _add(sent, each.out_msgs, each.out_bytes)
        _add(received, each.in_msgs, each.in_bytes)
    return {
        "acc": account.name,
        "name": tag_of(account),
        "conns": clients,
        "leafnodes": leafs,
        "total_conns": clients + leafs,
        "num_subscriptions": account.router.subscription_count(),
        "sent": _traffic(sent, leafs_sent),
        "received": _traffic(received, leafs_received),
        "slow_consumers": gone.slow_consumers,
    }


def _add(sums: list[int], msgs: int, size: int) -> None:
    sums[0] += msgs
    sums[1] += size


def _traffic(whole: list[int], leafs: list[int]) -> dict[str, Any]:
    none = {"msgs": 0, "bytes": 0}
    return {
        "msgs": whole[0],
        "bytes": whole[1],
        "gateways": none,
        "routes": none,
        "leafs": {"msgs": leafs[0], "bytes": leafs[1]},
    }
