"""Log lines about a machine's clock that differs from the server's, which cannot jump.

The caller gives both times and looks every few seconds.
"""

from pelton.api.times import format_duration
from pelton.server.units import SECOND_NS

APART_NS = 10 * SECOND_NS  # clocks that are further apart are reported
TOGETHER_NS = SECOND_NS  # clocks that are closer count as equal again
AGAIN_NS = 3600 * SECOND_NS  # the time between two lines while they are apart


class ClockWatch:
    """The reports about one clock."""

    def __init__(self) -> None:
        """Nothing was reported yet."""
        self._reported_ns = 0  # the offset in the last line; 0: the clocks agreed
        self._again_at_ns = 0

    def look(self, now_ns: int, offset_ns: int) -> str:
        """Return the line to log, or "". `now_ns` is the server's time, `offset_ns` how far the
        machine's clock is ahead of it.
        """
        if self._reported_ns and abs(offset_ns) < TOGETHER_NS:
            self._reported_ns = 0
            return "The machine's clock and the server's agree again"
        if abs(offset_ns) < APART_NS:
            return ""
        jumped = abs(offset_ns - self._reported_ns) > max(abs(self._reported_ns) // 2, APART_NS)
        if not jumped and now_ns < self._again_at_ns:
            return ""
        self._reported_ns = offset_ns
        self._again_at_ns = now_ns + AGAIN_NS
        apart = format_duration(abs(offset_ns) // SECOND_NS * SECOND_NS)
        where = "ahead of" if offset_ns > 0 else "behind"
        return (
            f"The machine's clock is {apart} {where} the server's, which cannot jump: messages, "
            "their age and all timers keep the server's time, which approaches by one eighth of "
            "the elapsed time. Restart the server if the machine's clock is right"
        )
