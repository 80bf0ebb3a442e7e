"""/connz: the connections, open ones and those of the past."""

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.api.times import format_duration, format_time
from penstock.core.hub import Connection
from penstock.core.subjects import collide
from penstock.server.clients import Client, Departed
from penstock.server.monitor.facts import GLOBAL_ACCOUNT, Facts, account_name, client_of
from penstock.server.monitor.form import present, text, uptime
from penstock.server.monitor.query import Query, QueryError, page
from penstock.server.monitor.subsz import detail

OPEN, CLOSED, ALL = 0, 1, 2
_STATES = {"": OPEN, "open": OPEN, "closed": CLOSED, "any": ALL, "all": ALL}


class Options(msgspec.Struct):
    """What to show, of whom, in which order."""

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
    """QueryError."""
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


class Row:
    """A connection that is shown: its fields, and what it can be sorted by."""

    __slots__ = ("fields", "last_ns", "rtt_ns", "start_ns", "stop_ns")

    def __init__(self, each: Connection | Departed, options: Options, now_ns: int) -> None:
        """Open or closed."""
        self.start_ns = each.start_ns
        self.last_ns = each.last_ns
        self.rtt_ns = each.rtt_ns
        self.stop_ns = each.stop_ns if isinstance(each, Departed) else 0
        self.fields = _fields(each, options, now_ns)


_Sort = tuple[Callable[[Row], Any], bool]  # key, descending
_SORTS: dict[str, Callable[[int], _Sort]] = {
    "cid": lambda now: (lambda row: row.fields["cid"], False),
    "start": lambda now: (lambda row: row.fields["cid"], False),
    "subs": lambda now: (lambda row: row.fields["subscriptions"], True),
    "pending": lambda now: (lambda row: row.fields["pending_bytes"], True),
    "msgs_to": lambda now: (lambda row: row.fields["out_msgs"], True),
    "msgs_from": lambda now: (lambda row: row.fields["in_msgs"], True),
    "bytes_to": lambda now: (lambda row: row.fields["out_bytes"], True),
    "bytes_from": lambda now: (lambda row: row.fields["in_bytes"], True),
    "last": lambda now: (lambda row: row.last_ns, True),
    "idle": lambda now: (lambda row: now - row.last_ns, True),
    "uptime": lambda now: (lambda row: (row.stop_ns or now) - row.start_ns, False),
    "stop": lambda now: (lambda row: row.stop_ns, True),
    "reason": lambda now: (lambda row: row.fields["reason"], False),
    "rtt": lambda now: (lambda row: row.rtt_ns, True),
}


def report(facts: Facts, options: Options) -> dict[str, Any]:
    """One page of them; QueryError."""
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
    now_ns = facts.now_ns
    body = {
        "server_id": facts.server_id,
        "now": format_time(now_ns),
        "num_connections": 0,
        "total": 0,
        "offset": offset,
        "limit": limit,
        "connections": None,
    }
    if options.acc and facts.account(options.acc) is None:
        return body | {"server_id": ""}
    opened, closed, total = _chosen(facts, options)
    if subject:
        opened = [each for each in opened if _listens(each, subject)]
    rows = [Row(each, options, now_ns) for each in opened]
    rows += [Row(each, options, now_ns) for each in closed]
    key, descending = _SORTS[order](now_ns)
    rows.sort(key=key, reverse=descending)
    shown = [row.fields for row in rows[offset : offset + limit]]
    return body | {"num_connections": len(shown), "total": total, "connections": shown}


