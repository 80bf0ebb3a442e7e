"""Events of the system account. An event is made only when a client subscribes to its subject."""

from random import SystemRandom
from typing import Any

from pelton.api.times import format_time
from pelton.core.broker.reactor import Connection
from pelton.core.broker.router import Router
from pelton.nuid import Nuid
from pelton.server.accounts.registry import ServerAccount
from pelton.server.clients.client import Client
from pelton.server.leaf.node import LeafNode
from pelton.server.monitor import jetstream
from pelton.server.monitor.accstatz import connections_by_account
from pelton.server.monitor.accstatz import statistics as account_statistics
from pelton.server.monitor.connz import credentials
from pelton.server.monitor.encoding import number, present
from pelton.server.monitor.server_state import (
    ServerState,
    client_of,
    cores,
    tag_of,
    type_of,
)
from pelton.server.settings.accounts import DEFAULT_ACCOUNT
from pelton.server.system.envelope import server_info, written

_ADVISORY = "io.nats.server.advisory.v1."
REFUSALS = {"Authentication Failure", "Proxy Not Trusted", "Proxy Required"}


class Events:
    """Makes and publishes the events."""

    def __init__(self, server_state: ServerState, router: Router) -> None:
        """`router` is that of the system account."""
        self._server_state = server_state
        self._router = router
        self._ids = Nuid(SystemRandom())

    # -- clients

    def connected(self, connection: Connection) -> None:
        """A client has connected."""
        client = client_of(connection)
        if client is None:
            return
        self.account_changed(client)
        subject = f"$SYS.ACCOUNT.{client.account_name}.CONNECT"
        if self._router.has_interest(subject):
            self._publish(
                self._router, subject, "client_connect", {"client": describe(connection, client)}
            )

    def disconnected(self, connection: Connection, client: Client) -> None:
        """A connection was closed. A refusal is published as AUTH.ERR too."""
        if connection.reason in REFUSALS:
            subject = f"$SYS.SERVER.{self._server_state.server_id}.CLIENT.AUTH.ERR"
            self._gone(self._router, subject, connection, client)
        subject = f"$SYS.ACCOUNT.{client.account_name}.DISCONNECT"
        self._gone(self._router, subject, connection, client)
        if connection.ready:
            self.account_changed(client)

    def _gone(self, router: Router, subject: str, connection: Connection, client: Client) -> None:
        if not router.has_interest(subject):
            return
        stop = format_time(self._server_state.now_ns)
        body = {
            "client": describe(connection, client, stop),
            "sent": {"msgs": connection.in_msgs, "bytes": connection.in_bytes},
            "received": {"msgs": connection.out_msgs, "bytes": connection.out_bytes},
            "reason": connection.reason,
        }
        self._publish(router, subject, "client_disconnect", body)

    # -- accounts

    def account_changed(self, client: Client | LeafNode) -> None:
        """The number of an account's connections has changed."""
        name = client.account_name
        account = self._server_state.account(name)
        if name != DEFAULT_ACCOUNT and account is not None:
            self._account(account, None)

    def all_accounts(self) -> None:
        """The periodic event of every account with connections."""
        by_account = connections_by_account(self._server_state)
        for account in self._server_state.accounts():
            found = by_account.get(account.name)
            if found and account.name != DEFAULT_ACCOUNT:
                self._account(account, found)

    def _account(self, account: ServerAccount, connections: list[Connection] | None) -> None:
        name = account.name
        subjects = (f"$SYS.SERVER.ACCOUNT.{name}.CONNS", f"$SYS.ACCOUNT.{name}.SERVER.CONNS")
        heard = [subject for subject in subjects if self._router.has_interest(subject)]
        if not heard:
            return
        if connections is None:
            connections = list(account.connections.values())
        body = account_statistics(self._server_state, account, connections)
        event = self._typed("account_connections", body)
        for subject in heard:
            event["server"] = server_info(self._server_state)
            self._router.publish_message(subject, written(event))

    def account_answer(self, account: ServerAccount) -> bytes | None:
        """The same data for a request; None when the account has no connections."""
        connections = connections_by_account(self._server_state).get(account.name)
        if not connections:
            return None
        body = account_statistics(self._server_state, account, connections)
        return written(self._typed("account_connections", body))

    # -- the server

    def statistics(self) -> None:
        """The periodic event with the server's statistics."""
        subject = f"$SYS.SERVER.{self._server_state.server_id}.STATSZ"
        if self._router.has_interest(subject):
            self._router.publish_message(subject, written(statsz(self._server_state)))

    def leaving(self, lame_duck: bool) -> None:
        """The server stops, or enters lame duck mode."""
        word = "LAMEDUCK" if lame_duck else "SHUTDOWN"
        subject = f"$SYS.SERVER.{self._server_state.server_id}.{word}"
        if self._router.has_interest(subject):
            self._router.publish_message(subject, written(server_info(self._server_state)))

    # -- frames

    def _typed(self, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        head = {
            "type": _ADVISORY + kind,
            "id": self._ids.next(),
            "timestamp": format_time(self._server_state.now_ns),
            "server": server_info(self._server_state),
        }
        return head | body

    def _publish(self, router: Router, subject: str, kind: str, body: dict[str, Any]) -> None:
        router.publish_message(subject, written(self._typed(kind, body)))


def describe(connection: Connection, client: Client, stop: str = "") -> dict[str, Any]:
    """A client in the form of the events; `stop`: the time when it was closed."""
    account = client.account_name
    shown = credentials(client)
    return present(
        start=format_time(connection.start_ns),
        host=client.host,
        id=connection.id,
        acc=account,
        user=client.user,
        name=client.name,
        lang=client.lang,
        ver=client.version,
        rtt=connection.rtt_ns if stop else 0,
        stop=stop,
        jwt=shown.get("jwt"),
        issuer_key=shown.get("issuer_key"),
        name_tag=tag_of(client.account),
        tags=shown.get("tags"),
        kind="Client",
        client_type=type_of(client),
    )


def statsz(server_state: ServerState) -> dict[str, Any]:
    """{server, statsz}."""
    reactor, clients = server_state.reactor, server_state.clients
    sent = {"msgs": reactor.out_msgs, "bytes": reactor.out_bytes}
    received = {"msgs": reactor.in_msgs, "bytes": reactor.in_bytes}
    body: dict[str, Any] = {
        "start": format_time(server_state.start_ns),
        "mem": server_state.memory_bytes(),
        "cores": cores(),
        "cpu": number(server_state.cpu_percent()),
        "connections": clients.open,
        "total_connections": clients.total,
        "active_accounts": len(connections_by_account(server_state)),
        "subscriptions": server_state.subscriptions(),
        "sent": sent,
        "sent_to_clients": sent,
        "received": received,
        "received_from_clients": received,
        "slow_consumers": reactor.slow_consumers,
    }
    body |= present(
        slow_consumer_stats=_kinds(reactor.slow_consumers),
        stale_connections=clients.stale,
        stale_connection_stats=_kinds(clients.stale),
        stalled_clients=reactor.stalls,
    )
    summary = jetstream.summary(server_state)
    if summary:
        summary["config"].pop("store_dir", None)
    body |= {"active_servers": 1}
    body |= present(jetstream=summary)
    body["gomaxprocs"] = 1
    return {"server": server_info(server_state), "statsz": body}


def _kinds(clients: int) -> dict[str, int]:
    return {"clients": clients, "routes": 0, "gateways": 0, "leafs": 0} if clients else {}
