"""The files that a disk keeps open, ordered by their last use."""

class OpenFiles:
    """The open files of one disk."""

    count: int
    limit: int
    """With more files open, the disk closes those that were not used for the longest time."""
    def __init__(self, limit: int) -> None: ...
