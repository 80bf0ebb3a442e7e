"""kombu's transport, channel and QoS over JetStream. Celery's worker and ``delay()`` call these.

Acks come from any thread: Celery's prefork pool acknowledges in the thread that reads results.
"""

from __future__ import annotations

import logging
import os
import random
import socket
import threading
import time
from datetime import UTC, datetime
from queue import Empty
from typing import TYPE_CHECKING, Any

from kombu.transport import virtual

from pelton.client.base.addresses import TlsOptions, parse_servers
from pelton.client.protocol.options import Options
from pelton.errors import (
    ApiError,
    ConnectError,
    ConnectionClosedError,
    NoRespondersError,
    PeltonError,
    PeltonTimeoutError,
    ProtocolError,
    PullError,
    ServerError,
)
from pelton.nuid import Nuid

from .broker import QueueBroker
from .names import HEADER, BrokerOptions, unpack
from .receiving import Receiver

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pelton.client.base.message import BaseMessage

log = logging.getLogger("pelton.kombu")

ACK = b"+ACK"
NAK = b"-NAK"
TERM = b"+TERM"
IN_PROGRESS = b"+WPI"
SLICE_S = 1.0
"""The longest wait for messages before the limits of the channels are looked at again."""
BROADCAST = "broadcast:"
"""The beginning of the delivery tag of a message that needs no ack."""


class QoS(virtual.QoS):  # type: ignore[misc]  # kombu has no types
    """The deliveries that a channel has not acknowledged. The delivery tag is the ack subject."""

    restore_at_shutdown = False  # the channel gives deliveries back with a NAK when it is closed

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a delivery."""
        self._answer(delivery_tag, ACK)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Give a delivery back to the queue, or never deliver it again."""
        self._answer(delivery_tag, NAK if requeue else TERM)

    def _answer(self, delivery_tag: str, body: bytes) -> None:
        full = not self.can_consume()
        self._quick_ack(delivery_tag)
        if self.channel.connection is not None:
            self.channel.connection.answer(delivery_tag, body, full=full)

    def unanswered(self) -> list[str]:
        """The ack subjects of the deliveries; any thread may ask."""
        dirty = set(self._dirty)
        return [tag for tag in list(self._delivered) if tag not in dirty]

    def restore_unacked(self) -> list[Any]:
        """Give all deliveries back to their queues."""
        for tag in self.unanswered():
            self.reject(tag, requeue=True)
        self._delivered.clear()
        self._dirty.clear()
        return []


