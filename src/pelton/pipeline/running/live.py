"""The numbers of a run in its state folder, for other processes that show them.

A run writes ``live.json`` once a second, and at its end: the numbers of each query as in ``--json``, with
lag and rows per second over the last minutes, oldest first. The file is replaced as a whole, and not
synced: after a power cut there is nothing to show. It stays after a run, with the reason if it failed.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pelton.pipeline.running.numbers import as_data

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pelton.pipeline.running.numbers import QueryNumbers

RECORD = "live.json"
WRITE_SECONDS = 1.0
STEP_SECONDS = 5.0
STEPS = 60


class Trace:
    """Values over the last minutes: the mean of each step of five seconds."""

    def __init__(self) -> None:
        """Start empty."""
        self._steps: deque[tuple[int, float, int]] = deque(maxlen=STEPS)

    def add(self, value: float, now: float) -> None:
        """Add a value at a time, seconds of a monotonic clock; steps without values repeat the last."""
        step = int(now // STEP_SECONDS)
        if self._steps and self._steps[-1][0] >= step:
            at, total, count = self._steps.pop()
            self._steps.append((at, total + value, count + 1))
            return
        if self._steps:
            last, total, count = self._steps[-1]
            for missed in range(max(last + 1, step - STEPS), step):
                self._steps.append((missed, total / count, 1))
        self._steps.append((step, value, 1))

    def values(self) -> list[float]:
        """The means, oldest first."""
        return [round(total / count, 1) for _, total, count in self._steps]


class LiveRecord:
    """Writes the numbers of a run."""

    def __init__(self, state: Path) -> None:
        """Nothing is written yet."""
        self._state = state
        self._lags: dict[str, Trace] = {}
        self._rates: dict[str, Trace] = {}
        self._written = float("-inf")

    def write(self, queries: Sequence[QueryNumbers], *, last: bool = False) -> None:
        """Write the numbers, at most once a second unless they are the ``last``."""
        now = time.monotonic()
        if not last and now - self._written < WRITE_SECONDS:
            return
        self._written = now
        found = []
        for query in queries:
            lags = self._lags.setdefault(query.name, Trace())
            rates = self._rates.setdefault(query.name, Trace())
            lags.add(query.lag or 0, now)
            rates.add(query.rows_per_second, now)
            found.append({**as_data(query), "lags": lags.values(), "rates": rates.values()})
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        draft = self._state / (RECORD + ".draft")
        with contextlib.suppress(OSError):  # a full disk: the run itself will tell
            draft.write_text(json.dumps({"at": at, "process": os.getpid(), "queries": found}))
            draft.replace(self._state / RECORD)


def read_live(state: Path) -> dict[str, dict[str, Any]]:
    """The numbers of the present or last run, by query; {} if there are none that can be read."""
    try:
        data = json.loads((state / RECORD).read_text())
        return {str(each["name"]): each for each in data["queries"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
