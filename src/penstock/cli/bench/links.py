"""The loop of a load: many connections, one thread, no client in between.

A ``Link`` is a connection that a client has opened, with TLS and credentials as usual, and then left to the load. A
``Crowd`` runs one role per link until all are over::

    role.turn      what may be written now is written; when it wants its next turn
    role.feed      bytes that came: messages are counted in the core, other operations come back
"""

from __future__ import annotations

import select
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.client.connection import make_error
from penstock.core.protocol.wire import OP_ERR, OP_MSG, OP_PING, OP_PONG, ROLE_CLIENT, Parser
from penstock.errors import ConnectionLost, Timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.client import BlockingClient

NEVER = 1 << 62
"""The time of a turn that nothing but an arriving message brings on."""
LOOK_S = 0.1
"""How often the progress is told."""
_FINE_NS = 1_000_000  # waits below this are slept: the epoll set counts in milliseconds
_IN, _OUT = select.EPOLLIN, select.EPOLLIN | select.EPOLLOUT


class Link:
    """A connection whose bytes the load writes and reads itself."""

    def __init__(self, client: BlockingClient) -> None:
        """Takes the connection over; the client is closed."""
        client.flush()
        self.max_payload = client.server_info.max_payload
        self.inbox = client.new_inbox()
        self.parser = Parser(ROLE_CLIENT)
        self._transport = client.detach()
        self._held: deque[memoryview] = deque()
        self.read = self._transport.read

    def fileno(self) -> int:
        """The socket's."""
        return self._transport.fileno()

    @property
    def blocked(self) -> bool:
        """Whether bytes are held that the kernel has not taken."""
        return bool(self._held)

    @property
    def more_is_here(self) -> bool:
        """Whether ``read`` has more than the socket tells of."""
        return self._transport.more_is_here

    def write(self, data: bytes | memoryview) -> None:
        """Send as much as the kernel takes, and hold the rest."""
        if self._held:
            self._held.append(memoryview(data))
            return
        sent = self._transport.send(data)
        if sent < len(data):
            self._held.append(memoryview(data)[sent:])

    def push(self) -> None:
        """Send held bytes."""
        while self._held:
            first = self._held.popleft()
            sent = self._transport.send(first)
            if sent < len(first):
                self._held.appendleft(first[sent:])
                return

    def subscribe(self, subject: str, sid: int, queue: str = "") -> None:
        """Subscribe under a number."""
        words = (subject, queue, str(sid)) if queue else (subject, str(sid))
        self.write(f"SUB {' '.join(words)}\r\n".encode())

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()


class Role:
    """What one client of a load does: the base of all roles.

    ``done`` counts the messages of the figure, from ``start_ns`` to ``end_ns``; ``latencies`` are nanoseconds of
    single operations.
    """

    def __init__(self, link: Link, quota: int) -> None:
        """``quota``: after so many messages the role is over."""
        self.link = link
        self.quota = quota
        self.done = 0
        self.over = False
        self.start_ns = 0
        self.end_ns = 0
        self.latencies: list[int] = []
        self._asked_pong = False

    def turn(self, now: int) -> int:
        """Write what may be written; the time of the next turn (``now`` means at once)."""
        return NEVER

    def feed(self, data: bytes | memoryview) -> list[tuple[Any, ...]]:
        """Take bytes that came; the operations that are not counted."""
        return self.link.parser.feed(data)

    def settle(self, now: int) -> None:
        """Called when bytes were taken."""

    def message(self, operation: tuple[Any, ...]) -> None:
        """Called for a message that ``feed`` does not count."""

    def pong(self, now: int) -> None:
        """Called when the server has handled all that was written before ``ping``."""
        self.finish(now)

    def ping(self) -> None:
        """Let ``pong`` be called when all is handled; once."""
        if not self._asked_pong:
            self._asked_pong = True
            self.link.write(b"PING\r\n")

    def finish(self, now: int) -> None:
        """The role is over."""
        self.over = True
        self.end_ns = now

    def heed(self, operations: list[tuple[Any, ...]], now: int) -> None:
        """Act on operations; raises the error that the server sent."""
        for operation in operations:
            kind = operation[0]
            if kind == OP_PING:
                self.link.write(b"PONG\r\n")
            elif kind == OP_PONG:
                self.pong(now)
            elif kind == OP_MSG:
                self.message(operation)
            elif kind == OP_ERR:
                raise make_error(operation[1].decode("utf-8", "replace"))


class Crowd:
    """All clients of a load."""

    def __init__(
        self,
        roles: Sequence[Role],
        *,
        limit_s: float | None = None,
        tell: Callable[[int], object] = lambda done: None,
    ) -> None:
        """``limit_s``: Timeout when nothing comes for so long, though something is awaited.

        ``tell`` gets the number of messages so far, ten times a second.
        """
        self._roles = {role.link.fileno(): role for role in roles}
        self._due = dict.fromkeys(self._roles, 0)
        self._blocked: set[int] = set()
        self._limit_s = limit_s
        self._tell = tell
        self._told_at = self._heard_at = 0.0

    def run(self) -> None:
        """Until all roles are over. Raises Timeout, ConnectionLost, and what a role raises."""
        unfinished = len(self._roles)
        with select.epoll() as epoll:
            for number in self._roles:
                epoll.register(number, _IN)
            self._heard_at = time.monotonic()
            while unfinished:
                wait_s = self._turns(epoll)
                events = epoll.poll(wait_s)
                for number, event in events:
                    unfinished -= self._take(epoll, number, event)
                if wait_s or not events:
                    self._look(heard=bool(events) or wait_s == 0)
        self._tell(sum(role.done for role in self._roles.values()))

    def _turns(self, epoll: select.epoll) -> float:
        """Give every role that is due its turn; the seconds until the next one is."""
        now = time.perf_counter_ns()
        first = NEVER
        due = self._due
        for number, at in due.items():
            if at <= now:
                role = self._roles[number]
                at = NEVER if role.over else role.turn(now)
                if role.link.blocked and number not in self._blocked:
                    self._blocked.add(number)
                    epoll.modify(number, _OUT)
                due[number] = at
            first = min(first, at)
        if first == NEVER:
            return LOOK_S
        wait = first - time.perf_counter_ns()
        if wait <= 0:
            return 0
        if wait < _FINE_NS:
            time.sleep(wait / 1e9)
            return 0
        return min(wait / 1e9, LOOK_S)

    def _take(self, epoll: select.epoll, number: int, event: int) -> int:
        """Act on an event of a link; 1 when its role is over now."""
        role = self._roles[number]
        link = role.link
        if event & select.EPOLLOUT:
            link.push()
            if not link.blocked:
                self._blocked.discard(number)
                epoll.modify(number, _IN)
        before = role.over
        if event & ~select.EPOLLOUT:
            while (data := link.read()) is not None:
                if not data:
                    raise ConnectionLost("the server closed the connection")
                operations = role.feed(data)
                now = time.perf_counter_ns()
                if operations:
                    role.heed(operations, now)
                role.settle(now)
                if not link.more_is_here:
                    break
        self._due[number] = 0
        return int(role.over and not before)

    def _look(self, *, heard: bool) -> None:
        now = time.monotonic()
        if heard:
            self._heard_at = now
        elif self._limit_s is not None and now - self._heard_at > self._limit_s:
            raise Timeout(f"no answer in {self._limit_s:g} s")
        if now - self._told_at >= LOOK_S:
            self._told_at = now
            self._tell(sum(role.done for role in self._roles.values()))
