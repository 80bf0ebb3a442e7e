"""Advisories: events about the streams and consumers of an account.

They are published under `$JS.EVENT.ADVISORY.`, and made only when a client subscribes to them. The
order of the fields is the order on the wire.
"""

from typing import TYPE_CHECKING, Annotated

from msgspec import Struct, field

from pelton.api.calls import ClientInfo
from pelton.api.codec import encode
from pelton.api.fields import OMIT, Duration, Int64, Time, Uint64
from pelton.api.streams import StreamState
from pelton.api.subjects import ADVISORY_PREFIX
from pelton.core.broker.router import Router
from pelton.nuid import Nuid

if TYPE_CHECKING:
    from collections.abc import Callable

_TYPE_PREFIX = "io.nats.jetstream.advisory.v1."


class Advisory(Struct, kw_only=True):
    """The fields that all advisories have."""

    type: str = ""
    id: str = ""
    timestamp: Time = 0


class StreamAction(Advisory, kw_only=True):
    """A stream was created, modified or deleted."""

    stream: str = ""
    action: str = ""
    domain: Annotated[str, OMIT] = ""


class ConsumerAction(Advisory, kw_only=True):
    """A consumer was created or deleted."""

    stream: str = ""
    consumer: str = ""
    action: str = ""
    domain: Annotated[str, OMIT] = ""


class MaxDeliver(Advisory, kw_only=True):
    """A message reached max_deliver: the consumer does not deliver it again."""

    stream: str = ""
    consumer: str = ""
    stream_seq: Uint64 = 0
    deliveries: Uint64 = 0
    domain: Annotated[str, OMIT] = ""


class Nak(Advisory, kw_only=True):
    """A client refused a message with a NAK."""

    stream: str = ""
    consumer: str = ""
    consumer_seq: Uint64 = 0
    stream_seq: Uint64 = 0
    deliveries: Uint64 = 0
    domain: Annotated[str, OMIT] = ""


class Terminated(Advisory, kw_only=True):
    """A client terminated a message: the consumer does not deliver it again."""

    stream: str = ""
    consumer: str = ""
    consumer_seq: Uint64 = 0
    stream_seq: Uint64 = 0
    deliveries: Uint64 = 0
    reason: Annotated[str, OMIT] = ""
    domain: Annotated[str, OMIT] = ""


class ApiAudit(Advisory, kw_only=True):
    """A client made a call of the API."""

    server: str = ""
    client: ClientInfo | None = None
    subject: str = ""
    request: Annotated[str, OMIT] = ""
    response: str = ""
    domain: Annotated[str, OMIT] = ""


class ApiLimitReached(Advisory, kw_only=True):
    """Requests were refused because too many waited."""

    server: str = ""
    domain: Annotated[str, OMIT] = ""
    dropped: Int64 = 0


class SnapshotCreate(Advisory, kw_only=True):
    """A backup begins."""

    stream: str = ""
    state: StreamState = field(default_factory=StreamState)
    client: ClientInfo | None = None
    domain: Annotated[str, OMIT] = ""


class SnapshotComplete(Advisory, kw_only=True):
    """A backup has ended; `error` is set when it failed."""

    stream: str = ""
    start: Time = 0
    end: Time = 0
    client: ClientInfo | None = None
    domain: Annotated[str, OMIT] = ""
    error: Annotated[str, OMIT] = ""


class RestoreCreate(Advisory, kw_only=True):
    """A restore begins."""

    stream: str = ""
    client: ClientInfo | None = None
    domain: Annotated[str, OMIT] = ""


class RestoreComplete(Advisory, kw_only=True):
    """A restore has ended or failed."""

    stream: str = ""
    start: Time = 0
    end: Time = 0
    bytes: Int64 = 0
    client: ClientInfo | None = None
    domain: Annotated[str, OMIT] = ""


