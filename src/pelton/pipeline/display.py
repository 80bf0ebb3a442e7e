"""Shows the state of a running job: in place on a terminal, as plain lines elsewhere.

A :class:`View` gives the same facts as a table for people and as lines for a log. This module does
not know the facts.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rich.live import Live

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_PLAIN_EVERY_SECONDS = 5.0
_RATE_OVER_SECONDS = 10.0


class Line(NamedTuple):
    """A line for a log.

    It is printed if its facts differ from those last printed under its name, and without delay if
    the urgent facts differ.
    """

    name: str
    text: str
    facts: object
    urgent: object


class View(Protocol):
    """Something that can be shown."""

    def table(self) -> RenderableType:
        """The form for a terminal."""

    def lines(self) -> list[Line]:
        """The form for a log."""


class Rate:
    """The rate per second over the last seconds, of a count that only grows.

    A count grows at the ends of batches. So the rate is measured from one growth to another, over ten
    seconds or the last batch, whichever is longer, and falls to 0 when the count has not grown for
    twice that time.
    """

    def __init__(self) -> None:
        """Start without a rate."""
        self._grown: deque[tuple[float, int]] = deque()

    def of(self, count: int, now: float) -> float:
        """The rate, given the count at a time (seconds of a monotonic clock)."""
        if not self._grown or count != self._grown[-1][1]:
            self._grown.append((now, count))
        while len(self._grown) > 2 and self._grown[1][0] <= now - _RATE_OVER_SECONDS:
            self._grown.popleft()
        (before, first), (after, last) = self._grown[0], self._grown[-1]
        took = after - before
        if took <= 0.0 or now - after > 2 * max(took, _RATE_OVER_SECONDS):
            return 0.0
        return (last - first) / max(took, now - after)


class Screen:
    """Shows views on a console; a context manager."""

    def __init__(self, console: Console) -> None:
        """``console`` decides whether there is a terminal."""
        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._printed: dict[str, tuple[Line, float]] = {}

    def __enter__(self) -> Screen:
        """Start to show."""
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove what is shown in place; later output is printed below."""
        self._live.stop()

    def show(self, view: View) -> None:
        """Show the current state."""
        if self._console.is_terminal:
            self._live.update(view.table())
            return
        now = time.monotonic()
        for line in view.lines():
            if self._due(line, now):
                self._console.print(line.text, highlight=False, soft_wrap=True, markup=False)
                self._printed[line.name] = line, now

    def _due(self, line: Line, now: float) -> bool:
        if line.name not in self._printed:
            return True
        before, at = self._printed[line.name]
        if line.facts == before.facts:
            return False
        return line.urgent != before.urgent or now - at >= _PLAIN_EVERY_SECONDS
