"""What one connection may publish, subscribe to and receive."""

from collections.abc import Iterable

SUB_REFUSED: int
SUB_ALLOWED: int
SUB_FILTERED: int
REPLIES_MAX: int
REPLY_BYTES_MAX: int
DECISIONS_MAX: int

class ConnectionPermissions:
    """The rules of a user, and one connection's leave to answer.

    A list of allowed subjects that is None allows everything, an empty one nothing. Subscribe entries may have a queue behind a
    blank (``orders.* workers``). With responses_max other than 0 publishing is denied but for answers unless publish_allow is
    given. ValueError when an entry is no subject.
    """

    def __init__(
        self,
        publish_allow: Iterable[str] | None = None,
        publish_deny: Iterable[str] | None = None,
        subscribe_allow: Iterable[str] | None = None,
        subscribe_deny: Iterable[str] | None = None,
        responses_max: int = 0,
        responses_expires_ns: int = 0,
    ) -> None: ...
    responses_max: int
    responses_expires_ns: int
    reply_bytes: int
    @property
    def publish_allow(self) -> list[str] | None: ...
    @property
    def publish_deny(self) -> list[str]: ...
    @property
    def subscribe_allow(self) -> list[str] | None: ...
    @property
    def subscribe_deny(self) -> list[str]: ...
    @property
    def open_replies(self) -> int:
        """Reply subjects that may be answered now, or could until they were found to be expired."""
    @property
    def steps(self) -> int: ...
    def copy(self) -> ConnectionPermissions:
        """The same rules for another connection: shares what is compiled and decided, not the leave to answer."""
    def may_publish(self, subject: str | bytes, now_ns: int = 0) -> bool:
        """As a PUB: a leave to answer is used up."""
    def may_subscribe(self, subject: str | bytes, queue: str | bytes = "") -> int:
        """SUB_REFUSED, SUB_ALLOWED or SUB_FILTERED."""
    def may_receive(self, subject: str | bytes, queue: str | bytes = "") -> bool:
        """Whether a message on a literal subject may go to a subscription of that queue."""
    def received(self, reply: str | bytes, now_ns: int) -> None:
        """A message came that asks for an answer there."""
