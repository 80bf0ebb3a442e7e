"""/subsz: counts of subscriptions and look-ups; with ``subs``, the subscriptions."""

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from pelton.api.times import format_time
from pelton.core.broker.router import Router
from pelton.core.protocol.subjects import literal, matches
from pelton.server.monitor.encoding import number, present, text
from pelton.server.monitor.query import Query, QueryError, page
from pelton.server.monitor.server_state import ServerState, account_of
from pelton.server.monitor.slices import Pace, Slices


class Options(msgspec.Struct):
    """`test`: only subscriptions that match this subject."""

    offset: int = 0
    limit: int = 0
    subscriptions: bool = False
    account: str = ""
    test: str = ""


class Subscribed(Protocol):
    """A subscription of an open or a closed connection."""

    @property
    def subject(self) -> bytes:
        """The subject, with wildcards."""

    @property
    def queue(self) -> bytes:
        """The queue group, or empty."""

    @property
    def sid(self) -> bytes:
        """The client's id of the subscription."""

    @property
    def delivered(self) -> int:
        """Number of delivered messages."""

    @property
    def max(self) -> int:
        """The subscription ends after this number of messages; 0: never."""


def from_query(query: Query) -> Options:
    """Parse the query. Raises QueryError."""
    return Options(
        subscriptions=query.flag("subs"),
        offset=query.number("offset"),
        limit=query.number("limit"),
        test=query.text("test"),
        account=query.text("acc"),
    )


def report(server_state: ServerState, options: Options) -> Slices[dict[str, Any]]:
    """The report. QueryError when the test subject is invalid."""
    offset, limit = page(options.offset, options.limit)
    if options.test and not literal(options.test):
        raise QueryError(f"invalid test subject, must be valid publish subject: {options.test}")
    routers = [
        each.router for each in server_state.accounts() if options.account in ("", each.name)
    ]
    body: dict[str, Any] = {
        "server_id": server_state.server_id,
        "now": format_time(server_state.now_ns),
    }
    body |= statistics(routers)
    total = 0
    rows: list[dict[str, Any]] = []
    if options.subscriptions:
        total, rows = yield from _rows(server_state, options, offset, offset + limit)
    body |= {"total": total, "offset": offset, "limit": limit}
    return body | present(subscriptions_list=rows)


def statistics(routers: Iterable[Router]) -> dict[str, Any]:
    """Look-ups of subjects in all routers."""
    count = cached = inserts = lookups = misses = longest = total = 0
    for router in routers:
        trie = router.trie
        count += router.subscription_count()
        cached += trie.cached
        inserts += trie.inserts
        lookups += trie.lookups
        misses += trie.misses
        most, sum_of = trie.fanout()
        longest = max(longest, most)
        total += sum_of
    return {
        "num_subscriptions": count,
        "num_cache": cached,
        "num_inserts": inserts,
        "num_removes": inserts - count,
        "num_matches": lookups,
        "cache_hit_rate": number((lookups - misses) / lookups if lookups else 0),
        "max_fanout": longest,
        "avg_fanout": number(total / cached if cached else 0),
    }


def _rows(
    server_state: ServerState, options: Options, begin: int, end: int
) -> Slices[tuple[int, list[dict[str, Any]]]]:
    """How many subscriptions there are, and the rows of those from `begin` to `end`."""
    pace, total = Pace(), 0
    rows: list[dict[str, Any]] = []
    for connection in server_state.reactor.all_connections():
        if pace.over():
            yield
        account = account_of(connection)
        if options.account not in ("", account):
            continue
        for each in connection.all_subscriptions():
            if pace.over():
                yield
            if options.test and not matches(options.test, each.subject):
                continue
            if begin <= total < end:
                rows.append(detail(each, connection.id, account))
                if pace.over(2):
                    yield
            total += 1
    return total, rows


def detail(each: Subscribed, cid: int, account: str) -> dict[str, Any]:
    """One subscription; with the account, if its name is given."""
    fields: dict[str, Any] = present(account=account, account_tag=account)
    fields["subject"] = text(each.subject)
    fields |= present(qgroup=text(each.queue))
    fields |= {"sid": text(each.sid), "msgs": each.delivered}
    fields |= present(max=each.max)
    fields["cid"] = cid
    return fields
