"""``pelton server graph``: the load of one server as bars, one sample a second."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pelton.cli.output import number, size
from pelton.cli.server.administration import find_server
from pelton.cli.server.asking import gather
from pelton.cli.session import Session, command
from pelton.cli.streams.graphs import COUNT, INTERVAL, Sample, follow

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


@click.command()
@click.argument("server")
@click.option("--jetstream", is_flag=True, help="The load of JetStream.")
@INTERVAL
@COUNT
@command
@click.pass_obj
def graph(session: Session, server: str, jetstream: bool, interval: int, count: int) -> None:
    """Draw the load of SERVER (its ID or name) until interrupted. Needs a user of the system account."""
    with session.connect() as client:
        place = str(find_server(client, server).server["id"])
        page = "JSZ" if jetstream else "VARZ"

        def sample() -> dict[str, Sample]:
            (answer,) = gather(client, f"$SYS.REQ.SERVER.{place}.{page}", {}, 1)
            if answer.error:
                raise click.ClickException(f"{answer.name}: {answer.error}")
            return _jetstream(answer.data) if jetstream else _load(answer.data)

        follow(session, sample, interval, count)


def _load(data: Mapping[str, Any]) -> dict[str, Sample]:
    cores = data.get("cores") or 1
    return {
        "cpu": Sample((data.get("cpu") or 0) / cores, lambda value: f"{value:.0f} %", rate=False),
        "memory": Sample(data.get("mem") or 0, size, rate=False),
        "connections": Sample(data.get("connections") or 0, number, rate=False),
        "subscriptions": Sample(data.get("subscriptions") or 0, number, rate=False),
        "messages": Sample((data.get("in_msgs") or 0) + (data.get("out_msgs") or 0), number),
        "bytes": Sample((data.get("in_bytes") or 0) + (data.get("out_bytes") or 0), size),
    }


def _jetstream(data: Mapping[str, Any]) -> dict[str, Sample]:
    api = data.get("api") or {}
    return {
        "memory": Sample(data.get("memory") or 0, size, rate=False),
        "storage": Sample(data.get("storage") or 0, size, rate=False),
        "streams": Sample(data.get("streams") or 0, number, rate=False),
        "consumers": Sample(data.get("consumers") or 0, number, rate=False),
        "messages": Sample(data.get("messages") or 0, number, rate=False),
        "api": Sample(api.get("total") or 0, number),
        "api errors": Sample(api.get("errors") or 0, number),
    }
