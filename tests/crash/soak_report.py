"""The figures of a soak, also of one that still runs: a Markdown table and an SVG.

python -m tests.crash.soak_report FOLDER [--svg FILE]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.peers import ServerProcess

# a message file is cleared out when it is full (1 MB in a soak): until then its stream grows
WARM_SHARE = 0.25
WARM_MOST_S = 900.0
MARKS = ("<!-- soak -->", "<!-- /soak -->")
BARS = "▁▂▃▄▅▆▇█"


class Sample(NamedTuple):
    """What a server takes, at one moment."""

    name: str
    at_s: float
    rss_kb: int
    threads: int
    fds: int
    cpu_s: float
    files: int
    aside: int  # files that recovery kept aside
    store_bytes: int


def sample_of(server: ServerProcess, began: float, name: str) -> Sample:
    """Look at a running server; OSError or AttributeError when it is just gone."""
    process = server.process
    assert process is not None
    proc = Path(f"/proc/{process.pid}")
    status = dict(
        line.split(":", 1) for line in (proc / "status").read_text().splitlines() if ":" in line
    )
    words = (proc / "stat").read_text().rpartition(")")[2].split()
    cpu_s = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    files = aside = size = 0
    for folder, _, names in os.walk(server.store):
        for file in names:
            try:
                size += os.stat(os.path.join(folder, file)).st_blocks * 512
            except FileNotFoundError:
                continue
            if ".torn-" in file or ".aside" in file or ".bad" in file:
                aside += 1
            else:
                files += 1
    return Sample(
        name,
        round(time.time() - began, 1),
        int(status["VmRSS"].split()[0]),
        int(status["Threads"]),
        len(os.listdir(proc / "fd")),
        cpu_s,
        files,
        aside,
        size,
    )


class Trend(NamedTuple):
    """A straight line through samples."""

    start: float
    end: float
    mean: float
    least: float
    most: float
    per_hour: float
    error_per_hour: float  # twice the standard error of the slope


def trend(points: Sequence[tuple[float, float]]) -> Trend:
    """Least squares over (seconds, value)."""
    count = len(points)
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points) or 1.0
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    rest = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in points)
    error = math.sqrt(rest / max(count - 2, 1) / spread)
    line = [mean_y + slope * (x - mean_x) for x in (points[0][0], points[-1][0])]
    values = [y for _, y in points]
    return Trend(line[0], line[1], mean_y, min(values), max(values), slope * 3600, 2 * error * 3600)


ROWS: tuple[tuple[str, str, float, str], ...] = (
    ("memory (RSS)", "rss_kb", 1024.0, "MB"),
    ("file descriptors", "fds", 1.0, ""),
    ("threads", "threads", 1.0, ""),
    ("files of the store", "files", 1.0, ""),
    ("files kept aside", "aside", 1.0, ""),
    ("size of the store", "store_bytes", 1024.0 * 1024, "MB"),
)


def load(folder: Path) -> list[Sample]:
    lines = (folder / "samples.jsonl").read_text().splitlines()
    return [Sample(**json.loads(line)) for line in lines if line.endswith("}")]


def spark(values: Sequence[float], width: int = 60) -> str:
    """One line of text."""
    if not values:
        return ""
    step = max(len(values) / width, 1)
    picked = [values[int(n * step)] for n in range(min(width, len(values)))]
    most = max(picked) or 1
    return "".join(BARS[min(int(value / most * 7.99), 7)] for value in picked)


def report(folder: Path) -> str:
    """Markdown."""
    state = json.loads((folder / "state.json").read_text())
    samples = load(folder)
    lines = [
        f"{state['seconds'] / 60:.0f} minutes of {state['planned_s'] / 60:.0f}"
        + ("" if state.get("done") else " (still running)"),
        "",
        "| | killed | lasting |",
        "|---|--:|--:|",
    ]
    subjects = state["subjects"]
    pair = [subjects["killed"], subjects["lasting"]]
    lines.append("| messages acknowledged | " + " | ".join(f"{s['acked']:,}" for s in pair) + " |")
    lines.append("| times all was compared | " + " | ".join(str(s["checks"]) for s in pair) + " |")
    lines.extend(
        f"| {event} | " + " | ".join(f"{s['events'].get(event, 0):,}" for s in pair) + " |"
        for event in sorted({event for s in pair for event in s["events"]})
    )
    wrong = [", ".join(f"{k}: {v}" for k, v in s["faults"].items()) or "nothing" for s in pair]
    lines.append("| **wrong** | " + " | ".join(f"**{text}**" for text in wrong) + " |")
    if "rest" in state:
        idle = [f"{state['rest'][name] * 100:.1f} %" for name in ("killed", "lasting")]
        lines.append("| CPU at rest, of one core | " + " | ".join(idle) + " |")
    lines += [
        "",
        "| after warming up | of | at first | at the end | lowest | highest | growth per hour | |",
        "|---|---|--:|--:|--:|--:|--:|---|",
    ]
    warm = min(WARM_SHARE * state["seconds"], WARM_MOST_S)
    for name in ("lasting", "killed"):
        own = [sample for sample in samples if sample.name == name and sample.at_s >= warm]
        if len(own) < 3:
            continue
        for text, key, unit, suffix in ROWS:
            points = [(sample.at_s, getattr(sample, key) / unit) for sample in own]
            t = trend(points)
            unit_text = f" {suffix}" if suffix else ""
            numbers = " | ".join(f"{v:,.1f}{unit_text}" for v in (t.start, t.end, t.least, t.most))
            slope = f"{t.per_hour:+,.2f} ± {t.error_per_hour:,.2f}{unit_text}"
            lines.append(
                f"| {text} | {name} | {numbers} | {slope} | {spark([y for _, y in points], 24)} |"
            )
    return "\n".join(lines)


def svg(folder: Path) -> str:
    """Memory and files of both over time."""
    samples = load(folder)
    width, height = 760, 150
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height * 3 + 20}" '
        'font-family="sans-serif" font-size="11">'
    ]
    longest = max(sample.at_s for sample in samples)
    for row, (text, key, unit, suffix) in enumerate((ROWS[0], ROWS[3], ROWS[1])):
        top = row * height + 20
        most = max(getattr(sample, key) / unit for sample in samples) * 1.1 or 1
        parts.append(f'<text x="50" y="{top - 5}">{text} {suffix}</text>')
        for share in (0.0, 0.5, 1.0):
            y = top + (height - 35) * (1 - share)
            parts.append(f'<line x1="50" x2="{width - 10}" y1="{y}" y2="{y}" stroke="#ddd"/>')
            parts.append(f'<text x="45" y="{y + 4}" text-anchor="end">{most * share:.0f}</text>')
        for name, colour in (("killed", "#c60"), ("lasting", "#06c")):
            line = " ".join(
                f"{50 + sample.at_s / longest * (width - 60):.1f},"
                f"{top + (height - 35) * (1 - getattr(sample, key) / unit / most):.1f}"
                for sample in samples
                if sample.name == name
            )
            parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}"/>')
    parts.append(f'<text x="{width - 210}" y="15" fill="#c60">killed each minute</text>')
    parts.append(f'<text x="{width - 90}" y="15" fill="#06c">lives on</text>')
    parts.append(f'<text x="{width - 80}" y="{height * 3 + 15}">{longest / 60:.0f} minutes</text>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.soak_report", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--svg", type=Path, default=None)
    parser.add_argument("--into", type=Path, default=None, help="a document with soak marks")
    told = parser.parse_args()
    text = report(told.folder)
    print(text)
    if told.into:
        before, _, rest = told.into.read_text().partition(MARKS[0])
        after = rest.partition(MARKS[1])[2]
        told.into.write_text(f"{before}{MARKS[0]}\n{text}\n{MARKS[1]}{after}")
    if told.svg:
        told.svg.write_text(svg(told.folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
