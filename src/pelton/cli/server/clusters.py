"""``pelton server cluster``: the cluster of servers with JetStream, and who is connected where."""

from __future__ import annotations

import json
import random
import re
import time
from typing import TYPE_CHECKING, Any

import click

from pelton.api.times import parse_duration
from pelton.cli.output import print_facts, print_json
from pelton.cli.prompts import confirm
from pelton.cli.server.administration import find_server
from pelton.cli.server.asking import Answer, Live, Where, gather, sound
from pelton.cli.server.reporting import connections
from pelton.cli.session import Session, command
from pelton.cli.values import DURATION, Word
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pelton.client.sync import Client

_FORCE = click.option("-f", "--force", is_flag=True, help="Do not ask.")
_ELECTION_S = 10.0
_POLL_S = 0.25
_PEER_WARNING = (
    "A removed server can't come back without a restart of the cluster. Streams with one copy on it"
    " lose their messages."
)


def _leader(client: Client) -> Answer:
    """The answer of the leader of the cluster; ClickException if there is not exactly one."""
    answers = sound(Live(client, Where()).ask("JSZ"))
    leaders = [
        each for each in answers if (each.data.get("meta_cluster") or {}).get("leader") == each.name
    ]
    if len(leaders) > 1:
        raise click.ClickException("there are several clusters; connect to a server of one alone")
    if not leaders:
        if not any(each.data.get("meta_cluster") for each in answers):
            raise click.ClickException("no server that answers is in a JetStream cluster")
        raise click.ClickException("the cluster has no leader")
    return leaders[0]


def _no_domain(session: Session) -> None:
    if session.domain:
        raise click.UsageError("--domain has no meaning here: the system account has no domains")


def _call(client: Client, call: str, body: Mapping[str, Any]) -> None:
    """A call of the JetStream API of the cluster; ClickException for an error."""
    answer = json.loads(client.request(f"$JS.API.{call}", json.dumps(body).encode()).data)
    if error := answer.get("error"):
        raise click.ClickException(f"{error.get('description')} ({error.get('err_code')})")


@click.command("step-down")
@click.option("--cluster", default="", help="The next leader shall be in this cluster.")
@click.option("--tags", multiple=True, metavar="TAG", help="The next leader shall have this tag.")
@click.option("--host", default="", help="The next leader shall be this server.")
@_FORCE
@command
@click.pass_obj
def step_down(
    session: Session, cluster: str, tags: tuple[str, ...], host: str, force: bool
) -> None:
    """Let the leader of the JetStream cluster hand over, and wait for the next one."""
    _no_domain(session)
    wanted = {"cluster": cluster, "tags": list(tags), "preferred": host}
    placement = {name: value for name, value in wanted.items() if value}
    with session.connect() as client:
        before = _leader(client).name
        if not force:
            confirm(f"Really let {before} hand over?")
        _call(client, "META.LEADER.STEPDOWN", {"placement": placement} if placement else {})
        after, deadline = before, time.monotonic() + _ELECTION_S
        while after == before and time.monotonic() < deadline:
            time.sleep(_POLL_S)
            try:
                after = _leader(client).name
            except click.ClickException:
                continue  # there is none yet
    if session.as_json:
        print_json({"previous": before, "leader": after})
    elif after == before:
        raise click.ClickException(f"{before} is still the leader")
    else:
        print(shown(f"{after} is the leader; it was {before}"))


@click.command("peer-remove")
@click.argument("name")
@_FORCE
@command
@click.pass_obj
def peer_remove(session: Session, name: str, force: bool) -> None:
    """Remove the server NAME (or the ID of its peer) permanently from the JetStream cluster."""
    _no_domain(session)
    with session.connect() as client:
        meta = _leader(client).data["meta_cluster"]
        for peer in meta.get("replicas") or ():
            if name in (peer.get("name"), peer.get("peer")):
                break
        else:
            raise click.ClickException(f"the cluster has no peer {name}, or it is the leader")
        if not force:
            state = "offline" if peer.get("offline") else "online"
            click.echo(_PEER_WARNING, err=True)
            confirm(f"Really remove the {state} peer {peer.get('name')} ({peer.get('peer')})?")
        _call(client, "SERVER.REMOVE", {"peer": "", "peer_id": peer.get("peer", "")})
    if session.as_json:
        print_json({"peer": peer.get("name"), "peer_id": peer.get("peer"), "removed": True})
    else:
        print(shown(f"removed peer {peer.get('name')}"))


