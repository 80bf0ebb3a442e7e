"""``pelton stream graph`` and ``pelton consumer graph``: rates as bars, one sample a second."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from pelton.cli.output import number, print_json_line
from pelton.cli.prompts import Asked
from pelton.cli.session import Session, command
from pelton.cli.values import DURATION, Whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BARS = " ▁▂▃▄▅▆▇█"
INTERVAL = click.option(
    "--interval", type=DURATION, default="1s", show_default=True, help="Time between samples."
)
COUNT = click.option("--count", default=0, type=Whole(0), help="End after this many.")


@click.command()
@click.argument("name", cls=Asked)
@INTERVAL
@COUNT
@command
@click.pass_obj
def stream(session: Session, name: str, interval: int, count: int) -> None:
    """Draw how fast the stream NAME grows and loses messages, until interrupted."""
    with session.connect() as client:
        js = session.jetstream(client)

        def sample() -> dict[str, Sample]:
            state = js.stream_info(name).state
            removed = state.last_seq - state.messages
            return {"stored": Sample(state.last_seq), "removed": Sample(removed)}

        follow(session, sample, interval, count)


@click.command()
@click.argument("stream", cls=Asked)
@click.argument("name", cls=Asked, of="stream")
@INTERVAL
@COUNT
@command
@click.pass_obj
def consumer(session: Session, stream: str, name: str, interval: int, count: int) -> None:
    """Draw how fast the consumer NAME of STREAM delivers and is acknowledged, until interrupted."""
    with session.connect() as client:
        js = session.jetstream(client)

        def sample() -> dict[str, Sample]:
            info = js.consumer_info(stream, name)
            return {
                "delivered": Sample(info.delivered.consumer_seq),
                "acknowledged": Sample(info.ack_floor.consumer_seq),
            }

        follow(session, sample, interval, count)


@dataclass(frozen=True)
class Sample:
    """A value, how it is shown, and whether its growth per second is drawn, or the value itself."""

    value: float
    show: Callable[[int], str] = number
    rate: bool = True


def follow(
    session: Session, sample: Callable[[], dict[str, Sample]], interval_ns: int, count: int
) -> None:
    """Print the samples: moving bars at a terminal, otherwise a line each time."""
    before, then = sample(), time.monotonic()
    history: dict[str, list[float]] = {name: [] for name in before}
    done = 0
    while not count or done < count:
        time.sleep(interval_ns / 1e9)
        after, now = sample(), time.monotonic()
        for name, each in after.items():
            grown = each.value - before[name].value
            history[name].append(grown / (now - then) if each.rate else each.value)
        shown = {name: _shown(each, history[name][-1]) for name, each in after.items()}
        data = {
            f"{name}_per_s" if each.rate else name: round(history[name][-1], 1)
            for name, each in after.items()
        }
        before, then, done = after, now, done + 1
        if session.as_json:
            print_json_line({name.replace(" ", "_"): value for name, value in data.items()})
        elif sys.stdout.isatty():
            _draw(history, shown, again=done > 1)
        else:
            print("  ".join(f"{name} {text}" for name, text in shown.items()), flush=True)


def _shown(sample: Sample, value: float) -> str:
    return sample.show(round(value)) + ("/s" if sample.rate else "")


def _draw(history: dict[str, list[float]], shown: dict[str, str], *, again: bool) -> None:
    import shutil

    width = max(shutil.get_terminal_size().columns - 30, 10)
    lines = [
        f"{name:>13} {shown[name]:>13} {bars(values[-width:])}" for name, values in history.items()
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
