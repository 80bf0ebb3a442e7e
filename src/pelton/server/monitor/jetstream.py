"""JetStream in /varz, /jsz and STATSZ: configuration, use and limits; an account with its streams and
consumers.
"""

import json
from typing import TYPE_CHECKING, Any

from pelton.server.monitor.encoding import present
from pelton.server.monitor.server_state import ServerState
from pelton.server.monitor.slices import Pace, Slices

if TYPE_CHECKING:
    from pelton.engine.account.account import JetStreamAccount
    from pelton.engine.account.catalog import ConsumerEntry, StreamEntry
    from pelton.server.jetstream import JetStream

_ASSET = 60  # units of a slice that a stream or consumer takes
_UNLIMITED = (1 << 64) - 1  # -1 as an unsigned number
# settings.jetstream_limits and batch_limits -> nats-server's name
_LIMITS = {
    "max_request_batch": "max_request_batch",
    "max_ack_pending": "max_ack_pending",
    "max_ha_assets": "max_ha_assets",
    "duplicate_window_ns": "max_duplicate_window",
}
_BATCH_LIMITS = {
    "max_inflight_per_stream": "max_batch_inflight_per_stream",
    "max_inflight_total": "max_batch_inflight_total",
    "max_msgs": "max_batch_size",
    "timeout_ns": "max_batch_timeout",
}


def summary(server_state: ServerState) -> dict[str, Any]:
    """The JetStream part of /varz and STATSZ; empty when JetStream is off."""
    jetstream = server_state.jetstream()
    if jetstream is None:
        return {}
    return {
        "config": jetstream.configuration(),
        "stats": usage(jetstream),
        "limits": limits(server_state),
    }


def limits(server_state: ServerState) -> dict[str, int]:
    """The limits that are set."""
    settings = server_state.settings
    shown = {shown: settings.jetstream_limits.get(name, 0) for name, shown in _LIMITS.items()}
    shown |= {shown: settings.batch_limits.get(name, 0) for name, shown in _BATCH_LIMITS.items()}
    return present(**shown)


def usage(jetstream: "JetStream") -> dict[str, Any]:
    """Use and reservations of all accounts."""
    from pelton.engine.account.limits import account_info

    accounts = jetstream.accounts()
    infos = [account_info(each) for each in accounts]
    return {
        "memory": sum(each.memory for each in infos),
        "storage": sum(each.storage for each in infos),
        "reserved_memory": sum(each.reserved_memory for each in infos),
        "reserved_storage": sum(each.reserved_storage for each in infos),
        "accounts": len(accounts),
        "ha_assets": 0,
        "api": {
            "level": accounts[0].settings.api_level if accounts else 0,
            "total": sum(each.api_total for each in accounts),
            "errors": sum(each.api_errors for each in accounts),
        },
    }


def account_detail(
    account: "JetStreamAccount",
    pace: Pace,
    *,
    streams: bool = False,
    consumers: bool = False,
    direct_consumers: bool = False,
    config: bool = False,
    raft: bool = False,
) -> Slices[dict[str, Any]]:
    """One account, with its streams and consumers if requested."""
    allowed = account.limits.get("")
    body: dict[str, Any] = {
        "name": account.name,
        "id": account.name,
        "memory": account.memory.used,
        "storage": account.storage.used,
        "reserved_memory": allowed.max_memory & _UNLIMITED if allowed else 0,
        "reserved_storage": allowed.max_storage & _UNLIMITED if allowed else 0,
        "accounts": 0,
        "ha_assets": 0,
        "api": {"level": 0, "total": account.api_total, "errors": account.api_errors},
    }
    if streams:
        rows = []
        for entry in list(account.streams.values()):
            if account.streams.get(entry.config.name) is entry:
                row = yield from _stream(
                    account,
                    entry,
                    pace,
                    consumers=consumers,
                    direct_consumers=direct_consumers,
                    config=config,
                )
                rows.append(row)
            if pace.over(_ASSET):
                yield
        body |= present(stream_detail=rows)
    return body


def _stream(
    account: "JetStreamAccount",
    entry: "StreamEntry",
    pace: Pace,
    *,
    consumers: bool,
    direct_consumers: bool,
    config: bool,
) -> Slices[dict[str, Any]]:
    from pelton.api.codec import encode
    from pelton.engine.account.catalog import stream_info

    settings = account.settings
    now_ns = account.reactor.clock.now()
    info = json.loads(encode(stream_info(entry, settings, now_ns, versioned=False)))
    row = {
        "name": entry.config.name,
        "created": info["created"],
        "cluster": {"leader": settings.server_name},
    }
    if config:
        row["config"] = info["config"]
    row["state"] = info["state"]
    if consumers:
        public: list[dict[str, Any]] = []
        direct: list[dict[str, Any]] = []
        for each in list(entry.consumers.values()):
            if pace.over(_ASSET):
                yield
            if entry.consumers.get(each.name) is each:
                found = _consumer(account, entry, each, config=config)
                (direct if each.config.direct else public).append(found)
        row |= present(consumer_detail=public)
        if direct_consumers:
            row |= present(direct_consumer_detail=direct)
    return row | present(mirror=info.get("mirror"), sources=info.get("sources"))


def _consumer(
    account: "JetStreamAccount", entry: "StreamEntry", each: "ConsumerEntry", *, config: bool
) -> dict[str, Any]:
    """A consumer in the form of the API's consumer info."""
    from pelton.api.codec import encode
    from pelton.engine.account.catalog import consumer_info

    now_ns = account.reactor.clock.now()
    found = consumer_info(entry, each, account.settings, now_ns, versioned=False)
    shown: dict[str, Any] = json.loads(encode(found))
    if not config:
        shown.pop("config", None)
    return shown
