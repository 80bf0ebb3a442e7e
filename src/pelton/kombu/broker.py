"""Queues, bindings, publishes and acks over one connection, which any thread may use.

Does not depend on kombu's classes.
"""

from __future__ import annotations

import json
import logging
import threading
from typing import TYPE_CHECKING, Any

from pelton.client.base.models import ConsumerConfig, StreamConfig
from pelton.client.sync import connect
from pelton.errors import (
    ApiError,
    ConsumerNotFoundError,
    MessageNotFoundError,
    NoRespondersError,
    PeltonError,
    StreamNotFoundError,
    WrongLastSequenceError,
)

from .names import SOON_S, BrokerOptions, Names, eta_of, pack, priority_of, schedule_headers

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from pelton.client.base.message import HeadersLike
    from pelton.client.protocol.options import Options
    from pelton.client.sync import Client
    from pelton.nuid import Nuid

log = logging.getLogger("pelton.kombu")

EXPIRES_S = 300.0
"""How long a transient queue without ``x-expires`` stays after its last reader."""
TRANSIENT_AGE_S = 86_400
KNOWN_MAX = 10_000
"""The number of queues whose place is remembered."""
BINDING_TRIES = 50


class QueueMismatchError(ValueError):
    """A queue has consumers with priorities, and this process has them without, or the reverse."""


