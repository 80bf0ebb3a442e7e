"""The server's log: one line per message, in nats-server's form or as JSON.

    [4711] 2026/01/31 14:05:09.123456 [INF] Server is ready
    {"pid":4711,"time":"2026-01-31T14:05:09.123456+01:00","level":"INF","text":"Server is ready"}

Lines go to a file, to a syslog, or to stderr. A line that cannot be written is dropped: a full disk
must not stop the server. Clients choose names, subjects and bytes in errors, so control characters in a
line are escaped.
"""

import os
import sys
import time
from collections.abc import Callable

from pelton.core.base.quoting import shown
from pelton.server.errors import StartError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

    from pelton.server.logs.log_file import LogFile
    from pelton.server.logs.syslog import Syslog


class Log:
    """The log of one server."""

    def __init__(
        self,
        path: str = "",
        *,
        debug: bool = False,
        trace: bool = False,
        stamps: bool = True,
        utc: bool = False,
        form: str = "text",
        limit: int = 0,
        keep: int = 0,
        syslog: str | None = None,
        quiet: bool = False,
        now: Callable[[], float] = time.time,
        stream: "TextIO | None" = None,
    ) -> None:
        """Log to a file (rotated at `limit` bytes, `keep` files at most); without a path to a
        syslog ("": the machine's own, or an address); without both to stderr. StartError when the
        target can't be opened. `quiet` leaves out normal events.
        """
        self._quiet = quiet
        self.debug_on = debug
        self.trace_on = trace
        self._stamps = stamps
        self._utc = utc
        self._form = form
        self._now = now
        self._pid = os.getpid()
        self._second = -1  # the second of _stamp
        self._stamp = ""
        self._zone = ""
        self._stream = stream if stream is not None else sys.stderr
        self._file: LogFile | None = None
        self._syslog: Syslog | None = None
        if path or syslog is not None:
            self.move(path, limit, keep, syslog)

    @property
    def path(self) -> str:
        """The path of the log file; empty when lines go elsewhere."""
        return self._file.path if self._file is not None else ""

    def reopen(self) -> None:
        """Open the file again by its name, after it was moved away. The old file stays in use when
        that fails.
        """
        if self._file is None:
            return
        try:
            self._file.reopen()
        except StartError as problem:
            self.error(str(problem))

    def move(self, path: str, limit: int = 0, keep: int = 0, syslog: str | None = None) -> None:
        """Switch to another file, to a syslog, or to stderr. StartError when it can't be opened;
        the old target then stays in use.
        """
        target = self._target(path, limit, keep, syslog)
        self.close()
        self._file, self._syslog = target

    def adopt(self, other: "Log") -> None:
        """Take over the target of another Log, which is not used any more."""
        self.close()
        self._file, self._syslog = other._file, other._syslog
        other._file = other._syslog = None

    def _target(
        self, path: str, limit: int, keep: int, syslog: str | None
    ) -> "tuple[LogFile | None, Syslog | None]":
        if path:
            from pelton.server.logs import log_file

            return log_file.LogFile(path, limit, keep), None
        if syslog is not None:
            from pelton.server.logs import syslog as daemon

            return None, daemon.Syslog(syslog)
        return None, None

    def configure(self, *, debug: bool, trace: bool, stamps: bool, utc: bool, form: str) -> None:
        """Change the form of the lines on a running server."""
        self.debug_on = debug
        self.trace_on = trace
        self._stamps = stamps
        self._utc = utc
        self._form = form
        self._second = -1

    def close(self) -> None:
        """Close the file or the connection; later lines go to stderr."""
        for each in (self._file, self._syslog):
            if each is not None:
                each.close()
        self._file = self._syslog = None

    def info(self, text: str) -> None:
        """A normal event."""
        if not self._quiet:
            self.write("INF", text)

    def warn(self, text: str) -> None:
        """A problem that the server works around."""
        self.write("WRN", text)

    def error(self, text: str) -> None:
        """A failure for one client or one stream."""
        self.write("ERR", text)

    def fatal(self, text: str) -> None:
        """A failure that stops the server; the caller stops it."""
        self.write("FTL", text)

    def debug(self, text: str) -> None:
        """Connections that open and close; only with -D."""
        if self.debug_on:
            self.write("DBG", text)

    def trace(self, text: str) -> None:
        """Protocol operations; only with -V."""
        if self.trace_on:
            self.write("TRC", text)

    def write(self, level: str, text: str) -> None:
        """Write one line; line ends and control characters in the text are escaped."""
        text = shown(text)
        if self._syslog is not None:
            self._syslog.write(level, text)
            return
        line = self._line(level, text)
        if self._file is not None:
            for each in self._file.write(line):
                self._file.write(self._line("INF", each))
            return
        try:
            self._stream.write(line)
            self._stream.flush()
        except (OSError, ValueError):
            return

    def _line(self, level: str, text: str) -> str:
        return self._json(level, text) if self._form == "json" else self._plain(level, text)

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
        """Bring the stamp up to the current second; returns its microseconds."""
        moment = self._now()
        second = int(moment)
        if second != self._second:
            self._second = second
            parts = time.gmtime(second) if self._utc else time.localtime(second)
            self._stamp = time.strftime("%Y/%m/%d %H:%M:%S", parts)
            zone = time.strftime("%z", parts)
            self._zone = "Z" if self._utc or not zone else f"{zone[:3]}:{zone[3:]}"
        return int((moment - second) * 1_000_000)
