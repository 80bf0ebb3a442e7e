"""Monitoring: what the server knows of itself as JSON with nats-server's field names, and as
Prometheus metrics.

Pure functions from a Facts to an Answer; the only thing they read from the machine is this
process's memory and CPU time. JetStream's numbers come from a callback of the engine's owner. Knows
nothing of HTTP beyond path, query and Answer.
"""

import json
import os
import resource
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.api.times import format_time
from penstock.core.hub import Connection, Hub
from penstock.server.clients import Client, Clients, Departed
from penstock.server.http import Answer, text_answer
from penstock.server.identity import RUNTIME
from penstock.server.settings import COMPATIBLE_VERSION, Settings
from penstock.server.units import SECOND_NS

Query = dict[str, str]
DEFAULT_LIMIT = 1024

_TRUE = {"1", "t", "T", "true", "TRUE", "True"}
_FALSE = {"0", "f", "F", "false", "FALSE", "False"}


@dataclass(slots=True)
class Facts:
    """What monitoring looks at. `jetstream` gives /jsz's numbers (see JETSTREAM_KEYS) or None when
    it is off.
    """

    settings: Settings
    server_id: str
    server_name: str
    host: str
    port: int
    http_port: int
    start_ns: int
    hub: Hub
    clients: Clients
    jetstream: Callable[[bool, bool, bool], dict[str, Any] | None]  # (streams, consumers, config)
    stream_state: Callable[
        [str, str], str
    ]  # (stream, consumer): "" when healthy, else what is wrong
    requests: dict[str, int] = field(default_factory=dict)
    cpu: tuple[float, float] = (0.0, 0.0)  # (moment, CPU seconds) of the last look


class QueryError(ValueError):
    """A query argument has a value it can't have: 400."""


def answer(facts: Facts, path: str, query: Query) -> Answer:
    """The answer to GET path?query."""
    route = _ROUTES.get(path if path == "/" else path.rstrip("/"))
    if route is None:
        return text_answer(404, "404 page not found")
    facts.requests[path] = facts.requests.get(path, 0) + 1
    try:
        return route(facts, query)
    except QueryError as problem:
        return text_answer(400, str(problem))


def _json(facts: Facts, query: Query, body: object, status: int = 200) -> Answer:
    text = json.dumps(body, indent=2, ensure_ascii=False)
    callback = query.get("callback", "")
    if callback:
        return Answer(status, "application/javascript", f"{callback}({text})".encode())
    return Answer(status, "application/json", text.encode())


def _flag(query: Query, name: str) -> bool:
    text = query.get(name, "")
    if text in _TRUE:
        return True
    if text and text not in _FALSE:
        raise QueryError(
            f"Error decoding boolean for '{name}': \"{text}\" is neither true nor false"
        )
    return False


def _number(query: Query, name: str, default: int) -> int:
    text = query.get(name, "")
    if not text:
        return default
    if not text.removeprefix("-").isdigit() or len(text) > 18:
        raise QueryError(f"Error decoding int for '{name}': \"{text}\" is not a number")
    return int(text)


def _page(query: Query) -> tuple[int, int]:
    """(offset, limit) of a list."""
    limit = _number(query, "limit", DEFAULT_LIMIT)
    return max(_number(query, "offset", 0), 0), limit if limit > 0 else DEFAULT_LIMIT


