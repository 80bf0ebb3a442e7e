"""JetStream: messages into streams with an ack, and the doors to consumers, buckets and groups.

A publish with its ack, from the call to the socket::

    JetStream.publish ──► _store ──► client._persevere ──► client._request ──► Requests.ask ──► Connection.publish
                            └── decode_pub_ack, when the stream's answer has arrived
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING

from pelton.api.calls import MsgGetRequest
from pelton.errors import (
    ApiError,
    MessageNotFoundError,
    NoRespondersError,
    StreamNotFoundError,
    WrongLastSequenceError,
)

from ..base.answers import IN_PROCESS, decode_pub_ack
from ..base.arguments import check_literal, check_number, check_texts, refuse
from ..base.mailbox import RETRY_S
from ..base.message import MSG_ID, HeadersLike, merged_headers, publish_headers
from ..base.models import ConsumerConfig, ConsumerInfo, PubAck
from ..consume.ordered import INACTIVE_THRESHOLD_S, Position
from ..session.requests import Once, Sent
from ..stored import SUBJECTS_OF_A_GET, Schedule, pattern_of, schedule_headers, schedule_of
from .buckets import ConsumerGroups, KeyValues, ObjectStores
from .columns import ColumnReading
from .consumers import Consumer, OrderedConsumer, PushConsumer
from .locks import locked
from .publishing import AtomicBatch, FastBatch, Publisher
from .stored import Counter, StoredMessages

if TYPE_CHECKING:
    from pelton.api.fields import DeliverPolicy, ReplayPolicy

    from ..base.durations import Duration, Moment


class JetStream(KeyValues, ObjectStores, ConsumerGroups, StoredMessages, ColumnReading):
    """Streams, consumers and buckets over a connection; made by ``Client.jetstream``.

    Every call raises ApiError when the server refuses, PeltonTimeoutError without an answer, NoRespondersError
    without JetStream.

    ::

        js = nc.jetstream(timeout=10)
        await js.create_stream(StreamConfig(name="ORDERS", subjects=["orders.>"], max_age="7d"))
        ack = await js.publish("orders.new", b"42 bolts", msg_id="order-1")
    """

    # -- messages ----------------------------------------------------------------------------------

    async def publish(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: HeadersLike | None = None,
        timeout: Duration | None = None,
        msg_id: str | None = None,
        expected_stream: str | None = None,
        expected_last_seq: int | None = None,
        expected_last_subject_seq: int | None = None,
        expected_last_msg_id: str | None = None,
        ttl: Duration | None = None,
    ) -> PubAck:
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
        return await self._store(subject, data, block, timeout, once=once)

    async def _store(
        self,
        subject: str,
        data: bytes,
        block: bytes,
        timeout: Duration | None = None,
        *,
        once: Once | None = None,
    ) -> PubAck:
        """Publish a message with this header block, and wait for the stream's ack.

        ``once``: the stream stores it once however often it is sent, so it is sent again when the
        connection breaks or no ack comes.
        """
        seconds = self._seconds_of(timeout)
        deadline, sent = self.client._clock() + seconds, Sent()
        while True:
            try:
                answer = await self.client._persevere(
                    subject, data, seconds, block, again=None if once is None else sent
                )
                return decode_pub_ack(answer.data)
            except NoRespondersError:
                raise NoRespondersError(subject, "no stream stores this subject") from None
            except WrongLastSequenceError:
                first = None
                # The second copy may be refused because the first one was stored, and changed the sequence.
                if once is not None and sent.times > 1:
                    first = await self._first_copy(subject, once)
                if first is None:
                    raise
                return first
            except ApiError as error:
                seconds = deadline - self.client._clock() - RETRY_S
                if once is None or error.err_code != IN_PROCESS or seconds <= 0:
                    raise
                await self.client._sleep(RETRY_S)  # the first copy is being stored

    async def _first_copy(self, subject: str, once: Once) -> PubAck | None:
        """The ack of an earlier copy of a message, if the expectation fails because of that copy.

        A nats-server without a cluster looks at the expectation before it looks at the id.
        """
        stream = once.stream
        if not stream:
            stream = "".join((await self.stream_names(subject))[:1])
        try:
            if once.last_seq is not None:
                # If the first copy was stored, it is the very next message after the expected one.
                found = await self.get_message(stream, once.last_seq + 1)
            else:
                after = (once.last_subject_seq or 0) + 1
                found = await self.get_message(
                    stream, after, next_by_subject=once.subject or subject
                )
        except (MessageNotFoundError, StreamNotFoundError, ValueError):
            return None
        if found.headers.get(MSG_ID) != once.msg_id:
            return None
        return PubAck(stream=stream, seq=found.seq, duplicate=True)

    # -- many messages -----------------------------------------------------------------------------

    @locked
    def publisher(
        self, *, window: int = 1024, timeout: Duration | None = None, attempts_max: int = 3
    ) -> Publisher:
        """A publisher with up to ``window`` outstanding acks, and ``timeout`` for one attempt.

        Use it in ``async with``.
        """
        return Publisher(self, window=window, timeout=timeout, attempts_max=attempts_max)

    @locked
    def atomic_batch(self, *, ack_every: int = 100, timeout: Duration | None = None) -> AtomicBatch:
        """Open a batch that is stored as a whole, or not at all.

        The stream is asked whether it takes the batch at the first message, and then every
        ``ack_every``.
        """
        return AtomicBatch(self, ack_every=ack_every, timeout=timeout)

    @locked
    def fast_batch(
        self, *, flow: int = 500, gaps: bool = False, timeout: Duration | None = None
    ) -> FastBatch:
        """Open a batch of ordinary publishes with at least one answer per ``flow`` messages.

        Use it in ``async with``. With ``gaps`` it goes on when messages do not arrive or are refused.
        """
        return FastBatch(self, flow=flow, gaps=gaps, timeout=timeout)

    def counter(self, stream: str) -> Counter:
        """The counters of a stream, which has to exist and to have ``allow_msg_counter``."""
        return Counter(self, stream)

    # -- schedules ---------------------------------------------------------------------------------

    async def schedule(
        self,
        subject: str,
        data: bytes = b"",
        *,
        target: str,
        at: Moment | None = None,
        every: Duration | None = None,
        cron: str | None = None,
        delay: Duration | None = None,
        source: str | None = None,
        time_zone: str | None = None,
        ttl: Duration | None = None,
        rollup: bool = False,
        headers: HeadersLike | None = None,
        timeout: Duration | None = None,
    ) -> PubAck:
        """Let a stream publish ``data`` to ``target``: once or again and again.

        Give one of ``at`` (a datetime with its zone, RFC 3339 text, nanoseconds), ``delay`` from now
        on, ``every`` (a second or more), and ``cron`` (six fields, seconds first, or @hourly, @daily,
        ... in ``time_zone``, UTC by default). ``subject`` names the schedule and replaces the one that
        it has. ``source``: a subject whose last message is published in place of ``data``. ``ttl``:
        how long the stream keeps what it produces. ``rollup``: each one replaces those before.

        The stream needs ``allow_msg_schedules`` and takes both subjects. Raises ValueError,
        InvalidSubjectError, ApiError when the stream refuses, and the errors of ``publish``.
        """
        pattern = pattern_of(at, every, cron, delay, self.client._now_ns())
        own = schedule_headers(
            subject, target, pattern, source=source, time_zone=time_zone, ttl=ttl, rollup=rollup
        )
        return await self.publish(
            subject, data, headers=merged_headers(headers, own), timeout=timeout
        )

    async def iter_schedules(self, stream: str, subject: str = ">") -> AsyncIterator[Schedule]:
        """The schedules of a stream, on subjects that match ``subject``, in any order.

        With ``allow_direct`` a request returns many of them, otherwise one.
        """
        check_texts(subject=subject)
        info = await self.stream_info(stream, subjects_filter=subject)
        subjects = sorted(info.state.subjects)
        if not info.config.allow_direct:
            for each in subjects:
                found = await self._schedule_on(stream, each)
                if found is not None:
                    yield found
            return
        for start in range(0, len(subjects), SUBJECTS_OF_A_GET):
            request = MsgGetRequest(multi_last=subjects[start : start + SUBJECTS_OF_A_GET])
            # all of them first: whoever leaves this iteration leaves no get open
            page = [each async for each in self._direct_gets(stream, request, None, schedule_of)]
            for schedule in page:
                yield schedule

    async def cancel_schedule(self, stream: str, subject: str) -> bool:
        """Remove the schedule on a subject; False when there is none.

        Messages that it produced stay.
        """
        check_literal(subject)
        found = await self._schedule_on(stream, subject)
        if found is None:
            return False
        await self.delete_message(stream, found.seq, erase=False)
        return True

    async def _schedule_on(self, stream: str, subject: str) -> Schedule | None:
        try:
            message = await self.get_message(stream, last_by_subject=subject)
        except MessageNotFoundError:
            return None
        return schedule_of(message)

    # -- consumers ---------------------------------------------------------------------------------

    async def consumer(self, stream: str, name: str, *, verify: bool = True) -> Consumer:
        """A pull consumer that exists, for ``next``, ``fetch`` and ``consume``.

        Raises ConsumerNotFoundError, StreamNotFoundError, and ValueError for a push consumer. With
        ``verify=False`` nothing is asked: for a user who may pull from a consumer and not look it up.
        """
        check_texts(name=name)
        if not verify:
            unknown = ConsumerConfig(name=name, ack_policy="explicit")
            return Consumer(self, ConsumerInfo(stream_name=stream, name=name, config=unknown))
        return Consumer(self, await self.consumer_info(stream, name))

    def ordered_consumer(
        self,
        stream: str,
        *,
        filter_subjects: str | Iterable[str] = (),
        deliver_policy: DeliverPolicy | None = None,
        start_seq: int = 1,
        start_time: Moment | None = None,
        headers_only: bool = False,
        replay_policy: ReplayPolicy = "instant",
        inactive_threshold: Duration = INACTIVE_THRESHOLD_S,
        name_prefix: str = "",
    ) -> OrderedConsumer:
        """An ordered consumer of an existing stream: every message once and in order, without acks.

        Begins at ``start_seq``, at ``start_time``, or where ``deliver_policy`` says ("last", "new",
        "last_per_subject", "all"). Its consumers on the server are made as needed, and named
        ``<name_prefix>_<unique>`` when a prefix is given; the server removes one that is unused for
        ``inactive_threshold``. A stream that was deleted and made again is read from its first message.
        ValueError for a start that is given twice, or a bad name. A stream that does not exist is
        noticed by the first operation.
        """
        check_number("start_seq", start_seq)
        check_texts(name_prefix=name_prefix)
        if not isinstance(filter_subjects, Iterable):
            refuse("filter_subjects", "text or an iterable of texts", filter_subjects)
        if (start_seq != 1) + (start_time is not None) + (deliver_policy is not None) > 1:
            raise ValueError("give one of start_seq, start_time and deliver_policy")
        if start_seq < 1:
            raise ValueError(f"start_seq is at least 1, got {start_seq}")
        self.subjects.stream("INFO", stream)  # ValueError for a bad name
        if name_prefix:
            # The same for the prefix, before anything is sent.
            self.subjects.consumer("INFO", stream, name_prefix)
        base = ConsumerConfig(
            opt_start_time=start_time,
            replay_policy=replay_policy,
            inactive_threshold=inactive_threshold,
        )
        policy = "by_start_time" if start_time is not None else deliver_policy
        position = Position(stream, filter_subjects, start_seq, policy, headers_only, base)
        return OrderedConsumer(self, position, name_prefix)

    async def push_consumer(self, stream: str, name: str) -> PushConsumer:
        """A push consumer that exists, for ``next``, ``fetch`` and ``consume``.

        Raises ConsumerNotFoundError, StreamNotFoundError, and ValueError for a pull consumer.
        """
        check_texts(name=name)
        return PushConsumer(self, await self.consumer_info(stream, name))
