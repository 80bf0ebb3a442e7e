"""An ordered consumer: every message of a stream once and in order, through consumers that come and go.

``Ordered`` keeps the position: the first stream sequence that the user has not got. After a gap in
consumer sequences, a loss of the consumer, or a change of operations the next consumer begins there.
Does not depend on a transport.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pelton.errors import (
    ConsumerBusyError,
    ConsumerDeletedError,
    NoRespondersError,
    PeltonError,
    PullError,
    StreamNotFoundError,
)

from ..base.durations import Duration, Moment, to_nanoseconds
from ..base.message import BaseMessage
from ..base.models import ConsumerConfig, ConsumerInfo
from ..base.steps import RETRY_S, call, pausing
from ..jetstream.ordered import INACTIVE_THRESHOLD_S, Ordered
from ..jetstream.pull import CONFLICT, HEARTBEAT, check_most
from ..jetstream.pulling import Pulling
from ..session.own_consumers import OwnConsumers
from .handles import TIMEOUT_S
from .pulled import PullIntake
from .requests import Asking, size_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pelton.api.fields import DeliverPolicy, ReplayPolicy

    from ..base.steps import Steps
    from ..jetstream.streams import Streams
    from .intake import Intake, OnMissing
    from .requests import Sizes

M = TypeVar("M", bound=BaseMessage)


class Ordering(Generic[M]):
    """An ordered consumer of a stream. One operation at a time."""

    def __init__(
        self,
        js: Streams[M],
        stream: str,
        *,
        filter_subjects: Iterable[str] = (),
        deliver_policy: DeliverPolicy | None = None,
        start_seq: int = 1,
        start_time: Moment | None = None,
        headers_only: bool = False,
        replay_policy: ReplayPolicy = "instant",
        inactive_threshold: Duration = INACTIVE_THRESHOLD_S,
        name_prefix: str = "",
    ) -> None:
        """An ordered consumer of an existing stream: every message once and in order, without acks.

        Begins at ``start_seq``, at ``start_time``, or where ``deliver_policy`` says ("last", "new",
        "last_per_subject", "all"). Its consumers on the server are made as needed, and named
        ``<name_prefix>_<unique>`` when a prefix is given; the server removes one that is unused for
        ``inactive_threshold``. A stream that was deleted and made again is read from its first message.
        ValueError for a start that is given twice, or a bad name. A stream that
        does not exist is noticed by the first operation.
        """
        if (start_seq != 1) + (start_time is not None) + (deliver_policy is not None) > 1:
            raise ValueError("give one of start_seq, start_time and deliver_policy")
        if start_seq < 1:
            raise ValueError(f"start_seq is at least 1, got {start_seq}")
        js._plans.subjects.stream("INFO", stream)  # ValueError for a bad name
        if name_prefix:
            js._plans.subjects.consumer("INFO", stream, name_prefix)
        policy = "by_start_time" if start_time is not None else deliver_policy
        base = ConsumerConfig(
            opt_start_time=start_time,
            replay_policy=replay_policy,
            inactive_threshold=inactive_threshold,
        )
        self.client = js.client
        self.stream = stream
        """The name of the stream."""
        self._position = Ordered(stream, filter_subjects, start_seq, policy, headers_only, base)
        self._consumers = OwnConsumers(js.client, js._plans, stream, name_prefix)
        self._renewed = False
        """Whether the stream was made again before the last consumer."""
        self._js = js
        self._busy = ""
        self._handle: Pulling[M] | None = None

    def __repr__(self) -> str:
        """Stream and position."""
        return f"<{type(self).__name__} of stream {self.stream!r} at {self._position.next_seq}>"

    def _occupy(self, operation: str) -> None:
        """Begin an operation; ConsumerBusyError while another one runs."""
        if self._busy:
            raise ConsumerBusyError(
                f"this ordered consumer is busy with {self._busy}: wait for its end or stop it, "
                "or use another ordered consumer"
            )
        self._busy = operation

    def _release(self) -> None:
        """The operation has ended."""
        self._busy = ""

    def _creating(self) -> Steps[ConsumerInfo]:
        """Create the next consumer."""
        self._renewed = yield from self._position.checking(self._js._plans)
        return (yield from self._consumers.creating(self._position.config()))

    def _informing(self) -> Steps[ConsumerInfo]:
        """The state of the consumer that ``next`` and ``fetch`` use; makes it when there is none."""
        self._occupy("info")
        try:
            handle = yield from self._ready()
            return (yield from self._js._plans.consumer_info(self.stream, handle.consumer))
        finally:
            self._release()

    info = call(_informing)

    # -- batches -----------------------------------------------------------------------------------

    def _fetching(
        self, batch: int = 1, *, timeout: Duration = TIMEOUT_S, max_bytes: int = 0
    ) -> Steps[list[M]]:
        """Up to ``batch`` messages in order: as soon as all arrived, or those that arrived in ``timeout``.

        With ``max_bytes`` no more than so many bytes. An empty list when there are none. Raises
        ConsumerBusyError while another operation runs, StreamNotFoundError, PullError, and ConnectionLostError or
        PeltonTimeoutError without an answer in time; but it returns messages first if some arrived.
        """
        seconds = to_nanoseconds(timeout) / 1e9
        check_most(batch, max_bytes)
        self._occupy("fetch or next")
        found: list[M] = []
        try:
            yield from self._collecting(found, batch, seconds, max_bytes)
        except PeltonError:
            if not found:
                raise
        except BaseException:
            if found:
                self._position.rewind(found[0].metadata.stream_seq)
                self._drop()
            raise
        finally:
            self._release()
        return found

    fetch = call(_fetching)

    def _taking(self, timeout: Duration = TIMEOUT_S) -> Steps[M | None]:
        """The next message, or None when none arrived in ``timeout``; raises as ``fetch``."""
        found = yield from self._fetching(1, timeout=timeout)
        return found[0] if found else None

    next = call(_taking)

    def _collecting(
        self, found: list[M], batch: int, seconds: float, max_bytes: int
    ) -> Steps[None]:
        clock = self.client._clock
        deadline = clock() + seconds
        while True:
            left = max(0.0, deadline - clock())
            made = False
            try:
                handle = yield from self._ready()
                made = True
                got = yield from handle._fetching(
                    batch - len(found), timeout=left, max_bytes=max_bytes
                )
            except PeltonError as error:
                yield from self._discarding()
                recoverable = self._position.recoverable(error)
                if not recoverable or deadline - clock() <= RETRY_S:
                    if (
                        made
                        and recoverable
                        and isinstance(error, ConsumerDeletedError | NoRespondersError)
                    ):
                        return  # the next call makes another one
                    raise
                yield from pausing()
                continue
            for message in got:
                if not self._position.take(message.metadata):
                    yield from self._discarding()
                    break
                found.append(message)
            else:
                return
            if clock() >= deadline:
                return

    def _ready(self) -> Steps[Pulling[M]]:
        """A handle of the current consumer, which is made when there is none."""
        if self._handle is None:
            info = yield from self._creating()
            self._position.started(info)
            self._handle = Pulling(self._js, self.stream, info.name)
            yield from self._consumers.removing(info.name)
        return self._handle

    def _drop(self) -> None:
        """Forget the current consumer; ``consumers.removing`` follows, at the latest with the next one."""
        handle, self._handle = self._handle, None
        self._position.forget()
        if handle is not None:
            handle.close()

    def _discarding(self) -> Steps[None]:
        """Forget the current consumer, and remove it from the server."""
        self._drop()
        yield from self._consumers.removing()

    def _leaving(self, _: type[BaseException] | None) -> Steps[None]:
        """The end of the block."""
        yield from self._discarding()

    def _closing(self) -> Steps[None]:
        """Remove the consumer of ``next`` and ``fetch``; a later call makes a new one."""
        self._occupy("close")
        try:
            yield from self._discarding()
        finally:
            self._release()

    close = call(_closing)

    # -- without end -------------------------------------------------------------------------------

    def _intake(self, sizes: Sizes, on_missing: OnMissing, priority: dict[str, Any]) -> Intake:
        """The messages of a new operation without end."""
        if any(priority.values()):
            raise ValueError("an ordered consumer has no priority groups")
        if on_missing == "recreate":
            raise ValueError(
                "an ordered consumer is always made again; on_missing concerns its stream"
            )
        self._occupy("consume")
        self._drop()
        intake = OrderedIntake(self._js, self, sizes, on_missing)
        intake.freed = self._release
        return intake


class OrderedIntake(PullIntake):
    """Messages of an ordered consumer."""

    def __init__(
        self,
        js: Streams[Any],
        ordering: Ordering[Any],
        sizes: Sizes,
        on_missing: OnMissing,
    ) -> None:
        """The consumer is made by ``turn``."""
        info = ConsumerInfo(stream_name=ordering.stream, name="")
        super().__init__(js, info, Asking(ConsumerConfig(), {}), sizes, on_missing)
        self._ordering = ordering
        self._position = ordering._position
        self._created = False
        self._later = on_missing
        self._on_missing = "raise"  # a stream that never was is a mistake

    def begin(self) -> None:
        """Subscribe; the first consumer is made by ``turn``."""
        super().begin()
        self.held = self.expected = 0

    def pull(self) -> bool:
        """Request more once there is a consumer."""
        if not self._created:
            if self._doubt is None:
                self.doubt(PullError(0, "the consumer is not created yet"))
            return False
        return super().pull()

    def keep(self, message: BaseMessage) -> None:
        """Add a message to the queue when it is the next one."""
        tokens = message.reply.split(".")
        if (
            len(tokens) == 9
        ):  # $JS.ACK.<stream>.<consumer>.<deliveries>.<sequences>.<time>.<pending>
            consumer, stream_seq, consumer_seq = tokens[3], int(tokens[5]), int(tokens[6])
        else:
            _, _, _, consumer, _, stream_seq, consumer_seq, *_ = message.metadata
        if self._position.follow(consumer, stream_seq, consumer_seq):
            super().keep(message)
            return
        self.held -= size_of(message) if self.by_bytes else 1
        if consumer == self._position.consumer:
            self._gap(consumer_seq)

    def on_status(self, status: int, message: BaseMessage) -> None:
        """A heartbeat also tells of messages that were lost on their way."""
        if status == HEARTBEAT and self._created:
            last = message.header("Nats-Last-Consumer") or ""
            current = self._replies.number_of(message.subject) >= self._first
            if current and last.isdigit() and int(last) > self._position.consumer_seq:
                self._gap(int(last))
        super().on_status(status, message)

    def _gap(self, sequence: int) -> None:
        words = f"a gap: expected {self._position.consumer_seq + 1}, got {sequence}"
        self._position.forget()
        self.doubt(PullError(CONFLICT, words))

    def recovering(self, why: Exception) -> Steps[None]:
        """Make a new consumer after the last message."""
        self._position.forget()
        yield from super().recovering(PullError(CONFLICT, str(why)))

    def _finding(self, count: int) -> Steps[ConsumerInfo]:
        self._give_up()
        try:
            info = yield from self._ordering._creating()
        except StreamNotFoundError as error:
            if self._created:
                self.events.emit("stream_not_found", str(error), count=count)
            raise
        self._subject = self._plans.subjects.next_message(self.stream, info.name)
        self._position.started(info)
        yield from self._ordering._consumers.removing(info.name)
        if self._created:
            why = "the stream was made again" if self._ordering._renewed else str(self._doubt)
            self.events.emit("ordered_consumer_recreated", why, name=info.name)
        self._created = True
        self._on_missing = self._later
        return info

    def _return_queue(self) -> None:
        """The next operation begins at the first message that was not taken."""
        if self.queue:
            self._position.rewind(self.queue[0].metadata.stream_seq)
            self.queue.clear()

    def _tidying(self) -> Steps[None]:
        """Remove the consumer: it is gone when the block ends."""
        yield from self._ordering._consumers.removing()

    def _leave(self) -> None:
        self._ordering._consumers.leave()
