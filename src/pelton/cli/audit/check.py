"""A check over an audit archive: its pages, its findings and its outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pelton.cli.audit.archive import ArchiveError, Reader

PASS, WARN, FAIL, SKIP = "PASS", "WARN", "FAIL", "SKIP"
OUTCOMES = (PASS, WARN, FAIL, SKIP)
Thresholds = Mapping[str, float]


@dataclass(frozen=True)
class Threshold:
    """A number that a check compares with."""

    key: str
    text: str
    default: float
    unit: str = ""  # "%", "days" or none


@dataclass
class Findings:
    """The findings of a check. ``seen``: how much there was to look at."""

    critical: list[str] = field(default_factory=list)
    warning: list[str] = field(default_factory=list)
    seen: int = 0

    @property
    def outcome(self) -> str:
        """One of the outcomes."""
        if not self.seen:
            return SKIP
        return FAIL if self.critical else WARN if self.warning else PASS


@dataclass(frozen=True)
class Check:
    """A check: its code, and what looks at the archive."""

    code: str
    suite: str
    name: str
    text: str
    look: Callable[[Reader, Thresholds, Findings], None]
    thresholds: tuple[Threshold, ...] = ()


@dataclass(frozen=True)
class Result:
    """The outcome of a check and its findings."""

    check: Check
    outcome: str
    examples: tuple[str, ...] = ()
    error: str = ""


def run(check: Check, archive: Reader, given: Thresholds) -> Result:
    """Make a check; ``given`` are thresholds by their key."""
    found = Findings()
    thresholds = {each.key: given.get(each.key, each.default) for each in check.thresholds}
    try:
        check.look(archive, thresholds, found)
    except (ArchiveError, AttributeError, KeyError, TypeError, ValueError) as error:
        return Result(check, SKIP, error=str(error) or type(error).__name__)
    return Result(check, found.outcome, (*found.critical, *found.warning))
