"""The report as one HTML file: figures, pictures and tables, nothing loaded from elsewhere, no clock.

The template escapes all texts that devices and users can choose (ids, hrefs, statuses, details).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pelton.core.base.quoting import shown

from .charts import charts
from .queries import QUERIES

if TYPE_CHECKING:
    from .figures import Figures

TEMPLATE = "page.html.jinja"
NOTHING = "–"
UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (0.001, "ms"))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def shown_time(time_us: int | None) -> str:
    """``2026-11-24 10:00:00``, in UTC."""
    if time_us is None:
        return NOTHING
    return (EPOCH + timedelta(microseconds=time_us)).strftime("%Y-%m-%d %H:%M:%S")


def shown_number(value: float | None, digits: int = 0) -> str:
    """A number with commas between thousands."""
    return NOTHING if value is None else f"{value:,.{digits}f}"


def shown_seconds(seconds: float | None) -> str:
    """A duration in the unit that fits: ``85 ms``, ``2.5 h``."""
    if seconds is None:
        return NOTHING
    for size, unit in UNITS:
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return "0 ms" if not seconds else f"{seconds * 1000:.2g} ms"


def shown_ms(milliseconds: float | None) -> str:
    """The same of milliseconds."""
    return NOTHING if milliseconds is None else shown_seconds(milliseconds / 1000)


def tiles(figures: Figures) -> list[tuple[str, str, str]]:
    """The numbers above everything: (what, number, remark)."""
    s = figures.summary
    succeeded = s["commands_succeeded_percent"]
    found = s["gaps"]
    return [
        (
            "events",
            shown_number(s["events"]),
            f"{shown_number(s['duplicates'])} duplicates left out",
        ),
        ("devices", shown_number(s["devices"]), f"of {shown_number(s['owners'])} owners"),
        ("online", shown_number(s["online"]), f"{shown_number(s['online_most'])} at most"),
        (
            "commands",
            shown_number(s["commands"]),
            "none decided" if succeeded is None else f"{succeeded:.1f} % succeeded",
        ),
        (
            "command latency",
            shown_ms(s["command_p50_ms"]),
            f"median; 95 %: {shown_ms(s['command_p95_ms'])}",
        ),
        (
            "until ready",
            shown_ms(s["ready_p50_ms"]),
            f"median; 95 %: {shown_ms(s['ready_p95_ms'])}",
        ),
        (
            "gaps",
            shown_number(found),
            f"{shown_number(s['gaps_repaired'])} repaired, {shown_number(s['gaps_open'])} open",
        ),
        (
            "dead letters",
            shown_number(s["dead_letters"]),
            f"{shown_number(s['versions_missing'])} versions missing",
        ),
    ]


def render(figures: Figures, *, title: str = "Devices of a plgd hub", source: str = "") -> str:
    """The page. ``source`` names where the tables are; its content follows from the figures alone."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # devices choose texts, also with control characters; Markup is ours
        finalize=lambda value: shown(value) if type(value) is str else value,
    )
    environment.filters |= {
        "time": shown_time,
        "number": shown_number,
        "seconds": shown_seconds,
        "ms": shown_ms,
    }
    template = environment.from_string((Path(__file__).parent / TEMPLATE).read_text("utf-8"))
    pictures: dict[str, Any] = {
        name: {"title": chart.title, "svg": Markup(chart.svg), "narrow": Markup(chart.narrow)}
        for name, chart in charts(figures).items()
    }
    return template.render(
        title=title,
        source=source,
        figures=figures,
        rows=figures.rows,
        tiles=tiles(figures),
        charts=pictures,
        meaning={name: query.meaning for name, query in QUERIES.items()},
    )
