"""How a log takes appends again after its disk has failed."""

from penstock.core.log.log import Log

def mend(log: Log) -> bool:
    """Try to take appends again after a failed write or fsync, a piece per call; True: they are
    taken, and all that was accepted is on the disk. To be called now and then while ``condition``
    is FULL or FAILED. OSError: the disk is not well yet. What was lost is told in ``lost``.
    """

def reopened(log: Log) -> None:
    """The log was opened and there is an `unsure` file: make what it names anew, now or with mend()."""
