"""The log shipper: publishes every line of every file once, whatever is killed and restarted.

**A restart reads its position from the stream.** The headers of each message name the file, the
position of the line and that of the next one. So the shipper continues after the last message on a
file's subject, after hours as well as after a second; the duplicate window of the stream plays no
part.

**Why this is exact.** It is exact if a message is stored only when all earlier lines are stored.
The shipper sends many messages without waiting, so a refusal in the middle must also stop the later
ones. Each message therefore names the one before it (``Nats-Expected-Last-Msg-Id``), and the stream
stores it only directly after that one::

    seq   41        42        43        44
          a:0  <--  a:120 <-- b:0  <--  a:305      when b:0 is refused, a:305 is refused as well

The first message of each file names the last sequence of its subject
(``Nats-Expected-Last-Subject-Sequence``) at the time when the position was looked up, so a second
shipper of the same files is detected as well. If a message is refused or not answered, the shipper
guesses nothing: it waits for all outstanding answers, asks the stream what it holds, reads the
files again from there, and begins a new chain. It does the same if another client publishes to the
stream, or if messages of a killed shipper arrive late. This costs some requests, never a line.

Does not know how lines are read from files (:mod:`penstock.pipeline.logs.files`), nor Spark.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from penstock.errors import MessageNotFound, PenstockError, PublishFailed
from penstock.pipeline.logs import names
from penstock.pipeline.logs.files import Follower, Identity, Line, Mark, find_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.client.blocking.jetstream import JetStream, Publisher
    from penstock.client.plans.jetstream import StoredMessage

WINDOW_MESSAGES = 2000
ACK_TIMEOUT_SECONDS = 10.0
_DISCOVER_EVERY_SECONDS = 2.0
_FRUITLESS_BREAKS_MAX = 5
_IDLE_SECONDS = 0.5
_EXPECTED_LAST_ID = "Nats-Expected-Last-Msg-Id"
_EXPECTED_SUBJECT_SEQUENCE = "Nats-Expected-Last-Subject-Sequence"


# The limit for reading, by path and file; see Follower.sizes.
Bounds: TypeAlias = "dict[Path, dict[tuple[int, int], int]]"


class ChainBrokenError(PenstockError):
    """The stream refused a message, or did not answer: read again after the stream's last message."""


class Shipped(NamedTuple):
    """The last message of a subject: its sequence, and the mark in its headers.

    The mark is None for a message of another program.
    """

    sequence: int
    mark: Mark | None


def read_mark(message: StoredMessage) -> Mark | None:
    """The mark in the headers of a stored message; None if no shipper made the message."""
    headers = {name: values[0] for name, values in message.headers.items() if values}
    try:
        identity = Identity.parse(headers[names.IDENTITY_HEADER])
        next_offset = int(headers[names.NEXT_HEADER])
    except (KeyError, ValueError):
        return None
    return Mark(identity, next_offset, message.data, names.PARTIAL_HEADER in headers)


class Chain:
    """Publishes messages of one stream so that each is stored only after the one before it."""

    def __init__(self, jetstream: JetStream, stream: str, window: int = WINDOW_MESSAGES) -> None:
        """``window`` is the number of messages that may wait for their acks."""
        self._jetstream = jetstream
        self._stream = stream
        self._window = window
        self._publisher: Publisher | None = None
        self._last_id: str | None = None
        self._looked_up: dict[str, int] = {}
        self._acked_before = 0

    @property
    def acked(self) -> int:
        """The number of messages that the stream has acknowledged, over all chains."""
        return self._acked_before + (self._publisher.acked if self._publisher else 0)

    def last(self, subject: str) -> Shipped | None:
        """The last message of a subject, asked from the stream now.

        The next message of the subject must be stored directly after it.
        """
        try:
            message = self._jetstream.get_message(self._stream, last_by_subject=subject)
        except MessageNotFound:
            self._looked_up[subject] = 0
            return None
        self._looked_up[subject] = message.seq
        return Shipped(message.seq, read_mark(message))

    def publish(self, subject: str, data: bytes, headers: dict[str, str], message_id: str) -> None:
        """Send a message; waits only if the window is full. Raises :class:`ChainBrokenError`.

        Call :meth:`last` before the first message of a subject in this chain.
        """
        if self._publisher is None:
            self._publisher = self._jetstream.publisher(
                window=self._window, timeout=ACK_TIMEOUT_SECONDS, attempts_max=1
            )
        if (before := self._looked_up.pop(subject, None)) is not None:
            headers[_EXPECTED_SUBJECT_SEQUENCE] = str(before)
        if self._last_id is not None:
            headers[_EXPECTED_LAST_ID] = self._last_id
        self._last_id = message_id
        self._publisher.publish(subject, data, headers=headers, msg_id=message_id)
        if self._publisher.failures:
            self.settle()

    def settle(self) -> None:
        """Wait for all answers. Raises :class:`ChainBrokenError` if one is a refusal or missing."""
        if self._publisher is None:
            return
        try:
            self._publisher.flush()
        except PublishFailed as failed:
            raise ChainBrokenError(str(failed)) from failed

    def begin_anew(self) -> None:
        """Drop the broken chain; the next message begins another."""
        if self._publisher is not None:
            self._acked_before += self._publisher.acked
            # With an error the publisher does not wait for answers.
            self._publisher.__exit__(ChainBrokenError, None, None)
        self._publisher = None
        self._last_id = None
        self._looked_up.clear()


