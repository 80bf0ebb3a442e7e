"""What the opening of a log wished to write, and the disk did not take; see core/log/deferred_writes.pyx."""

from penstock.core.log.log import Log

def do_late(log: Log) -> bool:
    """One piece of what can wait; whether there was one. OSError."""
