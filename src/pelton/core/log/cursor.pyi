"""Which message of a stream a consumer gets next."""

from pelton.core.log.log import Log

class Cursor:
    """The position of one consumer in a log; see cursor.pyx."""

    def __init__(self, log: Log, start_seq: int) -> None: ...
    next_seq: int
    passed: int
    filtered: bool
    caught_up: bool
    filters: tuple[bytes, ...]
    def remaining_starts(self) -> list[int]:
        """Of the first messages per subject, with deliver policy last per subject: those that are not handed out yet."""
    def resume(self, next_seq: int, passed: int, starts: list[int]) -> None:
        """Continue at a stored position."""
