"""Disk recovery: making a FAILED log take appends again."""

from pelton.core.log.log import Log

def mend(log: Log) -> bool:
    """One step of disk recovery; True when the log takes appends and everything accepted is synced.

    The owner calls this now and then while ``condition`` is FULL or FAILED. OSError when the disk still fails.
    ``lost`` lists the messages that are lost.
    """

def reopened(log: Log, named: set[int]) -> None:
    """Rewrite the segments that the file `unsure` has named, after an earlier process ended while its log was
    FAILED. Empty: all of them.

    What the disk refuses now, mend() does later; until then reads use the files as they are.
    """
