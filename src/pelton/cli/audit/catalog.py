"""All checks of an audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pelton.cli.audit import monitored, rules

if TYPE_CHECKING:
    from pelton.cli.audit.check import Check


def checks() -> tuple[Check, ...]:
    """All checks, in the order of their codes."""
    return tuple(sorted((*rules.CHECKS, *monitored.CHECKS), key=lambda each: each.code))
