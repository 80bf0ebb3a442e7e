"""``pelton rtt``: how long a server takes to answer a ping."""

from __future__ import annotations

import time

import click

from pelton.cli.output import moment, number, print_facts, print_json
from pelton.cli.session import Session, command
from pelton.cli.values import Whole


@click.command()
@click.argument("iterations", type=Whole(1), default=5)
@command
@click.pass_obj
def rtt(session: Session, iterations: int) -> None:
    """Measure how long the server takes to answer a ping, ITERATIONS times (5)."""
    with session.connect() as client:
        server = client.server_info
        began_ns, seconds = time.time_ns(), [client.rtt() for _ in range(iterations)]
    figures = {
        "min_ns": int(min(seconds) * 1e9),
        "average_ns": int(sum(seconds) / iterations * 1e9),
        "max_ns": int(max(seconds) * 1e9),
    }
    url = f"nats://{server.host}:{server.port}"
    if session.as_json:
        average = {
            "time": moment(began_ns),
            "address": url,
            "rtt": figures["average_ns"],
            "url": url,
        }
        print_json([{"url": url, "results": [average], **figures}])
        return
    print_facts(
        f"Server {server.server_name} at {url}",
        [
            ("Pings", number(iterations)),
            ("Fastest", _time(figures["min_ns"])),
            ("Average", _time(figures["average_ns"])),
            ("Slowest", _time(figures["max_ns"])),
        ],
    )


def _time(ns: int) -> str:
    return f"{ns / 1e6:.3f} ms"
