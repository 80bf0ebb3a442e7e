"""Opening a log. Called by Log.__init__ only."""

from penstock.core.log import Log

def open_log(log: Log, create: bool) -> None: ...
