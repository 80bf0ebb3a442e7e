"""``pelton server request``: the pages of running servers, or of an audit archive, as the servers wrote them.

Each server's answer is one line of JSON; with ``--json`` all answers are one list.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pelton.cli.output import print_json, print_json_line
from pelton.cli.server.asking import Answer, Live, Where, gather, source
from pelton.cli.session import Session, command
from pelton.cli.values import WHOLE, Whole, Word

if TYPE_CHECKING:
    from collections.abc import Mapping

F = TypeVar("F", bound=Callable[..., Any])

_SORTS = ("cid", "start", "subs", "pending", "msgs_to", "msgs_from", "bytes_to", "bytes_from")
_MORE_SORTS = ("last", "idle", "uptime", "stop", "reason", "rtt")
STATES = {"open": 0, "closed": 1, "all": 2}
_ARCHIVE = click.option(
    "--archive",
    type=click.Path(exists=True, dir_okay=False),
    default=None,
    help="Read an audit archive instead.",
)


def page_options(function: F) -> F:
    """Which records of a long answer are asked for."""
    function = click.option("--offset", default=0, help="Skip so many records.")(function)
    return click.option(
        "--limit", default=2048, show_default=True, help="At most so many records."
    )(function)


def server_options(function: F) -> F:
    """Which servers are asked."""
    for option in (
        click.option("--tags", multiple=True, metavar="TAG", help="Only servers with this tag."),
        click.option("--cluster", default="", help="Only servers of this cluster."),
        click.option("--host", default="", help="Only servers on this host."),
        click.option("--name", default="", help="Only the server with this name or ID."),
    ):
        function = option(function)
    return function


def _request(page: str) -> Callable[[F], click.Command]:
    """A command that asks for a page; the function makes the request of the options."""

    def wrap(function: F) -> click.Command:
        @click.argument("wait", type=Whole(1), required=False)
        @page_options
        @server_options
        @_ARCHIVE
        @command
        @click.pass_obj
        def asked(session: Session, /, **given: Any) -> int:
            limit, offset = given.pop("limit"), given.pop("offset")
            where = Where(
                given.pop("name"),
                given.pop("host"),
                given.pop("cluster"),
                given.pop("tags"),
                given.pop("wait") or 0,
                given.pop("archive") or "",
            )
            only_some = given.pop("filter_empty", False)
            wanted = function(**given)
            if "offset" in wanted:
                wanted |= {"offset": offset, "limit": limit}
            with source(session, where) as servers:
                answers = servers.ask(page, wanted)
            if only_some:
                answers = [each for each in answers if each.data.get("num_connections")]
            return show(session, answers)

        asked.__name__, asked.__doc__ = function.__name__, function.__doc__
        found = click.command()(asked)
        found.params += click.command()(function).params
        return found

    return wrap


def show(session: Session, answers: list[Answer]) -> int:
    """Print the answers; the exit status, 1 if a server refused."""
    if session.form == "json":
        print_json([each.whole for each in answers])
    else:
        for each in answers:
            print_json_line(each.whole)
    return 1 if any(each.error for each in answers) else 0


@_request("VARZ")
def variables() -> Mapping[str, Any]:
    """Print the variables of servers; WAIT is how many answers to wait for."""
    return {}


@_request("CONNZ")
@click.option(
    "--sort",
    type=Word(_SORTS + _MORE_SORTS),
    default="cid",
    show_default=True,
    help="Order.",
)
@click.option("--subscriptions", is_flag=True, help="With the subscriptions.")
@click.option("--filter-cid", type=WHOLE, default=0, help="Only the connection with this ID.")
@click.option(
    "--filter-state",
    type=Word(list(STATES)),
    default="open",
    show_default=True,
    help="State.",
)
@click.option("--filter-user", default="", help="Only connections of this user.")
@click.option("--filter-account", default="", help="Only connections of this account.")
@click.option("--filter-subject", default="", help="Only those that listen to this subject.")
@click.option("--filter-empty", is_flag=True, help="Leave out servers without connections.")
def connections(
    sort: str,
    subscriptions: bool,
    filter_cid: int,
    filter_state: str,
    filter_user: str,
    filter_account: str,
    filter_subject: str,
) -> Mapping[str, Any]:
    """Print the connections of servers; WAIT is how many answers to wait for."""
    return {
        "sort": sort,
        "auth": True,
        "subscriptions": subscriptions,
        "subscriptions_detail": subscriptions,
        "cid": filter_cid,
        "state": STATES[filter_state],
        "user": filter_user,
        "acc": filter_account,
        "filter_subject": filter_subject,
        "offset": 0,
    }


@_request("SUBSZ")
@click.option("--detail", is_flag=True, help="With the subscriptions.")
@click.option("--filter-account", default="", help="Only those of this account.")
@click.option("--filter-subject", default="", help="Only those that get this subject.")
def subscriptions(detail: bool, filter_account: str, filter_subject: str) -> Mapping[str, Any]:
    """Print how many subscriptions servers have; WAIT is how many answers to wait for."""
    return {
        "subscriptions": detail,
        "account": filter_account,
        "test": filter_subject,
        "offset": 0,
    }


@_request("ACCOUNTZ")
@click.option("--account", default="", help="Details of this account.")
def accounts(account: str) -> Mapping[str, Any]:
    """Print the accounts of servers, or one with its details."""
    return {"account": account}


@_request("ROUTEZ")
@click.option("--subscriptions", is_flag=True, help="With the subscriptions.")
def routes(subscriptions: bool) -> Mapping[str, Any]:
    """Print the routes of servers."""
    return {"subscriptions": subscriptions, "subscriptions_detail": subscriptions}


@_request("LEAFZ")
@click.option("--subscriptions", is_flag=True, help="With the subscriptions.")
@click.option("--account", default="", help="Only leaf nodes of this account.")
def leafnodes(subscriptions: bool, account: str) -> Mapping[str, Any]:
    """Print the leaf nodes of servers."""
    return {"subscriptions": subscriptions, "account": account}


@_request("GATEWAYZ")
@click.argument("filter_name", metavar="[GATEWAY]", default="")
@click.option("--filter-account", default="", help="Details of this account.")
@click.option("--accounts", is_flag=True, help="With the accounts.")
@click.option(
    "--subscriptions/--no-subscriptions", default=True, help="With the account's subscriptions."
)
def gateways(
    filter_name: str, filter_account: str, accounts: bool, subscriptions: bool
) -> Mapping[str, Any]:
    """Print the gateways of servers, or the GATEWAY with this name."""
    detailed = bool(filter_account) and subscriptions
    return {
        "name": filter_name,
        "accounts": accounts or bool(filter_account),
        "account_name": filter_account,
        "subscriptions": detailed,
        "subscriptions_detail": detailed,
    }


@_request("JSZ")
@click.option("--account", default="", help="Only this account.")
@click.option("--accounts", is_flag=True, help="With the accounts.")
@click.option("--streams", is_flag=True, help="With the streams.")
@click.option("--consumer", is_flag=True, help="With the consumers.")
@click.option("--config", is_flag=True, help="With the configurations.")
@click.option("--raft", is_flag=True, help="With the groups of copies.")
@click.option("--leader", is_flag=True, help="Only the leader of the cluster answers.")
@click.option("--stream-leader", is_flag=True, help="Only leaders of streams answer.")
@click.option(
    "--all", "all_", is_flag=True, help="With accounts, streams, consumers, configurations."
)
def jetstream(
    account: str,
    accounts: bool,
    streams: bool,
    consumer: bool,
    config: bool,
    raft: bool,
    leader: bool,
    stream_leader: bool,
    all_: bool,
) -> Mapping[str, Any]:
    """Print the streams, consumers and usage of JetStream on servers."""
    return {
        "account": account,
        "accounts": accounts or all_,
        "streams": streams or all_,
        "consumer": consumer or all_,
        "config": config or all_,
        "raft": raft or all_,
        "leader_only": leader,
        "stream_leader_only": stream_leader,
        "offset": 0,
    }


def health_scope(function: F) -> F:
    """What a request for the health of servers looks at."""
    function = click.option(
        "-S",
        "--server-only/--no-server-only",
        default=False,
        help="Look at no streams and consumers.",
    )(function)
    return click.option(
        "-J", "--js-enabled/--no-js-enabled", default=False, help="Servers must have JetStream."
    )(function)


@_request("HEALTHZ")
@health_scope
@click.option("--account", default="", help="Look at this account only.")
@click.option("--stream", default="", help="Look at this stream only.")
@click.option("--consumer", default="", help="Look at this consumer only.")
@click.option("--details/--no-details", default=True, help="With details about each failure.")
def health(
    js_enabled: bool, server_only: bool, account: str, stream: str, consumer: str, details: bool
) -> Mapping[str, Any]:
    """Print the health of servers and their JetStream."""
    return health_request(js_enabled, server_only, account, stream, consumer, details=details)


def health_request(
    js_enabled: bool,
    server_only: bool,
    account: str,
    stream: str,
    consumer: str,
    *,
    details: bool = True,
) -> Mapping[str, Any]:
    """The request for a server's health."""
    return {
        "js-enabled-only": js_enabled,
        "js-server-only": server_only,
        "account": account,
        "stream": stream,
        "consumer": consumer,
        "details": details,
    }


