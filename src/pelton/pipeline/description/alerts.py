"""The section ``alerts``: limits beyond which a run tells that something is wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pelton.pipeline.description.keys import ALERTS, names
from pelton.spark.parsing import OptionError, count, duration

if TYPE_CHECKING:
    from pelton.pipeline.description.fields import Fields

_PLACEHOLDERS = ("{name}", "{alert}")
_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")


@dataclass(frozen=True)
class Share:
    """A limit of rows: a number, or a percentage of the rows that were read."""

    value: float
    percent: bool = False

    def __str__(self) -> str:
        """The limit as the file spells it."""
        return f"{self.value:g}%" if self.percent else f"{self.value:,.0f}"


@dataclass(frozen=True)
class Alerts:
    """Limits of each query; None for those that are not watched.

    ``late`` and ``rejected`` are rows within ``window_seconds``.
    """

    lag: int | None = None
    late: int | None = None
    rejected: Share | None = None
    stuck_seconds: float | None = None
    window_seconds: float = 300.0
    subject: str | None = None


def read_alerts(fields: Fields) -> Alerts:
    """The section; adds its faults to those of the file."""
    made = Alerts(
        fields.parsed("lag", count),
        fields.parsed("late", count),
        fields.parsed("rejected", _share),
        fields.parsed("stuck", duration),
        fields.parsed("window", duration) or Alerts.window_seconds,
        fields.parsed("subject", _template),
    )
    if not any(map(fields.has, names(ALERTS)[:4])):
        fields.problem("subject", f"give a limit: {', '.join(names(ALERTS)[:4])}")
    fields.finish(ALERTS)
    return made


def _share(text: str) -> Share:
    if match := _SHARE.fullmatch(text):
        if 0 < float(match[1]) <= 100:
            return Share(float(match[1]), percent=True)
    else:
        try:
            return Share(count(text))
        except OptionError:
            pass
    raise OptionError("a number of rows, such as 100, or a share of those read, such as 1%")


def _template(text: str) -> str:
    plain = text
    for each in _PLACEHOLDERS:
        plain = plain.replace(each, "x")
    if not all(plain.split(".")) or re.search(r"[\s*>{}]", plain):
        raise OptionError(
            "a subject without wildcards, in which {name} and {alert} may stand: alerts.{name}"
        )
    return text


def subject_for(template: str, name: str, alert: str) -> str:
    """The subject of an alert of a query, called ``name`` as in its other messages."""
    return template.replace("{name}", name).replace("{alert}", alert)