class QueueBroker:
    """The server as kombu sees it. Every method raises PeltonError when the server can't be reached."""

    def __init__(
        self, connection: Options, options: BrokerOptions, now: Callable[[], datetime], nuid: Nuid
    ) -> None:
        """Connects, and makes the streams."""
        self.options = options
        self.names = Names(options.prefix)
        self._now = now
        self._nuid = nuid
        self._lock = threading.RLock()
        self._client: Client = connect(connection)
        self._js = self._client.jetstream(timeout=options.timeout)
        self._transient: dict[str, bool] = {}
        self.schedules = False
        """Whether tasks with an ETA can wait in the stream."""
        try:
            self._make_streams()
        except BaseException:
            self._client.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._client.close()

    @property
    def closed(self) -> bool:
        """Whether the connection is closed."""
        return self._client.closed or not self._client.connected

    # -- streams -----------------------------------------------------------------------------------

    def _make_streams(self) -> None:
        names, options = self.names, self.options
        tasks = StreamConfig(
            name=names.tasks,
            subjects=[f"{names.tasks}.queue.*.*", f"{names.tasks}.delayed.*.*"],
            retention="workqueue",
            storage=options.storage,  # type: ignore[arg-type]  # checked by BrokerOptions
            num_replicas=options.replicas,
            allow_msg_ttl=True,
            allow_msg_schedules=options.schedules,
            allow_direct=True,
        )
        transient = StreamConfig(
            name=names.transient,
            subjects=[f"{names.transient}.*.*"],
            retention="interest",
            storage="memory",
            num_replicas=options.replicas,
            max_age=TRANSIENT_AGE_S,
            allow_msg_ttl=True,
        )
        bindings = StreamConfig(
            name=names.bindings,
            subjects=[f"{names.bindings}.*"],
            storage=options.storage,  # type: ignore[arg-type]  # checked by BrokerOptions
            num_replicas=options.replicas,
            max_msgs_per_subject=1,
        )
        with self._lock:
            self.schedules = self._stream(tasks).allow_msg_schedules and options.schedules
            self._stream(transient)
            self._stream(bindings)

    def _stream(self, config: StreamConfig) -> StreamConfig:
        """The stream as it is; it is made when it is missing."""
        try:
            return self._js.stream_info(config.name).config
        except StreamNotFoundError:
            return self._js.create_stream(config).config

    # -- queues ------------------------------------------------------------------------------------

    def declare(
        self, queue: str, *, transient: bool = False, expires_s: float | None = None
    ) -> None:
        """Make the consumers of a queue; nothing changes when they exist.

        ``expires_s``: how long a transient queue stays without a reader. QueueMismatchError: another process
        uses the queue with, or without, priorities.
        """
        stream = self.names.stream(transient=transient)
        with self._lock:
            if self._transient.get(queue) == transient:
                return
            for name, _ in self.names.consumers(queue, priorities=not self.options.priorities)[:1]:
                if not transient and self._exists(stream, name):
                    raise QueueMismatchError(
                        f"the queue {queue!r} was declared with priorities="
                        f"{not self.options.priorities} in broker_transport_options; "
                        "use the same value, or delete the queue first"
                    )
            for name, priority in self._consumers(queue, transient=transient):
                config = ConsumerConfig(
                    name=name,
                    durable_name=name,
                    filter_subject=self.names.subject(queue, priority, transient=transient),
                    ack_policy="explicit",
                    ack_wait=self.options.ack_wait,
                    max_ack_pending=-1,
                    inactive_threshold=(expires_s or EXPIRES_S) if transient else 0,
                )
                self._js.create_consumer(stream, config)
            self._remember(queue, transient)

    def _consumers(self, queue: str, *, transient: bool) -> list[tuple[str, int | str]]:
        return self.names.consumers(queue, priorities=self.options.priorities and not transient)

    def pulls(self, queue: str) -> list[tuple[str, int]]:
        """The subjects for pull requests of a queue, with their ranks: the highest is first."""
        transient = bool(self.place(queue))
        stream = self.names.stream(transient=transient)
        api = self._js.subjects
        return [
            (api.consumer("MSG.NEXT", stream, name), priority if isinstance(priority, int) else 0)
            for name, priority in self._consumers(queue, transient=transient)
        ]

    def place(self, queue: str) -> bool | None:
        """Whether a queue is transient; None when nobody has declared it."""
        with self._lock:
            known = self._transient.get(queue)
            if known is not None:
                return known
            for transient in (False, True):
                name = self._consumers(queue, transient=transient)[0][0]
                if self._exists(self.names.stream(transient=transient), name):
                    self._remember(queue, transient)
                    return transient
            return None

    def _exists(self, stream: str, consumer: str) -> bool:
        try:
            self._js.consumer_info(stream, consumer)
        except ConsumerNotFoundError:
            return False
        return True

    def _remember(self, queue: str, transient: bool) -> None:
        if len(self._transient) >= KNOWN_MAX:
            self._transient.clear()
        self._transient[queue] = transient

    def size(self, queue: str) -> int:
        """The number of tasks that no worker has yet, without those that wait for their time."""
        with self._lock:
            transient = self.place(queue)
            if transient is None:
                return 0
            stream = self.names.stream(transient=transient)
            total = 0
            for name, _ in self._consumers(queue, transient=transient):
                try:
                    total += self._js.consumer_info(stream, name).num_pending
                except ConsumerNotFoundError:
                    self._transient.pop(queue, None)
            return total

    def purge(self, queue: str) -> int:
        """Remove the tasks of a queue, except those that wait for their time; returns their number."""
        with self._lock:
            transient = self.place(queue)
            if transient is None:
                return 0
            return self._js.purge_stream(
                self.names.stream(transient=transient),
                filter_subject=self.names.subject(queue, "*", transient=transient),
            )

    def delete(self, queue: str) -> None:
        """Remove a queue with its tasks, also those that wait for their time."""
        with self._lock:
            transient = self.place(queue)
            if transient is None:
                return
            self.purge(queue)
            if not transient:
                self._js.purge_stream(
                    self.names.tasks, filter_subject=self.names.delayed(queue, "*")
                )
            for name, _ in self._consumers(queue, transient=transient):
                try:
                    self._js.delete_consumer(self.names.stream(transient=transient), name)
                except ConsumerNotFoundError:
                    continue
            self._transient.pop(queue, None)

    # -- bindings ----------------------------------------------------------------------------------

    def bindings(self, exchange: str) -> list[list[str | None]]:
        """The bindings of an exchange: routing key, pattern and queue."""
        with self._lock:
            return self._bindings(exchange)[0]

    def _bindings(self, exchange: str) -> tuple[list[list[str | None]], int]:
        subject = self.names.binding(exchange)
        try:
            stored = self._js.get_message(self.names.bindings, last_by_subject=subject)
        except MessageNotFoundError:
            return [], 0
        return json.loads(stored.data), stored.seq

    def change_bindings(
        self, exchange: str, change: Callable[[list[list[str | None]]], list[list[str | None]]]
    ) -> None:
        """Store what ``change`` makes of the bindings, also while others change them."""
        for _ in range(BINDING_TRIES):
            with self._lock:
                before, seq = self._bindings(exchange)
                after = change(list(before))
                if after == before:
                    return
                try:
                    self._js.publish(
                        self.names.binding(exchange),
                        json.dumps(after).encode(),
                        expected_last_subject_seq=seq,
                    )
                except WrongLastSequenceError:
                    continue  # another process was faster
                return
        raise PeltonError(f"the bindings of {exchange!r} change too often; try again")

    # -- messages ----------------------------------------------------------------------------------

    def put(self, queue: str, message: dict[str, Any]) -> bool:
        """Store a message for a queue; False when nobody has declared the queue, as in AMQP."""
        transient = self.place(queue)
        if transient is None:
            log.warning("dropped a message for the queue %r, which is not declared", queue)
            return False
        data, headers = pack(message)
        subject = self.names.subject(queue, priority_of(message), transient=transient)
        eta = eta_of(message) if self.schedules and not transient else None
        if eta is not None and (eta - self._now()).total_seconds() > SOON_S:
            headers |= schedule_headers(eta, subject)
            subject = self.names.delayed(queue, self._nuid.next())
        self._store(subject, data, headers, _ttl_s(message), queue)
        return True

    def _store(
        self, subject: str, data: bytes, headers: HeadersLike, ttl_s: float | None, queue: str
    ) -> None:
        with self._lock:
            try:
                self._js.publish(
                    subject, data, headers=headers, msg_id=self._nuid.next(), ttl=ttl_s
                )
            except (NoRespondersError, ApiError):
                self._transient.pop(queue, None)  # the stream may have been created again
                raise

    def broadcast(self, exchange: str, message: dict[str, Any]) -> None:
        """Send a message to every process that listens now."""
        data, headers = pack(message)
        with self._lock:
            self._client.publish(self.names.fanout(exchange), data, headers=headers)

    def answer(self, reply: str, body: bytes, *, confirmed: bool = False) -> None:
        """Acknowledge a delivery, or say that it failed or is in progress."""
        with self._lock:
            if confirmed:
                self._client.request(reply, body, timeout=self.options.timeout)
            else:
                self._client.publish(reply, body)


def _ttl_s(message: dict[str, Any]) -> float | None:
    """The time to live that the sender gave, rounded up to whole seconds; None: for ever."""
    expiration = (message.get("properties") or {}).get("expiration")
    if expiration is None:
        return None
    try:
        milliseconds = int(expiration)
    except (TypeError, ValueError):
        return None
    return max(1, -(-milliseconds // 1000))