class Channel(virtual.Channel):  # type: ignore[misc]  # kombu has no types
    """A channel: queues are consumers, messages have their own acks."""

    QoS = QoS
    supports_fanout = True
    do_restore = False
    body_encoding = None  # payloads hold any bytes

    def __init__(self, connection: Transport, **kwargs: Any) -> None:
        """Of a connected transport."""
        super().__init__(connection, **kwargs)
        self._broadcasts: dict[str, str] = {}

    @property
    def broker(self) -> QueueBroker:
        """The connection for everything but deliveries."""
        broker: QueueBroker = self.connection.broker
        return broker

    # -- queues ------------------------------------------------------------------------------------

    def _new_queue(
        self,
        queue: str,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        expires_ms = (arguments or {}).get("x-expires")
        self.broker.declare(
            queue,
            transient=bool(exclusive or auto_delete or expires_ms),
            expires_s=expires_ms / 1000 if expires_ms else None,
        )

    def _has_queue(self, queue: str, **_: Any) -> bool:
        return self.broker.place(queue) is not None

    def _size(self, queue: str) -> int:
        return self.broker.size(queue)

    def _purge(self, queue: str) -> int:
        return self.broker.purge(queue)

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **_: Any
    ) -> None:
        """Remove a queue with its messages and bindings."""
        if if_empty and self._size(queue):
            return
        for exchange, _routing_key, _arguments in list(self.state.queue_bindings(queue)):
            self.broker.change_bindings(
                exchange, lambda table: [each for each in table if each[2] != queue]
            )
        self.state.queue_bindings_delete(queue)
        self.broker.delete(queue)

    # -- exchanges ---------------------------------------------------------------------------------

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str | None, queue: str) -> None:
        if self.typeof(exchange).type == "fanout":
            self._broadcasts[queue] = exchange
            return
        binding: list[str | None] = [routing_key or "", pattern or "", queue or ""]
        self.broker.change_bindings(
            exchange, lambda table: table if binding in table else [*table, binding]
        )

    def queue_unbind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", **kwargs: Any
    ) -> None:
        """Remove a binding of a queue."""
        exchange = exchange or "amq.direct"
        self.state.binding_delete(queue, exchange, routing_key)
        self._broadcasts.pop(queue, None)
        self.broker.change_bindings(
            exchange,
            lambda table: [each for each in table if (each[0], each[2]) != (routing_key, queue)],
        )

    def get_table(self, exchange: str) -> list[tuple[Any, ...]]:
        """The bindings of an exchange, of all processes."""
        return [tuple(each) for each in self.broker.bindings(exchange)]

    # -- messages ----------------------------------------------------------------------------------

    def _put(self, queue: str, message: dict[str, Any], **_: Any) -> None:
        self.broker.put(queue, message)

    def _put_fanout(self, exchange: str, message: dict[str, Any], *_: Any, **__: Any) -> None:
        self.broker.broadcast(exchange, message)

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        """One message for ``basic_get``; Empty when there is none."""
        self._begin(queue)
        try:
            found = self.connection.receiver.next({queue: 1}, timeout or BASIC_GET_S)
        finally:
            if queue not in self._active_queues:
                self.connection.cancel(queue)
        if found is None:
            raise Empty
        message: dict[str, Any] = self.connection.as_message(found[1])
        return message

    def _begin(self, queue: str) -> None:
        if queue in self._broadcasts:
            subject = self.broker.names.fanout(self._broadcasts[queue])
            self.connection.receiver.listen(queue, subject)
        else:
            self.connection.receiver.consume(queue, self.broker.pulls(queue))

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **kwargs: Any
    ) -> None:
        """Begin to deliver the messages of a queue."""
        if queue not in self._active_queues:
            self._begin(queue)
        super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)
        if no_ack:
            self.connection.without_acks(queue)

    def basic_cancel(self, consumer_tag: str) -> None:
        """End the deliveries of a consumer."""
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is not None and queue not in self._active_queues and self.connection is not None:
            self.connection.cancel(queue)

    def room(self) -> int | None:
        """How many messages the channel takes; None for any number."""
        limit = self.qos.prefetch_count
        return max(0, self.qos.can_consume_max_estimate()) if limit else None

    def close(self) -> None:
        """Give back unacknowledged messages, and end all consumers."""
        if not self.closed and self._qos is not None and self.connection is not None:
            try:
                for consumer in list(self._consumers):
                    self.basic_cancel(consumer)  # an open pull request would get them again
                self._qos.restore_unacked()
            except (PeltonError, OSError) as error:
                log.info(
                    "cannot return unacknowledged deliveries, which the server delivers again after their ack wait: %s",
                    error,
                )
        super().close()


BASIC_GET_S = 0.2
"""How long ``basic_get`` waits for the server's answer."""


