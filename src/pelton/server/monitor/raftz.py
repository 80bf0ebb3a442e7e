"""/raftz: the Raft groups of a cluster; a single server has none."""

from typing import Any

import msgspec

from pelton.server.http import Answer, text_answer
from pelton.server.monitor.query import Query
from pelton.server.monitor.server_state import ServerState


class Options(msgspec.Struct):
    """Filter by account and group."""

    account: str = ""
    group: str = ""


def report(server_state: ServerState, options: Options) -> dict[str, Any]:
    """A report without groups."""
    return {}


def answer(server_state: ServerState, query: Query) -> Answer:
    """Status 404."""
    return text_answer(404, "No Raft nodes registered")