class Shipper:
    """Follows files and ships their lines; used by one thread."""

    def __init__(
        self,
        chain: Chain,
        where: str | None,
        host: str,
        *,
        not_below: Path | None = None,
        clock: Callable[[], float] = time.time,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """``where`` is as for :func:`find_files`, ``host`` this machine's name in subjects and
        headers. After ``stopped`` returns true, no further line is shipped.
        """
        self._chain = chain
        self._where = where
        self._host = host
        self._not_below = not_below
        self._clock = clock
        self._stopped = stopped
        self._followers: dict[Path, Follower] = {}
        self._discover_at = 0.0
        self._breaks = 0
        self._fruitless_breaks = 0

    @property
    def files(self) -> int:
        """The number of followed files."""
        return len(self._followers)

    @property
    def acked(self) -> int:
        """The number of lines that the stream has acknowledged to this shipper."""
        return self._chain.acked

    def step(self) -> int:
        """Ship the lines that are there now and wait until they are stored; their number.

        Repairs a refusal within the call: the files are set back to what the stream holds.
        Raises :class:`penstock.errors.PenstockError` if the server cannot be reached or keeps
        refusing; then call :meth:`recover` before the next call.
        """
        self._discover()
        return self._pass(final=False, until=None)

    def drain(self) -> int:
        """Ship everything in the files now, also ends without a newline; the number of lines.

        Lines that are written meanwhile are left for another call, so that this one ends.
        """
        self._discover_at = 0.0
        self._discover()
        until = {path: follower.sizes() for path, follower in self._followers.items()}
        total = 0
        # A broken chain ends a pass early; a pass that ships nothing and breaks nothing has seen
        # everything.
        while True:
            broken_before = self._breaks
            total += self._pass(final=True, until=until)
            if self._breaks == broken_before:
                return total

    def recover(self) -> None:
        """Set every file back to what the stream holds, and begin a new chain."""
        self._chain.begin_anew()
        for path, follower in self._followers.items():
            self._start(path, follower)

    def close(self) -> None:
        """Close the files."""
        for follower in self._followers.values():
            follower.close()

    def _discover(self) -> None:
        now = self._clock()
        if now < self._discover_at:
            return
        self._discover_at = now + _DISCOVER_EVERY_SECONDS
        for path in find_files(self._where, self._not_below):
            if path not in self._followers:
                follower = Follower(path, clock=self._clock)
                self._start(path, follower)
                self._followers[path] = follower

    def _start(self, path: Path, follower: Follower) -> None:
        shipped = self._chain.last(names.subject_of(self._host, str(path)))
        follower.start(shipped.mark if shipped else None)

    def _pass(self, *, final: bool, until: Bounds | None) -> int:
        before = self._chain.acked
        try:
            for path, identity, line in self._lines(final=final, until=until):
                if self._stopped():
                    break
                self._ship(path, identity, line)
            self._chain.settle()
        except ChainBrokenError:
            self._breaks += 1
            shipped = self._chain.acked - before
            self._fruitless_breaks = 0 if shipped else self._fruitless_breaks + 1
            if self._fruitless_breaks >= _FRUITLESS_BREAKS_MAX:
                self._fruitless_breaks = 0
                raise
            self.recover()
        return self._chain.acked - before

    def _lines(self, *, final: bool, until: Bounds | None) -> Iterator[tuple[Path, Identity, Line]]:
        for path, follower in list(self._followers.items()):
            bounds = until.get(path, {}) if until is not None else None
            for identity, line in follower.lines(final=final, until=bounds):
                yield path, identity, line

    def _ship(self, path: Path, identity: Identity, line: Line) -> None:
        headers = {
            names.HOST_HEADER: self._host,
            names.FILE_HEADER: str(path),
            names.IDENTITY_HEADER: str(identity),
            names.OFFSET_HEADER: str(line.offset),
            names.NEXT_HEADER: str(line.next_offset),
        }
        if line.partial:
            headers[names.PARTIAL_HEADER] = "1"
        subject = names.subject_of(self._host, str(path))
        self._chain.publish(subject, line.data, headers, f"{identity}:{line.offset}")


def ship_forever(
    shipper: Shipper,
    wait: Callable[[float], bool],
    on_trouble: Callable[[PenstockError | None], None],
) -> None:
    """Ship until ``wait(seconds)`` returns that it is time to stop.

    ``on_trouble`` gets the error if the server cannot be reached or refuses, and None when all is
    well again. An exception that it raises ends the shipping.
    """
    trouble = False
    while True:
        busy = False
        try:
            if trouble:
                shipper.recover()
            busy = shipper.step() > 0
            if trouble:
                on_trouble(None)
            trouble = False
        except PenstockError as error:
            on_trouble(error)
            trouble = True
        if wait(0.0 if busy else _IDLE_SECONDS):
            return
