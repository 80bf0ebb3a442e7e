"""How many bytes the logs of an account hold, and how many they may."""

NO_LIMIT = 0x7FFFFFFFFFFFFFFF >> 1         # so that nothing overflows when a message is added


cdef class Usage:
    """Bytes of the logs of one owner: those of an account, or of the whole server."""

    def __init__(self, limit: int = NO_LIMIT, Usage whole = None) -> None:
        self.limit = limit
        self.whole = whole

    def add(self, int64_t n) -> None:
        """So many bytes more (or fewer) are held that no log counts."""
        use(self, n)
