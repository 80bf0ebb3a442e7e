"""Deferred writes: writes that the opening of a log could not do because of the disk."""

from pelton.core.log.log import Log

def do_late(log: Log) -> bool:
    """Do one deferred write of `late`, if the log takes appends; whether there was one. OSError when the disk refuses."""
