"""JetStream for blocking code: streams, consumers, publishing with pipelined acks, pulling, push
and ordered reading.

What is asked and what answers mean is in ``client/jetstream.py``; here it is only sent and awaited.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from penstock.errors import NoResponders, PenstockError

from .blocking_batches import AtomicBatch, FastBatch
from .blocking_publisher import Publisher
from .blocking_pull import PullConsumer
from .blocking_subscription import Subscription
from .columns import MAX_BYTES, ROWS, ColumnReader, read_range
from .durations import Duration, to_seconds
from .jetstream import Headers, Plans, StoredMessage, decode_pub_ack, publish_headers
from .models import AccountInfo, ConsumerConfig, ConsumerInfo, PubAck, StreamConfig, StreamInfo
from .ordered import Ordered
from .publishing import RETRY_S
from .pull import control_reply

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.api.fields import ConsumerAction, DeliverPolicy
    from penstock.core.bulk.columns import Columns

    from .blocking import BlockingClient
    from .blocking_subscription import BlockingMessage
    from .jetstream import Listing, Plan
    from .message import BaseMessage

__all__ = ["JetStream", "Publisher", "PullConsumer", "PushSubscription"]

T = TypeVar("T")

ORDERED_BATCH = 500
PUSH_PENDING_MESSAGES_MAX = 524_288
PUSH_PENDING_BYTES_MAX = 512 * 1024 * 1024


class JetStream:
    """Streams and consumers over a connection; made by ``BlockingClient.jetstream``.

    Every call raises ApiError when the server refuses, Timeout without an answer, NoResponders
    without JetStream.
    """

    def __init__(
        self, client: BlockingClient, *, domain: str | None, prefix: str | None, timeout: float
    ) -> None:
        """``timeout`` in seconds, for every call."""
        self.client = client
        self.plans = Plans(domain, prefix)
        self.timeout = timeout

    def run(self, plan: Plan[T]) -> T:
        """Carry out a plan of ``Plans``."""
        try:
            request = next(plan)
            while True:
                answer = self.client.request(request.subject, request.body, timeout=self.timeout)
                request = plan.send(answer.data)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def account_info(self) -> AccountInfo:
        """What the account uses and may use."""
        return self.run(self.plans.account_info())

    # -- streams
    # ---------------------------------------------------------------------------------------------

    def create_stream(self, config: StreamConfig) -> StreamInfo:
        """Create a stream; fine when it exists with the same config, StreamExists with another."""
        return self.run(self.plans.create_stream(config))

    def update_stream(self, config: StreamConfig) -> StreamInfo:
        """Change a stream to this whole config."""
        return self.run(self.plans.update_stream(config))

    def stream_info(
        self, stream: str, *, subjects_filter: str | None = None, deleted_details: bool = False
    ) -> StreamInfo:
        """Config and state; with a filter also message counts per matching subject."""
        return self.run(self.plans.stream_info(stream, subjects_filter, deleted_details))

    def stream_names(self, subject: str | None = None) -> list[str]:
        """Names in order; with a subject only streams that take messages of it."""
        return self.run(self.plans.stream_names(subject))

    def streams(self, subject: str | None = None) -> list[StreamInfo]:
        """Config and state of every stream, by name."""
        return self.run(self.plans.streams(subject))

    def stream_listing(self, subject: str | None = None) -> Listing[StreamInfo]:
        """Every stream: config and state, or why the server can't say."""
        return self.run(self.plans.stream_listing(subject))

    def delete_stream(self, stream: str) -> None:
        """Remove a stream with its messages and consumers."""
        self.run(self.plans.delete_stream(stream))

    def purge_stream(
        self,
        stream: str,
        *,
        filter_subject: str | None = None,
        seq: int | None = None,
        keep: int | None = None,
    ) -> int:
        """Remove messages: all, of one subject, below ``seq``, or all but the newest ``keep``;
        returns how many.
        """
        return self.run(self.plans.purge_stream(stream, filter_subject, seq, keep))

    def get_message(
        self,
        stream: str,
        seq: int | None = None,
        *,
        last_by_subject: str | None = None,
        next_by_subject: str | None = None,
    ) -> StoredMessage:
        """One stored message; MessageNotFound when there is none."""
        return self.run(self.plans.get_message(stream, seq, last_by_subject, next_by_subject))

    def delete_message(self, stream: str, seq: int, *, erase: bool = True) -> None:
        """Remove one message; ``erase`` also overwrites its bytes on disk."""
        self.run(self.plans.delete_message(stream, seq, erase))

    # -- consumers
    # -------------------------------------------------------------------------------------------

    def create_consumer(
        self, stream: str, config: ConsumerConfig, *, action: ConsumerAction = ""
    ) -> ConsumerInfo:
        """Create or, depending on ``action`` ("create", "update", "" for either), change a
        consumer.
        """
        return self.run(self.plans.create_consumer(stream, config, action))

    def update_consumer(self, stream: str, config: ConsumerConfig) -> ConsumerInfo:
        """Change an existing consumer to this whole config."""
        return self.run(self.plans.create_consumer(stream, config, "update"))

    def consumer_info(self, stream: str, consumer: str) -> ConsumerInfo:
        """Config and state of one consumer."""
        return self.run(self.plans.consumer_info(stream, consumer))

    def consumer_names(self, stream: str) -> list[str]:
        """Names of a stream's consumers in order."""
        return self.run(self.plans.consumer_names(stream))

    def consumers(self, stream: str) -> list[ConsumerInfo]:
        """Config and state of every consumer of a stream, by name."""
        return self.run(self.plans.consumers(stream))

    def consumer_listing(self, stream: str) -> Listing[ConsumerInfo]:
        """Every consumer of a stream: config and state, or why the server can't say."""
        return self.run(self.plans.consumer_listing(stream))

    def delete_consumer(self, stream: str, consumer: str) -> None:
        """Remove a consumer."""
        self.run(self.plans.delete_consumer(stream, consumer))

    # -- messages
    # --------------------------------------------------------------------------------------------

    def publish(
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
    ) -> PubAck:
        """Store a message and wait for the stream's ack.

        NoResponders when no stream takes the subject (in a cluster when none has done so for
        ``timeout``: it may be choosing a leader), WrongLastSequence when an expectation does not
        hold.
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
        seconds = self.timeout if timeout is None else to_seconds(timeout)
        deadline = time.monotonic() + seconds
        while True:
            try:
                answer = self.client.request(subject, data, timeout=seconds, raw_headers=block)
            except NoResponders:
                seconds = deadline - time.monotonic() - RETRY_S
                if seconds <= 0 or not self.client.server_info.cluster:
                    raise
                self.client.wait_until(lambda: False, RETRY_S)
            else:
                return decode_pub_ack(answer.data)

    def publisher(
        self, *, window: int = 1024, timeout: Duration | None = None, attempts_max: int = 3
    ) -> Publisher:
        """A publisher with up to ``window`` acks outstanding; use it in ``with``."""
        seconds = self.timeout if timeout is None else to_seconds(timeout)
        return Publisher(self.client, window, seconds, attempts_max)

    def atomic_batch(self, *, ack_every: int = 100, timeout: Duration | None = None) -> AtomicBatch:
        """A batch that is stored whole or not at all; the stream is asked whether it takes it at
        the first message and then every ``ack_every``.
        """
        seconds = self.timeout if timeout is None else to_seconds(timeout)
        return AtomicBatch(self.client, seconds, ack_every)

    def fast_batch(
        self, *, flow: int = 500, gaps: bool = False, timeout: Duration | None = None
    ) -> FastBatch:
        """A batch of ordinary publishes with an answer per ``flow`` messages at most; use it in
        ``with``. ``gaps``: go on when some are lost on the way or refused.
        """
        seconds = self.timeout if timeout is None else to_seconds(timeout)
        return FastBatch(self.client, seconds, flow, gaps=gaps)

    def pull(self, stream: str, consumer: str) -> PullConsumer:
        """A handle to pull messages of an existing consumer."""
        subject = self.plans.subjects.next_message(stream, consumer)
        return PullConsumer(self.client, stream, consumer, subject)

    def column_reader(self, stream: str, consumer: str, **limits: Any) -> ColumnReader:
        """Read an existing consumer in bulk, without acks; ``limits`` as for ``ColumnReader``."""
        return ColumnReader(self, stream, consumer, **limits)

    def read_columns(
        self,
        stream: str,
        start_seq: int,
        stop_seq: int,
        *,
        filter_subjects: Iterable[str] = (),
        rows: int = ROWS,
        max_bytes: int = MAX_BYTES,
        timeout: Duration | None = None,
    ) -> Iterator[Columns]:
        """The messages with ``start_seq <= seq < stop_seq`` in bulk; see ``read_range``."""
        return read_range(
            self,
            stream,
            start_seq,
            stop_seq,
            filter_subjects=filter_subjects,
            rows=rows,
            max_bytes=max_bytes,
            timeout=timeout,
        )

    def subscribe(
        self, stream: str, config: ConsumerConfig | None = None, *, queue: str = ""
    ) -> PushSubscription:
        """Create a push consumer and receive its messages; without a config an ephemeral one with
        explicit acks.
        """
        config = config or ConsumerConfig(ack_policy="explicit")
        subscription = PushSubscription(self.client)
        subject = config.deliver_subject or self.client.new_inbox()
        changes = {"deliver_subject": subject, "deliver_group": queue or config.deliver_group}
        config = replace(config, **changes)
        self.client.attach(subject, subscription, config.deliver_group)
        try:
            subscription.info = self.create_consumer(stream, config)
        except PenstockError:
            subscription.unsubscribe()
            raise
        return subscription

    def ordered(
        self,
        stream: str,
        *,
        filter_subjects: Iterable[str] = (),
        start_seq: int = 1,
        deliver_policy: DeliverPolicy | None = None,
        headers_only: bool = False,
    ) -> Iterator[BlockingMessage]:
        """The messages of a stream in order and without gaps, for ever; whatever breaks is set up
        again.
        """
        state = Ordered(stream, filter_subjects, start_seq, deliver_policy, headers_only)
        while True:
            handle: PullConsumer | None = None
            try:
                info = self.create_consumer(stream, state.config())
                state.started(info)
                handle = self.pull(stream, info.name)
                for message in handle.messages(batch=ORDERED_BATCH, patient=False):
                    if not state.take(message.metadata):
                        break
                    yield message
            except PenstockError as error:
                if not state.recoverable(error):
                    raise
                self.client.wait_until(lambda: False, RETRY_S)
            finally:
                if handle is not None:
                    handle.close()
                    self._discard(handle)

    def _discard(self, handle: PullConsumer) -> None:
        try:
            self.delete_consumer(handle.stream, handle.consumer)
        except PenstockError:
            return  # it is gone already, or goes by itself when nobody pulls from it


class PushSubscription(Subscription):
    """Messages of a push consumer; heartbeats and flow control are answered on the way."""

    def __init__(self, client: BlockingClient) -> None:
        """``info`` is set once the consumer was created."""
        super().__init__(client, PUSH_PENDING_MESSAGES_MAX, PUSH_PENDING_BYTES_MAX)
        self.info: ConsumerInfo
        """The consumer as created."""

    def receive(self, message: BaseMessage) -> None:
        """A message of the consumer, or a word of the server about it."""
        reply = control_reply(message)
        if reply is None:
            super().receive(message)
        elif reply:
            self.client.connection.publish(reply, b"")