class BatchAbandoned(Advisory, kw_only=True):
    """The server gave up an atomic batch before its commit."""

    account: Annotated[str, OMIT] = ""
    stream: str = ""
    domain: Annotated[str, OMIT] = ""
    batch: str = ""
    reason: str = ""


class Pause(Advisory, kw_only=True):
    """A consumer was paused or resumed."""

    stream: str = ""
    consumer: str = ""
    paused: bool = False
    pause_until: Time = 0
    domain: Annotated[str, OMIT] = ""


class Pinned(Advisory, kw_only=True):
    """A client of a priority group was pinned."""

    account: Annotated[str, OMIT] = ""
    stream: str = ""
    consumer: str = ""
    domain: Annotated[str, OMIT] = ""
    group: str = ""
    pinned_id: str = ""


class Unpinned(Advisory, kw_only=True):
    """A client of a priority group lost the pin."""

    account: Annotated[str, OMIT] = ""
    stream: str = ""
    consumer: str = ""
    domain: Annotated[str, OMIT] = ""
    group: str = ""
    reason: str = ""


class OutOfStorage(Advisory, kw_only=True):
    """The disk is full: messages are refused."""

    server: str = ""
    server_id: str = ""
    stream: Annotated[str, OMIT] = ""
    cluster: str = ""
    domain: Annotated[str, OMIT] = ""


class Acknowledged(Advisory, kw_only=True):
    """The time from the delivery of a message to its ack: a metric."""

    stream: str = ""
    consumer: str = ""
    consumer_seq: Uint64 = 0
    stream_seq: Uint64 = 0
    ack_time: Duration = 0
    deliveries: Uint64 = 0
    domain: Annotated[str, OMIT] = ""


_METRIC_TYPE = "io.nats.jetstream.metric.v1.consumer_ack"
_METRIC_SUBJECT = "$JS.EVENT.METRIC.CONSUMER.ACK"
API_AUDIT = f"{ADVISORY_PREFIX}.API"
_STREAM_EVENTS = {"create": "CREATED", "modify": "UPDATED", "delete": "DELETED"}
_CONSUMER_EVENTS = {"create": "CREATED", "delete": "DELETED"}


