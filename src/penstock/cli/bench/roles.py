"""The roles of a load: publish, listen, ask, serve, store, pull; each is one client of it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.client.jetstream import decode_pub_ack
from penstock.client.pull import pull_body, status_error
from penstock.core.bulk.publish_window import PublishWindow
from penstock.core.bulk.tally import Tally
from penstock.core.protocol.wire import decode_headers
from penstock.errors import NoResponders, PenstockError

from .links import NEVER, Role
from .supply import CHUNK, Pace

if TYPE_CHECKING:
    from collections.abc import Callable

    from .links import Link
    from .supply import Supply

SID, CONFIRMS = 1, 2
WINDOW_BYTES = 64 * 1024 * 1024
EXPIRES_NS = 30_000_000_000


class Flood(Role):
    """Publishes as fast as the server takes it; the end is when the server has handled all."""

    def __init__(self, link: Link, supply: Supply, quota: int, pace: Pace) -> None:
        """``supply``: what to publish."""
        super().__init__(link, quota)
        self._supply = supply
        self._pace = pace

    def turn(self, now: int) -> int:
        """Write a chunk."""
        self.start_ns = self.start_ns or now
        if self.link.blocked:
            return NEVER
        left = self.quota - self.done
        if not left:
            self.ping()
            return NEVER
        if not (count := self._pace.allowed(self.done, left, now)):
            return self._pace.due(self.done)
        data, made = self._supply.take(count)
        self.link.write(data)
        self.done += made
        self._pace.sent(now)
        return now


class Listen(Role):
    """Counts what arrives on a subject; its clock starts with the first message."""

    def __init__(self, link: Link, subject: str, quota: int) -> None:
        """Subscribes."""
        super().__init__(link, quota)
        self.tally = Tally()
        link.subscribe(subject, SID)

    def feed(self, data: bytes | memoryview) -> list[tuple[Any, ...]]:
        """Count messages."""
        return self.tally.feed(self.link.parser, SID, data)

    def settle(self, now: int) -> None:
        """The end, when all have come."""
        self.done = min(self.tally.messages, self.quota)
        if self.done and not self.start_ns:
            self.start_ns = now
        if self.done == self.quota and not self.over:
            self.finish(now)


class Serve(Role):
    """Answers requests until interrupted."""

    def __init__(self, link: Link, subject: str, payload: bytes, sleep_ns: int) -> None:
        """Subscribes in the queue group ``q``, as services do. ``sleep_ns``: before each answer."""
        super().__init__(link, NEVER)
        self.tally = Tally(payload)
        self._sleep_ns = sleep_ns
        self._ready = NEVER
        link.subscribe(subject, SID, "q")

    def turn(self, now: int) -> int:
        """Write the answers that are due."""
        if self.tally.waiting_bytes and now < self._ready:
            return self._ready
        if answers := self.tally.take():
            self.link.write(answers)
        return NEVER

    def feed(self, data: bytes | memoryview) -> list[tuple[Any, ...]]:
        """Count requests and write their answers."""
        return self.tally.feed(self.link.parser, SID, data)

    def settle(self, now: int) -> None:
        """Answers are due after the pause, one after the other."""
        new = self.tally.messages - self.done
        self.done = self.tally.messages
        self._ready = now + self._sleep_ns * new


class Ask(Role):
    """Sends requests, one at a time; each has one answer, or ends with a status of the server."""

    def __init__(
        self,
        link: Link,
        quota: int,
        request: Callable[[int, int], tuple[str, bytes]],
        pace: Pace,
        *,
        batch: int = 0,
        lines: bytes = b"",
        api: bool = False,
    ) -> None:
        """``request``: subject and body for the number of messages so far and those that are wanted.

        With ``batch`` a request has up to so many answers, and a status ends them. ``lines``: headers.
        ``api``: an answer is JSON, in which the server may refuse the request.
        """
        super().__init__(link, quota)
        self.tally = Tally()
        self._sid = 0 if api else SID
        self._answers = 0
        self.last_seq = 0
        """The sequence that the end of the last batch named."""
        self._request = request
        self._pace = pace
        self._batch = batch
        self._block = b"NATS/1.0\r\n" + lines + b"\r\n" if lines else b""
        self._asked_ns = 0
        self._subject = ""
        link.subscribe(link.inbox, SID)

    def turn(self, now: int) -> int:
        """Send the next request, when the last one is answered."""
        self.start_ns = self.start_ns or now
        if self._asked_ns or self.over:
            return NEVER
        if not self._pace.allowed(self.done, 1, now):
            return self._pace.due(self.done)
        wanted = min(self._batch or 1, self.quota - self.done)
        self._subject, body = self._request(self.done, wanted)
        size = len(body)
        if self._block:
            head = f"HPUB {self._subject} {self.link.inbox} {len(self._block)} {len(self._block) + size}\r\n"
        else:
            head = f"PUB {self._subject} {self.link.inbox} {size}\r\n"
        self._asked_ns = now
        self._pace.sent(now)
        self.link.write(head.encode() + self._block + body + b"\r\n")
        return NEVER

    def feed(self, data: bytes | memoryview) -> list[tuple[Any, ...]]:
        """Count answers."""
        return self.tally.feed(self.link.parser, self._sid, data)

    def message(self, operation: tuple[Any, ...]) -> None:
        """Count an answer of the API; ApiError for a refusal."""
        if b'"error":' in operation[5][:200]:
            decode_pub_ack(operation[5])  # raises the refusal
        self._answers += 1

    def settle(self, now: int) -> None:
        """The answer is complete."""
        ended = self._check() if self.tally.statuses else False
        if not self._asked_ns or (self._batch and not ended):
            return
        answers = self.tally.messages + self._answers
        if answers == self.done:
            if ended:
                raise PenstockError("no more messages match")
            return
        self.latencies.append(now - self._asked_ns)
        self.done = answers
        self._asked_ns = 0
        if self.done >= self.quota:
            self.finish(now)

    def _check(self) -> bool:
        """Whether a status ends the answers; raises the error of another one."""
        for block in self.tally.statuses:
            status, description, headers = decode_headers(block)
            if status == 503:
                raise NoResponders(self._subject)
            if status != 204:
                raise PenstockError(f"{self._subject}: {description} ({status})")
            self.last_seq = int(headers.get("Nats-Last-Sequence", ["0"])[0])
        self.tally.statuses.clear()
        return True


class Store(Role):
    """Publishes into a stream with a window of messages whose ack has not come."""

    def __init__(self, link: Link, supply: Supply, quota: int, pace: Pace, *, window: int) -> None:
        """``supply`` has ``link.inbox.`` as its reply."""
        super().__init__(link, quota)
        self._supply = supply
        self._pace = pace
        self._window = PublishWindow(supply.encoder, window, WINDOW_BYTES)
        self._sent = 0
        self._marks: deque[tuple[int, int]] = deque()
        """How many messages had gone at which time."""
        link.subscribe(f"{link.inbox}.*", SID)

    def turn(self, now: int) -> int:
        """Fill the window."""
        self.start_ns = self.start_ns or now
        window = self._window
        if self.link.blocked or self._sent == self.quota:
            return NEVER
        while self._sent < self.quota and not window.full:
            count = self._pace.allowed(self._sent, self.quota - self._sent, now)
            if not count:
                break
            rows, at = self._supply.rows(count)
            put = window.put(rows, at, CHUNK) - at
            if not put:
                break
            self._sent += put
            self._supply.number += put
            self._pace.sent(now)
        if data := window.take():
            self._marks.append((self._sent, now))
            self.link.write(data)
        if self._sent == self.quota or window.full:
            return NEVER
        return max(now, self._pace.due(self._sent))

    def feed(self, data: bytes | memoryview) -> list[tuple[Any, ...]]:
        """Count acks."""
        return self._window.feed(self.link.parser, SID, data)

    def settle(self, now: int) -> None:
        """Note the time of acks; raises the stream's refusal."""
        if self._window.failures:
            self._refused()
        self.done = self._window.acked
        marks = self._marks
        while marks and marks[0][0] <= self.done:
            self.latencies.append(now - marks.popleft()[1])
        if self.done == self.quota and not self.over:
            self.finish(now)

    def _refused(self) -> None:
        _, operation, block, payload = self._window.failures[0]
        if block and decode_headers(block)[0] == 503:
            raise NoResponders(operation.split(b" ", 2)[1].decode("utf-8", "replace"))
        decode_pub_ack(payload)  # raises the refusal
        raise PenstockError(f"not an ack: {payload[:200]!r}")


