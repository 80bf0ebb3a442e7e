"""The bytes of segment files: for compiled callers only, see record.pxd."""

def without(
    first: int, count: int, reason: str, known: list[tuple[int, int]]
) -> list[tuple[int, int, str]]:
    """The parts of a missing run that no removal names: (first, count, reason)*."""
