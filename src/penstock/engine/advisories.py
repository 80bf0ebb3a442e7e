"""Advisories: what an account tells about its streams and consumers, to those who listen.

Published under `$JS.EVENT.ADVISORY.`, and only made when somebody is subscribed. Field order is the
order on the wire.
"""

from typing import Annotated

from msgspec import Struct

from penstock.api.calls import ClientInfo
from penstock.api.codec import encode
from penstock.api.fields import OMIT, Time, Uint64
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


class ApiAudit(Advisory, kw_only=True):
    """Somebody made a call of the API."""

    server: str = ""
    client: ClientInfo | None = None
    subject: str = ""
    request: Annotated[str, OMIT] = ""
    response: str = ""
    domain: Annotated[str, OMIT] = ""


API_AUDIT = f"{ADVISORY_PREFIX}.API"
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

    def audited(self) -> bool:
        """Whether anybody wants to know of calls."""
        return self._router.has_interest(API_AUDIT)

    def api_call(self, event: ApiAudit, now_ns: int) -> None:
        """A call was answered; the caller has asked `audited`."""
        event.domain = self._domain
        self._publish(API_AUDIT, "api_audit", event, now_ns)

    def _publish(self, subject: str, kind: str, event: Advisory, now_ns: int) -> None:
        event.type = _TYPE_PREFIX + kind
        event.id = self._ids.next()
        event.timestamp = now_ns
        self._router.publish_message(subject, encode(event))