class Transport(virtual.Transport):  # type: ignore[misc]  # kombu has no types
    """A connection of kombu: one connection for deliveries, and one for everything else."""

    Channel = Channel
    default_port = 4222
    driver_type = "nats"
    driver_name = "pelton"
    connection_errors = (
        *virtual.Transport.connection_errors,
        ConnectError,
        ConnectionClosedError,
        NoRespondersError,
        ProtocolError,
        PullError,
        ServerError,
        PeltonTimeoutError,
        OSError,
    )
    channel_errors = (*virtual.Transport.channel_errors, ApiError)
    implements = virtual.Transport.implements.extend(
        exchange_type=frozenset(["direct", "topic", "fanout"])
    )

    def __init__(self, client: Any, **kwargs: Any) -> None:
        """For a ``kombu.Connection``; ``establish_connection`` connects."""
        super().__init__(client, **kwargs)
        self.broker: QueueBroker
        self.receiver: Receiver
        self._without_acks: set[str] = set()
        self._ended = threading.Event()
        self._pid = os.getpid()
        self._broadcasts = 0

    def driver_version(self) -> str:
        """The version of Pelton."""
        from importlib.metadata import version

        return version("pelton")

    def establish_connection(self) -> Transport:
        """Connect. Raises ValueError for invalid ``broker_transport_options``."""
        connection = self._options()
        options = BrokerOptions.of(
            self.client.transport_options or {}, self.client.virtual_host or ""
        )
        self._ended.set()  # of the connection before
        self.broker = QueueBroker(connection, options, _now, Nuid(random.SystemRandom()))
        try:
            self.receiver = Receiver(connection)
        except BaseException:
            self.broker.close()
            raise
        self._ended = threading.Event()
        threading.Thread(
            target=self._keep,
            args=(self._ended, self.broker),
            name="pelton-ack-wait",
            daemon=True,
        ).start()
        super().establish_connection()
        return self

    def _options(self) -> Options:
        client = self.client
        host = client.hostname or "127.0.0.1"
        host = f"[{host}]" if ":" in host else host
        servers = parse_servers(f"nats://{host}:{client.port or self.default_port}")
        seconds = client.connect_timeout or 5.0
        user, password = client.userid or "", client.password or ""
        return Options(
            servers=servers,
            name="celery",
            user=user if password else "",
            password=password,
            token="" if password else user,
            tls=_tls(client.ssl),
            connect_timeout=seconds,
            reconnect=False,  # kombu connects again, and declares everything again
        )

    def close_connection(self, connection: Any) -> None:
        """Close all channels, and disconnect."""
        self._ended.set()
        super().close_connection(connection)
        if os.getpid() == self._pid:  # a forked child must not say goodbye for its parent
            self.receiver.close()
            self.broker.close()

    def verify_connection(self, connection: Any) -> bool:
        """Whether the connection is open."""
        return not self.broker.closed

    # -- deliveries --------------------------------------------------------------------------------

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver at least one message to its callback; socket.timeout when none comes in time."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = SLICE_S if deadline is None else deadline - time.monotonic()
            found = self.receiver.next(self._rooms(), max(0.0, min(left, SLICE_S)))
            if found is not None:
                break
            if deadline is not None and time.monotonic() >= deadline:
                raise socket.timeout  # noqa: UP041  # the name that kombu documents
        while found is not None:
            queue, message = found
            if queue in self._without_acks and message.reply:
                self.broker.answer(message.reply, ACK)
            self._deliver(self.as_message(message), queue)
            found = self.receiver.next(self._rooms(), 0.0)

    def _rooms(self) -> dict[str, int | None]:
        rooms: dict[str, int | None] = {}
        for channel in self.channels:
            room = channel.room()
            if room is None or room > 0:
                rooms.update(dict.fromkeys(channel._active_queues, room))
        return rooms

    def as_message(self, message: BaseMessage) -> dict[str, Any]:
        """A delivery as a message of kombu; its delivery tag is the ack subject."""
        found = unpack(message.data, message.header(HEADER))
        if message.reply:
            found["properties"]["delivery_tag"] = message.reply
            again = message.metadata.delivered > 1
            found["properties"]["delivery_info"]["redelivered"] = again
        else:
            self._broadcasts += 1
            found["properties"]["delivery_tag"] = f"{BROADCAST}{self._broadcasts}"
        return found

    def without_acks(self, queue: str) -> None:
        """The messages of this queue are acknowledged before they are delivered."""
        self._without_acks.add(queue)

    def cancel(self, queue: str) -> None:
        """Stop receiving from a queue; messages that were not taken go back to it."""
        self._without_acks.discard(queue)
        for message in self.receiver.cancel(queue):
            if message.reply:
                self.answer(message.reply, NAK, full=False)

    def answer(self, delivery_tag: str, body: bytes, *, full: bool) -> None:
        """Answer a delivery; ``full``: the channel took no messages until now."""
        if not delivery_tag.startswith(BROADCAST):
            confirmed = body == ACK and self.broker.options.confirm_acks
            self.broker.answer(delivery_tag, body, confirmed=confirmed)
        if full:
            self.broker.answer(self.receiver.alarm, b"")

    def _keep(self, ended: threading.Event, broker: QueueBroker) -> None:
        """Tell the server again and again that the deliveries of this process are in progress."""
        while not ended.wait(broker.options.ack_wait / 3):
            if os.getpid() != self._pid:
                return
            try:
                for tag in self._unanswered():
                    broker.answer(tag, IN_PROGRESS)
            except (PeltonError, OSError) as error:
                log.info("cannot extend the ack wait of running tasks: %s", error)
                return  # the connection is lost, and so are its deliveries

    def _unanswered(self) -> Iterable[str]:
        for channel in list(self.channels):
            if channel._qos is not None:
                yield from (
                    tag for tag in channel._qos.unanswered() if not tag.startswith(BROADCAST)
                )
        for message in self.receiver.waiting():
            if message.reply:
                yield message.reply


def _now() -> datetime:
    return datetime.now(UTC)


def _tls(given: Any) -> TlsOptions | None:
    """The TLS settings of ``broker_use_ssl``: True, or the names that Python's ``ssl`` has."""
    if not given:
        return None
    if given is True:
        return TlsOptions()
    import ssl

    known = {"ca_certs", "certfile", "keyfile", "cert_reqs", "server_hostname", "handshake_first"}
    if unknown := set(given) - known:
        raise ValueError(
            f"broker_use_ssl: unknown {', '.join(sorted(unknown))}; known: {', '.join(sorted(known))}"
        )
    return TlsOptions(
        ca_file=given.get("ca_certs"),
        cert_file=given.get("certfile"),
        key_file=given.get("keyfile"),
        hostname=given.get("server_hostname"),
        verify=given.get("cert_reqs", ssl.CERT_REQUIRED) != ssl.CERT_NONE,
        first=bool(given.get("handshake_first", False)),
    )
