"""Watching keys of a bucket: first their values, then every change, in order and once.

A watch reads an ordered consumer (``Streams.following``) step by step. It keeps the step that the
consumer waits for, so that a call may end at its timeout, or be cancelled, without losing an entry.

The values that it begins with are over when the consumer has delivered as many messages as waited
for it, or says that none waits. Until then a consumer that replaces a lost one begins again with the
last value of each key, and the watch leaves out what it has had; later, it begins after the last
entry.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pelton.errors import (
    BucketNotFoundError,
    BucketReplacedError,
    ConnectionClosedError,
    ConnectionLostError,
    ConsumerDeletedError,
    NoRespondersError,
    PeltonError,
    PeltonTimeoutError,
    StreamNotFoundError,
)

from ..base.durations import Duration, to_seconds
from ..base.steps import Ended, Left, Ready, Step, Until, call
from ..jetstream.ordered import Ordered
from ..jetstream.pulling import Inbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from pelton.api.fields import DeliverPolicy

    from ..base.message import BaseMessage
    from ..base.models import ConsumerConfig, ConsumerInfo, Metadata
    from ..base.steps import Steps
    from ..plans.jetstream import Plans
    from .bucket import Bucket
    from .entries import KvEntry

V = TypeVar("V")


class Position(Ordered):
    """The position of a watch in its bucket's stream."""

    def __init__(
        self,
        stream: str,
        subjects: list[str],
        policy: DeliverPolicy | None,
        start_seq: int,
        *,
        headers_only: bool,
    ) -> None:
        """``policy`` applies until the initial values are over, else ``start_seq``."""
        super().__init__(stream, subjects, start_seq, policy, headers_only)
        self.starts = 0
        """The number of consumers so far."""
        self.caught_up = policy == "new"
        """Whether the initial values are over."""
        self.went_back = False
        """Whether the stream ends before the messages that the watch has had."""
        self.had = start_seq - 1
        """The last sequence that the watch has had."""
        self.subjects = subjects
        self._policy = policy
        self._rewound = False
        self._waiting = 0  # initial messages that the consumer has not delivered yet

    def config(self) -> ConsumerConfig:
        """The consumer to create now."""
        if not self.caught_up and self._policy == "last_per_subject":
            self._deliver_policy = self._policy
        return super().config()

    def checking(self, plans: Plans) -> Steps[bool]:
        """Before a consumer is made again: notice a stream that went back."""
        before = self.next_seq
        another = yield from super().checking(plans)
        self._rewound = self.next_seq < before
        return another

    def started(self, info: ConsumerInfo) -> None:
        """The consumer is created."""
        begin = info.delivered.stream_seq + 1
        by_sequence = self._deliver_policy is None
        super().started(info)
        # A server before 2.10 begins at the stream's end when the sequence is after it.
        self.went_back = self._rewound or (
            self.starts > 0 and by_sequence and begin < self.next_seq
        )
        self.starts += 1
        self._waiting = info.num_pending
        if not info.num_pending and not self.caught_up:
            self.caught_up = True
            self.next_seq = max(self.next_seq, begin)
            self._deliver_policy = None

    def take(self, metadata: Metadata) -> bool:
        """Whether the message is the next one; False: create a new consumer."""
        before = self.next_seq
        if not super().take(metadata):
            return False
        self.next_seq = max(before, self.next_seq)
        return True

    def recoverable(self, error: Exception) -> bool:
        """Whether a new consumer may go on: however often the servers restart, once one was created."""
        lost = (ConnectionLostError, ConsumerDeletedError, NoRespondersError, PeltonTimeoutError)
        return (self.starts > 0 and isinstance(error, lost)) or super().recoverable(error)

    def passes(self, metadata: Metadata) -> bool:
        """Whether the watch has not had this message; counts it as had."""
        new = metadata.stream_seq > self.had
        self.had = max(self.had, metadata.stream_seq)
        self._waiting -= 1
        if metadata.pending == 0 or self._waiting <= 0:
            self.caught_up = True
        return new