class Advisories:
    """Publishes the advisories of one account."""

    def __init__(self, router: Router, ids: Nuid, domain: str, account: str = "$G") -> None:
        """`ids` makes the ids of the events; `account` is named where the protocol has it."""
        self._account = account
        self._router = router
        self._ids = ids
        self._domain = domain
        self.system: Callable[[], Router | None] = lambda: None  # the system account's router

    def stream(self, stream: str, action: str, now_ns: int) -> None:
        """`action`: create, modify or delete."""
        subject = f"{ADVISORY_PREFIX}.STREAM.{_STREAM_EVENTS[action]}.{stream}"
        if self._router.has_interest(subject):
            event = StreamAction(stream=stream, action=action, domain=self._domain)
            self._publish(subject, "stream_action", event, now_ns)

    def consumer(self, stream: str, consumer: str, action: str, now_ns: int) -> None:
        """`action`: create or delete."""
        subject = f"{ADVISORY_PREFIX}.CONSUMER.{_CONSUMER_EVENTS[action]}.{stream}.{consumer}"
        if self._router.has_interest(subject):
            event = ConsumerAction(
                stream=stream, consumer=consumer, action=action, domain=self._domain
            )
            self._publish(subject, "consumer_action", event, now_ns)

    def max_deliver(
        self, stream: str, consumer: str, stream_seq: int, deliveries: int, now_ns: int
    ) -> None:
        """The ack wait of the last delivery is over."""
        subject = f"{ADVISORY_PREFIX}.CONSUMER.MAX_DELIVERIES.{stream}.{consumer}"
        if self._router.has_interest(subject):
            event = MaxDeliver(
                stream=stream,
                consumer=consumer,
                stream_seq=stream_seq,
                deliveries=deliveries,
                domain=self._domain,
            )
            self._publish(subject, "max_deliver", event, now_ns)

    def nak(
        self,
        stream: str,
        consumer: str,
        sequences: tuple[int, int],
        deliveries: int,
        now_ns: int,
    ) -> None:
        """`sequences`: the consumer's and the stream's."""
        subject = f"{ADVISORY_PREFIX}.CONSUMER.MSG_NAKED.{stream}.{consumer}"
        if self._router.has_interest(subject):
            event = Nak(
                stream=stream,
                consumer=consumer,
                consumer_seq=sequences[0],
                stream_seq=sequences[1],
                deliveries=deliveries,
                domain=self._domain,
            )
            self._publish(subject, "nak", event, now_ns)

    def terminated(
        self,
        stream: str,
        consumer: str,
        sequences: tuple[int, int],
        deliveries: int,
        reason: str,
        now_ns: int,
    ) -> None:
        """`sequences`: the consumer's and the stream's."""
        subject = f"{ADVISORY_PREFIX}.CONSUMER.MSG_TERMINATED.{stream}.{consumer}"
        if self._router.has_interest(subject):
            event = Terminated(
                stream=stream,
                consumer=consumer,
                consumer_seq=sequences[0],
                stream_seq=sequences[1],
                deliveries=deliveries,
                reason=reason,
                domain=self._domain,
            )
            self._publish(subject, "terminated", event, now_ns)

    def audited(self) -> bool:
        """Whether a client subscribes to the audit advisories."""
        return self._router.has_interest(API_AUDIT)

    def api_call(self, event: ApiAudit, now_ns: int) -> None:
        """An API call was answered. The caller has checked `audited`."""
        event.domain = self._domain
        self._publish(API_AUDIT, "api_audit", event, now_ns)

    def api_limit_reached(self, server: str, dropped: int, now_ns: int) -> None:
        """So many requests were refused because too many waited."""
        subject = f"{ADVISORY_PREFIX}.API.LIMIT_REACHED"
        if self._router.has_interest(subject):
            event = ApiLimitReached(server=server, domain=self._domain, dropped=dropped)
            self._publish(subject, "api_limit_reached", event, now_ns)

    def snapshot_create(
        self, stream: str, state: StreamState, client: ClientInfo | None, now_ns: int
    ) -> None:
        """A backup of a stream in this state begins; `client` requested it."""
        subject = f"{ADVISORY_PREFIX}.STREAM.SNAPSHOT_CREATE.{stream}"
        if self._router.has_interest(subject):
            event = SnapshotCreate(stream=stream, state=state, client=client, domain=self._domain)
            self._publish(subject, "snapshot_create", event, now_ns)

    def snapshot_complete(
        self, stream: str, start_ns: int, client: ClientInfo | None, now_ns: int, error: str
    ) -> None:
        """A backup has ended; `error` is "" when the whole backup was sent."""
        subject = f"{ADVISORY_PREFIX}.STREAM.SNAPSHOT_COMPLETE.{stream}"
        if self._router.has_interest(subject):
            event = SnapshotComplete(
                stream=stream,
                start=start_ns,
                end=now_ns,
                client=client,
                error=error,
                domain=self._domain,
            )
            self._publish(subject, "snapshot_complete", event, now_ns)

    def restore_create(self, stream: str, client: ClientInfo | None, now_ns: int) -> None:
        """A restore begins."""
        subject = f"{ADVISORY_PREFIX}.STREAM.RESTORE_CREATE.{stream}"
        if self._router.has_interest(subject):
            event = RestoreCreate(stream=stream, client=client, domain=self._domain)
            self._publish(subject, "restore_create", event, now_ns)

    def restore_complete(
        self,
        stream: str,
        start_ns: int,
        client: ClientInfo | None,
        now_ns: int,
        taken_bytes: int,
    ) -> None:
        """A restore has ended; `taken_bytes` were received."""
        subject = f"{ADVISORY_PREFIX}.STREAM.RESTORE_COMPLETE.{stream}"
        if self._router.has_interest(subject):
            event = RestoreComplete(
                stream=stream,
                start=start_ns,
                end=now_ns,
                bytes=taken_bytes,
                client=client,
                domain=self._domain,
            )
            self._publish(subject, "restore_complete", event, now_ns)

    def batch_abandoned(self, stream: str, batch: str, reason: str, now_ns: int) -> None:
        """`reason`: timeout, large, incomplete or unsupported."""
        subject = f"{ADVISORY_PREFIX}.STREAM.BATCH_ABANDONED.{stream}"
        system = self.system()
        told = system is not None and system.has_interest(subject)
        if not told and not self._router.has_interest(subject):
            return
        event = BatchAbandoned(stream=stream, domain=self._domain, batch=batch, reason=reason)
        self._publish(subject, "stream_batch_abandoned", event, now_ns)
        if told and system is not None:
            event.account = self._account
            system.publish_message(subject, encode(event))

    def pause(self, stream: str, consumer: str, until_ns: int, now_ns: int) -> None:
        """`until_ns`: 0 when the consumer was resumed."""
        subject = f"{ADVISORY_PREFIX}.CONSUMER.PAUSE.{stream}.{consumer}"
        if self._router.has_interest(subject):
            event = Pause(
                stream=stream,
                consumer=consumer,
                paused=now_ns < until_ns,
                pause_until=until_ns,
                domain=self._domain,
            )
            self._publish(subject, "consumer_pause", event, now_ns)

    def pinned(self, stream: str, consumer: str, group: str, pin: str, now_ns: int) -> None:
        """A client was pinned."""
        subject = f"{ADVISORY_PREFIX}.CONSUMER.PINNED.{stream}.{consumer}"
        if self._router.has_interest(subject):
            event = Pinned(
                account=self._account,
                stream=stream,
                consumer=consumer,
                domain=self._domain,
                group=group,
                pinned_id=pin,
            )
            self._publish(subject, "consumer_group_pinned", event, now_ns)

    def unpinned(self, stream: str, consumer: str, group: str, reason: str, now_ns: int) -> None:
        """`reason`: admin or timeout."""
        subject = f"{ADVISORY_PREFIX}.CONSUMER.UNPINNED.{stream}.{consumer}"
        if self._router.has_interest(subject):
            event = Unpinned(
                account=self._account,
                stream=stream,
                consumer=consumer,
                domain=self._domain,
                group=group,
                reason=reason,
            )
            self._publish(subject, "consumer_group_unpinned", event, now_ns)

    def out_of_storage(self, server: str, server_id: str, stream: str, now_ns: int) -> None:
        """The disk accepts no more messages of a stream."""
        subject = f"{ADVISORY_PREFIX}.SERVER.OUT_OF_STORAGE"
        if self._router.has_interest(subject):
            event = OutOfStorage(
                server=server, server_id=server_id, stream=stream, domain=self._domain
            )
            self._publish(subject, "server_out_of_space", event, now_ns)

    def acknowledged(
        self,
        stream: str,
        consumer: str,
        sequences: tuple[int, int],
        took: tuple[int, int],
        now_ns: int,
    ) -> None:
        """`sequences`: the consumer's and the stream's; `took`: nanoseconds and deliveries."""
        subject = f"{_METRIC_SUBJECT}.{stream}.{consumer}"
        if self._router.has_interest(subject):
            event = Acknowledged(
                type=_METRIC_TYPE,
                stream=stream,
                consumer=consumer,
                consumer_seq=sequences[0],
                stream_seq=sequences[1],
                ack_time=took[0],
                deliveries=took[1],
                domain=self._domain,
            )
            self._publish(subject, "", event, now_ns)

    def _publish(self, subject: str, kind: str, event: Advisory, now_ns: int) -> None:
        event.type = event.type or _TYPE_PREFIX + kind
        event.id = self._ids.next()
        event.timestamp = now_ns
        self._router.publish_message(subject, encode(event))
