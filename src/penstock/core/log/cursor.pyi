from penstock.core.log.log import Log

class Cursor:
    """The position of one consumer in a log; see cursor.pyx."""

    def __init__(self, log: Log, start_seq: int) -> None: ...
    next_seq: int
    passed: int
    filtered: bool
    caught_up: bool
    filters: tuple[bytes, ...]
    def remaining_starts(self) -> list[int]: ...
    def resume(self, next_seq: int, passed: int, starts: list[int]) -> None: ...