class Watching(Generic[V]):
    """Entries of a bucket, from an ordered consumer."""

    def __init__(
        self, bucket: Bucket[V], position: Position, *, ignore_deletes: bool = False
    ) -> None:
        """Made by ``watch``; the first call creates the consumer, unless ``beginning`` has."""
        self.client = bucket.client
        self.bucket = bucket
        """The name of the bucket."""
        self._position = position
        self._ignore_deletes = ignore_deletes
        self._flow = bucket._js._following(position)
        self._step: Step | None = None  # what the flow waits for
        self._due = 0.0  # until when, where it is an Until
        self._checked = 1  # consumers whose bucket is known to be the same
        self._held: list[KvEntry[V]] = []  # taken by a call that did not end
        self._busy = False
        self._ended = False
        self._failure: Exception | None = None

    @property
    def caught_up(self) -> bool:
        """Whether the watch has delivered all values that it began with."""
        return self._position.caught_up and self._position.starts > 0 and not self._held

    def _listens(self) -> bool:
        """Whether messages are asked for, so that each comes when it is stored, before another replaces it."""
        step = self._step
        return step is None or (isinstance(step, Until) and isinstance(step.box, Inbox))

    # -- calls for users ---------------------------------------------------------------------------

    def _nexting(self, timeout: Duration | None = None) -> Steps[KvEntry[V]]:
        """The next entry; waits without end, or raises PeltonTimeoutError when none comes in time.

        Raises ConnectionClosedError when the watch was stopped, BucketNotFoundError when the bucket was deleted,
        BucketReplacedError when it was also created again. No entry is lost when the call is cancelled.
        """
        try:
            return (yield from self._following(timeout))
        except Ended:
            raise ConnectionClosedError("the watch is stopped, no entry follows") from None

    next = call(_nexting)

    def _initialing(self, timeout: Duration | None = None) -> Steps[list[KvEntry[V]]]:
        """The values that the watch begins with, without those that it has delivered already.

        An empty list for a watch of updates. After this call the watch delivers updates only, and every one.
        PeltonTimeoutError when the values do not arrive in time, that of the client if none is given; the next
        call goes on where this one ended.
        """
        deadline = self.client._clock() + self.bucket._js._seconds_of(timeout)
        found: list[KvEntry[V]] = []
        try:
            while (
                entry := (
                    yield from self._advancing(deadline, lambda: self.caught_up and self._listens())
                )
            ) is not None:
                found.append(entry)
        except Ended:
            return found
        except BaseException:
            self._held = found + self._held
            raise
        return found

    initial = call(_initialing)

    def _stopping(self) -> Steps[None]:
        """Stop: no entry follows, and the server's consumer is removed. A second call does nothing."""
        if self._ended:
            return
        self._end()
        try:
            step = self._flow.throw(Left())
            while isinstance(step, Step):
                try:
                    answer = yield step
                except Exception as error:
                    step = self._flow.throw(error)
                else:
                    step = self._flow.send(answer)
        except (StopIteration, Left):
            return

    stop = call(_stopping)

    def _leaving(self, _: type[BaseException] | None) -> Steps[None]:
        """The end of the block."""
        yield from self._stopping()

    def _beginning(self) -> Steps[None]:
        """Create the consumer: from now on every change is delivered."""
        deadline = self.client._clock() + self.bucket._js.timeout
        try:
            entry = yield from self._advancing(
                deadline, lambda: self._position.starts > 0 and self._listens()
            )
        except GeneratorExit:  # nobody carries out steps
            raise
        except BaseException:
            yield from self._stopping()
            raise
        if entry is not None:
            self._held.insert(0, entry)

    # -- step by step ------------------------------------------------------------------------------

    def _following(self, timeout: Duration | None = None) -> Steps[KvEntry[V]]:
        """The next entry; PeltonTimeoutError, or Ended when none follows."""
        seconds = math.inf if timeout is None else to_seconds(timeout)
        entry = yield from self._advancing(self.client._clock() + seconds)
        assert entry is not None
        return entry

    def _advancing(
        self, deadline: float, until: Callable[[], bool] = lambda: False
    ) -> Steps[KvEntry[V] | None]:
        """The next entry, or None as soon as ``until`` holds."""
        if self._held:
            return self._held.pop(0)
        if self._busy:
            raise RuntimeError("another call is reading this watch")
        self._busy = True
        try:
            while True:
                self._check_end()
                if until():
                    return None
                if self._position.starts > self._checked:
                    yield from self._comparing()
                    continue
                if self._step is None:
                    message = self._resume(self._flow.send, None)
                else:
                    message = yield from self._carrying_out(self._step, deadline)
                entry = None if message is None else self._entry(message)
                if entry is not None:
                    return entry
        finally:
            self._busy = False

    def _carrying_out(self, step: Step, deadline: float) -> Steps[BaseMessage | None]:
        """Carry out what the flow waits for, and resume it; the message that it yields, if any.

        PeltonTimeoutError at the deadline, which the flow does not notice.
        """
        answer: Any = None
        left = max(0.0, deadline - self.client._clock())
        try:
            if isinstance(step, Until):
                done = step.done
                seconds = max(0.0, self._due - self.client._clock())
                answer = yield Until(step.box, lambda: done() or self._ended, min(seconds, left))
            else:
                answer = yield Ready(left) if isinstance(step, Ready) else step
        except Exception as error:
            if isinstance(step, Ready) and isinstance(error, PeltonTimeoutError):
                self._check_late(deadline)
            return None if self._ended else self._resume(self._flow.throw, error)
        if self._ended:
            return None
        if isinstance(step, Until) and not answer and self.client._clock() < self._due:
            self._check_late(deadline)
            return None
        return self._resume(self._flow.send, answer)

    def _check_late(self, deadline: float) -> None:
        if self.client._clock() >= deadline:
            raise PeltonTimeoutError(f"no entry of bucket {self.bucket.bucket!r} came in time")

    def _resume(self, go_on: Callable[[Any], Any], given: Any) -> BaseMessage | None:
        """Let the flow go on: to the next message, or to a step, or to its end."""
        try:
            item = go_on(given)
        except StopIteration:
            self._end()
            return None
        except StreamNotFoundError:
            self._end(BucketNotFoundError(self.bucket.bucket))
            return None
        except PeltonError as error:
            self._end(error)
            return None
        if not isinstance(item, Step):
            self._step = None
            message: BaseMessage = item
            return message
        self._step = item
        if isinstance(item, Until):
            self._due = self.client._clock() + item.seconds
        return None

    def _entry(self, message: BaseMessage) -> KvEntry[V] | None:
        metadata = message.metadata
        update = self._position.caught_up
        if not self._position.passes(metadata):
            return None
        entry = self.bucket._keyspace.entry(
            message.subject,
            metadata.stream_seq,
            metadata.timestamp_ns,
            message.data,
            message.headers,
            delta=metadata.pending,
            is_update=update,
        )
        return None if self._ignore_deletes and entry.deleted else entry

    def _comparing(self) -> Steps[None]:
        """Compare the bucket with the one before the consumer was lost."""
        try:
            same = yield from self.bucket._comparing()
        except StreamNotFoundError:
            same = False
        except PeltonError:
            return  # the next step tells what is wrong, or this is asked again
        if same and not self._position.went_back:
            self._checked = self._position.starts
            return
        yield from self._stopping()
        self._failure = BucketReplacedError(
            f"bucket {self.bucket.bucket!r} was deleted and created again, or restored: "
            "watch it again from the start"
        )

    def _check_end(self) -> None:
        if self._ended:
            raise self._failure or Ended

    def _end(self, failure: Exception | None = None) -> None:
        self._ended = True
        self._failure = failure
        if isinstance(self._step, Until):
            self._step.box._stir()
