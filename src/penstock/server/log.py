"""The server's log: one line for each thing said, in nats-server's form or as JSON.

    [4711] 2026/01/31 14:05:09.123456 [INF] Server is ready
    {"pid":4711,"time":"2026-01-31T14:05:09.123456+01:00","level":"INF","text":"Server is ready"}

Lines go to stderr or to a file that is opened again on demand (after a rotation). A line that can't
be written is dropped: a full disk must not stop the server. Knows nothing of who logs.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import TextIO

from penstock.server.errors import StartError


class Log:
    """Where everything in the server says what it does."""

    def __init__(
        self,
        path: str = "",
        *,
        debug: bool = False,
        trace: bool = False,
        stamps: bool = True,
        utc: bool = False,
        form: str = "text",
        now: Callable[[], float] = time.time,
        stream: TextIO | None = None,
    ) -> None:
        """Log to a file (appended to) or, without a path, to stderr; StartError when the file can't
        be opened.
        """
        self.path = path
        self.debug_on = debug
        self.trace_on = trace
        self._stamps = stamps
        self._utc = utc
        self._form = form
        self._now = now
        self._pid = os.getpid()
        self._second = -1  # the second that _stamp is of
        self._stamp = ""
        self._zone = ""
        self._stream = stream if stream is not None else self._open()

    def _open(self) -> TextIO:
        if not self.path:
            return sys.stderr
        try:
            return open(self.path, "a", encoding="utf-8", buffering=1)
        except OSError as problem:
            raise StartError(
                f"can't open log file {self.path}: {problem.strerror}; choose another with -l"
            ) from None

    def reopen(self) -> None:
        """Open the file again by its name (somebody has moved it away); the old one stays in use if
        that fails.
        """
        if not self.path:
            return
        try:
            fresh = self._open()
        except StartError as problem:
            self.error(str(problem))
            return
        self._stream, old = fresh, self._stream
        old.close()

    def move(self, path: str) -> None:
        """Go on in another file (or on stderr, without a path); stays where it is if that can't be
        opened.
        """
        before, old = self.path, self._stream
        self.path = path
        try:
            self._stream = self._open()
        except StartError as problem:
            self.path = before
            self.error(str(problem))
            return
        if before:
            old.close()

    def configure(self, *, debug: bool, trace: bool, stamps: bool, utc: bool, form: str) -> None:
        """Change what is said and how, on a running server."""
        self.debug_on = debug
        self.trace_on = trace
        self._stamps = stamps
        self._utc = utc
        self._form = form
        self._second = -1

    def close(self) -> None:
        """Close the file, if it is one."""
        if self.path:
            self._stream.close()

    def info(self, text: str) -> None:
        """Something that an operator expects to see once."""
        self.write("INF", text)

    def warn(self, text: str) -> None:
        """Something that works but not as well as it should."""
        self.write("WRN", text)

    def error(self, text: str) -> None:
        """Something went wrong for one client or one stream."""
        self.write("ERR", text)

    def fatal(self, text: str) -> None:
        """The server can't go on; the caller ends it."""
        self.write("FTL", text)

    def debug(self, text: str) -> None:
        """Connections coming and going; only with -D."""
        if self.debug_on:
            self.write("DBG", text)

    def trace(self, text: str) -> None:
        """What clients ask for; only with -V."""
        if self.trace_on:
            self.write("TRC", text)

    def write(self, level: str, text: str) -> None:
        """One line; line ends inside the text are shown, not obeyed."""
        text = text.replace("\r", "\\r").replace("\n", "\\n")
        line = self._json(level, text) if self._form == "json" else self._plain(level, text)
        try:
            self._stream.write(line)
            self._stream.flush()
        except (OSError, ValueError):
            return

    def _plain(self, level: str, text: str) -> str:
        if not self._stamps:
            return f"[{self._pid}] [{level}] {text}\n"
        micros = self._tick()
        return f"[{self._pid}] {self._stamp}.{micros:06d} [{level}] {text}\n"

    def _json(self, level: str, text: str) -> str:
        import json

        fields: dict[str, object] = {"pid": self._pid}
        if self._stamps:
            micros = self._tick()
            day, clock = self._stamp.split(" ")
            fields["time"] = f"{day.replace('/', '-')}T{clock}.{micros:06d}{self._zone}"
        fields["level"] = level
        fields["text"] = text
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")) + "\n"

    def _tick(self) -> int:
        """Bring the stamp of the current second up to date; the microseconds in it."""
        moment = self._now()
        second = int(moment)
        if second != self._second:
            self._second = second
            parts = time.gmtime(second) if self._utc else time.localtime(second)
            self._stamp = time.strftime("%Y/%m/%d %H:%M:%S", parts)
            zone = time.strftime("%z", parts)
            self._zone = "Z" if self._utc or not zone else f"{zone[:3]}:{zone[3:]}"
        return int((moment - second) * 1_000_000)
