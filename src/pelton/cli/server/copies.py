"""``pelton server stream-check`` and ``consumer-check``: whether the copies in a cluster are the same.

Each server reports its copies of streams and consumers; the copies of one stream are compared with
each other.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pelton.cli.output import number, print_json, size
from pelton.cli.server.asking import Answer, Where, gather, sound, source
from pelton.cli.server.reporting import Column, Row, Table
from pelton.cli.session import Session, command
from pelton.cli.values import Whole
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pelton.cli.server.asking import Source

F = TypeVar("F", bound=Callable[..., Any])

IN_SYNC = "IN SYNC"
_PAGE = 1024
_WANTED = {"accounts": True, "streams": True, "raft": True}


@dataclass(frozen=True)
class Asked:
    """The copies that a check compares."""

    stream: str
    consumer: str
    raft_group: str
    health: bool
    expected: int
    unsynced: bool
    stdin: bool
    read_timeout: int
    csv: bool
    archive: str | None


def _options(function: F) -> F:
    options = (
        click.option("--stream", default="", help="Only this stream."),
        click.option("--raft-group", default="", help="Only this group of copies."),
        click.option(
            "--health", is_flag=True, help="Also ask each server whether its copy is healthy."
        ),
        click.option("--expected", type=Whole(0), default=0, help="Number of servers."),
        click.option("--unsynced", is_flag=True, help="Only copies that are not the same."),
        click.option(
            "--stdin", is_flag=True, help="Read what server request jetstream --all has printed."
        ),
        click.option(
            "--read-timeout",
            type=Whole(1),
            default=5,
            show_default=True,
            help="Seconds to wait for servers.",
        ),
        click.option("--csv", is_flag=True, help="The same as --format csv."),
        click.option(
            "--archive",
            type=click.Path(exists=True, dir_okay=False),
            default=None,
            help="Read an audit archive instead.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.command("stream-check")
@_options
@command
@click.pass_obj
def stream_check(session: Session, /, **given: Any) -> int:
    """Compare the copies of streams on all servers. Needs a user of the system account.

    Ends with 1 if a copy is not the same as the others, or has no leader.
    """
    return _check(session, Asked(consumer="", **given), _stream_copies, _stream_state, _STREAM)


@click.command("consumer-check")
@_options
@click.option("--consumer", default="", help="Only this consumer.")
@command
@click.pass_obj
def consumer_check(session: Session, /, **given: Any) -> int:
    """Compare the copies of consumers on all servers. Needs a user of the system account.

    Ends with 1 if a copy is not the same as the others, or has no leader.
    """
    return _check(session, Asked(**given), _consumer_copies, _consumer_state, _CONSUMER)


def _check(
    session: Session,
    asked: Asked,
    copies: Callable[[Answer, Row, Row], Iterator[Row]],
    state: Callable[[Row], Any],
    columns: Sequence[Column],
) -> int:
    if asked.health and (asked.archive or asked.stdin):
        raise click.UsageError("--health needs running servers")
    if asked.stdin and asked.archive:
        raise click.UsageError("--stdin and --archive exclude each other")
    if asked.csv:
        session.choose_form("csv")
    session.timeout = max(session.timeout, asked.read_timeout * 1_000_000_000)
    answers = _answers(session, asked)
    if asked.expected and len(answers) < asked.expected:
        text = f"{len(answers)} servers of {asked.expected} answer"
        click.echo(f"pelton: {text}", err=True)
    rows = judged(
        [
            each
            for answer in answers
            for account in answer.data.get("account_details") or ()
            for stream in account.get("stream_detail") or ()
            for each in copies(answer, account, stream)
        ],
        state,
    )
    rows = [each for each in rows if _wanted(each, asked)]
    if asked.health:
        _add_health(session, rows)
    if session.as_json:
        print_json(rows)
    else:
        shown_columns = [*columns, *([Column("Health", "health")] if asked.health else [])]
        Table(shown_columns, rows).print()
    bad = any(each["status"] != IN_SYNC or each.get("health", "ok") != "ok" for each in rows)
    return 1 if bad or len(answers) < asked.expected else 0


def _wanted(row: Row, asked: Asked) -> bool:
    return (
        asked.stream in ("", row["stream"])
        and asked.consumer in ("", row.get("consumer", ""))
        and asked.raft_group in ("", row["raft_group"])
        and not (asked.unsynced and row["status"] == IN_SYNC)
    )


def _answers(session: Session, asked: Asked) -> list[Answer]:
    if asked.stdin:
        return list(_documents(sys.stdin.read()))
    with source(session, Where(expect=asked.expected, archive=asked.archive or "")) as servers:
        if asked.archive:
            return sound(servers.ask("JSZ", _WANTED))
        return _pages(servers)


def _documents(text: str) -> Iterator[Answer]:
    """The answers in a text of JSON documents; UsageError."""
    decoder, at = json.JSONDecoder(), 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        try:
            found, at = decoder.raw_decode(text, at)
        except ValueError as error:
            raise click.UsageError(f"standard input: {error}") from None
        for each in found if isinstance(found, list) else [found]:
            if not isinstance(each, dict) or not isinstance(each.get("data"), dict):
                raise click.UsageError(
                    "standard input is not the output of server request jetstream"
                )
            yield Answer(each)


def _pages(servers: Source) -> list[Answer]:
    """The copies of all servers, for any number of accounts."""
    wanted = {**_WANTED, "consumer": True, "config": True, "limit": _PAGE}
    found: list[Answer] = []
    for offset in range(0, sys.maxsize, _PAGE):
        answers = sound(servers.ask("JSZ", {**wanted, "offset": offset}))
        found += answers
        if all(len(each.data.get("account_details") or ()) < _PAGE for each in answers):
            return found
    return found


def _copy(answer: Answer, account: Row, stream: Row, cluster: Row, group: str) -> dict[str, Any]:
    replicas = [
        {name: each.get(name) for name in ("name", "current", "offline", "lag")}
        for each in cluster.get("replicas") or ()
    ]
    return {
        "account": account.get("name", ""),
        "account_id": account.get("id", ""),
        "stream": stream.get("name", ""),
        "raft_group": group or cluster.get("raft_group") or "",
        "server": answer.name,
        "server_id": answer.server.get("id", ""),
        "leader": cluster.get("leader") or "",
        "clustered": bool(group or cluster.get("raft_group") or replicas),
        "replicas": replicas,
    }


def _stream_copies(answer: Answer, account: Row, stream: Row) -> Iterator[Row]:
    cluster = stream.get("cluster") or {}
    state = stream.get("state") or {}
    yield {
        **_copy(answer, account, stream, cluster, stream.get("stream_raft_group") or ""),
        **{name: state.get(name) or 0 for name in _STREAM_STATE},
    }


def _consumer_copies(answer: Answer, account: Row, stream: Row) -> Iterator[Row]:
    groups = {each.get("name"): each for each in stream.get("consumer_raft_groups") or ()}
    for each in stream.get("consumer_detail") or ():
        name = each.get("name", "")
        group = (groups.get(name) or {}).get("raft_group") or ""
        places = {
            f"{what}_{which}": (each.get(what) or {}).get(which) or 0
            for what in ("delivered", "ack_floor")
            for which in ("stream_seq", "consumer_seq")
        }
        yield {
            **_copy(answer, account, stream, each.get("cluster") or {}, group),
            "consumer": name,
            **places,
            **{name: each.get(name) or 0 for name in _CONSUMER_COUNTS},
        }


_STREAM_STATE = (
    *(
        "messages",
        "bytes",
        "num_subjects",
        "num_deleted",
        "consumer_count",
        "first_seq",
        "last_seq",
    ),
)
_CONSUMER_COUNTS = ("num_ack_pending", "num_redelivered", "num_waiting", "num_pending")


def _stream_state(row: Row) -> Any:
    return row["messages"], row["bytes"], row["first_seq"], row["last_seq"]


def _consumer_state(row: Row) -> Any:
    # what waits and is pending only the leader knows
    return tuple(
        row[f"{what}_{which}"]
        for what in ("delivered", "ack_floor")
        for which in ("stream_seq", "consumer_seq")
    )


def judged(copies: Sequence[Row], state: Callable[[Row], Any]) -> list[dict[str, Any]]:
    """The copies in order, each with a status: those of one stream or consumer are compared."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for each in copies:
        key = (each["account"], each["stream"], each.get("consumer", ""))
        groups.setdefault(key, []).append(each)
    found: list[dict[str, Any]] = []
    for _, group in sorted(groups.items()):
        leaders = {each["leader"] for each in group} - {""}
        states = {state(each) for each in group}
        found += [
            {
                **each,
                "is_leader": each["leader"] == each["server"],
                "status": _status(each, leaders, states),
            }
            for each in sorted(group, key=lambda row: str(row["server"]))
        ]
    return found


