"""The messages of a push consumer, which come without requests.

The server paces them with flow control: it asks whether the client has handled what came before, and
goes on when the client answers. A question is answered when the messages before it are taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pelton.errors import PeltonError

from .intake import Intake
from .pull import HEARTBEAT, config_of, control_reply

if TYPE_CHECKING:
    from ..base.message import BaseMessage
    from ..base.models import ConsumerInfo
    from ..session.session import Session
    from .intake import OnMissing

NOTHING_ASKED = 1 << 62
"""``held`` while the server has asked nothing."""


class PushIntake(Intake):
    """Messages of a push consumer.

    ``held`` counts the messages to take before the server's question is answered.
    """

    def __init__(
        self, client: Session, info: ConsumerInfo, on_missing: OnMissing, messages_max: int
    ) -> None:
        """``messages_max``: more buffered messages are dropped; the server delivers them again."""
        super().__init__(client, info, on_missing)
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
