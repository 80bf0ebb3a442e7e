"""``pelton stream cluster balance`` and ``consumer cluster balance``: leaders spread evenly over servers.

All moves are planned first: leaders move from servers with more leaders to servers with fewer,
along their copies, until no move makes the numbers more even.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.consumers.selecting import selected as selected_consumers
from pelton.cli.consumers.selecting import selecting as selecting_consumers
from pelton.cli.output import number, print_json, print_table
from pelton.cli.prompts import Asked
from pelton.cli.session import Session, command
from pelton.cli.streams.selecting import selected, selecting
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pelton.api.streams import ClusterInfo
    from pelton.client.base.models import Placement


@dataclass(frozen=True)
class Led:
    """A stream or consumer: its leader, and the servers of its cluster that could lead it instead."""

    name: str
    cluster: str
    leader: str
    others: tuple[str, ...]


def moves(everything: Sequence[Led]) -> list[tuple[Led, str]]:
    """The new leaders, so that in each cluster the servers lead as evenly as their copies allow."""
    found: list[tuple[Led, str]] = []
    for cluster in sorted({each.cluster for each in everything}):
        leads: dict[str, list[Led]] = {}
        for each in everything:
            if each.cluster == cluster:
                leads.setdefault(each.leader, []).append(each)
                for other in each.others:
                    leads.setdefault(other, [])
        first = {each: server for server, led in leads.items() for each in led}
        while way := _way(leads):
            for source, led, target in way:
                leads[source].remove(led)
                leads[target].append(led)
        now = {each: server for server, led in leads.items() for each in led}
        found += [(each, server) for each, server in now.items() if first[each] != server]
    return found


def _way(leads: dict[str, list[Led]]) -> list[tuple[str, Led, str]]:
    """Moves from a server to one that leads at least two fewer; none if there is no such way."""
    for begin in sorted(leads, key=lambda server: -len(leads[server])):
        came: dict[str, tuple[str, Led]] = {}
        waiting = deque([begin])
        while waiting:
            server = waiting.popleft()
            if len(leads[server]) <= len(leads[begin]) - 2:
                way = []
                while server != begin:
                    source, led = came[server]
                    way.append((source, led, server))
                    server = source
                return way
            for led in leads[server]:
                for other in sorted({led.leader, *led.others} - {server, begin} - set(came)):
                    came[other] = (server, led)
                    waiting.append(other)
    return []


def _led(name: str, cluster: ClusterInfo | None) -> Iterable[Led]:
    if cluster is not None and cluster.leader and cluster.replicas:
        others = tuple(each.name for each in cluster.replicas if not each.offline)
        yield Led(name, cluster.name, cluster.leader, others)


_DRY_RUN = click.option("--dry-run", is_flag=True, help="Only show the moves.")


@click.command()
@selecting
@_DRY_RUN
@command
@click.pass_obj
def streams(session: Session, /, dry_run: bool, **asked: Any) -> int:
    """Spread the leaders of streams evenly over the servers of their cluster.

    The options choose the streams that may move. A leader hands over to a server that has a copy.
    """
    with session.connect() as client:
        js = session.jetstream(client)
        led = [one for each in selected(js, asked) for one in _led(each.config.name, each.cluster)]
        return _carry_out(
            session,
            led,
            lambda name, placement: js.step_down_stream(name, placement=placement),
            dry_run=dry_run,
        )


@click.command()
@click.argument("stream", cls=Asked)
@selecting_consumers
@_DRY_RUN
@command
@click.pass_obj
def consumers(session: Session, /, stream: str, dry_run: bool, **asked: Any) -> int:
    """Spread the leaders of the consumers of STREAM evenly over the servers with a copy.

    The options choose the consumers that may move.
    """
    with session.connect() as client:
        js = session.jetstream(client)
        found = selected_consumers(js, stream, asked)
        led = [one for each in found for one in _led(each.name, each.cluster)]
        return _carry_out(
            session,
            led,
            lambda name, placement: js.step_down_consumer(stream, name, placement=placement),
            dry_run=dry_run,
        )


def _carry_out(
    session: Session,
    led: Sequence[Led],
    step_down: Callable[[str, Placement], None],
    *,
    dry_run: bool,
) -> int:
    """Move the leaders; 1 if a server refused one. ClickException if nothing has copies."""
    from pelton.client.base.models import Placement
    from pelton.errors import ApiError

    if not led:
        raise click.ClickException("nothing that was chosen has copies on several servers")
    rows = []
    for each, target in moves(led):
        row = {"name": each.name, "cluster": each.cluster, "from": each.leader, "to": target}
        if not dry_run:
            try:
                step_down(each.name, Placement(preferred=target, cluster=each.cluster))
            except ApiError as error:
                row["error"] = str(error)
                click.echo(f"pelton: {shown(each.name)}: {shown(str(error))}", err=True)
        rows.append(row)
    if session.as_json:
        print_json(rows)
    elif rows:
        columns = ("name", "cluster", "from", "to")
        print_table(
            [name.title() for name in columns], [[row[name] for name in columns] for row in rows]
        )
    else:
        print(f"the leaders of {number(len(led))} are even already")
    return 1 if any("error" in row for row in rows) else 0
