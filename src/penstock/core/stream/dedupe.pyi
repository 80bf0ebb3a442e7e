class MessageIds:
    """Message ids -> sequence, forgotten in the order they came. The methods are for tests and tools; streams use the compiled side."""

    count: int
    newest_ns: int
    def get(self, key: bytes) -> int:
        """The sequence of an id, 0 when it is not known."""
    def put(self, key: bytes, seq: int, ts_ns: int) -> None:
        """Remember an id that is not known; times and sequences never go back. ValueError otherwise."""
    def expire(self, until_ns: int) -> int:
        """Forget those that came at or before; how many."""
    def take_back(self, seq: int) -> int:
        """Forget those stored at or after a sequence; how many."""
    def memory_bytes(self) -> int: ...