@click.command()
@click.argument("duration", type=DURATION, default="2m")
@click.option("--server-name", default="", help="Only connections of this server.")
@click.option("--cluster", default="", help="Only servers of this cluster.")
@click.option("--idle", type=DURATION, default=0, help="Only connections that were idle this long.")
@click.option("--account", default="", help="Only connections of this account.")
@click.option(
    "--subject", default="", help="Only those that listen to this subject; with --account."
)
@click.option(
    "--kind",
    "kinds",
    type=Word(("Client", "Leafnode")),
    multiple=True,
    default=("Client",),
    show_default=True,
    help="Kinds of connections.",
)
@_FORCE
@command
@click.pass_obj
def balance(
    session: Session,
    duration: int,
    server_name: str,
    cluster: str,
    idle: int,
    account: str,
    subject: str,
    kinds: Sequence[str],
    force: bool,
) -> None:
    """Spread connections evenly over the servers of each cluster, within DURATION (2m).

    Servers with more connections than the average disconnect some; the clients connect again, to any
    server. Requests in flight may be lost.
    """
    if subject and not account:
        raise click.UsageError("--subject needs --account")
    wanted = {"acc": account, "filter_subject": subject}
    with session.connect() as client:
        here = client.server_info
        own = (here.server_id, here.client_id)
        servers = Live(client, Where("", "", cluster))
        surplus = _surplus(servers, wanted, kinds, idle, own)
        if server_name:
            one = find_server(client, server_name).server["id"]
            surplus = {server: cids for server, cids in surplus.items() if server == one}
        count = sum(len(cids) for cids in surplus.values())
        if count and not force:
            click.echo("Clients are disconnected whatever they are doing.", err=True)
            confirm(f"Really move {count} connections?")
        jobs = [(server, cid) for server, cids in surplus.items() for cid in cids]
        random.shuffle(jobs)  # no server is without clients for long
        pause = duration / 1e9 / len(jobs) if jobs else 0.0
        for index, (server, cid) in enumerate(jobs):
            if index:
                time.sleep(pause)
            list(gather(client, f"$SYS.REQ.SERVER.{server}.KICK", {"cid": cid}, 1))
    if session.as_json:
        print_json({"moved": count, "servers": {each: len(cids) for each, cids in surplus.items()}})
    else:
        print_facts("Balanced", [("Connections moved", str(count))])


def _surplus(
    servers: Live,
    wanted: Mapping[str, Any],
    kinds: Sequence[str],
    idle_ns: int,
    own: tuple[str, int],
) -> dict[str, list[int]]:
    """The connections that each server, by ID, has above the average of its cluster; never ``own``."""
    found: dict[tuple[str, str], list[int]] = {
        (each.cluster, str(each.server["id"])): [] for each in servers.ask("VARZ")
    }
    for answer, each in connections(servers, {**wanted, "sort": "cid"}):
        key = (answer.cluster, str(answer.server["id"]))
        mine = own == (key[1], each["cid"])
        if each.get("kind", "Client") in kinds and _idle_ns(each) >= idle_ns and not mine:
            found.setdefault(key, []).append(int(each["cid"]))
    surplus = {}
    for cluster, server in found:
        sizes = [len(cids) for (name, _), cids in found.items() if name == cluster]
        average = -(-sum(sizes) // len(sizes))
        cids = found[cluster, server]
        if len(cids) > average:
            surplus[server] = cids[average:]  # the newest ones
    return surplus


_DAYS = re.compile(r"(?:(\d+)y)?(?:(\d+)d)?(.*)")


def _idle_ns(connection: Mapping[str, Any]) -> int:
    """How long the connection was idle: 3d4h5m6s, in nanoseconds."""
    match = _DAYS.fullmatch(str(connection.get("idle") or "0s"))
    if match is None:
        return 0
    days = int(match[1] or 0) * 365 + int(match[2] or 0)
    try:
        return days * 86_400_000_000_000 + (parse_duration(match[3]) if match[3] else 0)
    except ValueError:
        return 0
