"""The condition of a log: for compiled callers, see disk_condition.pxd."""

class LogClosed(OSError):
    """The log takes no appends: a write or fsync failed and mend() has not worked yet, or it was closed."""

class DiskCondition:
    condition: int
    failure: int
