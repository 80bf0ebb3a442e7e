"""/gatewayz: gateways to other clusters; a single server has none."""

from typing import Any

import msgspec

from pelton.api.times import format_time
from pelton.server.monitor.query import Query
from pelton.server.monitor.server_state import ServerState


class Options(msgspec.Struct):
    """Filter by gateway, and whether accounts are shown."""

    name: str = ""
    accounts: bool = False
    account_name: str = ""
    subscriptions: bool = False
    subscriptions_detail: bool = False


def from_query(query: Query) -> Options:
    """Parse the query. Raises QueryError."""
    subs, detail = query.subscriptions()
    accounts = query.flag("accs")
    return Options(
        name=query.text("gw_name"),
        accounts=accounts or bool(query.text("acc_name")),
        account_name=query.text("acc_name"),
        subscriptions=subs,
        subscriptions_detail=detail,
    )


def report(server_state: ServerState, options: Options) -> dict[str, Any]:
    """A report without gateways."""
    return {
        "server_id": server_state.server_id,
        "now": format_time(server_state.now_ns),
        "outbound_gateways": {},
        "inbound_gateways": {},
    }
