"""JetStream for blocking code: streams, consumers, publishing with pipelined acks, pulling, push and ordered reading.

What is asked and what answers mean is in ``client/jetstream.py``; here it is only sent and awaited.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from penstock.errors import ConnectionLost, PenstockError, PublishFailed, Timeout

from .blocking import BlockingMessage, Subscription
from .columns import MAX_BYTES, ROWS, ColumnReader, read_range
from .jetstream import Headers, Plans, StoredMessage, decode_pub_ack, publish_headers
from .models import AccountInfo, ConsumerConfig, ConsumerInfo, PubAck, StreamConfig, StreamInfo
from .ordered import Ordered
from .publishing import Pending, Window
from .pull import Fetch, Flow, control_reply, pull_body

if TYPE_CHECKING:
    from penstock.core.columns import Columns

    from penstock.api.fields import ConsumerAction, DeliverPolicy

    from .blocking import BlockingClient
    from .connection import Interest
    from .jetstream import Plan
    from .message import Message

T = TypeVar("T")

OUTPUT_BYTES = 64 * 1024  # a publisher writes in blocks of this size
GRACE_S = 2.0  # how much longer than the server's own deadline an answer is waited for


class JetStream:
    """Streams and consumers over a connection; made by ``BlockingClient.jetstream``.

    Every call raises ApiError when the server refuses, Timeout without an answer, NoResponders without JetStream.
    """

    def __init__(
        self, client: BlockingClient, *, domain: str | None, prefix: str | None, timeout: float
    ) -> None:
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

    # -- streams ---------------------------------------------------------------------------------------------

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
        """Remove messages: all, of one subject, below ``seq``, or all but the newest ``keep``; returns how many."""
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

    # -- consumers -------------------------------------------------------------------------------------------

    def create_consumer(
        self, stream: str, config: ConsumerConfig, *, action: ConsumerAction = ""
    ) -> ConsumerInfo:
        """Create or, depending on ``action`` ("create", "update", "" for either), change a consumer."""
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

    def delete_consumer(self, stream: str, consumer: str) -> None:
        """Remove a consumer."""
        self.run(self.plans.delete_consumer(stream, consumer))

    # -- messages --------------------------------------------------------------------------------------------

    def publish(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: Headers | None = None,
        timeout: float | None = None,
        msg_id: str | None = None,
        expected_stream: str | None = None,
        expected_last_seq: int | None = None,
        expected_last_subject_seq: int | None = None,
        expected_last_msg_id: str | None = None,
        ttl: float | None = None,
    ) -> PubAck:
        """Store a message and wait for the stream's ack.

        NoResponders when no stream takes the subject, WrongLastSequence when an expectation does not hold.
        """
        block = publish_headers(
            headers,
            msg_id=msg_id,
            expected_stream=expected_stream,
            expected_last_seq=expected_last_seq,
            expected_last_subject_seq=expected_last_subject_seq,
            expected_last_msg_id=expected_last_msg_id,
            ttl_s=ttl,
        )
        timeout = self.timeout if timeout is None else timeout
        return decode_pub_ack(
            self.client.request(subject, data, timeout=timeout, raw_headers=block).data
        )

    def publisher(
        self, *, window: int = 1024, timeout: float | None = None, attempts_max: int = 3
    ) -> Publisher:
        """A publisher with up to ``window`` acks outstanding; use it in ``with``."""
        return Publisher(self, window, self.timeout if timeout is None else timeout, attempts_max)

    def pull(self, stream: str, consumer: str) -> PullConsumer:
        """A handle to pull messages of an existing consumer."""
        return PullConsumer(self, stream, consumer)

    def column_reader(self, stream: str, consumer: str, **limits: int) -> ColumnReader:
        """Read an existing consumer without acks in bulk; ``limits`` are those of ``ColumnReader``."""
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
        timeout: float | None = None,
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
        """Create a push consumer and receive its messages; without a config an ephemeral one with explicit acks."""
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
        """The messages of a stream in order and without gaps, for ever; whatever breaks is set up again."""
        state = Ordered(stream, filter_subjects, start_seq, deliver_policy, headers_only)
        while True:
            handle: PullConsumer | None = None
            try:
                info = self.create_consumer(stream, state.config())
                state.started(info)
                handle = self.pull(stream, info.name)
                for message in handle.messages(batch=500):
                    if not state.take(message.metadata):
                        break
                    yield message
            except PenstockError as error:
                if not state.recoverable(error):
                    raise
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
        super().__init__(client, 524_288, 512 * 1024 * 1024)
        self.info: ConsumerInfo
        """The consumer as created."""

    def receive(self, message: Message) -> None:
        """A message of the consumer, or a word of the server about it."""
        reply = control_reply(message)
        if reply is None:
            super().receive(message)
        elif reply:
            self.client.connection.publish(reply, b"")


class PullConsumer:
    """Pulls messages of one consumer; made by ``JetStream.pull``."""

    def __init__(self, js: JetStream, stream: str, consumer: str) -> None:
        self.client = js.client
        self.stream = stream
        self.consumer = consumer
        self.interest: Interest
        self._subject = js.plans.subjects.next_message(stream, consumer)
        self._inbox = ""
        self._requests = 0
        self._late: list[Message] = []  # came after their request was given up
        self._take = self._late.append
        self._ended = False

    def receive(self, message: Message) -> None:
        """The client hands over a message for this handle."""
        self._take(message)

    def end(self) -> None:
        """The client says that no message follows."""
        self._ended = True

    def _request(self, body: bytes) -> str:
        if not self._inbox:
            self._inbox = self.client.new_inbox()
            self.client.attach(f"{self._inbox}.*", self)
        self._requests += 1
        reply = f"{self._inbox}.{self._requests}"
        self.client.connection.publish(self._subject, body, reply)
        return reply

    def fetch(
        self,
        batch: int = 1,
        *,
        timeout: float | None = None,
        max_bytes: int = 0,
        no_wait: bool = False,
    ) -> list[BlockingMessage]:
        """Up to ``batch`` messages: as soon as all are there, or those that came within ``timeout`` seconds.

        With no_wait only what the consumer has right now. Returns an empty list when there is nothing.
        Raises PullError, ConsumerDeleted, NoResponders (no such consumer), ConnectionLost, but never with messages in hand.
        """
        timeout = self.client.timeout_of(timeout)
        expires_ns = 0 if no_wait else max(1, round(timeout * 1e9))
        self.client.ensure_open()
        fetch = Fetch(self._subject, "", batch)
        for message in self._late:
            fetch.take(message)
        self._late.clear()
        if not fetch.done:
            reconnects = self.client.reconnects
            body = pull_body(
                batch - len(fetch.messages),
                expires_ns=expires_ns,
                no_wait=no_wait,
                max_bytes=max_bytes,
            )
            fetch.reply = self._request(body)
            self._take = fetch.take
            try:
                over = self.client.wait_until(
                    lambda: fetch.done or self._ended or self.client.lost_since(reconnects),
                    timeout + GRACE_S,
                )
            finally:
                self._take = self._late.append
            if not fetch.messages and self.client.lost_since(reconnects):
                raise ConnectionLost(f"connection lost while pulling: {self.client.last_error}")
            if not over and not fetch.messages:
                raise Timeout(
                    f"no answer to a pull from {self.consumer!r} in {timeout + GRACE_S} s"
                )
        return [message for message in fetch.result() if isinstance(message, BlockingMessage)]

    def messages(
        self, *, batch: int = 500, max_bytes: int = 0, expires: float = 30.0, heartbeat: float = 5.0
    ) -> Iterator[BlockingMessage]:
        """Messages for ever, with overlapping pull requests; ends when the handle or the client is closed.

        Raises ConsumerDeleted, NoResponders and PullError when the consumer cannot be pulled from any more.
        """
        flow = Flow(self._subject, batch, max_bytes, round(expires * 1e9), round(heartbeat * 1e9))
        queue: list[Message] = []
        self._take = queue.append
        try:
            while not self._ended:
                reconnects = self.client.reconnects
                self.client.ensure_open()
                body = flow.due()
                if body is not None:
                    self._request(body)
                    self.client.flush_output()
                if not self.client.wait_until(lambda: bool(queue) or self._ended, 2 * heartbeat):
                    flow.restart()  # not even a heartbeat: the request is lost
                if self.client.lost_since(reconnects):
                    flow.restart()
                received = queue[:]
                queue.clear()
                for at, message in enumerate(received):
                    if flow.take(message):
                        self._late = received[at + 1 :]
                        assert isinstance(message, BlockingMessage)
                        yield message
                        self._late = []
        finally:
            self._late += queue
            self._take = self._late.append

    def close(self) -> None:
        """Stop receiving; the consumer itself stays."""
        if self._inbox and not self.client.closed:
            self.client.connection.unsubscribe(self.interest)
        self._ended = True


class Publisher:
    """Publishes into streams with a bounded window of outstanding acks; made by ``JetStream.publisher``.

    A message that is not acknowledged in time is sent again if it has a message id, and fails otherwise.
    Failures are collected in ``failures`` and raised as PublishFailed by ``flush`` and at the end of ``with``.
    """

    def __init__(self, js: JetStream, window: int, timeout: float, attempts_max: int) -> None:
        self.client = js.client
        self.acked = 0
        """Messages that a stream has acknowledged."""
        self.duplicates = 0
        """How many of them the stream already had."""
        self.last_ack: PubAck | None = None
        self.failures: list[tuple[str, str, Exception]] = []
        self.interest: Interest
        inbox = self.client.new_inbox()
        self._window = Window(inbox, window, timeout, attempts_max)
        self._reconnects = self.client.reconnects
        self.client.attach(f"{inbox}.*", self)

    def __enter__(self) -> Publisher:
        """The publisher itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for every ack; PublishFailed when some did not come."""
        try:
            if kind is None:
                self.flush()
        finally:
            if not self.client.closed:
                self.client.connection.unsubscribe(self.interest)

    def publish(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: Headers | None = None,
        msg_id: str | None = None,
    ) -> None:
        """Queue a message; waits only when the window is full.

        Queued bytes go out in blocks, when the window is full and on ``flush``.
        """
        if self._window.full:
            self._wait(lambda: not self._window.full)
        elif self.client.connection.bytes_waiting > OUTPUT_BYTES or self.client.lost_since(
            self._reconnects
        ):
            self.client.flush_output()
            self._look()
        block = publish_headers(headers, msg_id=msg_id) if headers or msg_id else b""
        entry = self._window.add(subject, data, block, msg_id or "", time.monotonic())
        try:
            self.client.connection.publish(subject, data, entry.reply, block)
        except PenstockError:
            self._window.drop(entry)
            raise

    def flush(self) -> None:
        """Wait until every message is acknowledged or has failed; PublishFailed tells which failed since the last time."""
        self._wait(lambda: not self._window)
        if self.failures:
            failures, self.failures = self.failures, []
            raise PublishFailed(failures)

    def receive(self, message: Message) -> None:
        """The client hands over an ack."""
        settled = self._window.settle(message)
        if settled is None:
            return
        entry, outcome = settled
        if isinstance(outcome, PenstockError):
            self._fail(entry, outcome)
            return
        self.acked += 1
        self.duplicates += outcome.duplicate
        self.last_ack = outcome

    def end(self) -> None:
        """The client is closed: nothing more is acknowledged."""

    def _fail(self, entry: Pending, error: Exception) -> None:
        self.failures.append((entry.subject, entry.msg_id, error))

    def _wait(self, done: Callable[[], bool]) -> None:
        while not done():
            deadline = self._window.next_deadline()
            left = 0.0 if deadline is None else max(0.0, deadline - time.monotonic())
            self.client.wait_until(lambda: done() or self.client.lost_since(self._reconnects), left)
            self._look()

    def _look(self) -> None:
        """Send again or give up what is overdue, or what was under way when the connection broke."""
        lost = self.client.lost_since(self._reconnects)
        if lost:
            self.client.ensure_open()
            self._reconnects = self.client.reconnects
        again, failed = self._window.overdue(time.monotonic(), lost)
        for entry in again:
            self.client.connection.publish(entry.subject, entry.payload, entry.reply, entry.headers)
        for entry in failed:
            self._fail(entry, self._window.timeout_error(entry))