def _spell(ns: int) -> str:
    """A time span in whole seconds, with days: 1d2h3m4s."""
    seconds = max(ns, 0) // SECOND_NS
    days, seconds = divmod(seconds, 86_400)
    hours, seconds = divmod(seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    text = f"{seconds}s"
    if days or hours or minutes:
        text = f"{minutes}m{text}"
    if days or hours:
        text = f"{hours}h{text}"
    return f"{days}d{text}" if days else text


# -- the endpoints


def index(facts: Facts, query: Query) -> Answer:
    """A page of links."""
    links = "".join(
        f'<li><a href=".{path}">{path}</a></li>' for path in sorted(_ROUTES) if path != "/"
    )
    page = (
        f"<!doctype html><html lang=en><title>{facts.server_name}</title><h1>penstock-server</h1>"
        f"<p>Server {facts.server_name}, compatible with nats-server {COMPATIBLE_VERSION}</p>"
        f"<ul>{links}</ul></html>"
    )
    return Answer(200, "text/html; charset=utf-8", page.encode())


def varz(facts: Facts, query: Query) -> Answer:
    """The server as a whole."""
    return _json(facts, query, general(facts))


def general(facts: Facts) -> dict[str, Any]:
    """The fields of /varz."""
    settings, hub, clients = facts.settings, facts.hub, facts.clients
    now_ns = hub.clock.now()
    links = {"clients": 0, "routes": 0, "gateways": 0, "leafs": 0}
    body: dict[str, Any] = {
        "server_id": facts.server_id,
        "server_name": facts.server_name,
        "version": COMPATIBLE_VERSION,
        "proto": 1,
        "go": RUNTIME,
        "host": facts.host,
        "port": facts.port,
    }
    if settings.auth_required:
        body["auth_required"] = True
    body["max_connections"] = settings.max_connections
    if settings.max_subscriptions:
        body["max_subscriptions"] = settings.max_subscriptions
    body |= {
        "ping_interval": settings.ping_interval_ns,
        "ping_max": settings.ping_max,
        "http_host": settings.http_host or settings.host,
        "http_port": facts.http_port,
        "http_base_path": "",
        "https_port": 0,
        "auth_timeout": settings.auth_timeout_ns / SECOND_NS,
        "max_control_line": settings.max_control_line,
        "max_payload": settings.max_payload,
        "max_pending": settings.max_pending,
        "cluster": {},
        "gateway": {},
        "leaf": {},
        "mqtt": {},
        "websocket": {},
        "jetstream": _jetstream_summary(facts),
        "tls_timeout": 2,
        "write_deadline": settings.write_deadline_ns,
        "start": format_time(facts.start_ns),
        "now": format_time(now_ns),
        "uptime": _spell(now_ns - facts.start_ns),
        "mem": memory_bytes(),
        "cores": os.cpu_count() or 1,
        "gomaxprocs": 1,
        "cpu": cpu_percent(facts),
        "connections": clients.open,
        "total_connections": clients.total,
        "routes": 0,
        "remotes": 0,
        "leafnodes": 0,
        "in_msgs": hub.in_msgs,
        "in_bytes": hub.in_bytes,
        "in_client_msgs": hub.in_msgs,
        "in_client_bytes": hub.in_bytes,
        "out_msgs": hub.out_msgs,
        "out_bytes": hub.out_bytes,
        "out_client_msgs": hub.out_msgs,
        "out_client_bytes": hub.out_bytes,
        "slow_consumers": hub.slow_consumers,
        "stale_connections": clients.stale,
        "stalled_clients": 0,
        "subscriptions": clients.router.subscription_count(),
        "http_req_stats": dict(facts.requests),
        "config_load_time": format_time(facts.start_ns),
        "config_digest": settings.config_digest,
        "slow_consumer_stats": links | {"clients": hub.slow_consumers},
        "stale_connection_stats": links | {"clients": clients.stale},
    }
    return body


def _jetstream_summary(facts: Facts) -> dict[str, Any]:
    found = facts.jetstream(False, False, False)
    if found is None:
        return {}
    stats = (
        "memory",
        "storage",
        "reserved_memory",
        "reserved_storage",
        "accounts",
        "ha_assets",
        "api",
    )
    return {"config": found["config"], "stats": {name: found[name] for name in stats}}


def connz(facts: Facts, query: Query) -> Answer:
    """Connections: open ones, or with ``state=closed`` or ``any`` those of the past too."""
    state = query.get("state", "open").lower() or "open"
    if state not in ("open", "closed", "any", "all"):
        raise QueryError(f"Error decoding state for {state}")
    order = query.get("sort", "cid") or "cid"
    if order not in _SORTS:
        raise QueryError(f"invalid sorting option: {order}")
    if order in ("stop", "reason") and state == "open":
        raise QueryError(f"sort by {order} only valid on closed connections")
    offset, limit = _page(query)
    with_subs = query.get("subs", "").lower()
    detail = with_subs == "detail"
    named = detail or _flag(query, "subs")
    now_ns = facts.hub.clock.now()
    rows: list[dict[str, Any]] = []
    if state != "closed":
        rows += [
            _open_row(c, now_ns, named and not detail, detail) for c in facts.hub.all_connections()
        ]
    if state != "open":
        rows += [_closed_row(gone, now_ns) for gone in facts.clients.departed]
    cid = _number(query, "cid", 0)
    user = query.get("user", "")
    rows = [
        row
        for row in rows
        if (not cid or row["cid"] == cid) and (not user or row.get("authorized_user") == user)
    ]
    key, reverse = _SORTS[order]
    rows.sort(key=key, reverse=reverse)
    shown = rows[offset : offset + limit]
    for row in rows:
        for name in ("_start", "_last", "_stop"):
            row.pop(name, None)
    body = {
        "server_id": facts.server_id,
        "now": format_time(now_ns),
        "num_connections": len(shown),
        "total": len(rows),
        "offset": offset,
        "limit": limit,
        "connections": shown,
    }
    return _json(facts, query, body)


_SORTS: dict[str, tuple[Callable[[dict[str, Any]], Any], bool]] = {
    "cid": (lambda row: row["cid"], False),
    "start": (lambda row: row["_start"], False),
    "subs": (lambda row: row["subscriptions"], True),
    "pending": (lambda row: row["pending_bytes"], True),
    "msgs_to": (lambda row: row["out_msgs"], True),
    "msgs_from": (lambda row: row["in_msgs"], True),
    "bytes_to": (lambda row: row["out_bytes"], True),
    "bytes_from": (lambda row: row["in_bytes"], True),
    "last": (lambda row: row["_last"], True),
    "idle": (lambda row: row["_last"], False),
    "uptime": (lambda row: row["_start"], False),
    "stop": (lambda row: row.get("_stop", 0), True),
    "reason": (lambda row: row.get("reason", ""), False),
}


def _row(cid: int, client: Client, start_ns: int, last_ns: int) -> dict[str, Any]:
    return {
        "_start": start_ns,
        "_last": last_ns,
        "cid": cid,
        "kind": "Client",
        "type": "nats",
        "ip": client.host,
        "port": client.port,
        "start": format_time(start_ns),
        "last_activity": format_time(last_ns),
    }


def _named(row: dict[str, Any], client: Client) -> dict[str, Any]:
    said = {"name": client.name, "lang": client.lang, "version": client.version}
    row |= {name: value for name, value in said.items() if value}
    if client.user:
        row["authorized_user"] = client.user
    return row


def _open_row(c: Connection, now_ns: int, subjects: bool, detail: bool) -> dict[str, Any]:
    client = c.session if isinstance(c.session, Client) else Client("", 0, 0)
    row = _row(c.id, client, c.start_ns, c.last_ns)
    row |= {
        "uptime": _spell(now_ns - c.start_ns),
        "idle": _spell(now_ns - c.last_ns),
        "pending_bytes": c.pending_bytes(),
        "in_msgs": c.in_msgs,
        "out_msgs": c.out_msgs,
        "in_bytes": c.in_bytes,
        "out_bytes": c.out_bytes,
        "subscriptions": c.subscription_count(),
    }
    _named(row, client)
    if subjects:
        row["subscriptions_list"] = [_text(s.subject) for s in c.all_subscriptions()]
    if detail:
        row["subscriptions_list_detail"] = [_subscription(s, c.id) for s in c.all_subscriptions()]
    return row


def _closed_row(gone: Departed, now_ns: int) -> dict[str, Any]:
    row = _row(gone.cid, gone.client, gone.start_ns, gone.last_ns)
    row |= {
        "_stop": gone.stop_ns,
        "stop": format_time(gone.stop_ns),
        "reason": gone.reason,
        "uptime": _spell(gone.stop_ns - gone.start_ns),
        "idle": _spell(now_ns - gone.last_ns),
        "pending_bytes": 0,
        "in_msgs": gone.in_msgs,
        "out_msgs": gone.out_msgs,
        "in_bytes": gone.in_bytes,
        "out_bytes": gone.out_bytes,
        "subscriptions": gone.subscriptions,
    }
    return _named(row, gone.client)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _subscription(s: Any, cid: int) -> dict[str, Any]:
    row = {"account": "$G", "account_tag": "$G", "subject": _text(s.subject)}
    if s.queue:
        row["qgroup"] = _text(s.queue)
    return row | {"sid": _text(s.sid), "msgs": s.delivered, "cid": cid}


def subsz(facts: Facts, query: Query) -> Answer:
    """Subscriptions."""
    offset, limit = _page(query)
    body: dict[str, Any] = {
        "server_id": facts.server_id,
        "now": format_time(facts.hub.clock.now()),
        "num_subscriptions": facts.clients.router.subscription_count(),
    }
    if not _flag(query, "subs"):
        return _json(facts, query, body)
    rows = [
        _subscription(s, c.id) for c in facts.hub.all_connections() for s in c.all_subscriptions()
    ]
    wanted = query.get("test", "")
    if wanted:
        rows = [row for row in rows if _matches(row["subject"], wanted)]
    body |= {
        "total": len(rows),
        "offset": offset,
        "limit": limit,
        "subscriptions_list": rows[offset : offset + limit],
    }
    return _json(facts, query, body)


def _matches(pattern: str, subject: str) -> bool:
    words, literal = pattern.split("."), subject.split(".")
    for at, word in enumerate(words):
        if word == ">":
            return len(literal) > at
        if at >= len(literal) or word not in ("*", literal[at]):
            return False
    return len(words) == len(literal)


def jsz(facts: Facts, query: Query) -> Answer:
    """JetStream: totals; with ``accounts``, ``streams``, ``consumers``, ``config`` the details."""
    streams, consumers = _flag(query, "streams"), _flag(query, "consumers")
    config = _flag(query, "config")
    details = _flag(query, "accounts") or streams or consumers or "acc" in query
    offset, limit = _page(query)
    head = {"server_id": facts.server_id, "now": format_time(facts.hub.clock.now())}
    found = facts.jetstream(streams or consumers, consumers, config)
    if found is None:
        return _json(facts, query, head | {"disabled": True})
    detail = found.pop("detail")
    body = head | found
    if details:
        rows = [
            {"name": "$G", "id": "$G"}
            | {
                name: found[name]
                for name in ("memory", "storage", "reserved_memory", "reserved_storage")
            }
        ]
        rows[0] |= {"accounts": 1, "ha_assets": 0, "api": found["api"]}
        if detail is not None:
            rows[0]["stream_detail"] = detail
        if query.get("acc", "$G") != "$G":
            return text_answer(404, "account not found")
        body |= {"account_details": rows[offset : offset + limit], "total": len(rows)}
    return _json(facts, query, body)


def healthz(facts: Facts, query: Query) -> Answer:
    """Whether the server (or a stream, or a consumer) is there and working."""
    stream, consumer = query.get("stream", ""), query.get("consumer", "")
    error, status = "", 503
    if consumer and not stream:
        error, status = "stream must not be empty when checking consumer health", 400
    elif query.get("account", "$G") != "$G":
        error, status = f'JetStream account "{query["account"]}" not found', 404
    elif stream:
        error, status = facts.stream_state(stream, consumer), 404
    elif _flag(query, "js-enabled-only") and not facts.settings.jetstream:
        error = "JetStream not enabled"
    if not error:
        return Answer(200, "application/json", b'{"status":"ok"}')
    body = json.dumps({"status": "unavailable", "error": error}, separators=(",", ":"))
    return Answer(status, "application/json", body.encode())


def metrics(facts: Facts, query: Query) -> Answer:
    """The same numbers for Prometheus."""
    values = general(facts)
    lines: list[str] = []
    for name, kind, text in _METRICS:
        _metric(lines, f"penstock_{name}", kind, text, [("", values[name])])
    _metric(
        lines,
        "penstock_start_time_seconds",
        "gauge",
        "When the server started.",
        [("", facts.start_ns / SECOND_NS)],
    )
    found = facts.jetstream(True, True, False)
    if found is not None:
        _jetstream_metrics(lines, found)
    return Answer(
        200, "text/plain; version=0.0.4; charset=utf-8", ("\n".join(lines) + "\n").encode()
    )


_METRICS = (
    ("connections", "gauge", "Open client connections."),
    ("total_connections", "counter", "Client connections since the start."),
    ("subscriptions", "gauge", "Subscriptions of clients."),
    ("in_msgs", "counter", "Messages from clients."),
    ("in_bytes", "counter", "Bytes of messages from clients."),
    ("out_msgs", "counter", "Messages to clients."),
    ("out_bytes", "counter", "Bytes of messages to clients."),
    ("slow_consumers", "counter", "Clients cut off because they did not read."),
    ("stale_connections", "counter", "Clients cut off because they did not answer pings."),
    ("mem", "gauge", "Resident memory in bytes."),
    ("cpu", "gauge", "CPU use in percent of one core since the last look."),
)


def _jetstream_metrics(lines: list[str], found: dict[str, Any]) -> None:
    for name in ("memory", "storage"):
        _metric(
            lines,
            f"penstock_jetstream_{name}_bytes",
            "gauge",
            f"Bytes of streams in {name}.",
            [("", found[name])],
        )
    api = found["api"]
    _metric(
        lines, "penstock_jetstream_api_requests", "counter", "API requests.", [("", api["total"])]
    )
    _metric(
        lines,
        "penstock_jetstream_api_errors",
        "counter",
        "API requests that failed.",
        [("", api["errors"])],
    )
    detail = found["detail"] or []
    for name in ("messages", "bytes", "first_seq", "last_seq", "consumer_count"):
        rows = [(_label(stream=row["name"]), row["state"][name]) for row in detail]
        _metric(lines, f"penstock_stream_{name}", "gauge", f"{name} of a stream.", rows)
    consumers = [(row["name"], one) for row in detail for one in row.get("consumer_detail", [])]
    for name in ("num_pending", "num_ack_pending", "num_redelivered", "num_waiting"):
        rows = [
            (_label(stream=stream, consumer=one["name"]), one[name]) for stream, one in consumers
        ]
        _metric(lines, f"penstock_consumer_{name}", "gauge", f"{name} of a consumer.", rows)


def _label(**labels: str) -> str:
    escaped = {
        k: v.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        for k, v in labels.items()
    }
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}"


def _metric(
    lines: list[str], name: str, kind: str, text: str, rows: Iterable[tuple[str, float]]
) -> None:
    lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{label} {value}" for label, value in rows]


# -- this process


def memory_bytes() -> int:
    """Resident memory."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def cpu_percent(facts: Facts) -> float:
    """CPU use since the last call, in percent of one core."""
    now, used = time.monotonic(), time.process_time()
    before, used_before = facts.cpu
    facts.cpu = (now, used)
    if not before or now <= before:
        return 0.0
    return round(100 * (used - used_before) / (now - before), 1)


_ROUTES: dict[str, Callable[[Facts, Query], Answer]] = {
    "/": index,
    "/varz": varz,
    "/connz": connz,
    "/subsz": subsz,
    "/subscriptionsz": subsz,
    "/jsz": jsz,
    "/healthz": healthz,
    "/metrics": metrics,
}

__all__ = ["Facts", "QueryError", "answer", "general"]
