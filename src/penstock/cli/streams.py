"""``penstock stream``: list, create, show, remove, purge, read."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.failures import DONE, FAILED
from penstock.cli.output import (
    NO_REASON,
    age,
    as_data,
    duration,
    limit,
    moment,
    number,
    payload,
    print_facts,
    print_json,
    print_names,
    print_table,
    print_unavailable,
    readable,
    size,
    size_limit,
)
from penstock.cli.session import OFFLINE, Session, check_readable, command
from penstock.cli.values import DURATION, SIZE
from penstock.core.base.quoting import shown

if TYPE_CHECKING:
    from penstock.client import StreamInfo


@click.command()
@click.option("--subject", default=None, help="Only streams with this subject.")
@click.option("--names", is_flag=True, help="Only the names.")
@command
@click.pass_obj
def ls(session: Session, subject: str | None, names: bool) -> int:
    """List streams. Offline ones have the reason, and give exit status 1."""
    with session.connect() as client:
        jetstream = session.jetstream(client)
        if names:
            print_names(session, jetstream.stream_names(subject))
            return DONE
        listing = jetstream.stream_listing(subject)
    if session.as_json:
        print_json(
            [as_data(info) for info in listing.found]
            + [
                {"config": {"name": name}, "offline": True, "offline_reason": reason or NO_REASON}
                for name, reason in listing.unavailable.items()
            ]
        )
        return FAILED if listing.unavailable else DONE
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
@click.argument("name")
@click.option(
    "--subjects", multiple=True, help="Subjects of the stream (also with commas); default: NAME."
)
@click.option("--description", default="", help="Description of the stream.")
@click.option("--storage", type=click.Choice(["file", "memory"]), default="file", show_default=True)
@click.option(
    "--retention",
    type=click.Choice(["limits", "interest", "workqueue"]),
    default="limits",
    show_default=True,
)
@click.option("--discard", type=click.Choice(["old", "new"]), default="old", show_default=True)
@click.option("--max-msgs", type=int, default=-1, help="Limit of messages.")
@click.option("--max-bytes", type=SIZE, default=-1, help="Limit of bytes.")
@click.option("--max-age", type=DURATION, default=0, help="How long to keep messages.")
@click.option("--max-msgs-per-subject", type=int, default=-1, help="Limit of messages per subject.")
@click.option("--max-msg-size", type=SIZE, default=-1, help="Limit of the size of a message.")
@click.option("--max-consumers", type=int, default=-1, help="Limit of consumers.")
@click.option("--dupe-window", type=DURATION, default=0, help="How long to remember message ids.")
@click.option("--allow-direct/--no-allow-direct", default=False, help="Allow direct gets.")
@command
@click.pass_obj
def add(session: Session, /, name: str, subjects: tuple[str, ...], **fields: Any) -> None:
    """Create the stream NAME."""
    from penstock.client import Nanoseconds, StreamConfig

    fields["duplicate_window"] = fields.pop("dupe_window")
    for span in ("max_age", "duplicate_window"):
        fields[span] = Nanoseconds(fields[span])
    wanted = [part for each in subjects for part in each.replace(",", " ").split()]
    config = StreamConfig(name=name, subjects=wanted, num_replicas=1, **fields)
    with session.connect() as client:
        show(session, session.jetstream(client).create_stream(config))


@click.command()
@click.argument("name")
@click.option("--subjects", default=None, help="Also count messages of matching subjects.")
@command
@click.pass_obj
def info(session: Session, name: str, subjects: str | None) -> None:
    """Show the stream NAME."""
    with session.connect() as client:
        found = session.jetstream(client).stream_info(name, subjects_filter=subjects)
    show(session, found)
    if subjects and not session.as_json:
        rows = sorted(found.state.subjects.items(), key=lambda row: (-row[1], row[0]))
        shown = [(subject, number(count)) for subject, count in rows]
        print_table(("Subject", "Messages"), shown, right=frozenset(("Messages",)))


def show(session: Session, info: StreamInfo) -> None:
    """A stream with its state."""
    if session.as_json:
        print_json(as_data(info))
        return
    config, state = info.config, info.state
    deleted = number(state.num_deleted) if state.num_deleted else ""
    lost = number(len(state.lost.msgs or [])) if state.lost else ""
    print_facts(
        f"Stream {config.name}",
        [
            ("Description", config.description),
            ("Subjects", ", ".join(config.subjects)),
            ("Storage", config.storage),
            ("Retention", config.retention),
            ("Discard", config.discard),
            ("Max messages", limit(config.max_msgs)),
            ("Max bytes", size_limit(config.max_bytes)),
            ("Max age", duration(config.max_age) or "unlimited"),
            ("Max per subject", limit(config.max_msgs_per_subject)),
            ("Max message size", size_limit(config.max_msg_size)),
            ("Duplicate window", duration(config.duplicate_window)),
            ("Created", moment(info.created)),
        ],
    )
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
@click.argument("name")
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
        question = f"Really remove stream {name} with all its messages?"
        click.confirm(question, abort=True, err=True)
    with session.connect() as client:
        jetstream = session.jetstream(client)
        check_readable(lambda: jetstream.stream_info(name), f"stream {name}", offline)
        jetstream.delete_stream(name)
    print_json({"removed": name}) if session.as_json else print(f"removed stream {name}")


@click.command()
@click.argument("name")
@click.option("--subject", default=None, help="Only messages on this subject.")
@click.option(
    "--seq", type=click.IntRange(1), default=None, help="Only messages below this sequence."
)
@click.option(
    "--keep", type=click.IntRange(1), default=None, help="Keep this many of the newest messages."
)
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
    """Remove messages of the stream NAME."""
    if not force:
        click.confirm(f"Really remove messages of stream {name}?", abort=True, err=True)
    with session.connect() as client:
        jetstream = session.jetstream(client)
        purged = jetstream.purge_stream(name, filter_subject=subject, seq=seq, keep=keep)
    if session.as_json:
        print_json({"purged": purged})
    else:
        print(f"removed {number(purged)} messages of stream {name}")


@click.command()
@click.argument("name")
@click.argument("seq", type=click.IntRange(1), required=False)
@click.option("--last-for", "last_for", default=None, help="The newest message on this subject.")
@click.option("-r", "--raw", is_flag=True, help="Only the payload.")
@command
@click.pass_obj
def get(session: Session, name: str, seq: int | None, last_for: str | None, raw: bool) -> None:
    """Print the message with sequence SEQ of the stream NAME."""
    if (seq is None) == (last_for is None):
        raise click.UsageError("give a sequence or --last-for, one of them")
    with session.connect() as client:
        found = session.jetstream(client).get_message(name, seq, last_by_subject=last_for)
    if session.as_json:
        data: dict[str, object] = {
            "subject": found.subject,
            "seq": found.seq,
            "time": moment(found.timestamp_ns),
        }
        if found.headers:
            data["headers"] = found.headers
        print_json(data | payload(found.data))
    elif raw:
        sys.stdout.buffer.write(found.data)
    else:
        print(f"[#{found.seq}] {shown(found.subject)} {moment(found.timestamp_ns)}")
        for header, values in found.headers.items():
            for value in values:
                print(shown(f"{header}: {value}"))
        print(readable(found.data))
