"""The loop of a load, its connections, and the base of its roles."""

from array import array
from collections.abc import Callable, Iterable
from typing import Any

from typing_extensions import Buffer

from pelton.core.protocol.wire import Parser

NEVER: int
"""The time of a turn that nothing but an arriving message brings on."""

class Link:
    """A connection whose bytes the load writes and reads itself."""

    parser: Parser
    inbox: str
    max_payload: int

    def __init__(
        self,
        fd: int,
        inbox: str,
        max_payload: int,
        error_of: Callable[[str], Exception],
        transport: Any = None,
    ) -> None:
        """``fd``: a socket that never blocks; the caller keeps it open and closes it.

        ``inbox``: a subject of this connection's own. ``error_of``: the exception to raise for what the
        server says with -ERR. ``transport``: sends and reads, when the socket's bytes are not those of the protocol;
        it has ``send(data) -> int``, ``read() -> bytes | None`` and ``more_is_here``.
        """

    @property
    def blocked(self) -> bool:
        """Whether bytes are held that the kernel has not taken."""
    def write(self, data: Buffer) -> None:
        """Send as much as the kernel takes, and hold the rest."""
    def subscribe(self, subject: str, sid: int, queue: str = "") -> None:
        """Subscribe under a number."""
    def operations(self) -> list[tuple[Any, ...]]:
        """The operations that have come, without waiting; ConnectionResetError at the end."""

class Pace:
    """How many messages of one client may go, and when: a pause after each, or so many a second."""

    def __init__(self, sleep_ns: int = 0, per_second: float = 0.0) -> None:
        """0 for no limit."""
    def allowed(self, sent: int, wanted: int, now: int) -> int:
        """How many of the wanted messages may go now."""
    def due(self, sent: int) -> int:
        """When the next message may go."""
    def sent(self, now: int) -> None:
        """Messages went now."""

class Role:
    """What one client of a load does: the base of all roles.

    ``done`` counts the messages of the figure, from ``start_ns`` to ``end_ns``; both are times of the
    monotonic clock.
    """

    link: Link
    quota: int
    done: int
    over: bool
    start_ns: int
    end_ns: int

    def __init__(self, link: Link, quota: int) -> None:
        """``quota``: after so many messages the role is over."""
    @property
    def latencies(self) -> array[int]:
        """Nanoseconds of single operations."""
    def turn(self, now: int) -> int:
        """Write what may be written; the time of the next turn (``now`` means at once)."""
    def message(self, operation: tuple[Any, ...]) -> None:
        """Called for a message that the role does not count."""
    def settle(self, now: int) -> None:
        """Called when bytes were taken."""
    def pong(self, now: int) -> None:
        """Called when the server has handled all that was written before ``ping``; ends the role."""
    def ping(self) -> None:
        """Let ``pong`` be called when all is handled; once."""
    def finish(self, now: int) -> None:
        """The role is over."""
    def note(self, ns: int) -> None:
        """An operation took so long."""

class Crowd:
    """All clients of a load."""

    unfinished: int
    """Roles that are not over."""

    def __init__(self, roles: Iterable[Role], beside: Iterable[Role] = ()) -> None:
        """``beside``: roles that are never over, such as Serve; the crowd does not wait for them."""
    def run(self, until_ns: int) -> bool:
        """Until all roles are over, or this time of the monotonic clock.

        Whether something came or is due. Raises ConnectionResetError when a connection ends, the error for -ERR, and
        what a role raises.
        """
