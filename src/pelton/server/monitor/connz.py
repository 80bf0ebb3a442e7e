"""/connz: open and closed connections."""

from collections.abc import Callable
from typing import Any

import msgspec

from pelton.api.times import format_duration, format_time
from pelton.core.broker.reactor import Connection
from pelton.core.protocol.subjects import collide
from pelton.server.auth.shown_claims import is_bearer
from pelton.server.clients.client import LEAFNODE, LEAFNODE_WS, Client
from pelton.server.clients.closed_connections import ClosedConnection
from pelton.server.leaf.node import LeafNode
from pelton.server.monitor.encoding import present, text, uptime
from pelton.server.monitor.query import Query, QueryError, page
from pelton.server.monitor.server_state import (
    ServerState,
    account_of,
    client_of,
    leaf_of,
    tag_of,
    type_of,
)
from pelton.server.monitor.slices import Pace, Slices, each_of
from pelton.server.monitor.subsz import detail
from pelton.server.settings.accounts import DEFAULT_ACCOUNT

OPEN, CLOSED, ALL = 0, 1, 2
_CONNECTION, _DETAIL = 20, 2  # units of a slice
_STATES = {"": OPEN, "open": OPEN, "closed": CLOSED, "any": ALL, "all": ALL}


class Options(msgspec.Struct):
    """Which connections to show, in which order, with which details."""

    sort: str = ""
    auth: bool = False
    subscriptions: bool = False
    subscriptions_detail: bool = False
    offset: int = 0
    limit: int = 0
    cid: int = 0
    mqtt_client: str = ""
    state: int = OPEN
    user: str = ""
    acc: str = ""
    filter_subject: str = ""


def from_query(query: Query) -> Options:
    """Parse the query. Raises QueryError."""
    auth = query.flag("auth")
    subs, subs_detail = query.subscriptions()
    offset, limit, cid = query.number("offset"), query.number("limit"), query.unsigned("cid")
    state = _STATES.get(query.text("state").lower())
    if state is None:
        raise QueryError(f"Error decoding state for {query.text('state')}")
    return Options(
        sort=query.text("sort"),
        auth=auth,
        subscriptions=subs,
        subscriptions_detail=subs_detail,
        offset=offset,
        limit=limit,
        cid=cid,
        mqtt_client=query.text("mqtt_client"),
        state=state,
        user=query.text("user"),
        acc=query.text("acc"),
        filter_subject=query.text("filter_subject"),
    )


_Each = Connection | ClosedConnection
_Sort = tuple[Callable[[_Each], Any], bool]  # key, descending
_SORTS: dict[str, Callable[[int], _Sort]] = {
    "cid": lambda now: (lambda each: _cid(each), False),
    "start": lambda now: (lambda each: _cid(each), False),
    "subs": lambda now: (lambda each: _subscriptions(each), True),
    "pending": lambda now: (lambda each: _pending(each), True),
    "msgs_to": lambda now: (lambda each: each.out_msgs, True),
    "msgs_from": lambda now: (lambda each: each.in_msgs, True),
    "bytes_to": lambda now: (lambda each: each.out_bytes, True),
    "bytes_from": lambda now: (lambda each: each.in_bytes, True),
    "last": lambda now: (lambda each: each.last_ns, True),
    "idle": lambda now: (lambda each: now - each.last_ns, True),
    "uptime": lambda now: (lambda each: (_stopped_ns(each) or now) - each.start_ns, False),
    "stop": lambda now: (lambda each: _stopped_ns(each), True),
    "reason": lambda now: (lambda each: each.reason, False),
    "rtt": lambda now: (lambda each: each.rtt_ns, True),
}


def _cid(each: _Each) -> int:
    return each.cid if isinstance(each, ClosedConnection) else each.id


def _subscriptions(each: _Each) -> int:
    return each.subscriptions if isinstance(each, ClosedConnection) else each.subscription_count()


def _pending(each: _Each) -> int:
    return each.pending if isinstance(each, ClosedConnection) else each.pending_bytes()


def _stopped_ns(each: _Each) -> int:
    return each.stop_ns if isinstance(each, ClosedConnection) else 0


def report(server_state: ServerState, options: Options) -> Slices[dict[str, Any]]:
    """One page of connections. Raises QueryError."""
    pace = Pace()
    order = options.sort or "cid"
    if order not in _SORTS:
        raise QueryError(f"invalid sorting option: {order}")
    if order in ("stop", "reason") and options.state != CLOSED:
        raise QueryError(f"sort by {order} only valid on closed connections")
    offset, limit = page(options.offset, options.limit)
    if options.cid:
        limit = 1
    subject = options.filter_subject if options.filter_subject != ">" else ""
    if subject and not options.acc:
        raise QueryError("filter by subject only valid with account filtering")
    now_ns = server_state.now_ns
    body = {
        "server_id": server_state.server_id,
        "now": format_time(now_ns),
        "num_connections": 0,
        "total": 0,
        "offset": offset,
        "limit": limit,
        "connections": None,
    }
    if options.acc and server_state.account(options.acc) is None:
        return body | {"server_id": ""}
    opened, closed, total = yield from _chosen(server_state, options, pace)
    if subject:
        opened = yield from _listening(opened, subject.encode(), pace)
    found: list[_Each] = [*opened, *closed]
    key, descending = _SORTS[order](now_ns)
    found.sort(key=key, reverse=descending)
    # Only the connections on the page are converted, because there may be very many.
    shown = []
    for each in found[offset : offset + limit]:
        if isinstance(each, ClosedConnection) or not each.closed:
            shown.append((yield from _fields(each, options, now_ns, pace)))
        if pace.over(_CONNECTION):
            yield
    return body | {"num_connections": len(shown), "total": total, "connections": shown}


