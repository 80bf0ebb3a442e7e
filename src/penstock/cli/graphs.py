"""``penstock stream graph`` and ``penstock consumer graph``: rates as bars, one sample a second."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from penstock.cli.output import number, print_json_line
from penstock.cli.prompts import Asked
from penstock.cli.session import Session, command
from penstock.cli.values import DURATION

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BARS = " ▁▂▃▄▅▆▇█"
_INTERVAL = click.option(
    "--interval", type=DURATION, default="1s", show_default=True, help="Time between samples."
)
_COUNT = click.option("--count", default=0, type=click.IntRange(0), help="End after this many.")


@click.command()
@click.argument("name", cls=Asked)
@_INTERVAL
@_COUNT
@command
@click.pass_obj
def stream(session: Session, name: str, interval: int, count: int) -> None:
    """Draw how fast the stream NAME grows and loses messages, until interrupted."""
    with session.connect() as client:
        js = session.jetstream(client)

        def sample() -> dict[str, int]:
            state = js.stream_info(name).state
            removed = state.last_seq - state.messages
            return {"stored": state.last_seq, "removed": removed}

        _follow(session, sample, interval, count)


@click.command()
@click.argument("stream", cls=Asked)
@click.argument("name", cls=Asked, of="stream")
@_INTERVAL
@_COUNT
@command
@click.pass_obj
def consumer(session: Session, stream: str, name: str, interval: int, count: int) -> None:
    """Draw how fast the consumer NAME of STREAM delivers and is acknowledged, until interrupted."""
    with session.connect() as client:
        js = session.jetstream(client)

        def sample() -> dict[str, int]:
            info = js.consumer_info(stream, name)
            return {
                "delivered": info.delivered.consumer_seq,
                "acknowledged": info.ack_floor.consumer_seq,
            }

        _follow(session, sample, interval, count)


def _follow(
    session: Session, sample: Callable[[], dict[str, int]], interval_ns: int, count: int
) -> None:
    """Print the rates of what is counted: bars that move at a terminal, else a line each time."""
    before, then = sample(), time.monotonic()
    history: dict[str, list[float]] = {name: [] for name in before}
    done = 0
    while not count or done < count:
        time.sleep(interval_ns / 1e9)
        after, now = sample(), time.monotonic()
        rates = {name: (after[name] - before[name]) / (now - then) for name in after}
        before, then, done = after, now, done + 1
        for name, rate in rates.items():
            history[name].append(rate)
        if session.as_json:
            print_json_line({f"{name}_per_s": round(rate, 1) for name, rate in rates.items()})
        elif sys.stdout.isatty():
            _draw(history, again=done > 1)
        else:
            parts = (f"{name} {number(round(rate))}/s" for name, rate in rates.items())
            print("  ".join(parts), flush=True)


def _draw(history: dict[str, list[float]], *, again: bool) -> None:
    import shutil

    width = max(shutil.get_terminal_size().columns - 30, 10)
    lines = [
        f"{name:>12} {number(round(rates[-1])):>11}/s {bars(rates[-width:])}"
        for name, rates in history.items()
    ]
    up = f"\x1b[{len(lines)}A" if again else ""
    print(up + "".join(f"\x1b[2K{line}\n" for line in lines), end="", flush=True)


def bars(values: Sequence[float]) -> str:
    """A bar for each value, the largest one at full height; blank for none."""
    top = max(values, default=0.0)
    steps = len(BARS) - 1
    return "".join(
        BARS[min(round(max(each, 0) / top * steps), steps)] if top else " " for each in values
    )
