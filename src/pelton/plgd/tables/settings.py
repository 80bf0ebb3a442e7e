"""The settings of a pipeline of tables; the same in every process."""

from __future__ import annotations

from dataclasses import dataclass

REPAIR_HEADER = "Pelton-Repair"
"""A message with this header was published by a reconciliation, in place of one that was lost."""

DAY_S = 86_400


@dataclass(frozen=True)
class Settings:
    """``buckets`` is how many shares the devices are divided into, for as long as the tables live.

    ``late_s``: a row that ended stays open for this time (of the hub), so that late events find it;
    later events read the closed row again. ``keep_open_s``: rows that are open for longer are
    closed, so the state is bounded. ``with_json`` also has contents as JSON. ``keep_bytes`` is how
    much of the state a worker keeps between batches at most; it reads the rest again.
    ``ValueError`` for impossible values.
    """

    buckets: int = 8
    late_s: float = 300.0
    keep_open_s: float = 7 * DAY_S
    with_json: bool = True
    keep_bytes: int = 2**30

    def __post_init__(self) -> None:
        """Check the numbers."""
        if not 1 <= self.buckets <= 4096:
            raise ValueError(f"buckets are 1 to 4096, not {self.buckets}")
        if self.keep_bytes < 0:
            raise ValueError("keep_bytes must not be negative")
        if self.late_s < 0 or self.keep_open_s <= 0:
            raise ValueError("late_s must not be negative, keep_open_s must be positive")
