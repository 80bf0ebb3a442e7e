"""/jsz: totals of JetStream, and details with ``accounts``, ``streams``, ``consumers``, ``config``."""

from typing import Any

import msgspec

from pelton.api.times import format_time
from pelton.server.monitor.encoding import present
from pelton.server.monitor.jetstream import account_detail, limits, usage
from pelton.server.monitor.query import DEFAULT_LIMIT, Query, QueryError
from pelton.server.monitor.server_state import ServerState, engine_account
from pelton.server.monitor.slices import Pace, Slices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pelton.engine.account.account import JetStreamAccount


class Options(msgspec.Struct):
    """The parts to show. A single server is the leader of everything."""

    account: str = ""
    accounts: bool = False
    streams: bool = False
    consumer: bool = False
    direct_consumer: bool = False
    config: bool = False
    leader_only: bool = False
    offset: int = 0
    limit: int = 0
    raft: bool = False
    stream_leader_only: bool = False


def from_query(query: Query) -> Options:
    """Parse the query. Raises QueryError."""
    accounts, streams, consumers = (
        query.flag("accounts"),
        query.flag("streams"),
        query.flag("consumers"),
    )
    return Options(
        account=query.text("acc"),
        accounts=accounts,
        streams=streams,
        consumer=consumers,
        direct_consumer=query.flag("direct-consumers"),
        config=query.flag("config"),
        offset=query.number("offset"),
        limit=query.number("limit"),
        leader_only=query.flag("leader-only"),
        raft=query.flag("raft"),
        stream_leader_only=query.flag("stream-leader-only"),
    )


def report(server_state: ServerState, options: Options) -> Slices[dict[str, Any]]:
    """The report. QueryError when only the leader was asked and JetStream is off."""
    head = {"server_id": server_state.server_id, "now": format_time(server_state.now_ns)}
    jetstream = server_state.jetstream()
    if jetstream is None:
        if options.leader_only:
            raise QueryError("filtered response: not leader")
        return _nothing() | head | _off()
    accounts = jetstream.accounts()
    streams = [entry for each in accounts for entry in each.streams.values()]
    consumers = sum(len(entry.consumers) for entry in streams)
    public = sum(not each.config.direct for entry in streams for each in entry.consumers.values())
    body = usage(jetstream) | head
    body |= {"config": jetstream.configuration(), "limits": limits(server_state)}
    body |= {"streams": len(streams)}
    body |= present(streams_leader=len(streams) if options.raft else 0)
    body |= {"consumers": consumers}
    body |= present(consumers_leader=public if options.raft else 0)
    body |= {
        "messages": sum(entry.core.log.msgs for entry in streams),
        "bytes": sum(entry.core.log.bytes for entry in streams),
    }
    details: list[dict[str, Any]] = []
    pace = Pace()
    for each in _chosen(accounts, options):
        shown = yield from _detail(each, options, pace)
        details.append(shown)
    body |= present(account_details=details)
    return body | {"total": len(accounts)}


def _chosen(accounts: "list[JetStreamAccount]", options: Options) -> "list[JetStreamAccount]":
    if options.account:
        named = [each for each in accounts if each.name == options.account]
        if named:
            return named
    streams = options.streams or options.consumer
    if not (options.accounts or (streams and not options.account)):
        return []
    limit = options.limit or DEFAULT_LIMIT
    if limit < 0:
        return list(accounts)
    offset = max(options.offset, 0)
    return sorted(accounts, key=lambda each: each.name)[offset : offset + limit]


def _detail(account: "JetStreamAccount", options: Options, pace: Pace) -> Slices[dict[str, Any]]:
    return account_detail(
        account,
        pace,
        streams=options.streams or options.consumer,
        consumers=options.consumer,
        direct_consumers=options.direct_consumer,
        config=options.config,
        raft=options.raft,
    )


def one_account(server_state: ServerState, name: str, options: Options) -> Slices[dict[str, Any]]:
    """The details of one account. Raises QueryError."""
    if server_state.jetstream() is None:
        raise QueryError("jetstream not enabled")
    if server_state.account(name) is None:
        raise QueryError(f'account "{name}" not found')
    account = engine_account(server_state, name)
    if account is None:
        raise QueryError(f'account "{name}" not jetstream enabled')
    if options.consumer and not options.streams:
        options.consumer = False  # consumers are shown with their streams only
    return (yield from _detail(account, options, Pace()))


def _nothing() -> dict[str, Any]:
    return {
        "memory": 0,
        "storage": 0,
        "reserved_memory": 0,
        "reserved_storage": 0,
        "accounts": 0,
        "ha_assets": 0,
        "api": {"level": 0, "total": 0, "errors": 0},
    }


def _off() -> dict[str, Any]:
    config = {"max_memory": 0, "max_storage": 0}
    counts = {"streams": 0, "consumers": 0, "messages": 0, "bytes": 0, "total": 0}
    return {"disabled": True, "config": config} | counts
