"""The result of a check, and its four forms: nagios, text, json, prometheus."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from collections.abc import Sequence

Form: TypeAlias = Literal["nagios", "json", "prometheus", "text"]
Status: TypeAlias = Literal["OK", "WARNING", "CRITICAL", "UNKNOWN"]

FORMS: tuple[Form, ...] = get_args(Form)
CODES: dict[Status, int] = {"OK": 0, "WARNING": 1, "CRITICAL": 2, "UNKNOWN": 3}
"""The exit status of each status, as Nagios and its successors know them."""


@dataclass(frozen=True)
class Metric:
    """A number that was measured; 0 is a threshold that is not set."""

    name: str
    value: float
    help: str
    unit: str = ""
    warning: float = 0
    critical: float = 0

    def performance(self) -> str:
        """Performance data of Nagios: ``name=value unit;warning;critical``."""
        text = f"{self.name}={self._shown(self.value)}{self.unit}"
        if self.warning or self.critical:
            text += f";{self._shown(self.warning) if self.warning else ''}"
        return f"{text};{self._shown(self.critical)}" if self.critical else text

    def _shown(self, value: float) -> str:
        return f"{value:.4f}" if self.unit == "s" else f"{value:.0f}"


@dataclass
class Report:
    """The result of a check. suite: the kind of check; name: the checked thing."""

    suite: str
    name: str
    critical: list[str] = field(default_factory=list)
    warning: list[str] = field(default_factory=list)
    ok: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    metrics: list[Metric] = field(default_factory=list)

    @property
    def status(self) -> Status:
        """The worst that was found; UNKNOWN if the check could not be made."""
        if self.critical:
            return "CRITICAL"
        if self.unknown:
            return "UNKNOWN"
        return "WARNING" if self.warning else "OK"

    def above(self, metric: Metric, text: str, *, warning: float = 0, critical: float = 0) -> None:
        """Note a metric that must stay below its thresholds; 0 is no threshold."""
        self.metrics.append(metric)
        if not warning and not critical:
            return
        if critical and metric.value >= critical:
            self.critical.append(text)
        elif warning and metric.value >= warning:
            self.warning.append(text)
        else:
            self.ok.append(text)

    def between(
        self, metric: Metric, text: str, *, warning: float = 0, critical: float = 0
    ) -> None:
        """The same; if the critical threshold is the lower one, the metric must stay above both."""
        if not (critical and warning and critical < warning):
            self.above(metric, text, warning=warning, critical=critical)
            return
        self.metrics.append(metric)
        if metric.value <= critical:
            self.critical.append(text)
        elif metric.value <= warning:
            self.warning.append(text)
        else:
            self.ok.append(text)


def exit_code(report: Report, form: Form) -> int:
    """The exit status; collectors of metrics read the status from the metrics."""
    return 0 if form == "prometheus" else CODES[report.status]


def rendered(report: Report, form: Form, namespace: str = "nats_server_check") -> str:
    """The text of a report, without the last line feed."""
    if form == "json":
        return json.dumps(_data(report), indent=2, ensure_ascii=False)
    if form == "prometheus":
        return "\n".join(_prometheus(report, namespace))
    return "\n".join(_text(report)) if form == "text" else _nagios(report)


def _nagios(report: Report) -> str:
    words = [report.status, report.name]
    words += [f"Crit:{each}" for each in report.critical]
    words += [f"Unknown:{each}" for each in report.unknown]
    words += [f"Warn:{each}" for each in report.warning]
    words += [f"OK:{each}" for each in report.ok]
    text = " ".join(words).replace("|", "/").replace("\n", " ")  # what follows | are numbers
    metrics = " ".join(each.performance() for each in report.metrics)
    return f"{text} | {metrics}" if metrics else text


def _data(report: Report) -> dict[str, Any]:
    data: dict[str, Any] = {
        "status": report.status,
        "check_suite": report.suite,
        "check_name": report.name,
    }
    for name in ("warning", "critical", "ok", "unknown"):
        if found := getattr(report, name):
            data[name] = found
    data["perf_data"] = [
        {
            "name": each.name,
            "value": each.value,
            "warning": each.warning,
            "critical": each.critical,
            **({"unit": each.unit} if each.unit else {}),
        }
        for each in report.metrics
    ]
    return data


def _text(report: Report) -> list[str]:
    lines = [f"{report.name}: {report.status}", ""]
    kinds = ("ok", "warning", "critical", "unknown")
    said = [(kind, text) for kind in kinds for text in getattr(report, kind)]
    lines += [f"  {kind.capitalize():<8}  {text}" for kind, text in said]
    if report.metrics:
        lines += [""] if said else []
        width = max(len(each.name) for each in report.metrics)
        lines += [
            f"  {each.name:<{width}}  {each.performance().partition('=')[2].partition(';')[0]:>14}"
            f"  {each.help}"
            for each in report.metrics
        ]
    return lines


def _prometheus(report: Report, namespace: str) -> list[str]:
    item = _label(report.name)
    lines = []
    for each in report.metrics:
        lines += _gauge(f"{namespace}_{report.suite}_{each.name}", each.help)
        lines.append(f'{lines[-1].split()[2]}{{item="{item}"}} {_number(each.value)}')
    text = f"Nagios compatible status code for {report.suite}"
    lines += _gauge(f"{namespace}_{report.suite}_status_code", text)
    code = CODES[report.status]
    name = lines[-1].split()[2]
    return [*lines, f'{name}{{item="{item}",status="{report.status}"}} {code}']


def exposition(reports: Sequence[Report], namespace: str) -> str:
    """The metrics of several reports for Prometheus, those of one name together."""
    found: dict[tuple[str, ...], list[str]] = {}
    for report in reports:
        lines = _prometheus(report, namespace)
        for at in range(0, len(lines), 3):
            head = next(
                (each for each in found if each[1] == lines[at + 1]), tuple(lines[at : at + 2])
            )
            found.setdefault(head, []).append(lines[at + 2])
    return "".join(f"{line}\n" for head, rows in found.items() for line in (*head, *rows))


def _gauge(name: str, text: str) -> list[str]:
    name = re.sub(r"[^a-zA-Z0-9_:]", "_", name)
    return [f"# HELP {name} {text}", f"# TYPE {name} gauge"]


def _label(text: str) -> str:
    # a quote becomes a dot, as in the labels of the nats command
    return text.replace("\\", "\\\\").replace('"', ".").replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if math.isfinite(value) and value == int(value) else repr(value)