def _status(copy: Row, leaders: set[str], states: set[Any]) -> str:
    if copy["clustered"] and not copy["leader"]:
        return "LEADERLESS"
    if len(leaders) > 1:
        return "MULTILEADER"
    itself = copy["leader"] == copy["server"]
    if itself and any(each["name"] == copy["server"] for each in copy["replicas"]):
        return "LEADER_IS_FOLLOWER"
    if len(states) > 1:
        return "UNSYNCED"
    return IN_SYNC


def _add_health(session: Session, rows: Sequence[dict[str, Any]]) -> None:
    """Ask each server for the health of its copies."""
    with session.connect() as client:
        for row in rows:
            wanted = {
                name: row[name] for name in ("account", "stream", "consumer") if row.get(name)
            }
            subject = f"$SYS.REQ.SERVER.{row['server_id']}.HEALTHZ"
            try:
                (answer,) = gather(client, subject, wanted, 1)
            except click.ClickException as error:
                row["health"] = shown(error.format_message())
                continue
            data = answer.data
            row["health"] = "ok" if data.get("status") == "ok" else str(data.get("error") or "bad")


def _peers(replicas: Any) -> str:
    def text(each: Row) -> str:
        words = [] if each["current"] else [f"{number(each.get('lag') or 0)} behind"]
        words += ["offline"] if each["offline"] else []
        return f"{each['name']} ({', '.join(words) or 'current'})"

    return ", ".join(text(each) for each in replicas)


_BEFORE = (Column("Raft", "raft_group"), Column("Account", "account"), Column("Server", "server"))
_BEHIND = (
    Column("Status", "status"),
    Column("Leader", "leader"),
    Column("Copies", "replicas", _peers),
)
_STREAM = (
    Column("Stream", "stream"),
    *_BEFORE,
    Column("Messages", "messages", number),
    Column("Bytes", "bytes", size),
    Column("Subjects", "num_subjects", number),
    Column("Deleted", "num_deleted", number),
    Column("Consumers", "consumer_count", number),
    Column("First", "first_seq", number),
    Column("Last", "last_seq", number),
    *_BEHIND,
)
_CONSUMER = (
    Column("Consumer", "consumer"),
    Column("Stream", "stream"),
    *_BEFORE,
    Column("Delivered", "delivered_stream_seq", number),
    Column("Ack floor", "ack_floor_stream_seq", number),
    Column("Ack pending", "num_ack_pending", number),
    Column("Redelivered", "num_redelivered", number),
    Column("Unprocessed", "num_pending", number),
    *_BEHIND,
)
