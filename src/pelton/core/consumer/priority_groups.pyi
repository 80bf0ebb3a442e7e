"""Priority groups of a pull consumer: which of the waiting requests may have the next message."""

class PriorityGroups:
    """The policy and the names of one consumer's groups, and the pinned client."""

    policy: int  # 1 overflow, 2 pinned client, 3 prioritized
    names: tuple[bytes, ...]
    pin: bytes  # the pin id of the pinned client; b"": none
    pinned_group: bytes
    pinned_ns: int  # when the client was pinned; 0: none is
    def __init__(self, policy: int, names: tuple[bytes, ...], pin_ttl_ns: int) -> None: ...
    def set_rules(self, policy: int, names: tuple[bytes, ...], pin_ttl_ns: int) -> None:
        """Change policy, names and TTL; a pinned client stays."""
    def unpin(self) -> None:
        """Unpin the client; no client is pinned now."""