def _chosen(facts: Facts, options: Options) -> tuple[list[Connection], list[Departed], int]:
    """(open, closed, how many there are before user and id are asked for)."""
    opened: list[Connection] = []
    closed: list[Departed] = []
    if options.state != CLOSED:
        opened = facts.hub.all_connections()
    if options.state != OPEN:
        closed = list(facts.clients.departed)
    if options.acc:
        opened = [each for each in opened if account_name(client_of(each)) == options.acc]
        closed = [each for each in closed if account_name(each.client) == options.acc]
    total = len(opened) + len(closed)
    if options.cid:
        opened = [each for each in opened if each.id == options.cid]
        closed = [] if opened else [each for each in closed if each.cid == options.cid][:1]
        return opened, closed, total
    if options.user:
        opened = [each for each in opened if _user(client_of(each)) == options.user]
        closed = [each for each in closed if _user(each.client) == options.user]
    if options.mqtt_client:
        opened, closed = [], []  # nobody speaks MQTT here
    return opened, closed, total


def _user(client: Client | None) -> str:
    return client.user if client is not None else ""


def _listens(connection: Connection, subject: str) -> bool:
    wanted = subject.encode()
    return any(collide(wanted, each.subject) for each in connection.all_subscriptions())


def _fields(each: Connection | Departed, options: Options, now_ns: int) -> dict[str, Any]:
    """The fields of one connection, in nats-server's order."""
    gone = isinstance(each, Departed)
    client = each.client if isinstance(each, Departed) else client_of(each) or Client("", 0, 0)
    end_ns = each.stop_ns if isinstance(each, Departed) else now_ns
    kind = getattr(client, "kind", "") or "Client"
    fields: dict[str, Any] = {"cid": each.cid if isinstance(each, Departed) else each.id}
    fields["kind"] = kind
    if kind == "Client":
        fields["type"] = "websocket" if getattr(client, "ws", None) else "nats"
    fields |= {
        "ip": client.host,
        "port": client.port,
        "start": format_time(each.start_ns),
        "last_activity": format_time(each.last_ns),
    }
    if isinstance(each, Departed):
        fields |= {"stop": format_time(each.stop_ns), "reason": each.reason}
    rtt_ns = each.rtt_ns
    fields |= {
        "rtt": format_duration(rtt_ns - rtt_ns % 1000 if 1000 < rtt_ns < 1_000_000 else rtt_ns),
        "uptime": uptime(end_ns - each.start_ns),
        "idle": uptime(end_ns - each.last_ns),
        "pending_bytes": each.pending if isinstance(each, Departed) else each.pending_bytes(),
        "in_msgs": each.in_msgs,
        "out_msgs": each.out_msgs,
        "in_bytes": each.in_bytes,
        "out_bytes": each.out_bytes,
    }
    fields |= present(stalls=each.stalls)
    if isinstance(each, Departed):
        fields["subscriptions"] = each.subscriptions
    else:
        fields["subscriptions"] = each.subscription_count()
    fields |= present(name=client.name, lang=client.lang, version=client.version)
    fields |= _tls(client, options.auth)
    if options.auth:
        account = account_name(client)
        fields |= present(
            authorized_user=client.user, account="" if account == GLOBAL_ACCOUNT else account
        )
    subscriptions = each.all_subscriptions()
    if subscriptions and options.subscriptions_detail:
        # closed connections kept theirs with the account
        fields["subscriptions_list_detail"] = [
            detail(one, fields["cid"], account_name(client) if gone else "")
            for one in subscriptions
        ]
    elif subscriptions and options.subscriptions:
        fields["subscriptions_list"] = [text(one.subject) for one in subscriptions]
    if options.auth:
        fields |= _credentials(client, gone)
    return fields


def _tls(client: Client, auth: bool) -> dict[str, Any]:
    tls = getattr(client, "tls", None)
    return tls.facts(auth) if tls is not None and hasattr(tls, "facts") else {}


def _credentials(client: Client, gone: bool) -> dict[str, Any]:
    account = account_name(client)
    tag = getattr(getattr(client, "account", None), "tag", "") or account
    return present(
        jwt="" if getattr(client, "bearer", False) else getattr(client, "jwt", ""),
        issuer_key=getattr(client, "issuer_key", ""),
        name_tag="" if gone and account == GLOBAL_ACCOUNT else tag,
        tags=list(getattr(client, "tags", ()) or ()),
    )
