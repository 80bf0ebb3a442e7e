"""Charts of figures: Vega-Lite descriptions, drawn as SVG by vl-convert, without a network.

Each is drawn twice, for a wide page and for a narrow one, as a page scales a picture with its letters. Colours
that a page decides (text, lines of the grid) are CSS: ``currentColor`` and ``--grid``, so that a picture fits a light
and a dark page.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from .figures import Figures, Rows

WIDTH, HEIGHT = 1000, 200
NARROW, NARROW_LETTERS = 440, 13
LABEL_MAX, LETTER = (
    280,
    7,
)  # of labels in px; a browser's letters are wider than those that vl-convert knows
TICKS_MS = [0, *(step * 10**power for power in range(1, 9) for step in (1, 3))]
MINUTE_US, DAY_US = 60_000_000, 86_400_000_000
BLUE, ORANGE, GREEN, RED, PURPLE, GREY = (
    *("#3b82c4", "#e08a2e", "#3f9e5f"),
    *("#c94f4f", "#8a6cc0", "#8a9099"),
)
OUTCOMES = {
    "success": GREEN,
    "failed": RED,
    "canceled": PURPLE,
    "expired": ORANGE,
    "pending": BLUE,
    "dropped": GREY,
    "given up": GREY,
}
CLOSED = {
    "arrival": GREEN,
    "repair": BLUE,
    "open": RED,
    "restore": PURPLE,
    "age": GREY,
}
KINDS = {
    "resources": BLUE,
    "metadata": ORANGE,
    "resource-links": GREEN,
    "registrations": PURPLE,
}
CONFIG: dict[str, Any] = {
    "background": None,
    "font": "system-ui, sans-serif",
    "axis": {
        "labelColor": "currentColor",
        "titleColor": "currentColor",
        "domainColor": "currentColor",
        "tickColor": "currentColor",
        "gridColor": "var(--grid)",
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
    },
    "legend": {
        "labelColor": "currentColor",
        "labelFontSize": 12,
        "orient": "top",
        "title": None,
        "symbolType": "square",
    },
    "view": {"stroke": None},
}

LARGER = CONFIG | {
    "axis": CONFIG["axis"] | dict.fromkeys(("labelFontSize", "titleFontSize"), NARROW_LETTERS),
    "legend": CONFIG["legend"]
    | {"labelFontSize": NARROW_LETTERS, "columns": 2, "layout": {"bounds": "full"}},
    "text": {"fontSize": NARROW_LETTERS},
}


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart: its title, its SVG for a wide and for a narrow page, and its rows."""

    title: str
    svg: str
    narrow: str
    rows: Rows


def draw(
    title: str, rows: Rows, layers: list[dict[str, Any]], height: int = HEIGHT, room: float = 0
) -> Chart:
    """A picture of rows; its marks say their values in ``aria-label``. ``room`` is of labels, in px."""
    import vl_convert

    axes = [{"axisY": {"minExtent": each}} for each in (room, 1.03 * room)]
    rows = _drawable(rows)
    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": WIDTH,
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": {"values": rows},
        "config": CONFIG | axes[0],
        "layer": _drawable(layers),
    }
    small = spec | {"width": NARROW, "config": LARGER | axes[1]}
    wide, narrow = (vl_convert.vegalite_to_svg(json.dumps(each)) for each in (spec, small))
    return Chart(title, wide, narrow, rows)


def _drawable(value: Any) -> Any:
    """The same with escapes for control characters, which devices can choose: they are not XML.

    vl-convert ends the process at the first one.
    """
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, dict):
        return {name: _drawable(each) for name, each in value.items()}
    return [_drawable(each) for each in value] if isinstance(value, list) else value


def time_axis(figures: Figures) -> dict[str, Any]:
    """The axis of the column ``ms``, in UTC; its labels fit the span."""
    form = "%H:%M:%S" if figures.step_us < MINUTE_US else "%H:%M"
    if figures.until_us - figures.since_us > DAY_US:
        form = "%b %d %H:%M" if figures.step_us < DAY_US else "%Y-%m-%d"
    axis = {"title": None, "grid": False, "labelOverlap": True, "format": form}
    scale = {"type": "utc", "domain": [figures.since_us / 1000, figures.until_us / 1000]}
    return {"field": "ms", "type": "temporal", "scale": scale, "axis": axis}


