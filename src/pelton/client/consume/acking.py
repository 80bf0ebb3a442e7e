"""The acks that an operation sends by itself: for handled messages, and for messages that it gives back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pelton.errors import PeltonError

from ..base.message import ACK, nak_body

if TYPE_CHECKING:
    from ..base.message import BaseMessage
    from ..base.models import ConsumerConfig
    from ..session.session import Session


class Acks:
    """Acknowledges the messages of one consumer, as its ack policy says."""

    def __init__(self, client: Session[Any]) -> None:
        """Sends nothing before ``fit``."""
        self._client = client
        self.wanted = False
        """Whether the consumer waits for acks."""
        self._explicit = False

    def fit(self, config: ConsumerConfig | None) -> None:
        """Take over the ack policy of the consumer."""
        policy = "" if config is None else config.ack_policy
        self._explicit = policy == "explicit"
        self.wanted = self._explicit or policy == "all"

    def send(self, message: BaseMessage, payload: bytes) -> None:
        """Send the server an ack of a message; without a connection it is sent after the reconnect."""
        try:
            self._client._connection.answer(message.reply, payload)
        except PeltonError as error:  # the server delivers the message again
            self._client._report(error)
        else:
            self._client._plan_flush()

    def acknowledge(self, message: BaseMessage, payload: bytes = ACK) -> None:
        """Send the ack of a message, unless it has one or the consumer wants none."""
        if self.wanted and not message.acked:
            message.acked = True
            self.send(message, payload)

    def give_back(self, message: BaseMessage) -> None:
        """Give a message back: the consumer delivers it again at once."""
        if self._explicit:
            self.acknowledge(message, nak_body(None))
