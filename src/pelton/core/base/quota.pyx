"""Quotas: how many bytes the logs of an account, or of the whole server, hold together, and how many they may hold."""

NO_LIMIT = 0x7FFFFFFFFFFFFFFF >> 1         # so that nothing overflows when a message is added


cdef class Quota:
    """The bytes of the logs of one account, or of the whole server."""

    def __init__(self, limit: int = NO_LIMIT, Quota whole = None) -> None:
        self.limit = limit
        self.whole = whole

    def add(self, int64_t n) -> None:
        """Count n more bytes (fewer if negative) that belong to no log."""
        use(self, n)
