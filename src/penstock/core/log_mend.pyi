"""How a log takes appends again after its disk has failed; see Log.mend."""

from penstock.core.log import Log

UNSURE: str
"""Name of the file that tells which segments a process that ended did not believe any more."""

def mend(log: Log) -> bool:
    """Log.mend."""

def note_unsure(log: Log) -> None:
    """Write down beside its segments which of them are not to be believed, if the disk lets us."""

def reopened(log: Log) -> None:
    """The log was opened and there is an `unsure` file: make what it names anew, now or with Log.mend."""
