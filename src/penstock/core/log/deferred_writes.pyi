"""What the opening of a log wished to write, and the disk did not take; see core/log/deferred_writes.pyx."""

from collections.abc import Callable

from penstock.core.log.files import LogFiles

def owe(log: LogFiles, error: OSError, call: Callable[[], None] | None) -> None:
    """The disk has refused with an error: no append is taken before `call` has done it (it raises OSError)."""

def pay(log: LogFiles) -> None:
    """Do what is owed, in its order. OSError: the rest is owed still."""

def do_late(log: LogFiles) -> bool:
    """One piece of what can wait; whether there was one. OSError."""

def make_anew(log: LogFiles, s: object) -> None:
    """The newest segment of an encrypted log, without a message, gets a new file with another key. OSError."""

def index_later(log: LogFiles, s: object) -> None:
    """The index file of a segment could not be written: it is tried again."""
