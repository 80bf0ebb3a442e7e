class MessageIds:
    """Message ids -> sequence, forgotten in the order of arrival. The methods are for tests and tools; streams use the compiled side."""

    count: int
    newest_ns: int
    def get(self, key: bytes) -> int:
        """The sequence of an id, 0 when it is not known."""
    def put(self, key: bytes, seq: int, ts_ns: int) -> None:
        """Add an id that is not known. Raises ValueError when it is known, or when the time or the sequence goes back."""
    def expire(self, until_ns: int) -> int:
        """Forget the ids that came at or before this time; returns how many."""
    def take_back(self, seq: int) -> int:
        """Forget the ids of messages stored at or after a sequence; returns how many."""
    def memory_bytes(self) -> int: ...