@_request("RAFTZ")
@click.option("--account", default="", help="Only groups of this account.")
@click.option("--group", default="", help="Only this group.")
def raft(account: str, group: str) -> Mapping[str, Any]:
    """Print the groups of copies of servers."""
    return {"account": account, "group": group}


@_request("IPQUEUESZ")
@click.option("--all/--no-all", "all_", default=True, help="Also queues that are empty.")
@click.option("--filter", "filter_", default="", help="Only queues with this in their name.")
def ipqueue(all_: bool, filter_: str) -> Mapping[str, Any]:
    """Print the queues inside of servers."""
    return {"all": all_, "filter": filter_}


@click.command()
@click.argument("client", type=Whole(1))
@click.argument("server")
@server_options
@page_options
@command
@click.pass_obj
def kick(
    session: Session,
    /,
    client: int,
    server: str,
    name: str,
    host: str,
    cluster: str,
    tags: tuple[str, ...],
    **_: int,
) -> int:
    """Disconnect the connection CLIENT from the server with the ID SERVER. It may connect again.

    With --name, --host, --cluster or --tags only if the server is one of these.
    """
    with session.connect() as connection:
        where = Where(name, host, cluster, tags)
        if where.filters():
            known = Live(connection, where).ask("VARZ")
            if all(each.server.get("id") != server for each in known):
                raise click.ClickException(f"the options leave out the server {server}")
        subject = f"$SYS.REQ.SERVER.{server}.KICK"
        (answer,) = gather(connection, subject, {"cid": client}, 1)
    if answer.error:
        raise click.ClickException(f"{answer.name}: {answer.error}")
    print(json.dumps(answer.whole, indent=2))
    return 0
