"""JetStream over a session, without a transport: publishing with one ack, ordered reading, push
consumers. ``plans/jetstream.py`` has the requests and answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec.structs import replace

from pelton.errors import (
    ApiError,
    MessageNotFoundError,
    NoRespondersError,
    PeltonError,
    StreamNotFoundError,
    WrongLastSequenceError,
)

from ..base.durations import Duration, to_seconds
from ..base.message import BaseMessage
from ..base.models import ConsumerConfig, ConsumerInfo, PubAck
from ..base.steps import RETRY_S, Attach, Mailbox, Sent, call, flow, pausing, planned
from ..plans.jetstream import MSG_ID, Headers, Plans, decode_pub_ack, publish_headers
from ..plans.management import ManagementPlans
from ..session.own_consumers import OwnConsumers
from .ordered import Ordered
from .publishing import IN_PROCESS
from .pull import control_reply
from .pulling import Pulling
from .schedules import Scheduling

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from pelton.api.fields import DeliverPolicy

    from ..base.steps import Flow, Step, Steps
    from ..session.session import Session
    from ..session.subscribing import Subscribed

M = TypeVar("M", bound=BaseMessage)

ORDERED_BATCH = 500
PUSH_PENDING_MESSAGES_MAX = 524_288
PUSH_PENDING_BYTES_MAX = 512 * 1024 * 1024


class Once(NamedTuple):
    """What makes it safe to send a message again: its id, and what tells its first copy from another message."""

    msg_id: str
    stream: str | None = None
    last_seq: int | None = None
    last_subject_seq: int | None = None
    subject: str = ""
    """Under which it is stored, when that is not the subject it is published to."""


class Streams(Scheduling[M]):
    """Streams and consumers over a connection.

    Every call raises ApiError when the server refuses, PeltonTimeoutError without an answer, NoRespondersError
    without JetStream.
    """

    def __init__(
        self, client: Session[M], *, domain: str | None, prefix: str | None, timeout: float
    ) -> None:
        """``timeout`` of every call, in seconds."""
        self.client = client
        """The client that it belongs to."""
        own = domain is None and prefix is None
        self._plans = ManagementPlans(
            domain, prefix, timeout, lambda: client.server_info.api_lvl if own else 0
        )
        self.timeout = timeout
        """How long its calls wait for an answer, in seconds, unless they are told."""

    def _seconds_of(self, timeout: Duration | None) -> float:
        """The timeout in seconds: the given one, or that of every call."""
        return self.timeout if timeout is None else to_seconds(timeout)

    # -- the API -----------------------------------------------------------------------------------

    account_info = planned(Plans.account_info)

    create_stream = planned(Plans.create_stream)
    update_stream = planned(Plans.update_stream)
    stream_info = planned(Plans.stream_info)
    stream_names = planned(Plans.stream_names)
    streams = planned(Plans.streams)
    stream_listing = planned(Plans.stream_listing)
    delete_stream = planned(Plans.delete_stream)
    purge_stream = planned(Plans.purge_stream)
    get_message = planned(Plans.get_message)
    delete_message = planned(Plans.delete_message)

    create_consumer = planned(Plans.create_consumer)
    update_consumer = planned(Plans.update_consumer)
    consumer_info = planned(Plans.consumer_info)
    consumer_names = planned(Plans.consumer_names)
    consumers = planned(Plans.consumers)
    consumer_listing = planned(Plans.consumer_listing)
    delete_consumer = planned(Plans.delete_consumer)

    # -- messages ----------------------------------------------------------------------------------

    def _publishing(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: Headers | None = None,
        timeout: Duration | None = None,
        msg_id: str | None = None,
        expected_stream: str | None = None,
        expected_last_seq: int | None = None,
        expected_last_subject_seq: int | None = None,
        expected_last_msg_id: str | None = None,
        ttl: Duration | None = None,
    ) -> Steps[PubAck]:
        """Store a message and wait for the stream's ack.

        Raises NoRespondersError when no stream takes the subject (in a cluster only after ``timeout``,
        because the stream may be electing a leader), WrongLastSequenceError when an expectation does not
        hold, and PeltonTimeoutError or ConnectionLostError when no ack came: then it is unknown whether the
        message is stored. With a ``msg_id`` it is sent again instead, until ``timeout`` is over, because the
        stream stores it once; the ack may be that of a duplicate then.
        """
        block = publish_headers(
            headers,
            msg_id=msg_id,
            expected_stream=expected_stream,
            expected_last_seq=expected_last_seq,
            expected_last_subject_seq=expected_last_subject_seq,
            expected_last_msg_id=expected_last_msg_id,
            ttl=ttl,
        )
        once = None
        if msg_id:
            once = Once(msg_id, expected_stream, expected_last_seq, expected_last_subject_seq)
        return (yield from self._storing(subject, data, block, timeout, once=once))

    publish = call(_publishing)

    def _storing(
        self,
        subject: str,
        data: bytes,
        block: bytes,
        timeout: Duration | None = None,
        *,
        once: Once | None = None,
    ) -> Steps[PubAck]:
        """Publish a message with this header block, and wait for the stream's ack.

        ``once``: the stream stores it once however often it is sent, so it is sent again when the
        connection breaks or no ack comes.
        """
        seconds = self._seconds_of(timeout)
        deadline, sent = self.client._clock() + seconds, Sent()
        while True:
            try:
                answer = yield from self.client._persevering(
                    subject, data, seconds, block, again=None if once is None else sent
                )
                return decode_pub_ack(answer.data)
            except NoRespondersError:
                raise NoRespondersError(subject, "no stream stores this subject") from None
            except WrongLastSequenceError:
                first = None
                if once is not None and sent.times > 1:
                    first = yield from self._first_copy(subject, once)
                if first is None:
                    raise
                return first
            except ApiError as error:
                seconds = deadline - self.client._clock() - RETRY_S
                if once is None or error.err_code != IN_PROCESS or seconds <= 0:
                    raise
                yield from pausing()  # the first copy is being stored

    def _first_copy(self, subject: str, once: Once) -> Steps[PubAck | None]:
        """The ack of an earlier copy of a message, if the expectation fails because of that copy.

        A nats-server without a cluster looks at the expectation before it looks at the id.
        """
        stream = once.stream
        if not stream:
            stream = "".join((yield from self._plans.stream_names(subject))[:1])
        try:
            if once.last_seq is not None:
                found = yield from self._plans.get_message(stream, once.last_seq + 1)
            else:
                found = yield from self._plans.get_message(
                    stream,
                    (once.last_subject_seq or 0) + 1,
                    next_by_subject=once.subject or subject,
                )
        except (MessageNotFoundError, StreamNotFoundError, ValueError):
            return None
        if found.headers.get(MSG_ID) != [once.msg_id]:
            return None
        return PubAck(stream=stream, seq=found.seq, duplicate=True)

    def _ordering(
        self,
        stream: str,
        *,
        filter_subjects: Iterable[str] = (),
        start_seq: int = 1,
        deliver_policy: DeliverPolicy | None = None,
        headers_only: bool = False,
    ) -> Flow[M]:
        """The messages of a stream in order and without gaps, without end; creates a new consumer as needed.

        The consumer is removed when the reader is left: in asyncio at once only through
        ``contextlib.aclosing``.
        """
        return self._following(
            Ordered(stream, filter_subjects, start_seq, deliver_policy, headers_only)
        )

    ordered = flow(_ordering)

    def _following(self, state: Ordered) -> Flow[M]:
        """The messages from a position on, without end; creates a new consumer as needed.

        Ends when the owner closes the client.
        """
        consumers = OwnConsumers(self.client, self._plans, state.stream)
        collected = False
        try:
            while not (yield from self._following_with(consumers, state)):
                yield from consumers.removing()
        except GeneratorExit:  # nobody carries out steps
            collected = True
            raise
        finally:
            if not collected:
                yield from consumers.removing()

    def _following_with(
        self, consumers: OwnConsumers, state: Ordered
    ) -> Generator[Step | M, Any, bool]:
        """The messages of one consumer; returns whether no message follows."""
        handle: Pulling[M] | None = None
        try:
            yield from state.checking(self._plans)
            info = yield from consumers.creating(state.config())
            state.started(info)
            handle = Pulling(self, state.stream, info.name)
            yield from consumers.removing(keep=info.name)
            reading = yield from handle._begin_reading(batch=ORDERED_BATCH, patient=False)
            while (yield from reading.refill()):
                for message in reading.at_hand():
                    if not state.take(message.metadata):
                        return False
                    yield message
        except PeltonError as error:
            if self.client.closed or not state.recoverable(error):
                raise
            yield from pausing()
            return False
        finally:
            if handle is not None:
                handle.close()
        return True

    def _pushing(
        self, stream: str, config: ConsumerConfig | None, queue: str, subscription: Subscribed[Any]
    ) -> Steps[ConsumerInfo]:
        """Create a push consumer whose messages the subscription receives."""
        config = config or ConsumerConfig(ack_policy="explicit")
        config = replace(
            config,
            deliver_subject=config.deliver_subject or self.client.new_inbox(),
            deliver_group=queue or config.deliver_group,
        )
        own = OwnConsumers(self.client, self._plans, stream)
        yield Attach(config.deliver_subject, subscription, config.deliver_group)
        try:
            if config.name or config.durable_name:
                return (yield from self._plans.create_consumer(stream, config))
            info = yield from own.creating(config)
            own.give(info.name)  # the server removes it when its subscription has gone
            return info
        except BaseException:
            yield from subscription._unsubscribing()
            yield from own.removing()
            raise


class Pushed(Mailbox):
    """Mixin for the subscription of a push consumer, which answers heartbeats and flow control."""

    client: Any
    info: ConsumerInfo
    """The consumer as it was created."""

    def _on_message(self, message: BaseMessage) -> None:
        """A message of the consumer, or a control message of the server."""
        reply = control_reply(message)
        if reply is None:
            super()._on_message(message)  # type: ignore[misc]  # of the subscription
        elif reply:
            self.client._connection.publish(reply, b"")
            self.client._plan_flush()
