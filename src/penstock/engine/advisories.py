"""Advisories: what an account tells about its streams and consumers, to those who listen.

Published under `$JS.EVENT.ADVISORY.`, and only made when somebody is subscribed. Field order is the
order on the wire.
"""

from typing import Annotated

from msgspec import Struct, field

from penstock.api.codec import encode
from penstock.api.fields import OMIT, Int64, Time, Uint64
from penstock.api.streams import StreamState
from penstock.api.subjects import ADVISORY_PREFIX
from penstock.core.router import Router
from penstock.nuid import Nuid

_TYPE_PREFIX = "io.nats.jetstream.advisory.v1."


class Advisory(Struct, kw_only=True):
    """What all of them carry."""

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
    """A message has been delivered as often as it may be."""

    stream: str = ""
    consumer: str = ""
    stream_seq: Uint64 = 0
    deliveries: Uint64 = 0
    domain: Annotated[str, OMIT] = ""


class Nak(Advisory, kw_only=True):
    """A client asked for a message again."""

    stream: str = ""
    consumer: str = ""
    consumer_seq: Uint64 = 0
    stream_seq: Uint64 = 0
    deliveries: Uint64 = 0
    domain: Annotated[str, OMIT] = ""


class Terminated(Advisory, kw_only=True):
    """A message will not be delivered any more."""

    stream: str = ""
    consumer: str = ""
    consumer_seq: Uint64 = 0
    stream_seq: Uint64 = 0
    deliveries: Uint64 = 0
    reason: Annotated[str, OMIT] = ""
    domain: Annotated[str, OMIT] = ""


class SnapshotCreate(Advisory, kw_only=True):
    """A backup begins."""

    stream: str = ""
    state: StreamState = field(default_factory=StreamState)
    domain: Annotated[str, OMIT] = ""


class SnapshotComplete(Advisory, kw_only=True):
    """A backup has ended; `error`: it failed."""

    stream: str = ""
    start: Time = 0
    end: Time = 0
    domain: Annotated[str, OMIT] = ""
    error: Annotated[str, OMIT] = ""


class RestoreCreate(Advisory, kw_only=True):
    """A restore begins."""

    stream: str = ""
    domain: Annotated[str, OMIT] = ""


class RestoreComplete(Advisory, kw_only=True):
    """A restore has ended, well or not."""

    stream: str = ""
    start: Time = 0
    end: Time = 0
    bytes: Int64 = 0
    domain: Annotated[str, OMIT] = ""


_STREAM_EVENTS = {"create": "CREATED", "modify": "UPDATED", "delete": "DELETED"}
_CONSUMER_EVENTS = {"create": "CREATED", "delete": "DELETED"}


class Advisories:
    """Publishes the advisories of one account."""

    def __init__(self, router: Router, ids: Nuid, domain: str) -> None:
        """`ids` names the events."""
        self._router = router
        self._ids = ids
        self._domain = domain

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
        """The last attempt's ack wait is over."""
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
        """`sequences`: consumer's, stream's."""
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
        """`sequences`: consumer's, stream's."""
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

    def snapshot_create(self, stream: str, state: StreamState, now_ns: int) -> None:
        """A backup begins, of a stream in this state."""
        subject = f"{ADVISORY_PREFIX}.STREAM.SNAPSHOT_CREATE.{stream}"
        if self._router.has_interest(subject):
            event = SnapshotCreate(stream=stream, state=state, domain=self._domain)
            self._publish(subject, "snapshot_create", event, now_ns)

    def snapshot_complete(self, stream: str, start_ns: int, now_ns: int, error: str) -> None:
        """A backup has ended; `error`: "" when all of it went out."""
        subject = f"{ADVISORY_PREFIX}.STREAM.SNAPSHOT_COMPLETE.{stream}"
        if self._router.has_interest(subject):
            event = SnapshotComplete(
                stream=stream, start=start_ns, end=now_ns, error=error, domain=self._domain
            )
            self._publish(subject, "snapshot_complete", event, now_ns)

    def restore_create(self, stream: str, now_ns: int) -> None:
        """A restore begins."""
        subject = f"{ADVISORY_PREFIX}.STREAM.RESTORE_CREATE.{stream}"
        if self._router.has_interest(subject):
            event = RestoreCreate(stream=stream, domain=self._domain)
            self._publish(subject, "restore_create", event, now_ns)

    def restore_complete(self, stream: str, start_ns: int, now_ns: int, taken_bytes: int) -> None:
        """A restore has ended; `taken_bytes` came."""
        subject = f"{ADVISORY_PREFIX}.STREAM.RESTORE_COMPLETE.{stream}"
        if self._router.has_interest(subject):
            event = RestoreComplete(
                stream=stream, start=start_ns, end=now_ns, bytes=taken_bytes, domain=self._domain
            )
            self._publish(subject, "restore_complete", event, now_ns)

    def _publish(self, subject: str, kind: str, event: Advisory, now_ns: int) -> None:
        event.type = _TYPE_PREFIX + kind
        event.id = self._ids.next()
        event.timestamp = now_ns
        self._router.publish_message(subject, encode(event))
