"""The figures of a load: rates of each client and of all, and the latencies of operations."""

from __future__ import annotations

import csv
import io
import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pelton.cli.output import number, print_json, print_table, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pelton.cli.session import Session

    from .links import Role

PERCENTILES = (50.0, 90.0, 99.0, 99.9)
BUSY = 0.9
"""From this part of a processor on the load, not the server, is what was measured."""
SHORT_S = 0.2  # too short to judge


def percentile(ordered: Sequence[int], percent: float) -> int:
    """The smallest of the ordered values that so many percent of them do not exceed."""
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def spread(values: Sequence[float]) -> tuple[float, float, float, float]:
    """Minimum, average, maximum, standard deviation."""
    mean = sum(values) / len(values)
    return (
        min(values),
        mean,
        max(values),
        math.sqrt(sum((each - mean) ** 2 for each in values) / len(values)),
    )


@dataclass(frozen=True)
class Sample:
    """The counts of one client."""

    messages: int
    seconds: float
    latencies: tuple[int, ...] = ()
    """Nanoseconds, in order of size."""

    @property
    def per_second(self) -> float:
        """Messages per second."""
        return self.messages / max(self.seconds, 1e-9)


class Results:
    """The counts of all clients of a load."""

    def __init__(
        self,
        what: str,
        payload: int,
        roles: Sequence[Role],
        *,
        processor_s: float = 0.0,
        interrupted: bool = False,
    ) -> None:
        """``what``: the name of the figures. ``payload``: bytes of a message.

        ``processor_s``: the processor time of the load itself. ``interrupted``: not all messages were awaited.
        """
        self.what = what
        self.payload = payload
        self.processor_s = processor_s
        self.interrupted = interrupted
        self.samples = [
            Sample(each.done, (each.end_ns - each.start_ns) / 1e9, tuple(sorted(each.latencies)))
            for each in roles
            if each.done
        ]
        done = [each for each in roles if each.done]
        first = min((each.start_ns for each in done), default=0)
        last = max((each.end_ns for each in done), default=0)
        every = sorted(ns for each in self.samples for ns in each.latencies)
        self.all = Sample(
            sum(each.messages for each in self.samples), (last - first) / 1e9, tuple(every)
        )

    def rate(self, sample: Sample) -> str:
        """`577,271 msgs/sec ~ 70.47 MiB/sec`."""
        per_second = sample.per_second
        mib = per_second * self.payload / 2**20
        return f"{number(int(per_second))} msgs/sec ~ {mib:,.2f} MiB/sec"

    def show(self, session: Session) -> None:
        """Print the figures in the form that was asked for."""
        if session.as_json:
            print_json(self.data())
        elif session.form in ("csv", "md"):
            self._show_table()
        else:
            self._show_text()

    def _show_text(self) -> None:
        if not self.samples:
            print("No messages.")
            return
        if len(self.samples) == 1:
            print(f"{self.what} stats: {self.rate(self.all)}")
        else:
            for at, each in enumerate(self.samples, 1):
                print(f"  [{at}] {self.rate(each)} ({number(each.messages)} msgs)")
            print()
            print(f"{self.what} stats: {self.rate(self.all)}")
            figures = spread([each.per_second for each in self.samples])
            low, mean, high, deviation = (number(int(each)) for each in figures)
            print(f"  message rates: min {low} | avg {mean} | max {high} | stddev {deviation} msgs")
        if self.all.latencies:
            low_us, mean_us, high_us, deviation_us = (
                f"{each / 1e3:,.2f}us" for each in spread(self.all.latencies)
            )
            parts = [f"min {low_us}", f"avg {mean_us}", f"max {high_us}", f"stddev {deviation_us}"]
            parts += [
                f"P{percent:g} {percentile(self.all.latencies, percent) / 1e3:,.2f}us"
                for percent in PERCENTILES
            ]
            print(f"  latencies: {' | '.join(parts)}")
        busy = self.processor_s / max(self.all.seconds, SHORT_S)
        if busy > BUSY:
            text = f"the load itself used {busy:.0%} of a processor: the server may do more"
            print(text, file=sys.stderr)

    def _show_table(self) -> None:
        columns = ("Client", "Messages", "Seconds", "Messages/s", "Bytes/s")
        rows = [
            (
                str(at),
                number(each.messages),
                f"{each.seconds:.4f}",
                number(int(each.per_second)),
                size(int(each.per_second * self.payload)),
            )
            for at, each in enumerate(self.samples, 1)
        ]
        print_table(columns, rows, right=frozenset(columns[1:]))

    def data(self) -> dict[str, object]:
        """The figures in JSON."""
        found = {"benchmark": self.what, "size": self.payload, **self._of(self.all)}
        if self.processor_s:
            found["processor_seconds"] = round(self.processor_s, 6)
        if self.interrupted:
            found["interrupted"] = True
        return found | {"clients": [self._of(each) for each in self.samples]}

    def _of(self, sample: Sample) -> dict[str, object]:
        found: dict[str, object] = {
            "messages": sample.messages,
            "seconds": round(sample.seconds, 6),
            "messages_per_second": round(sample.per_second, 1),
            "bytes_per_second": round(sample.per_second * self.payload, 1),
        }
        if sample.latencies:
            low, mean, high, deviation = (round(each) for each in spread(sample.latencies))
            found["latency_ns"] = {
                "min": low,
                "average": mean,
                "max": high,
                "stddev": deviation,
                **{f"p{p:g}": percentile(sample.latencies, p) for p in PERCENTILES},
            }
        return found

    def csv(self, run: str) -> str:
        """One line for each client, under a line of names: those of the `nats` command."""
        names = ["#RunID", "ClientID", "MsgCount", "MsgBytes", "MsgsPerSec", "BytesPerSec"]
        names += ["DurationSecs"]
        if self.all.latencies:
            names += ["MinLatencyMicroSecs", "AvgLatencyMicroSecs", "MaxLatencyMicroSecs"]
            names += [f"P{percent:g}LatencyMicroSecs" for percent in PERCENTILES]
            names += ["StdDevLatencyMicroSecs"]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(names)
        for at, each in enumerate(self.samples):
            row: list[object] = [run, f"C{at}", each.messages, each.messages * self.payload]
            row += [int(each.per_second), f"{each.per_second * self.payload:f}"]
            row.append(f"{each.seconds:f}")
            if each.latencies:
                low, mean, high, deviation = (ns / 1e3 for ns in spread(each.latencies))
                middle = [percentile(each.latencies, p) / 1e3 for p in PERCENTILES]
                row += [f"{us:f}" for us in (low, mean, high, *middle, deviation)]
            writer.writerow(row)
        return text.getvalue()
