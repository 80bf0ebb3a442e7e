"""/routez: the routes of a cluster; a server alone has none."""

from typing import Any

import msgspec

from penstock.api.times import format_time
from penstock.server.monitor.facts import Facts
from penstock.server.monitor.query import Query


class Options(msgspec.Struct):
    """Whether subscriptions are shown."""

    subscriptions: bool = False
    subscriptions_detail: bool = False


def from_query(query: Query) -> Options:
    """QueryError."""
    subs, detail = query.subscriptions()
    return Options(subscriptions=subs, subscriptions_detail=detail)


def report(facts: Facts, options: Options) -> dict[str, Any]:
    """An empty list."""
    return {
        "server_id": facts.server_id,
        "server_name": facts.server_name,
        "now": format_time(facts.now_ns),
        "num_routes": 0,
        "routes": [],
    }
