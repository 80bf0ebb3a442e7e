"""``penstock server ping``, ``list`` and ``info``: running servers, asked over the system account."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.output import number, print_facts, print_json, print_json_line, print_table, size
from penstock.cli.session import Session, command
from penstock.core.base.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

_STALL_S = 0.5
"""How long to wait for the next server's answer."""


def _answers(
    session: Session, page: str = "", wanted: dict[str, object] | None = None
) -> Iterator[tuple[dict[str, Any], float]]:
    """What each server answers, and after how many seconds; ClickException when none does."""
    from penstock.errors import NoResponders

    subject = "$SYS.REQ.SERVER.PING" + page
    found = 0
    with session.connect() as client:
        started = time.monotonic()
        try:
            for answer in client.request_many(
                subject, json.dumps(wanted or {}).encode(), stall=_STALL_S
            ):
                seconds = time.monotonic() - started
                found += 1
                yield json.loads(answer.data), seconds
        except NoResponders:
            pass
        if client.last_error is not None:
            raise client.last_error
    if not found:
        text = "no server answers: use a user of the system account, and check the NAME"
        raise click.ClickException(text)


@click.command()
@command
@click.pass_obj
def ping(session: Session) -> None:
    """Print which servers answer, and how fast. Needs a user of the system account."""
    for found, seconds in _answers(session):
        server = found["server"]
        if session.as_json:
            print_json_line(server | {"rtt_ns": int(seconds * 1e9)})
        else:
            print(shown(f"{server['name']}  rtt={seconds * 1e3:.2f}ms"), flush=True)


@click.command()
@command
@click.pass_obj
def ls(session: Session) -> None:
    """List the servers with their load. Needs a user of the system account."""
    found = sorted(_answers(session), key=lambda each: str(each[0]["server"]["name"]))
    if session.as_json:
        print_json([{**each, "rtt_ns": int(seconds * 1e9)} for each, seconds in found])
        return
    columns = ("Name", "Cluster", "Host", "Version", "JetStream")
    numbers = ("Connections", "Subscriptions", "Memory", "CPU %", "RTT")
    rows = []
    for each, seconds in found:
        server, load = each["server"], each["statsz"]
        rows.append(
            (
                str(server["name"]),
                str(server.get("cluster") or ""),
                str(server["host"]),
                str(server["ver"]),
                "yes" if server.get("jetstream") else "no",
                number(load.get("connections", 0)),
                number(load.get("subscriptions", 0)),
                size(load.get("mem", 0)),
                f"{load.get('cpu', 0):.0f}",
                f"{seconds * 1e3:.2f}ms",
            )
        )
    print_table(columns + numbers, rows, right=frozenset(numbers))


@click.command()
@click.argument("name", required=False)
@command
@click.pass_obj
def info(session: Session, name: str | None) -> None:
    """Show the server NAME, which may also be its ID; without one, the server of the connection.

    Needs a user of the system account.
    """
    with session.connect() as client:
        here = client.server_info.server_id
    for found, _ in _answers(session, ".VARZ"):
        server = found["server"]
        if (name or here) in (server["id"], server["name"]):
            break
    else:
        raise click.ClickException(f"no server {name or here} answers")
    if session.as_json:
        print_json(found)
        return
    data = found["data"]
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
