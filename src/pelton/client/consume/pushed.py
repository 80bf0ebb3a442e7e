"""A push consumer that exists: its messages come without requests. Does not depend on a transport.

The server paces them with flow control: it asks whether the client has handled what came before, and
goes on when the client answers. A question is answered when the messages before it are taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pelton.errors import PeltonError

from ..base.message import BaseMessage
from ..base.steps import call
from ..jetstream.pull import HEARTBEAT, control_reply
from .handles import config_of
from .intake import Intake
from .operation import Operation

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..base.durations import Duration
    from ..base.models import ConsumerInfo
    from ..base.steps import Steps
    from ..jetstream.streams import Streams
    from ..session.session import Session
    from .events import ConsumerEvent
    from .intake import OnMissing

M = TypeVar("M", bound=BaseMessage)

NOTHING_ASKED = 1 << 62
"""``held`` while the server has asked nothing."""


class Pushing(Generic[M]):
    """A push consumer that exists."""

    def __init__(self, js: Streams[M], info: ConsumerInfo) -> None:
        """``info`` of the consumer; ValueError when it is not a push consumer for users."""
        config = config_of(info)
        if not config.deliver_subject:
            raise ValueError(f"{info.name!r} is a pull consumer: use consumer")
        if config.ack_policy == "flow_control":
            raise ValueError(f"{info.name!r} is acknowledged by flow control: it is for mirrors")
        self.client: Session[M] = js.client
        self.stream = info.stream_name
        """The name of the stream."""
        self.name = info.name
        """The name of the consumer."""
        self.cached_info = info
        """The last info that the server sent."""
        self._js = js

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
        yield from self._js._plans.delete_consumer(self.stream, self.name)

    delete = call(_deleting)


class PushIntake(Intake):
    """Messages of a push consumer.

    ``held`` counts the messages to take before the server's question is answered.
    """

    def __init__(
        self, js: Streams[Any], info: ConsumerInfo, on_missing: OnMissing, messages_max: int
    ) -> None:
        """``messages_max``: more buffered messages are dropped; the server delivers them again."""
        super().__init__(js, info, on_missing)
        self._messages_max = messages_max
        self._question = ""
        self.held = NOTHING_ASKED

    def inbox(self) -> tuple[str, str]:
        """The subject and queue group of the consumer."""
        config = config_of(self.info)
        return config.deliver_subject, config.deliver_group

    def fit(self, info: ConsumerInfo) -> None:
        """Watch the heartbeats of the consumer, if it has any."""
        super().fit(info)
        heartbeat_ns = int(config_of(info).idle_heartbeat)
        if heartbeat_ns:
            self.heartbeats.interval_s = heartbeat_ns / 1e9

    def begin(self) -> None:
        """Subscribe."""
        super().begin()
        self.expected = 1

    def restart(self, why: str) -> None:
        """The consumer was found again: subscribe anew if it delivers to another subject."""
        self._question, self.held = "", NOTHING_ASKED
        if self.inbox() != (self._interest.subject, self._interest.queue):
            former = self._interest
            self.client._attach(self.inbox()[0], self, self.inbox()[1])
            self.client._release(former)
        self.events.emit("reset", why)

    def after_loss(self, why: PeltonError) -> None:
        """The consumer may be gone with the connection."""
        self.doubt(why)

    def keep(self, message: BaseMessage) -> None:
        """Add a message to the queue, unless it is full."""
        self.expected = 1
        if len(self.queue) >= self._messages_max:
            self.events.emit("discard", "the buffer is full", messages_left=1)
            return
        super().keep(message)

    def on_status(self, status: int, message: BaseMessage) -> None:
        """A heartbeat, or a question of flow control."""
        question = control_reply(message)
        if question:
            self._question, self.held = question, len(self.queue)
            if self.pull():
                self.client._plan_flush()
        elif status == HEARTBEAT:
            self.events.emit("heartbeat", message.description)

    def pull(self) -> bool:
        """Answer the server's question when the messages before it are taken."""
        if not self._question or self.held > 0:
            return False
        question, self._question, self.held = self._question, "", NOTHING_ASKED
        try:
            self.client._connection.publish(question, b"")
        except PeltonError:
            return False  # the server asks again
        self.events.emit("flow_control")
        return True


class PushOperation(Operation[M]):
    """Messages of a push consumer."""

    def __init__(
        self,
        consumer: Pushing[M],
        callback: Callable[[M], object] | None = None,
        *,
        on_missing: OnMissing = "wait",
        max_messages: int = 524_288,
        concurrency: int | None = None,
        auto_ack: bool = False,
        auto_extend: bool | None = None,
        nak_delay: Duration | None = None,
        on_event: Callable[[ConsumerEvent], object] | None = None,
    ) -> None:
        """Messages without end: iterate over them, or give a callback.

        A consumer with a queue group shares its messages among all that consume it. Flow control is
        answered when the messages before are taken. A consumer without flow control may send more than
        the program handles: messages above max_messages are dropped, and the server delivers them again.

        on_missing: when the consumer or its stream is deleted: "wait" until it is there again, "raise"
            ConsumerNotFoundError or StreamNotFoundError, or "recreate" the consumer from its last known
            configuration. Noticed by missed heartbeats, so the consumer needs an idle_heartbeat.
        concurrency: how many handlers run at a time (1).
        auto_ack: acknowledge a message when its handler returns.
        auto_extend: extend the ack wait of buffered messages and of those that are being handled.
        nak_delay: when a handler raises, its message is delivered again after this time.
        on_event: called with each ConsumerEvent.

        Raises ValueError for options that contradict each other. An iteration raises
        PermissionsViolationError, and ConnectionClosedError when the client is lost.
        """
        self._check(callback, concurrency, auto_ack, auto_extend, nak_delay)
        if max_messages < 1:
            raise ValueError(f"max_messages is at least 1, got {max_messages}")
        super().__init__(
            PushIntake(consumer._js, consumer.cached_info, on_missing, max_messages),
            callback,
            concurrency=concurrency,
            auto_ack=auto_ack,
            auto_extend=auto_extend,
            nak_delay=nak_delay,
            on_event=on_event,
        )
