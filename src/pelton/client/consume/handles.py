"""A pull consumer: single messages, batches, and operations without end. Does not depend on a transport."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pelton.errors import ConnectionLostError, NoRespondersError, PullError

from ..base.durations import Duration, to_nanoseconds
from ..base.message import BaseMessage
from ..base.models import ConsumerConfig, ConsumerInfo
from ..base.steps import RETRY_S, call, pausing
from ..jetstream.pull import check_most
from ..jetstream.pulling import Pulling
from .pulled import WRONG_PIN, PullIntake
from .requests import Asking

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..base.durations import Moment
    from ..base.steps import Steps
    from ..jetstream.streams import Streams
    from ..plans.management import ConsumerPause
    from .intake import Intake, OnMissing
    from .requests import Sizes

M = TypeVar("M", bound=BaseMessage)

TIMEOUT_S = 30.0
"""How long ``next`` and ``fetch`` wait, unless they are told."""


def config_of(info: ConsumerInfo) -> ConsumerConfig:
    """The consumer's configuration; servers always send it."""
    return info.config if info.config is not None else ConsumerConfig()


class Consuming(Generic[M]):
    """A pull consumer that exists."""

    def __init__(self, js: Streams[M], info: ConsumerInfo) -> None:
        """``info`` of the consumer; ValueError when it is a push consumer."""
        if config_of(info).deliver_subject:
            raise ValueError(
                f"{info.name!r} is a push consumer: use push_consumer, or make a pull consumer"
            )
        self.client = js.client
        self.stream = info.stream_name
        """The name of the stream."""
        self.name = info.name
        """The name of the consumer."""
        self.cached_info = info
        """The last info that the server sent."""
        self._js = js
        self._pins: dict[str, str] = {}
        self._idle: list[Pulling[M]] = []

    def __repr__(self) -> str:
        """Consumer and stream."""
        return f"<{type(self).__name__} {self.name!r} of stream {self.stream!r}>"

    def _informing(self) -> Steps[ConsumerInfo]:
        """The consumer's configuration and state now; ConsumerNotFoundError, StreamNotFoundError."""
        self.cached_info = yield from self._js._plans.consumer_info(self.stream, self.name)
        return self.cached_info

    info = call(_informing)

    def _deleting(self) -> Steps[None]:
        """Remove the consumer from its stream; ConsumerNotFoundError, StreamNotFoundError."""
        self.close()
        yield from self._js._plans.delete_consumer(self.stream, self.name)

    delete = call(_deleting)

    def _pausing(self, until: Moment) -> Steps[ConsumerPause]:
        """Deliver nothing until a moment: a datetime with a zone, RFC 3339 text or nanoseconds.

        NotEnabledError before nats-server 2.11.
        """
        return (yield from self._js._plans.pause_consumer(self.stream, self.name, until))

    def _resuming(self) -> Steps[ConsumerPause]:
        """Deliver again after ``pause``."""
        return (yield from self._js._plans.resume_consumer(self.stream, self.name))

    def _resetting(self, seq: int = 0) -> Steps[ConsumerInfo]:
        """Deliver again from a stream sequence on, or from the message after the ack floor.

        Forgets deliveries and acks after that. NotEnabledError before nats-server 2.14.
        """
        return (yield from self._js._plans.reset_consumer(self.stream, self.name, seq))

    def _unpinning(self, group: str) -> Steps[None]:
        """Take the pin of a priority group from the client that has it, so that another one gets it."""
        yield from self._js._plans.unpin_consumer(self.stream, self.name, group)

    pause = call(_pausing)
    resume = call(_resuming)
    reset = call(_resetting)
    unpin = call(_unpinning)

    def close(self) -> None:
        """End the subscriptions of ``next`` and ``fetch``; a later call makes a new one.

        Operations of ``consume`` go on, and the consumer itself stays.
        """
        while self._idle:
            self._idle.pop().close()

    def _leaving(self, _: type[BaseException] | None) -> Steps[None]:
        """The end of the block."""
        self.close()
        yield from ()

    # -- batches -----------------------------------------------------------------------------------

    def _fetching(
        self,
        batch: int = 1,
        *,
        timeout: Duration = TIMEOUT_S,
        max_bytes: int = 0,
        no_wait: bool = False,
        group: str = "",
        min_pending: int = 0,
        min_ack_pending: int = 0,
        priority: int = 0,
    ) -> Steps[list[M]]:
        """Up to ``batch`` messages: as soon as all arrived, or those that arrived in ``timeout``.

        With ``max_bytes`` no more than so many bytes, with subjects and headers; with ``no_wait`` only
        the messages that the consumer has right now. An empty list when there are none. Several calls
        may run at a time in asyncio. A call goes on after a reconnect and a change of leader, until its
        time is over; a consumer that has no leader then had no messages. ``group`` and the parameters
        after it belong to priority groups.

        Raises ConsumerNotFoundError, StreamNotFoundError, ConsumerDeletedError, PullError for a request that the
        server refuses, and ConnectionLostError or PeltonTimeoutError without an answer in time; but it returns messages
        first if some arrived.
        """
        seconds = to_nanoseconds(timeout) / 1e9
        check_most(batch, max_bytes)
        config = config_of(self.cached_info)
        asking = Asking(
            config,
            self._pins,
            group=group,
            min_pending=min_pending,
            min_ack_pending=min_ack_pending,
            priority=priority,
        )

        def body(count: int, seconds: float) -> bytes:
            expires_ns = 0 if no_wait else max(1, int(to_nanoseconds(max(0.0, seconds))))
            return asking.body(count, expires=expires_ns, no_wait=no_wait, max_bytes=max_bytes)

        handle = self._idle.pop() if self._idle else Pulling(self._js, self.stream, self.name)
        try:
            found = yield from self._collecting(
                handle, config, body, asking, batch, seconds, once=no_wait or max_bytes > 0
            )
        except BaseException:
            handle._give_up(returns=config.ack_policy == "explicit")
            raise
        self._idle.append(handle)
        if asking.pinned:
            for message in found:
                asking.learn(message)
        return found

    fetch = call(_fetching)

    def _collecting(
        self,
        handle: Pulling[M],
        config: ConsumerConfig,
        body: Callable[[int, float], bytes],
        asking: Asking,
        batch: int,
        seconds: float,
        *,
        once: bool,
    ) -> Steps[list[M]]:
        """Requests within the consumer's limits, until one ends early or all messages are there."""
        clock = self.client._clock
        deadline = clock() + seconds
        step = min(batch, config.max_batch or batch)
        longest = limit_or(config.max_expires, seconds)
        found: list[M] = []
        while True:
            left = max(0.0, deadline - clock())
            wait = min(left, longest)
            count = min(step, batch - len(found))
            try:
                got = yield from handle._collecting(count, wait, body)
            except (ConnectionLostError, NoRespondersError, PullError) as error:
                if found:
                    return found
                if not (yield from self._passes(error, asking, deadline)):
                    if isinstance(error, NoRespondersError):
                        return found  # the consumer exists, and has no leader
                    raise
                continue
            found += got
            whole = len(got) == count or longest < left  # the request ended because of a limit
            if once or not whole or len(found) >= batch:
                return found

    def _passes(self, error: Exception, asking: Asking, deadline: float) -> Steps[bool]:
        """Whether a request may be sent again after this error."""
        if isinstance(error, PullError):
            return error.status == WRONG_PIN and asking.unpin()
        if isinstance(error, NoRespondersError):
            yield from self._informing()  # says what is missing, if anything is
        if deadline - self.client._clock() <= RETRY_S:
            return False
        yield from pausing()
        return True

    def _taking(
        self,
        timeout: Duration = TIMEOUT_S,
        *,
        group: str = "",
        min_pending: int = 0,
        min_ack_pending: int = 0,
        priority: int = 0,
    ) -> Steps[M | None]:
        """The next message, or None when none arrived in ``timeout``; raises as ``fetch``."""
        found = yield from self._fetching(
            1,
            timeout=timeout,
            group=group,
            min_pending=min_pending,
            min_ack_pending=min_ack_pending,
            priority=priority,
        )
        return found[0] if found else None

    next = call(_taking)

    # -- without end -------------------------------------------------------------------------------

    def _intake(self, sizes: Sizes, on_missing: OnMissing, priority: dict[str, Any]) -> Intake:
        """The messages of a new operation without end."""
        asking = Asking(config_of(self.cached_info), self._pins, **priority)
        return PullIntake(self._js, self.cached_info, asking, sizes, on_missing)


def limit_or(limit_ns: int, seconds: float) -> float:
    """A limit of the consumer in seconds; ``seconds`` when it has none."""
    return limit_ns / 1e9 if limit_ns else seconds