def _chosen(
    server_state: ServerState, options: Options, pace: Pace
) -> Slices[tuple[list[Connection], list[ClosedConnection], int]]:
    """(open, closed, number of connections before the filter by user and id)."""
    opened: list[Connection] = []
    closed: list[ClosedConnection] = []
    if options.state != CLOSED:
        for each in server_state.reactor.all_connections():
            if _listed(each) and (not options.acc or account_of(each) == options.acc):
                opened.append(each)
            if pace.over():
                yield
    if options.state != OPEN:
        closed = list(server_state.clients.departed)
    if options.acc:
        closed = [each for each in closed if each.client.account_name == options.acc]
    total = len(opened) + len(closed)
    if options.cid:
        opened = [each for each in opened if each.id == options.cid]
        closed = [] if opened else [gone for gone in closed if gone.cid == options.cid][:1]
        return opened, closed, total
    if options.user:
        opened = [each for each in opened if _party(each).user == options.user]
        closed = [each for each in closed if each.client.user == options.user]
    if options.mqtt_client:
        opened, closed = [], []  # this server has no MQTT clients
    return opened, closed, total


def _listed(connection: Connection) -> bool:
    """Whether it is a client, or a connected leaf node or hub."""
    peer = leaf_of(connection)
    return peer is None or peer.joined


def _party(each: _Each) -> Client | LeafNode:
    if isinstance(each, ClosedConnection):
        return each.client
    return client_of(each) or leaf_of(each) or Client("", 0, 0)


def _listening(
    connections: list[Connection], subject: bytes, pace: Pace
) -> Slices[list[Connection]]:
    """Those with a subscription that overlaps the subject."""
    found = []
    for connection in connections:
        for each in connection.all_subscriptions():
            if pace.over():
                yield
            if collide(subject, each.subject):
                found.append(connection)
                break
    return found


def _fields(each: _Each, options: Options, now_ns: int, pace: Pace) -> Slices[dict[str, Any]]:
    """One connection; the fields are in nats-server's order."""
    gone = isinstance(each, ClosedConnection)
    client = _party(each)
    end_ns = each.stop_ns if isinstance(each, ClosedConnection) else now_ns
    fields: dict[str, Any] = {"cid": _cid(each)}
    if isinstance(client, Client) and client.kind not in (LEAFNODE, LEAFNODE_WS):
        fields |= present(kind="Client", type=type_of(client))
    else:
        fields["kind"] = "Leafnode"
    fields |= {
        "ip": client.host,
        "port": client.port,
        "start": format_time(each.start_ns),
        "last_activity": format_time(each.last_ns),
    }
    if isinstance(each, ClosedConnection):
        fields |= {"stop": format_time(each.stop_ns), "reason": each.reason}
    rtt_ns = each.rtt_ns
    fields |= {
        "rtt": format_duration(rtt_ns - rtt_ns % 1000 if 1000 < rtt_ns < 1_000_000 else rtt_ns),
        "uptime": uptime(end_ns - each.start_ns),
        "idle": uptime(end_ns - each.last_ns),
        "pending_bytes": _pending(each),
        "in_msgs": each.in_msgs,
        "out_msgs": each.out_msgs,
        "in_bytes": each.in_bytes,
        "out_bytes": each.out_bytes,
    }
    fields |= present(stalls=each.stalls)
    fields["subscriptions"] = _subscriptions(each)
    lang = client.lang if isinstance(client, Client) else ""
    fields |= present(name=client.name, lang=lang, version=client.version)
    fields |= _tls(client, options.auth)
    if options.auth:
        account = client.account_name
        fields |= present(
            authorized_user=client.user, account="" if account == DEFAULT_ACCOUNT else account
        )
    subscriptions = each.all_subscriptions()
    if subscriptions and options.subscriptions_detail:
        # details of a closed connection name the account
        cid, account = fields["cid"], client.account_name if gone else ""
        fields["subscriptions_list_detail"] = yield from each_of(
            subscriptions, lambda one: detail(one, cid, account), pace, _DETAIL
        )
    elif subscriptions and options.subscriptions:
        fields["subscriptions_list"] = yield from each_of(
            subscriptions, lambda one: text(one.subject), pace, 1
        )
    if options.auth:
        fields |= _in_order(_credentials(client, gone))
    return fields


def _tls(client: Client | LeafNode, auth: bool) -> dict[str, Any]:
    tls = client.tls
    if tls is None:
        return {}
    shown = present(tls_version=tls.version, tls_cipher_suite=tls.cipher)
    if auth and tls.peer_der:
        subject, key, certificate = tls.fingerprints()
        row = {"subject": subject, "spki_sha256": key, "cert_sha256": certificate}
        shown["tls_peer_certs"] = [row]
    return shown | present(tls_first=tls.first)


def _in_order(shown: dict[str, Any]) -> dict[str, Any]:
    return {n: shown[n] for n in ("jwt", "issuer_key", "name_tag", "tags") if n in shown}


def _credentials(client: Client | LeafNode, gone: bool) -> dict[str, Any]:
    account = client.account_name
    return credentials(client) | present(
        name_tag="" if gone and account == DEFAULT_ACCOUNT else tag_of(client.account)
    )


def credentials(client: Client | LeafNode) -> dict[str, Any]:
    """The JWT of a client unless it is a bearer token; its issuer and tags."""
    admitted = client.admitted
    if admitted is None or not admitted.jwt:
        return {}
    return present(
        jwt="" if is_bearer(admitted.jwt) else admitted.jwt,
        issuer_key=admitted.issuer,
        tags=admitted.tags,
    )
