"""Rate-limited log lines about errors of clients: a hostile client cannot fill the log.

The caller gives the time.
"""

from pelton.server.logs.log import Log
from pelton.server.units import SECOND_NS

LINES_MAX = 10  # in one second


class RateLimitedLog:
    """Lines of one kind."""

    def __init__(self, log: Log, kind: str, level: str = "ERR") -> None:
        """`kind` names the lines in the line about suppressed ones."""
        self._log = log
        self._kind = kind
        self._level = level
        self._second = 0
        self._count = 0

    def say(self, now_ns: int, line: str) -> None:
        """Log a line, unless there were many in this second."""
        second = now_ns // SECOND_NS
        if second != self._second:
            if self._count > LINES_MAX:
                more = self._count - LINES_MAX
                self._log.write(self._level, f"{self._kind}: {more} more lines were not logged")
            self._second, self._count = second, 0
        self._count += 1
        if self._count <= LINES_MAX:
            self._log.write(self._level, line)
