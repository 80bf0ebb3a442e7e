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

Each file has a subject of its own, whatever it is called (:mod:`pelton.pipeline.logs.places`).

Does not know how lines are read from files (:mod:`pelton.pipeline.logs.files`), nor Spark.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pelton.errors import PeltonError
from pelton.pipeline.logs import names
from pelton.pipeline.logs.chain import Chain, ChainBrokenError
from pelton.pipeline.logs.following import OpenFiles
from pelton.pipeline.logs.places import Places

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pelton.pipeline.logs.files import FileKey, Identity, Line
    from pelton.pipeline.logs.following import OpenFile

_FRUITLESS_BREAKS_MAX = 5
_IDLE_SECONDS = 0.5


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
        self._host = host
        self._stopped = stopped
        self._open = OpenFiles(Places(chain, host), chain, where, host, not_below, clock)
        self._breaks = 0
        self._fruitless_breaks = 0

    @property
    def files(self) -> int:
        """The number of followed files."""
        return self._open.files

    @property
    def unread(self) -> dict[str, str]:
        """Files whose lines are not shipped, or not all of them, with the reason."""
        return self._open.unread

    @property
    def acked(self) -> int:
        """The number of lines that the stream has acknowledged to this shipper."""
        return self._chain.acked

    def step(self) -> int:
        """Ship the lines that are there now and wait until they are stored; their number.

        Repairs a refusal within the call: the files are set back to what the stream holds.
        Raises :class:`pelton.errors.PeltonError` if the server cannot be reached or keeps
        refusing; then call :meth:`recover` before the next call.
        """
        return self._pass(final=False, until=None)

    def drain(self) -> int:
        """Ship everything in the files now, also ends without a newline; the number of lines.

        Lines that are written meanwhile are left for another call, so that this one ends.
        """
        self._open.look(now=True, final=True)
        until = self._open.sizes()
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
        self._open.reset()

    def close(self) -> None:
        """Close the files."""
        self._open.close()

    def _pass(self, *, final: bool, until: dict[FileKey, int] | None) -> int:
        before = self._chain.acked
        try:
            self._open.look(final=final)
            for file, identity, line in self._open.lines(final=final, until=until):
                if self._stopped():
                    break
                self._ship(file, identity, line)
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

    def _ship(self, file: OpenFile, identity: Identity, line: Line) -> None:
        headers = {
            names.HOST_HEADER: self._host,
            names.FILE_HEADER: file.path,
            names.IDENTITY_HEADER: str(identity),
            names.OFFSET_HEADER: str(line.offset),
            names.NEXT_HEADER: str(line.next_offset),
        }
        if line.partial:
            headers[names.PARTIAL_HEADER] = "1"
        self._chain.publish(file.subject, line.data, headers, f"{identity}:{line.offset}")


def ship_forever(
    shipper: Shipper,
    wait: Callable[[float], bool],
    on_trouble: Callable[[PeltonError | None], None],
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
        except PeltonError as error:
            on_trouble(error)
            trouble = True
        if wait(0.0 if busy else _IDLE_SECONDS):
            return
