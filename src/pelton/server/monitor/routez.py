"""/routez: the routes of a cluster; a single server has none."""

from typing import Any

import msgspec

from pelton.api.times import format_time
from pelton.server.monitor.query import Query
from pelton.server.monitor.server_state import ServerState


class Options(msgspec.Struct):
    """Whether subscriptions are shown."""

    subscriptions: bool = False
    subscriptions_detail: bool = False


def from_query(query: Query) -> Options:
    """Parse the query. Raises QueryError."""
    subs, detail = query.subscriptions()
    return Options(subscriptions=subs, subscriptions_detail=detail)


def report(server_state: ServerState, options: Options) -> dict[str, Any]:
    """A report without routes."""
    return {
        "server_id": server_state.server_id,
        "server_name": server_state.server_name,
        "now": format_time(server_state.now_ns),
        "num_routes": 0,
        "routes": [],
    }
