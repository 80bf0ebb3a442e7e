"""Priority groups of a pull consumer: which of the requests that wait may have the next message."""

class PriorityGroups:
    """The rules of one consumer's groups, and who is pinned."""

    policy: int  # 1 overflow, 2 pinned client, 3 prioritized
    names: tuple[bytes, ...]
    pin: bytes  # the client that is pinned; b"": none
    pinned_group: bytes
    pinned_ns: int  # since when; 0: nobody is
    def __init__(self, policy: int, names: tuple[bytes, ...], pin_ttl_ns: int) -> None: ...
    def set_rules(self, policy: int, names: tuple[bytes, ...], pin_ttl_ns: int) -> None:
        """Change the rules; a pinned client stays."""
    def unpin(self) -> None:
        """Nobody is pinned from now on."""