def count_axis(field: str, title: str, **more: Any) -> dict[str, Any]:
    """An axis of whole numbers."""
    axis = {
        "title": title,
        "tickMinStep": 1,
        "format": "~s",
        "labelExpr": "datum.value === 0 ? '0' : datum.label",
        "labelOverlap": True,
        "labelFlush": False,
    }
    return {"field": field, "type": "quantitative", "axis": axis} | more


def colours(field: str, chosen: dict[str, str], rows: Rows) -> dict[str, Any]:
    """The colours of the values that occur, in the order of the choice."""
    there = {row[field] for row in rows}
    names = [name for name in chosen if name in there] + sorted(there - chosen.keys())
    scale = {"domain": names, "range": [chosen.get(name, GREY) for name in names]}
    return {"field": field, "type": "nominal", "scale": scale}


def with_time(rows: Rows, step_us: int) -> Rows:
    """The rows with ``ms`` and ``end``, the bounds of their step in ms, as Vega has times."""
    return [
        row | {"ms": row["start_us"] / 1000, "end": (row["start_us"] + step_us) / 1000}
        for row in rows
    ]


def stacked(rows: Rows, place: str, value: str, by: str, order: list[str]) -> Rows:
    """The rows with ``low`` and ``high``: those at one place lie upon each other, in the order of ``by``."""
    heights: dict[Any, float] = {}
    result = []
    for row in sorted(rows, key=lambda row: order.index(row[by])):
        low = heights.get(row[place], 0)
        heights[row[place]] = high = low + row[value]
        result.append(row | {"low": low, "high": high})
    return result


def boxes(title: str, unit: str) -> dict[str, Any]:
    """The encoding of the sides above and below of boxes."""
    return {
        "y": count_axis("low", title),
        "y2": {"field": "high"},
        "description": {"field": unit, "type": "nominal"},
    }


def online(figures: Figures) -> Chart:
    """Devices that are online, over time."""
    rows = with_time(figures.rows["online_over_time"], figures.step_us)
    rows.append(rows[-1] | {"ms": figures.until_us / 1000})  # the last step has a width too
    mark = {
        "type": "area",
        "interpolate": "step-after",
        "line": {"color": BLUE},
        "color": BLUE,
        "fillOpacity": 0.25,
    }
    encoding = {"x": time_axis(figures), "y": count_axis("online", "devices")}
    return draw("Devices online", rows, [{"mark": mark, "encoding": encoding}])


def comings(figures: Figures) -> Chart:
    """Connections and ends of connections, over time: the ends below the line."""
    rows = [
        row
        | {"high": sign * row[column], "low": 0, "what": what, "said": f"{row[column]:,} {what}"}
        for row in with_time(figures.rows["online_over_time"], figures.step_us)
        for column, what, sign in (("came", "connected", 1), ("went", "disconnected", -1))
        if row[column]
    ]
    encoding = {
        "x": time_axis(figures),
        "x2": {"field": "end"},
        "color": colours("what", {"connected": GREEN, "disconnected": RED}, rows),
    } | boxes("connections", "said")
    title = "Connections that began and ended"
    return draw(title, rows, [{"mark": "rect", "encoding": encoding}], 120)


def bars_over_time(
    figures: Figures, query: str, value: str, by: str, chosen: dict[str, str], title: str
) -> Chart:
    """Bars of boxes upon each other, one bar for each step."""
    rows = [
        row | {"said": f"{row[value]:,} {value}: {row[by]}"}
        for row in with_time(figures.rows[query], figures.step_us)
    ]
    colour = colours(by, chosen, rows)
    encoding = {"x": time_axis(figures), "x2": {"field": "end"}, "color": colour}
    rows = stacked(rows, "ms", value, by, colour["scale"]["domain"])
    layer = {"mark": "rect", "encoding": encoding | boxes(value, "said")}
    return draw(title, rows, [layer], 160)


