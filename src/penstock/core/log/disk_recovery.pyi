"""How a log takes appends again after its disk has failed; see Log.mend."""

from penstock.core.log.log import Log
from penstock.core.log.segment import Segment

UNSURE: str
"""Name of the file that tells which segments a process that ended did not believe any more."""

def mend(log: Log) -> bool:
    """Log.mend."""

def note_unsure(log: Log) -> None:
    """Write down beside its segments which of them are not to be believed, if the disk lets us."""

def reopened(log: Log) -> None:
    """The log was opened and there is an `unsure` file: make what it names anew, now or with Log.mend."""

def reduce(log: Log, s: Segment) -> int:
    """Make room on a full disk: cut a retired segment's file to a word that it is dead; how many bytes that freed. OSError."""
