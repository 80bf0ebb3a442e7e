"""``pelton latency``: how long messages take from one server to another."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.bench.links import NEVER, Crowd, Link, Role
from pelton.cli.bench.supply import Pace
from pelton.cli.output import number, print_facts, print_json, size
from pelton.cli.session import Session, command
from pelton.cli.values import DURATION, PAYLOAD_SIZE, Whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pelton.client.sync import Client

_STAMP = 8  # bytes of the time in each message
PERCENTILES = (10.0, 50.0, 75.0, 90.0, 99.0, 99.9, 99.99, 99.999, 100.0)
_STEPS_OF_HALF = 5


class _Sender(Role):
    """Publishes messages with the time that they were sent, at a rate."""

    def __init__(self, link: Link, subject: str, quota: int, rate: float, payload: bytes) -> None:
        """``payload``: what follows the time."""
        super().__init__(link, quota)
        self._head = f"PUB {subject} {_STAMP + len(payload)}\r\n".encode()
        self._tail = payload + b"\r\n"
        self._pace = Pace(0, rate)

    def turn(self, now: int) -> int:
        """Send the messages that are due."""
        self.start_ns = self.start_ns or now
        for _ in range(self._pace.allowed(self.done, self.quota - self.done, now)):
            stamp = time.perf_counter_ns().to_bytes(_STAMP, "little")
            self.link.write(self._head + stamp + self._tail)
            self.done += 1
        if self.done == self.quota:
            self.ping()
            return NEVER
        return self._pace.due(self.done)


class _Receiver(Role):
    """Notes how old each message is."""

    def __init__(self, link: Link, subject: str, quota: int) -> None:
        """Subscribes."""
        super().__init__(link, quota)
        link.subscribe(subject, 1)

    def message(self, operation: tuple[Any, ...]) -> None:
        """A message has come; a probe, which has no time, is none."""
        if len(operation[5]) < _STAMP:
            return
        sent = int.from_bytes(operation[5][:_STAMP], "little")
        self.note(time.perf_counter_ns() - sent)
        self.done += 1

    def settle(self, now: int) -> None:
        """The end, when all have come."""
        if self.done == self.quota and not self.over:
            self.finish(now)


@click.command()
@click.option(
    "--server-b",
    default="",
    show_default="the same server",
    help="URL of the server where the messages are received.",
)
@click.option(
    "--size",
    "bytes_each",
    type=PAYLOAD_SIZE,
    default="8",
    show_default=True,
    help="Bytes of a message.",
)
@click.option("--rate", type=Whole(1), default=1000, show_default=True, help="Messages per second.")
@click.option("--duration", type=DURATION, default="5s", show_default=True, help="For how long.")
@click.option(
    "--histogram", type=click.Path(dir_okay=False), help="Write the distribution to this file."
)
@command
@click.pass_obj
def latency(
    session: Session,
    server_b: str,
    bytes_each: int,
    rate: int,
    duration: int,
    histogram: str | None,
) -> None:
    """Send messages to one server and receive them from another, and show how long they take.

    Both connections are of this process, so one clock measures.
    """
    if bytes_each < _STAMP:
        raise click.BadParameter(f"{_STAMP} at least, for the time", param_hint="--size")
    quota = round(rate * duration / 1e9)
    if not quota:
        raise click.UsageError("--rate and --duration give no message")
    other = replace(session, server=server_b) if server_b else session
    with session.connect() as sender, other.connect() as receiver:
        trips = sender.rtt(), receiver.rtt()
        places = sender.server_info.server_name, receiver.server_info.server_name
        subject = receiver.new_inbox()
        _check_permissions(sender, receiver, subject)
        links = Link(sender), Link(receiver)
        with contextlib.closing(links[0]), contextlib.closing(links[1]):
            hears = _Receiver(links[1], subject, quota)
            _await_subscription(links, subject)
            sends = _Sender(links[0], subject, quota, rate, b"x" * (bytes_each - _STAMP))
            Crowd([hears, sends], limit_s=session.timeout / 1e9).run()
    ordered = sorted(hears.latencies)
    seconds = (hears.end_ns - sends.start_ns) / 1e9
    if histogram:
        Path(histogram).write_text(distribution(ordered))
    _show(session, places, trips, ordered, bytes_each, (rate, seconds))


def _check_permissions(sender: Client, receiver: Client, subject: str) -> None:
    """Raise the server's error if the client may not subscribe or publish."""
    receiver.subscribe(subject).unsubscribe()
    receiver.flush()
    sender.publish(subject)
    sender.flush()
    for client in (receiver, sender):
        if client.last_error is not None:
            raise client.last_error


