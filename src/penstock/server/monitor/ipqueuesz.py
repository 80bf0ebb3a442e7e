"""/ipqueuesz: queues between parts of the server; this server has none that a message waits in."""

from typing import Any

import msgspec

from penstock.server.monitor.query import Query
from penstock.server.monitor.server_state import ServerState

INDENT = 3
_QUEUES = ("JetStream API queue", "System recvQ", "System sendQ")


class Options(msgspec.Struct):
    """All, or those that something waits in; with names that contain `filter`."""

    all: bool = False
    filter: str = ""


def from_query(query: Query) -> Options:
    """QueryError."""
    return Options(all=query.flag("all"), filter=query.text("queues"))


def report(server_state: ServerState, options: Options) -> dict[str, Any]:
    """By name."""
    if not options.all:
        return {}
    return {name: {"pending": 0} for name in _QUEUES if options.filter in name}
