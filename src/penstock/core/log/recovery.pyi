"""Opening a log. Called by Log only."""

from collections.abc import Iterator

from penstock.core.log.log import Log

def opening(log: Log, create: bool, numbered: bool, patient: bool) -> Iterator[None]: ...
