"""What a process and those that it has started have worked: seconds of processor time.

That of a process that has ended counts when its parent has waited for it; one that has lost its parent is not seen.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
OWN_AND_WAITED_FOR = slice(11, 15)  # utime, stime, cutime, cstime behind the name: proc(5)


def work_s(pid: int | str = "self") -> float:
    """The processor seconds of a process and its descendants until now."""
    return _ticks(Path(f"/proc/{pid}")) / TICKS_PER_S


class Meter:
    """What a process and its descendants work from one look to the next.

    A whole look reads some files for each of their threads, a millisecond and more beside a JVM. A look that is not
    whole sees this process and what it has waited for; the next whole one makes the sum right.
    """

    def __init__(self) -> None:
        self._whole_s = work_s()
        self._own_s = self._own()
        self._told_s = 0.0  # since the last whole look

    def look_s(self, *, whole: bool) -> float:
        """The processor seconds since the last look."""
        before, self._own_s = self._own_s, self._own()
        if not whole:
            self._told_s += self._own_s - before
            return self._own_s - before
        total = work_s()
        worked = total - self._whole_s - self._told_s
        self._whole_s, self._told_s = total, 0.0
        return worked

    @staticmethod
    def _own() -> float:
        return sum(os.times()[:4])


def _ticks(process: Path) -> int:
    total = 0
    with suppress(OSError):  # it has ended: its parent's times have it
        fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
        total = sum(map(int, fields[OWN_AND_WAITED_FOR]))
        for thread in (process / "task").iterdir():
            for child in (thread / "children").read_text().split():
                total += _ticks(Path(f"/proc/{child}"))
    return total
