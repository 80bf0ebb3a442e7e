"""Reports for the operator about a mirror or source that stays behind its origin, or does not hear
from it. The caller gives the time and looks every INTERVAL_NS.
"""

from pelton.api.streams import StreamSourceInfo
from pelton.api.times import format_duration
from pelton.engine.base.settings import SECOND

INTERVAL_NS = 10 * SECOND
BEHIND_NS = 60 * SECOND
"""The time after which the first line is written; later ones follow after ten times that, then
every hour.
"""
SILENT_NS = 30 * SECOND
"""An origin is heard from every second; after so long it counts as silent."""
_HOUR_NS = 3600 * SECOND


class BehindReport:
    """The reports about one upstream."""

    def __init__(self, follower: str, origin: str) -> None:
        """The names are those of the two streams."""
        self._follower = follower
        self._origin = origin
        self._well_ns = 0  # when the upstream was last seen to keep up; 0: not looked yet
        self._taken = 0
        self._lag = 0
        self._report_at_ns = 0
        self._wait_ns = 0
        self._reported = False

    def look(self, now_ns: int, info: StreamSourceInfo, taken: int) -> str:
        """Return the line to log, or "". `taken` is the number of messages copied so far.

        An upstream keeps up when it has copied since the last look at least as much as was missing
        then. So a busy origin, which is always a few messages ahead, is not reported.
        """
        silent = info.active < 0 or info.active > SILENT_NS or info.error is not None
        behind = bool(info.lag) and taken - self._taken < max(self._lag, 1)
        first = not self._well_ns
        self._taken, self._lag = taken, info.lag
        if first or not (silent or behind):
            since_ns, self._well_ns = self._well_ns, now_ns
            reported, self._reported = self._reported, False
            self._wait_ns = BEHIND_NS
            self._report_at_ns = now_ns + BEHIND_NS
            if not reported:
                return ""
            return f"{self._names()} has caught up after {_duration(now_ns - since_ns)}"
        if now_ns < self._report_at_ns:
            return ""
        self._reported = True
        self._wait_ns = min(self._wait_ns * 10, _HOUR_NS)
        self._report_at_ns = now_ns + self._wait_ns
        return self._line(now_ns - self._well_ns, info, silent=silent)

    def _names(self) -> str:
        return f"stream {self._follower}: the copy of {self._origin}"

    def _line(self, since_ns: int, info: StreamSourceInfo, *, silent: bool) -> str:
        parts = [f"{self._names()} has been behind for {_duration(since_ns)}"]
        if info.lag:
            parts.append(f"{info.lag} messages are not copied")
        if info.error is not None:
            parts.append(str(info.error.description))
        elif info.active < 0:
            parts.append("its origin was never heard from")
        elif silent:
            parts.append(f"its origin was last heard from {_duration(info.active)} ago")
        return "; ".join(parts)


def _duration(ns: int) -> str:
    return format_duration(ns // SECOND * SECOND)
