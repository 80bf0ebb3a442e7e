"""``pelton stream ls``, ``info``, ``state``, ``rm`` and ``purge``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from pelton.cli.failures import DONE, FAILED
from pelton.cli.output import (
    age,
    as_data,
    duration,
    limit,
    moment,
    number,
    plural,
    print_facts,
    print_json,
    print_names,
    print_table,
    print_unavailable,
    size,
    size_limit,
)
from pelton.cli.prompts import NO_SELECT, Asked, confirm
from pelton.cli.session import OFFLINE, Session, check_readable, command
from pelton.cli.values import Whole

if TYPE_CHECKING:
    from pelton.client.base.models import StreamConfig, StreamInfo, StreamSource
    from pelton.client.sync.jetstream import JetStream


@click.command()
@click.option("--subject", default=None, help="Only streams with this subject.")
@click.option("-n", "--names", is_flag=True, help="Only the names.")
@click.option("-a", "--all", "everything", is_flag=True, help="Accepted; all are always listed.")
@command
@click.pass_obj
def ls(session: Session, subject: str | None, names: bool, everything: bool) -> int:
    """List streams. Offline ones have the reason, and give exit status 1.

    --json prints the names; stream report --json prints everything.
    """
    with session.connect() as client:
        jetstream = session.jetstream(client)
        if names or session.as_json:  # JSON has the names, as with nats; report has the rest
            print_names(session, jetstream.stream_names(subject))
            return DONE
        listing = jetstream.stream_listing(subject)
    now_ns = time.time_ns()
    rows = [
        (
            info.config.name,
            ", ".join(info.config.subjects),
            info.config.storage,
            number(info.state.messages),
            size(info.state.bytes),
            number(info.state.consumer_count),
            age(info.state.last_ts, now_ns),
        )
        for info in listing.found
    ]
    columns = ("Name", "Subjects", "Storage", "Messages", "Size", "Consumers", "Last")
    print_table(columns, rows, right=frozenset(columns[3:]))
    if listing.unavailable:
        print_unavailable("streams", listing.unavailable)
        return FAILED
    return DONE


@click.command()
@click.argument("name", cls=Asked)
@click.option("--subjects", default=None, help="Also count messages of matching subjects.")
@click.option("--state", "only_state", is_flag=True, help="Only the state.")
@NO_SELECT
@command
@click.pass_obj
def info(session: Session, name: str, subjects: str | None, only_state: bool) -> None:
    """Show the stream NAME."""
    with session.connect() as client:
        js = session.jetstream(client)
        found = present_stream(session, js, name, subjects)
        if session.of_2020 and session.as_json and not (subjects or only_state):
            from pelton.cli.early.nats import print_data

            print_data(client, f"$JS.STREAM.{name}.INFO")
            return
    show_state(session, found) if only_state else show(session, found)
    if subjects and not session.as_json:
        rows = sorted(found.state.subjects.items(), key=lambda row: (-row[1], row[0]))
        counts = [(subject, number(count)) for subject, count in rows]
        print_table(("Subject", "Messages"), counts, right=frozenset(("Messages",)))


@click.command()
@click.argument("name", cls=Asked)
@NO_SELECT
@command
@click.pass_obj
def state(session: Session, name: str) -> None:
    """Show the state of the stream NAME."""
    with session.connect() as client:
        show_state(session, session.jetstream(client).stream_info(name))


def present_stream(
    session: Session, js: JetStream, name: str, subjects: str | None = None
) -> StreamInfo:
    """The info of a stream, with counts of matching subjects; ApiError if it is not there."""
    if session.of_2020:
        from pelton.cli.early.nats import pick

        return pick(js, name, subjects)
    return js.stream_info(name, subjects_filter=subjects)


def show(session: Session, info: StreamInfo) -> None:
    """A stream with its state."""
    if session.as_json:
        print_json(as_data(info))
        return
    if session.of_2020:
        from pelton.cli.early.pages import stream_page

        print(stream_page(info))
        return
    config = info.config
    print_facts(
        f"Stream {config.name}",
        [
            ("Description", config.description),
            ("Subjects", ", ".join(config.subjects)),
            ("Storage", config.storage),
            ("Compression", config.compression if config.compression != "none" else ""),
            ("Retention", config.retention),
            ("Discard", config.discard),
            ("Replicas", number(config.num_replicas) if config.num_replicas > 1 else ""),
            ("Max messages", limit(config.max_msgs)),
            ("Max bytes", size_limit(config.max_bytes)),
            ("Max age", duration(config.max_age) or "unlimited"),
            ("Max per subject", limit(config.max_msgs_per_subject)),
            ("Max message size", size_limit(config.max_msg_size)),
            ("Max consumers", limit(config.max_consumers) if config.max_consumers > 0 else ""),
            ("Duplicate window", duration(config.duplicate_window)),
            ("Allows", ", ".join(_allowed(config))),
            ("Refuses", ", ".join(_refused(config))),
            ("Mirror of", _origin(config.mirror) if config.mirror else ""),
            ("Sources", ", ".join(_origin(each) for each in config.sources)),
            ("Transform", _transform(config)),
            ("Republish", _republish(config)),
            ("Metadata", ", ".join(f"{k}={v}" for k, v in config.metadata.items())),
            ("Created", moment(info.created)),
        ],
    )
    _print_followed(info)
    _print_cluster(info)
    _print_state(info)


_ALLOWING = {
    "allow_direct": "direct gets",
    "mirror_direct": "direct gets of a mirror",
    "allow_rollup_hdrs": "rollups",
    "allow_msg_ttl": "TTLs",
    "allow_msg_counter": "counters",
    "allow_atomic": "atomic batches",
    "allow_batched": "fast-ingest batches",
    "allow_msg_schedules": "schedules",
}
_REFUSING = {
    "deny_delete": "deletes",
    "deny_purge": "purges",
    "sealed": "everything (sealed)",
    "no_ack": "to acknowledge",
}


def _allowed(config: StreamConfig) -> list[str]:
    return [text for field, text in _ALLOWING.items() if getattr(config, field)]


def _refused(config: StreamConfig) -> list[str]:
    return [text for field, text in _REFUSING.items() if getattr(config, field)]


def _origin(origin: StreamSource) -> str:
    place = f" through {origin.external.api}" if origin.external else ""
    return f"{origin.name}{place}"


def _transform(config: StreamConfig) -> str:
    found = config.subject_transform
    return f"{found.src or '>'} to {found.dest}" if found else ""


def _republish(config: StreamConfig) -> str:
    found = config.republish
    if found is None:
        return ""
    headers = ", headers only" if found.headers_only else ""
    return f"{found.src or '>'} to {found.dest}{headers}"


def _print_followed(info: StreamInfo) -> None:
    """The origins of mirror and sources, and their lag."""
    rows = [
        (each.name, number(each.lag), _active(each.active), each.error.description or "")
        if each.error
        else (each.name, number(each.lag), _active(each.active), "")
        for each in ([info.mirror] if info.mirror else info.sources)
    ]
    if rows:
        print_table(("Origin", "Lag", "Active", "Error"), rows, right=frozenset(("Lag",)))


def _active(ns: int) -> str:
    return "never" if ns < 0 else f"{duration(ns)} ago" if ns else "now"


def _print_cluster(info: StreamInfo) -> None:
    cluster = info.cluster
    if cluster is None or not (cluster.name or cluster.replicas):
        return
    copies = ", ".join(
        f"{each.name} ({'current' if each.current else f'{number(each.lag)} behind'})"
        for each in cluster.replicas
    )
    facts = [("Name", cluster.name), ("Leader", cluster.leader), ("Copies", copies)]
    print_facts("Cluster", facts)


def show_state(session: Session, info: StreamInfo) -> None:
    """Only the state of a stream; in JSON everything, with the state below ``state``."""
    if session.as_json:
        print_json(as_data(info))
        return
    _print_state(info)


def _print_state(info: StreamInfo) -> None:
    state = info.state
    deleted = number(state.num_deleted) if state.num_deleted else ""
    lost = number(len(state.lost.msgs or [])) if state.lost else ""
    print_facts(
        "State",
        [
            ("Messages", number(state.messages)),
            ("Bytes", size(state.bytes)),
            ("First", f"{number(state.first_seq)} {moment(state.first_ts)}".strip()),
            ("Last", f"{number(state.last_seq)} {moment(state.last_ts)}".strip()),
            ("Subjects", number(state.num_subjects)),
            ("Deleted", deleted),
            ("Lost", lost),
            ("Consumers", number(state.consumer_count)),
        ],
    )


@click.command()
@click.argument("name", cls=Asked)
@click.option("-f", "--force", is_flag=True, help="Do not ask.")
@OFFLINE
@command
@click.pass_obj
def rm(session: Session, name: str, force: bool, offline: bool) -> None:
    """Remove the stream NAME with all its messages and consumers.

    An offline stream may become readable again, with its key or on a sound disk, so it is removed
    only with --offline.
    """
    if not force:
        if session.of_2020:
            from pelton.cli.early.nats import sure

            sure(f"Really delete Stream {name}")
        else:
            confirm(f"Really remove stream {name} with all its messages?")
    with session.connect() as client:
        jetstream = session.jetstream(client)
        check_readable(lambda: present_stream(session, jetstream, name), f"stream {name}", offline)
        jetstream.delete_stream(name)
    if session.as_json:
        print_json({"removed": name})
    elif not session.of_2020:
        print(f"removed stream {name}")


@click.command()
@click.argument("name", cls=Asked)
@click.option("--subject", default=None, help="Only messages on this subject.")
@click.option("--seq", type=Whole(1), default=None, help="Only messages below this sequence.")
@click.option("--keep", type=Whole(1), default=None, help="Keep this many of the newest messages.")
@click.option("-f", "--force", is_flag=True, help="Do not ask.")
@command
@click.pass_obj
def purge(
    session: Session,
    name: str,
    subject: str | None,
    seq: int | None,
    keep: int | None,
    force: bool,
) -> None:
    """Remove the messages of the stream NAME: all, or those that options say."""
    if not force:
        confirm(f"Really remove messages of stream {name}?")
    with session.connect() as client:
        jetstream = session.jetstream(client)
        purged = jetstream.purge_stream(name, filter_subject=subject, seq=seq, keep=keep)
        left = jetstream.stream_info(name) if session.as_json else None
    text = f"removed {plural(purged, 'message')} of stream {name}"
    if left is None:
        print(text)
    else:
        print_json(as_data(left))
        click.echo(text, err=True)
