def read_request(text: bytes) -> tuple[int, int, int, int, bool] | None:
    """(batch, max_bytes, expires_ns, heartbeat_ns, no_wait) of a pull request, or None when it is not valid."""

def read_slowly(text: bytes) -> list[int | bool]:
    """Parse JSON of any shape, without the defaults; raises ValueError, which says what is wrong."""

class PullQueue:
    """The waiting requests of one consumer. The methods are for tests; consumers use the compiled side."""

    count: int
    wanted: int
    def put(self, reply: bytes, left: int, expires_ns: int = 0) -> None: ...
    def serve(self, now_ns: int = 0) -> bytes | None: ...
    def replies(self) -> list[tuple[bytes, int]]: ...
