"""A plan for people, as lines with styles, and for programs, as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from pelton.apply.tables import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.apply.planning import Action, Change, Difference, Plan

Style: TypeAlias = Literal["", "create", "update", "replace", "delete", "refuse", "dim"]

DURATIONS = frozenset(
    {
        "max_age",
        "duplicate_window",
        "ack_wait",
        "backoff",
        "idle_heartbeat",
        "inactive_threshold",
        "max_expires",
        "subject_delete_marker_ttl",
        "priority_timeout",
        "ttl",
        "limit_marker_ttl",
    }
)
_SIZES = frozenset({"max_bytes", "max_msg_size"})
_SIGNS = {"create": "+", "update": "~", "replace": "-/+", "delete": "-", "refuse": "!"}
_WORDS = {
    "create": "create",
    "update": "update",
    "replace": "replace",
    "delete": "delete",
    "refuse": "cannot change",
}
_WIDEST = 34
_LONGEST = 60


class Line(NamedTuple):
    """A line and how it should look."""

    text: str
    style: Style = ""


def value_text(field: str, value: Any) -> str:
    """A value of a field for people: durations and sizes with units."""
    if value is None:
        return "(none)"
    if isinstance(value, list):
        return ", ".join(value_text(field, each) for each in value) or "(none)"
    if isinstance(value, dict):
        shown = {
            name: value_text(name, each) if name in DURATIONS else each
            for name, each in value.items()
        }
        return json.dumps(shown, ensure_ascii=False) if value else "(none)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if field in DURATIONS:
        return duration_text(value) if value else "0 (none)"
    if isinstance(value, int) and field in _SIZES and value >= 1024:
        power = min((value.bit_length() - 1) // 10, 6)
        text = f"{value / 1024**power:.1f}".removesuffix(".0")
        return f"{value} ({text} {'KMGTPE'[power - 1]}iB)"
    if isinstance(value, int) and value == -1:
        return "-1 (unlimited)"
    text = str(value)
    if field == "value" and len(text) > _LONGEST:
        return f"{text[:_LONGEST]}... ({len(text):,} characters)"
    return text or '""'


def lines(plan: Plan) -> Iterator[Line]:
    """The changes of a plan, and its totals."""
    for change in plan.changes:
        if change.action != "keep":
            yield from change_lines(change)
    yield Line(summary(plan))


def change_lines(change: Change) -> Iterator[Line]:
    """One change, field by field."""
    style = _style(change.action)
    place = f"  ({change.place})" if change.place is not None else ""
    yield Line(f"{_SIGNS[change.action]:>3} {_WORDS[change.action]} {change.title}{place}", style)
    for reason in change.reasons:
        yield Line(f"      because {reason}" if change.action == "replace" else f"      {reason}")
    if change.loss:
        yield Line(f"      loses {change.loss}", "delete")
    cells = [
        (each.field, value_text(each.field, each.now), value_text(each.field, each.wanted))
        for each in change.differences
    ]
    if change.action == "create":
        yield from _created(change.differences)
        return
    widths = [min(max(map(len, column), default=0), _WIDEST) for column in zip(*cells, strict=True)]
    for name, now, wanted in cells:
        text = f"      {name:<{widths[0]}}  {now:<{widths[1]}}  ->  {wanted}"
        yield Line(text.rstrip(), style)


def _created(found: tuple[Difference, ...]) -> Iterator[Line]:
    """The fields of something new; what means "no limit" or "no" is left out."""
    shown = [
        (each.field, value_text(each.field, each.wanted))
        for each in found
        if each.wanted not in (None, -1, 0, 1, False, "")
        or (each.field == "num_replicas" and each.wanted != 1)
    ]
    shown = [each for each in shown if each[0] not in ("name", "durable_name")]
    width = max((len(name) for name, _ in shown), default=0)
    for name, wanted in shown:
        yield Line(f"      {name:<{width}}  {wanted}", "create")


def _style(action: Action) -> Style:
    return "" if action == "keep" else action


def summary(plan: Plan) -> str:
    """The totals, in one line."""
    counts = ", ".join(
        f"{len(plan.of(action))} to {action}"
        for action in ("create", "update", "replace", "delete")
        if plan.of(action)
    )
    refused = len(plan.refused)
    text = f"Plan: {counts or 'nothing to do'}"
    if refused:
        text += f", {refused} that cannot be done"
    kept = len(plan.of("keep"))
    return f"{text}; {kept} as declared." if kept else f"{text}."


def as_json(plan: Plan) -> dict[str, Any]:
    """A plan for programs. Values are those of the API: durations in nanoseconds."""
    return {
        "changes": [change_as_json(each) for each in plan.changes],
        "totals": {
            action: len(plan.of(action))
            for action in ("create", "update", "replace", "delete", "refuse", "keep")
        },
    }


def change_as_json(change: Change) -> dict[str, Any]:
    """One change for programs."""
    data: dict[str, Any] = {"action": change.action, "stream": change.stream}
    if change.consumer:
        data["consumer"] = change.consumer
    if change.entry:
        data["entry"] = change.entry
    if change.place is not None:
        data["place"] = str(change.place)
    if change.reasons:
        data["reasons"] = list(change.reasons)
    if change.loss:
        data["loses"] = change.loss
    if change.differences:
        data["fields"] = [
            {"field": each.field, "now": each.now, "wanted": each.wanted}
            for each in change.differences
        ]
    return data
