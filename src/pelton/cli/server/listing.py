"""``pelton server ping``, ``list`` and ``info``: running servers, asked over the system account."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pelton.cli.output import number, print_facts, print_json, print_json_line, print_table, size
from pelton.cli.server.asking import Answer, Live, Where, gather, is_server_id, source
from pelton.cli.server.reporting import COMPACT, compacted
from pelton.cli.session import Session, command
from pelton.cli.streams.graphs import bars
from pelton.cli.values import Whole, Word
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_BUCKET_MS = 25
_ARCHIVE = click.option(
    "--archive",
    type=click.Path(exists=True, dir_okay=False),
    default=None,
    help="Read an audit archive instead.",
)


@click.command()
@click.argument("expect", type=Whole(1), required=False)
@click.option("--graph", is_flag=True, help="Also draw how many answered how fast.")
@click.option("--id", "with_id", is_flag=True, help="With the IDs of the servers.")
@command
@click.pass_obj
def ping(session: Session, expect: int | None, graph: bool, with_id: bool) -> int:
    """Print which servers answer, and how fast. Needs a user of the system account.

    EXPECT is how many servers shall answer, otherwise as many as are known. Ends with 1 if one is missing.
    """
    with session.connect() as client:
        wanted = expect or Live(client, Where()).expected()
        times = []
        for found in gather(client, "$SYS.REQ.SERVER.PING", {}, wanted):
            milliseconds = found.seconds * 1e3
            times.append(milliseconds)
            if session.as_json:
                print_json_line({**found.server, "rtt_ns": int(found.seconds * 1e9)})
            else:
                name = f"{found.server['id']}  {found.name}" if with_id else found.name
                print(shown(f"{name}  rtt={milliseconds:.2f}ms"), flush=True)
    if not session.as_json:
        average = sum(times) / len(times)
        text = f"{len(times)} answers: fastest {min(times):.2f}ms, average {average:.2f}ms"
        print(f"{text}, slowest {max(times):.2f}ms")
        if graph:
            _draw(times)
    missing = max(wanted - len(times), 0)
    if missing:
        click.echo(f"pelton: {missing} servers are missing", err=True)
    return 1 if missing else 0


def _draw(times: list[float]) -> None:
    """A bar for each 25 ms: how many answers took so long."""
    counts = [0.0] * (int(max(times) / _BUCKET_MS) + 1)
    for each in times:
        counts[int(each / _BUCKET_MS)] += 1
    print(f"|{bars(counts)}| {_BUCKET_MS} ms a bar, the highest {max(counts):.0f} answers")


_BY: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "name": lambda row: str(row["server"]["name"]),
    "cluster": lambda row: str(row["server"].get("cluster") or ""),
    "conns": lambda row: row["statsz"].get("connections", 0),
    "subs": lambda row: row["statsz"].get("subscriptions", 0),
    "routes": lambda row: len(row["statsz"].get("routes") or ()),
    "gws": lambda row: len(row["statsz"].get("gateways") or ()),
    "mem": lambda row: row["statsz"].get("mem", 0),
    "cpu": lambda row: row["statsz"].get("cpu", 0),
    "slow": lambda row: row["statsz"].get("slow_consumers", 0),
    "uptime": lambda row: str(row["statsz"].get("start", "")),
    "rtt": lambda row: row["rtt_ns"],
}
_OTHER_SORTS = {"conn": "conns", "sub": "subs", "route": "routes", "gw": "gws"}


@click.command()
@click.argument("expect", type=Whole(1), required=False)
@click.option(
    "--sort",
    type=Word([*_BY, *_OTHER_SORTS]),
    default="name",
    show_default=True,
    help="Order of the rows.",
)
@click.option("-R", "--reverse", is_flag=True, help="The other way round.")
@COMPACT
@_ARCHIVE
@command
@click.pass_obj
def ls(
    session: Session,
    expect: int | None,
    sort: str,
    reverse: bool,
    compact: bool,
    archive: str | None,
) -> None:
    """List the servers with their load. Needs a user of the system account.

    EXPECT is how many servers shall answer, otherwise as many as are known.
    """
    rows = _archived(archive) if archive else _running(session, expect or 0)
    by = _BY[_OTHER_SORTS.get(sort, sort)]
    rows.sort(key=lambda row: (by(row), str(row["server"]["name"])), reverse=reverse)
    if session.as_json:
        print_json(rows)
        return
    columns = ("Name", "Cluster", "Host", "Version", "JetStream")
    numbers = (
        "Connections",
        "Subscriptions",
        "Routes",
        "Gateways",
        "Memory",
        "CPU %",
        "Slow",
        "RTT",
    )
    if compact:
        names = compacted([str(row["server"]["name"]) for row in rows])
        rows = [
            {**row, "server": {**row["server"], "name": name}}
            for row, name in zip(rows, names, strict=True)
        ]
    print_table(columns + numbers, [_cells(row) for row in rows], right=frozenset(numbers))


def _running(session: Session, expect: int) -> list[dict[str, Any]]:
    with session.connect() as client:
        count = expect or Live(client, Where()).expected()
        found = list(gather(client, "$SYS.REQ.SERVER.PING", {}, count))
    return [{**each.whole, "rtt_ns": int(each.seconds * 1e9)} for each in found]


def _archived(archive: str) -> list[dict[str, Any]]:
    """The servers of an archive: it has no answers to pings, but the same figures."""
    from pelton.cli.server.asking import Archived

    found = Archived(Where(archive=archive)).ask("VARZ")
    return [{"server": each.server, "statsz": _figures(each), "rtt_ns": 0} for each in found]


def _figures(answer: Answer) -> dict[str, Any]:
    data = answer.data
    routes, gateways = data.get("routes") or 0, (data.get("gateway") or {}).get("gateways") or ()
    return {**data, "routes": [{}] * int(routes), "gateways": list(gateways)}


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    server, load = row["server"], row["statsz"]
    return (
        str(server["name"]),
        str(server.get("cluster") or ""),
        str(server["host"]),
        str(server["ver"]),
        "yes" if server.get("jetstream") else "no",
        number(load.get("connections", 0)),
        number(load.get("subscriptions", 0)),
        number(len(load.get("routes") or ())),
        number(len(load.get("gateways") or ())),
        size(load.get("mem", 0)),
        f"{load.get('cpu', 0):.0f}",
        number(load.get("slow_consumers", 0)),
        f"{row['rtt_ns'] / 1e6:.2f}ms" if row["rtt_ns"] else "",
    )


@click.command()
@click.argument("name", required=False)
@_ARCHIVE
@command
@click.pass_obj
def info(session: Session, name: str | None, archive: str | None) -> None:
    """Show the server NAME, which may also be its ID; without one, the server of the connection.

    Needs a user of the system account.
    """
    answer = _server(session, name, archive)
    found = dict(answer.whole)
    if session.as_json:
        print_json(found)
        return
    server, data = answer.server, answer.data
    print_facts(
        f"Server {server['name']} ({server['id']})",
        [
            ("Version", str(data.get("version", ""))),
            ("Cluster", str(server.get("cluster") or "")),
            ("Domain", str(server.get("domain") or "")),
            ("Address", f"{data.get('host')}:{data.get('port')}"),
            ("Started", str(data.get("start", ""))),
            ("Uptime", str(data.get("uptime", ""))),
            ("JetStream", "yes" if server.get("jetstream") else "no"),
            ("Connections", number(data.get("connections", 0))),
            ("Subscriptions", number(data.get("subscriptions", 0))),
            ("Leaf nodes", number(data.get("leafnodes", 0))),
            ("Memory", size(data.get("mem", 0))),
            ("CPU", f"{data.get('cpu', 0):.1f} %"),
            (
                "Messages",
                f"{number(data.get('in_msgs', 0))} in, {number(data.get('out_msgs', 0))} out",
            ),
            ("Bytes", f"{size(data.get('in_bytes', 0))} in, {size(data.get('out_bytes', 0))} out"),
            ("Slow consumers", number(data.get("slow_consumers", 0))),
        ],
    )


def _server(session: Session, name: str | None, archive: str | None) -> Answer:
    """The variables of a server; ClickException if it does not answer."""
    if archive is None and name is None:
        with session.connect() as client:
            name = client.server_info.server_id
    where = Where(name or "", archive=archive or "")
    try:
        with source(session, where) as servers:
            answers = servers.ask("VARZ")
    except click.ClickException as error:
        hint = "" if name is None or is_server_id(name) else f"no server {name} answers; "
        raise click.ClickException(hint + error.message) from None
    if not answers:
        raise click.ClickException(f"the archive has no server {name or ''}".rstrip())
    return answers[0]
