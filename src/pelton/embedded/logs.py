"""The server's log lines as records of Python's logging."""

from __future__ import annotations

import logging

from pelton.core.base.quoting import shown
from pelton.server.logs.log import Log

LEVELS = {
    "TRC": logging.DEBUG,
    "DBG": logging.DEBUG,
    "INF": logging.INFO,
    "WRN": logging.WARNING,
    "ERR": logging.ERROR,
    "FTL": logging.CRITICAL,
}


class LoggingLog(Log):
    """A Log whose lines go to a logger, whatever files the settings name."""

    def __init__(self, logger: logging.Logger, *, trace: bool = False) -> None:
        """Connections that open and close are logged when the logger takes DEBUG; ``trace``: also
        every operation.
        """
        super().__init__(debug=logger.isEnabledFor(logging.DEBUG), trace=trace)
        self._logger = logger

    def write(self, level: str, text: str) -> None:
        """Log one line; line ends and control characters in the text are escaped."""
        self._logger.log(LEVELS[level], "%s", shown(text))

    def move(self, path: str, limit: int = 0, keep: int = 0, syslog: str | None = None) -> None:
        """Nothing: the program's logging says where lines go."""

    def adopt(self, other: Log) -> None:
        """Nothing: see ``move``."""
        other.close()

    def configure(self, *, debug: bool, trace: bool, stamps: bool, utc: bool, form: str) -> None:
        """Switch the trace; the logger's level decides about the rest."""
        self.trace_on = trace
