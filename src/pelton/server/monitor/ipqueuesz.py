"""/ipqueuesz: queues between parts of the server; this server has none."""

from typing import Any

import msgspec

from pelton.server.monitor.query import Query
from pelton.server.monitor.server_state import ServerState

INDENT = 3
_QUEUES = ("JetStream API queue", "System recvQ", "System sendQ")


class Options(msgspec.Struct):
    """All queues, or non-empty ones only; `filter`: part of the name."""

    all: bool = False
    filter: str = ""


def from_query(query: Query) -> Options:
    """Parse the query. Raises QueryError."""
    return Options(all=query.flag("all"), filter=query.text("queues"))


def report(server_state: ServerState, options: Options) -> dict[str, Any]:
    """The queues by name."""
    if not options.all:
        return {}
    return {name: {"pending": 0} for name in _QUEUES if options.filter in name}