class Pull(Role):
    """Pulls the messages of a consumer, and acknowledges them.

    With ``overlapped`` the next request goes when half of the messages of the last ones are there, without when all
    are.
    """

    def __init__(
        self,
        link: Link,
        subject: str,
        quota: int,
        *,
        batch: int,
        overlapped: bool,
        acks: str,
        confirmed: bool,
        sleep_ns: int = 0,
    ) -> None:
        """``subject``: of the pull requests. ``acks``: none, explicit, all."""
        super().__init__(link, quota)
        confirms = f"{link.inbox}c" if confirmed and acks != "none" else ""
        self.tally = Tally(
            None if acks == "none" else b"+ACK", reply=confirms.encode(), only_last=acks == "all"
        )
        self._subject = subject
        self._to = subject.encode()
        self._bodies: dict[int, bytes] = {}
        self._batch = batch
        self._overlapped = overlapped
        self._confirmed = bool(confirms)
        self._each = acks == "explicit"
        self._sleep_ns = sleep_ns
        self._ready = 0
        self._asked = 0
        """Messages of the requests under way."""
        self._asked_ns = 0
        self._requests = 0
        link.subscribe(f"{link.inbox}.*", SID)
        if confirms:
            link.subscribe(confirms, CONFIRMS)

    def turn(self, now: int) -> int:
        """Acknowledge, and ask for more."""
        self.start_ns = self.start_ns or now
        if now < self._ready:
            return self._ready
        acks = self.tally.take()
        if self.done >= self.quota:
            self.link.write(acks)
            if not self._each or not self._confirmed or self.tally.confirmations >= self.done:
                self.ping()
            return NEVER
        room = min(self._batch, self.quota - self.done) - self._asked
        if room > 0 and self._asked <= (self._batch // 2 if self._overlapped else 0):
            self._asked += room
            self._requests += 1
            self._asked_ns = now
            acks += self._request(room)
        if acks:
            self.link.write(acks)
        return NEVER

    def _request(self, count: int) -> bytes:
        """A pull request."""
        body = self._bodies.get(count)
        if body is None:
            body = self._bodies[count] = pull_body(count, expires_ns=EXPIRES_NS)
        reply = f"{self.link.inbox}.{self._requests}"
        return b"PUB %b %b %d\r\n%b\r\n" % (self._to, reply.encode(), len(body), body)

    def feed(self, data: bytes | memoryview) -> list[tuple[Any, ...]]:
        """Count messages and write their acks."""
        return self.tally.feed(self.link.parser, SID, data, CONFIRMS)

    def settle(self, now: int) -> None:
        """Messages have come, or a request has ended."""
        new = self.tally.messages - self.done
        self.done += new
        self._asked = max(0, self._asked - new)
        if self.tally.statuses:
            self._check()
        if new and not self._overlapped and not self._asked:
            self.latencies.append(now - self._asked_ns)
        if self._sleep_ns and new:
            self._ready = now + self._sleep_ns * new

    def _check(self) -> None:
        for block in self.tally.statuses:
            status, description, headers = decode_headers(block)
            error = status_error(status, description, self._subject)
            if error is not None and status not in (404, 408):
                raise error
            left = headers.get("Nats-Pending-Messages", [""])[0]
            self._asked = max(0, self._asked - int(left)) if left.isdigit() else 0
        self.tally.statuses.clear()
