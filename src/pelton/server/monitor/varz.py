"""/varz: settings and counters of the server."""

from typing import Any
from urllib.parse import urlsplit

import msgspec

from pelton.api.times import format_time
from pelton.server.identity import RUNTIME
from pelton.server.monitor import jetstream
from pelton.server.monitor.encoding import number, present, uptime
from pelton.server.monitor.query import Query
from pelton.server.monitor.server_state import ServerState, cores, leaf_of
from pelton.server.settings import COMPATIBLE_VERSION, Settings
from pelton.server.settings.accounts import DEFAULT_ACCOUNT
from pelton.server.settings.tls import Tls
from pelton.server.units import SECOND_NS


class Options(msgspec.Struct):
    """Has no arguments."""


def from_query(query: Query) -> Options:
    """The query has no effect."""
    return Options()


def report(server_state: ServerState, options: Options) -> dict[str, Any]:
    """The settings, then the counters."""
    settings = server_state.settings
    body = _settings(server_state) | _running(server_state)
    return body | _certificate(settings.tls)


def _certificate(tls: Tls | None) -> dict[str, Any]:
    """When the certificate of a listener expires."""
    if tls is None:
        return {}
    from pelton.server.transports.tls import not_after_ns

    ends_ns = not_after_ns(tls)
    return {"tls_cert_not_after": format_time(ends_ns)} if ends_ns else {}


def _settings(server_state: ServerState) -> dict[str, Any]:
    settings = server_state.settings
    body: dict[str, Any] = {
        "server_id": server_state.server_id,
        "server_name": server_state.server_name,
        "version": COMPATIBLE_VERSION,
        "proto": 1,
        "go": RUNTIME,
        "host": server_state.host,
        "port": server_state.port,
    }
    if settings.auth_required:
        body["auth_required"] = True
    if settings.tls is not None:
        required = not settings.allow_non_tls or settings.tls.handshake_first
        body |= present(tls_required=required, tls_verify=settings.tls.verify)
    body["max_connections"] = settings.max_connections
    body |= present(max_subscriptions=settings.max_subscriptions)
    body |= {
        "ping_interval": settings.ping_interval_ns,
        "ping_max": settings.ping_max,
        "http_host": settings.http_host or settings.host,
        "http_port": 0 if server_state.settings.https_port else server_state.http_port,
        "http_base_path": settings.http_base_path,
        "https_port": server_state.settings.https_port and server_state.http_port,
        "auth_timeout": number(settings.auth_timeout_ns / SECOND_NS),
        "max_control_line": settings.max_control_line,
        "max_payload": settings.max_payload,
        "max_pending": settings.max_pending,
        "cluster": {},
        "gateway": {},
        "leaf": _leaf(server_state),
        "mqtt": {},
        "websocket": _websocket(settings),
        "jetstream": jetstream.summary(server_state),
        "tls_timeout": number((settings.tls or Tls()).timeout_ns / SECOND_NS),
        "write_deadline": settings.write_deadline_ns,
    }
    return body


def _websocket(settings: Settings) -> dict[str, Any]:
    options = settings.websocket
    if not options.port:
        return {}
    body = present(
        host=options.host,
        port=options.port,
        advertise=options.advertise,
        no_auth_user=options.no_auth_user,
        jwt_cookie=options.jwt_cookie,
        handshake_timeout=options.handshake_timeout_ns,
        auth_timeout=number(options.auth_timeout_ns / SECOND_NS),
        no_tls=options.no_tls,
        tls_map=options.tls is not None and options.tls.map,
        tls_pinned_certs=sorted(options.tls.pinned_certs) if options.tls is not None else [],
        same_origin=options.same_origin,
        allowed_origins=options.allowed_origins,
        compression=options.compression,
    )
    return body | _certificate(options.tls)


def _leaf(server_state: ServerState) -> dict[str, Any]:
    own = server_state.settings.leafnodes
    if own is None:
        return {}
    body: dict[str, Any] = {}
    if own.port:
        body = {"host": own.host, "port": server_state.leaf_port() or own.port}
        body["auth_timeout"] = number(own.auth_timeout_ns / SECOND_NS)
        body["tls_timeout"] = 2
        body |= present(tls_required=own.tls is not None)
    if own.remotes:
        body["remotes"] = [
            {
                "local_account": remote.account or DEFAULT_ACCOUNT,
                "urls": [urlsplit(url).netloc.rpartition("@")[2] for url in remote.urls],
            }
            for remote in own.remotes
        ]
    return body | _certificate(own.tls if own.port else None)


def _running(server_state: ServerState) -> dict[str, Any]:
    settings, reactor, clients = server_state.settings, server_state.reactor, server_state.clients
    now_ns = server_state.now_ns
    return {
        "start": format_time(server_state.start_ns),
        "now": format_time(now_ns),
        "uptime": uptime(now_ns - server_state.start_ns),
        "mem": server_state.memory_bytes(),
        "cores": cores(),
        "gomaxprocs": 1,
        "cpu": number(server_state.cpu_percent()),
        "connections": clients.open,
        "total_connections": clients.total,
        "routes": 0,
        "remotes": 0,
        "leafnodes": sum(leaf_of(each) is not None for each in reactor.all_connections()),
        "in_msgs": reactor.in_msgs,
        "in_bytes": reactor.in_bytes,
        "in_client_msgs": reactor.in_msgs,
        "in_client_bytes": reactor.in_bytes,
        "out_msgs": reactor.out_msgs,
        "out_bytes": reactor.out_bytes,
        "out_client_msgs": reactor.out_msgs,
        "out_client_bytes": reactor.out_bytes,
        "slow_consumers": reactor.slow_consumers,
        "stale_connections": clients.stale,
        "stalled_clients": reactor.stalls,
        "subscriptions": server_state.subscriptions(),
        "http_req_stats": dict(sorted(server_state.requests.items())),
        "config_load_time": format_time(server_state.loaded_ns or server_state.start_ns),
        "config_digest": settings.config_digest,
        **present(
            tags=settings.server_tags, metadata=dict(sorted(settings.server_metadata.items()))
        ),
        "feature_flags": settings.features(),
        **_operators(settings),
        **present(system_account=server_state.system_account),
        "slow_consumer_stats": _kinds(reactor.slow_consumers),
        "stale_connection_stats": _kinds(clients.stale),
        "disk_io_wait_stats": {"waiters": 0, "waits": 0, "wait_time": 0, "max_wait_time": 0},
    }


def _operators(settings: Settings) -> dict[str, Any]:
    """The JWTs of the trusted operators."""
    if settings.operator is None or not settings.operator.jwts:
        return {}
    from pelton.server.auth.shown_claims import operator_claims

    jwts = settings.operator.jwts
    return {
        "trusted_operators_jwt": jwts,
        "trusted_operators_claim": [operator_claims(each) for each in jwts],
    }


def _kinds(clients: int) -> dict[str, int]:
    return {"clients": clients, "routes": 0, "gateways": 0, "leafs": 0}
