"""/raftz: the groups of a cluster; a server alone has none, and says so."""

from typing import Any

import msgspec

from penstock.server.http import Answer, text_answer
from penstock.server.monitor.facts import Facts
from penstock.server.monitor.query import Query


class Options(msgspec.Struct):
    """Of which account and group."""

    account: str = ""
    group: str = ""


def report(facts: Facts, options: Options) -> dict[str, Any]:
    """None."""
    return {}


def answer(facts: Facts, query: Query) -> Answer:
    """404."""
    return text_answer(404, "No Raft nodes registered")
