"""The reports of a watch: each difference once, the end of each difference, and each failure once.

Callers hand in a plan after each look at the server and print the events that they get back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.apply.planning import Change, Plan

T = TypeVar("T")

Happening: TypeAlias = Literal["drift", "agrees", "done", "failed", "held"]

FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0


@dataclass(frozen=True)
class Event:
    """Something to tell.

    happening: "drift", the server differs from the files; "agrees", it does so no longer; "done", the change was made;
    "failed", the server refused it; "held", it must not be made. change: absent if it has gone. text: the reason.
    """

    happening: Happening
    title: str
    change: Change | None = None
    text: str = ""


class Watch:
    """Remembers the reports."""

    def __init__(self) -> None:
        """Nothing was told yet."""
        self._differing: dict[str, object] = {}
        self._troubles: dict[str, str] = {}

    def compared(self, plan: Plan) -> Iterator[Event]:
        """The events of a plan: what differs newly or otherwise than before, and what agrees again."""
        differing = {each.title: each for each in (*plan.pending, *plan.refused)}
        for title, change in differing.items():
            said = (change.action, change.differences, change.reasons, change.loss)
            if self._differing.get(title) != said:
                self._differing[title] = said
                yield Event("drift", title, change)
        for title in sorted(self._differing.keys() - differing.keys()):
            del self._differing[title]
            self._troubles.pop(title, None)
            yield Event("agrees", title)

    def made(self, change: Change) -> Iterator[Event]:
        """A change was made."""
        self._differing.pop(change.title, None)
        self._troubles.pop(change.title, None)
        yield Event("done", change.title, change)

    def stuck(self, happening: Happening, change: Change, text: str) -> Iterator[Event]:
        """A change failed or is not allowed; each is reported once."""
        if self._troubles.get(change.title) != text:
            self._troubles[change.title] = text
            yield Event(happening, change.title, change, text)

    @property
    def drifting(self) -> bool:
        """Whether the server differed at the last look."""
        return bool(self._differing)

    @property
    def in_trouble(self) -> bool:
        """Whether a change could not be made."""
        return bool(self._troubles)


class Patience:
    """How long to wait after failures: twice as long after each, up to a minute."""

    def __init__(self) -> None:
        """No failure yet."""
        self._wait_s = 0.0

    def failed(self) -> float:
        """The seconds until the next try."""
        self._wait_s = min(max(self._wait_s * 2, FIRST_WAIT_S), LONGEST_WAIT_S)
        return self._wait_s

    def succeeded(self) -> None:
        """The next failure is the first again."""
        self._wait_s = 0.0


class Glances(Generic[T]):
    """Notices a change that is complete: two looks in a row find the same new state.

    A file that is being written may be incomplete, and a folder may lack files that are being
    replaced.
    """

    def __init__(self, known: T) -> None:
        """The state that is known."""
        self._known = self._last = known

    def changed(self, found: T) -> bool:
        """Whether the state of this glance is a new one that rests; it is then the known one."""
        rests, self._last = found == self._last, found
        if not rests or found == self._known:
            return False
        self._known = found
        return True