def _await_subscription(links: tuple[Link, Link], subject: str) -> None:
    """Wait until messages of the first link reach the second: servers tell each other of a subscription."""
    probe = f"PUB {subject} 0\r\n\r\n".encode()
    sends, hears = links
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        sends.write(probe)
        until = time.monotonic() + 0.05
        while time.monotonic() < until:
            if any(len(each) == 6 for each in hears.operations()):
                _drain(hears)
                return
            time.sleep(0.001)
    raise click.ClickException("no message arrives at the second server; are they connected?")


def _drain(link: Link) -> None:
    """Read the probes that are still on their way."""
    quiet = time.monotonic() + 0.2
    while time.monotonic() < quiet:
        if link.operations():
            quiet = time.monotonic() + 0.2
        time.sleep(0.001)


def distribution(ordered: Sequence[int]) -> str:
    """The percentiles in the form of HdrHistogram: value in milliseconds, percentile, count, 1 / (1 - percentile)."""
    lines = ["       Value     Percentile TotalCount 1/(1-Percentile)", ""]
    part, step = 0.0, 1 / (2 * _STEPS_OF_HALF)
    count = len(ordered)
    while True:
        at = min(count, max(1, round(part * count)))
        rest = f"{1 / (1 - part):16.2f}" if part < 1 else "             inf"
        lines.append(f"{ordered[at - 1] / 1e6:12.3f} {part:14.10f} {at:10} {rest}")
        if part >= 1:
            return "\n".join(lines) + "\n"
        if at == count:
            part = 1.0
            continue
        part += step * (1 - part)
        if (1 - part) * count < 0.5:
            part = 1.0


def _show(
    session: Session,
    places: tuple[str, str],
    trips: tuple[float, float],
    ordered: list[int],
    bytes_each: int,
    speed: tuple[int, float],
) -> None:
    from pelton.cli.bench.report import percentile, spread

    rate, seconds = speed
    low, mean, high, deviation = (round(each) for each in spread(ordered))
    figures = {f"p{p:g}": percentile(ordered, p) for p in PERCENTILES}
    if session.as_json:
        print_json(
            {
                "publish_server": places[0],
                "subscribe_server": places[1],
                "publish_rtt_ns": int(trips[0] * 1e9),
                "subscribe_rtt_ns": int(trips[1] * 1e9),
                "messages": len(ordered),
                "size": bytes_each,
                "rate": rate,
                "seconds": round(seconds, 6),
                "latency_ns": {
                    "min": low,
                    "average": mean,
                    "max": high,
                    "stddev": deviation,
                    **figures,
                },
            }
        )
        return
    actual = len(ordered) / seconds
    print_facts(
        f"Latency from {places[0]} to {places[1]}",
        [
            ("Round trip to first", _ms(int(trips[0] * 1e9))),
            ("Round trip to second", _ms(int(trips[1] * 1e9))),
            ("Messages", f"{number(len(ordered))} of {size(bytes_each)}"),
            ("Wanted rate", f"{number(rate)} messages/s"),
            ("Actual rate", f"{number(round(actual))} messages/s"),
            ("Time", f"{seconds:.3f} s"),
            ("Fastest", _ms(low)),
            ("Average", _ms(mean)),
            ("Standard deviation", _ms(deviation)),
            *((f"{p:g} %", _ms(figures[f"p{p:g}"])) for p in PERCENTILES),
        ],
    )


def _ms(ns: int) -> str:
    return f"{ns / 1e6:.3f} ms"
