"""Quotas: how many bytes the logs of an account, or of the whole server, hold together, and how many they may hold."""

NO_LIMIT: int

class Quota:
    """Bytes of the logs of one owner: those of an account, or of the whole server.

    Counted by the logs themselves, as they are accounted in `Log.bytes`; see `Log.join`.
    """

    used: int
    limit: int
    whole: Quota | None
    def __init__(self, limit: int = ..., whole: Quota | None = None) -> None: ...
    def add(self, n: int) -> None:
        """Count n more bytes (fewer if negative) that belong to no log."""