def bars(
    rows: Rows,
    name: str,
    value: str,
    by: str,
    chosen: dict[str, str],
    title: str,
    *,
    numbered: bool = False,
) -> Chart:
    """Bars that lie: one for each name, the longest above; ``numbered`` ones, of one part each, say their length."""
    lengths: Counter[str] = Counter()
    for row in rows:
        lengths[str(row[name])] += row[value]
    room = min(LABEL_MAX, 14 + LETTER * max(len(str(row[name])) for row in rows))
    encoding: dict[str, Any] = {
        "y": {
            "field": name,
            "type": "nominal",
            "sort": sorted(lengths, key=lambda one: (-lengths[one], one)),
            "axis": {"title": None, "labelLimit": LABEL_MAX},
        },
        "x": count_axis(value, value, stack="zero"),
        "color": colours(by, chosen, rows),
    }
    height = 26 * len({row[name] for row in rows}) + 10
    layers: list[dict[str, Any]] = [{"mark": "bar", "encoding": encoding}]
    if numbered:
        encoding["x"]["scale"] = {"domainMax": 1.35 * max(lengths.values())}  # for the number
        mark = {"type": "text", "align": "left", "dx": 5, "color": "currentColor"}
        text = {"field": value, "type": "quantitative", "format": ","}
        places = {axis: encoding[axis] for axis in ("x", "y")}
        layers.append({"mark": mark, "encoding": places | {"text": text}})
    return draw(title, rows, layers, height, room)


def latency(figures: Figures) -> Chart:
    """Percentiles of the latency of commands, over time."""
    rows = [
        row | {"ms_taken": row[column], "percentile": name}
        for row in with_time(figures.rows["command_latency_over_time"], figures.step_us)
        for column, name in (("p50", "median"), ("p95", "95 %"), ("p99", "99 %"))
    ]
    encoding = {
        "x": time_axis(figures),
        "y": {
            "field": "ms_taken",
            "type": "quantitative",
            "scale": {"type": "symlog", "constant": 10},
            "axis": {"title": "ms, logarithmic", "format": ",~f", "values": TICKS_MS},
        },
        "color": colours("percentile", {"median": BLUE, "95 %": ORANGE, "99 %": RED}, rows),
    }
    mark = {"type": "line", "point": {"size": 18}, "strokeWidth": 1.5}
    return draw("Latency of commands", rows, [{"mark": mark, "encoding": encoding}])


def sync_times(figures: Figures) -> Chart:
    """How long synchronizations took: a histogram on a logarithmic axis."""
    rows = [
        {
            "from": 10 ** (row["class"] / 10),
            "to": 10 ** ((row["class"] + 1) / 10),
            "low": 0,
            "high": row["synchronizations"],
            "said": f"{row['synchronizations']:,} synchronizations",
        }
        for row in figures.rows["sync_histogram"]
    ]
    title = "ms from syncing to in sync, logarithmic"
    encoding = {
        "x": {
            "field": "from",
            "type": "quantitative",
            "scale": {"type": "log"},
            "axis": {"title": title, "format": "~s", "grid": False},
        },
        "x2": {"field": "to"},
    } | boxes("synchronizations", "said")
    layer = {"mark": {"type": "rect", "color": BLUE, "stroke": "var(--card)"}, "encoding": encoding}
    return draw("Time until a twin is in sync", rows, [layer], 160)


def charts(figures: Figures) -> dict[str, Chart]:
    """All pictures whose figures are not empty, by name."""
    rows = figures.rows
    causes = {"lost": RED, "late": GREEN, "damaged": ORANGE, "prefix": GREY, "restore": PURPLE}
    makers: dict[str, tuple[str, Callable[[], Chart]]] = {
        "online": ("online_over_time", lambda: online(figures)),
        "comings": ("online_over_time", lambda: comings(figures)),
        "events": (
            "events_over_time",
            lambda: bars_over_time(
                figures, "events_over_time", "events", "kind", KINDS, "Events over time"
            ),
        ),
        "types": (
            "event_types",
            lambda: bars(
                rows["event_types"],
                "event_type",
                "events",
                "kind",
                KINDS,
                "Events by type",
                numbered=True,
            ),
        ),
        "outcomes": (
            "command_outcomes",
            lambda: bars(
                rows["command_outcomes"],
                "kind",
                "commands",
                "outcome",
                OUTCOMES,
                "Commands by outcome",
            ),
        ),
        "latency": ("command_latency_over_time", lambda: latency(figures)),
        "sync": ("sync_histogram", lambda: sync_times(figures)),
        "gaps": (
            "gaps",
            lambda: bars(
                rows["gaps"],
                "cause",
                "gaps",
                "closed_by",
                CLOSED,
                "Gaps by cause and how they closed",
            ),
        ),
        "gaps_over_time": (
            "gaps_over_time",
            lambda: bars_over_time(
                figures, "gaps_over_time", "gaps", "cause", causes, "Gaps that were found"
            ),
        ),
    }
    return {name: make() for name, (query, make) in makers.items() if rows[query]}
