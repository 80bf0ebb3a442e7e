"""``pelton counter``: the counters of streams that have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pelton.cli.output import moment, number, print_facts, print_json, print_table
from pelton.cli.session import Session, command

if TYPE_CHECKING:
    from pelton.client.stored import CounterEntry
    from pelton.client.sync.jetstream import JetStream
    from pelton.client.sync.stored import Counter

_SUBJECT = click.argument("subject")
_STREAM = click.option("--stream", default="", help="Stream of the counter; found by its subject.")


def _counter(js: JetStream, stream: str, subject: str) -> Counter:
    """The counters of the stream, or of the one that has the subject."""
    from pelton.errors import StreamNotFoundError

    try:
        return js.counter(stream or js.stream_name_by_subject(subject))
    except StreamNotFoundError:
        raise click.ClickException(f"no stream has the subject {subject}") from None


def _whole(text: str) -> int:
    """A whole number of any size; BadParameter."""
    from pelton.client.stored import number_of
    from pelton.errors import ProtocolError

    try:
        return number_of(text)
    except ProtocolError:
        raise click.BadParameter(f'"{text[:40]}" is not a whole number') from None


@click.command()
@_SUBJECT
@_STREAM
@command
@click.pass_obj
def get(session: Session, subject: str, stream: str) -> None:
    """Print the value of the counter SUBJECT."""
    entry = _entry(session, subject, stream)
    _print_value(session, subject, entry.value)


@click.command()
@_SUBJECT
@_STREAM
@command
@click.pass_obj
def view(session: Session, subject: str, stream: str) -> None:
    """Show the counter SUBJECT with its last increment, and the counters that it sums up."""
    entry = _entry(session, subject, stream)
    if session.as_json:
        print_json(entry_data(entry))
        return
    increment = "" if entry.increment is None else f"{_digits(entry.increment)}"
    print_facts(
        f"Counter {entry.subject}",
        [
            ("Value", _digits(entry.value)),
            ("Last increment", increment),
            ("Sequence", number(entry.seq)),
            ("Time", moment(entry.timestamp_ns)),
            *(
                (f"{name} {source}", _digits(value))
                for name, values in entry.sources.items()
                for source, value in values.items()
            ),
        ],
    )


def _entry(session: Session, subject: str, stream: str) -> CounterEntry:
    from pelton.errors import MessageNotFoundError

    with session.connect() as client:
        js = session.jetstream(client)
        try:
            return _counter(js, stream, subject).load(subject)
        except MessageNotFoundError:
            raise click.ClickException(f"nothing was added to {subject} yet") from None


@click.command(context_settings={"ignore_unknown_options": True})
@_SUBJECT
@click.argument("value", default="1")
@_STREAM
@click.option("--id", "msg_id", default=None, help="Message id: the same id counts once.")
@command
@click.pass_obj
def increment(session: Session, subject: str, value: str, stream: str, msg_id: str | None) -> None:
    """Add VALUE, which may be negative, to the counter SUBJECT, and print the new value."""
    _add(session, subject, _whole(value), stream, msg_id)


@click.command(context_settings={"ignore_unknown_options": True})
@_SUBJECT
@click.argument("value", default="1")
@_STREAM
@click.option("--id", "msg_id", default=None, help="Message id: the same id counts once.")
@command
@click.pass_obj
def decrement(session: Session, subject: str, value: str, stream: str, msg_id: str | None) -> None:
    """Subtract VALUE from the counter SUBJECT, and print the new value."""
    _add(session, subject, -_whole(value), stream, msg_id)


def _add(session: Session, subject: str, by: int, stream: str, msg_id: str | None) -> None:
    with session.connect() as client:
        counter = _counter(session.jetstream(client), stream, subject)
        value = counter.increment(subject, by, msg_id=msg_id)
    _print_value(session, subject, value)


def _digits(value: int) -> str:
    """All digits of a number, however many."""
    from decimal import Decimal

    return f"{Decimal(value):f}"


def _print_value(session: Session, subject: str, value: int) -> None:
    if session.as_json:
        print_json({"subject": subject, "value": _digits(value)})
    else:
        print(_digits(value))


@click.command()
@click.argument("subject", default="")
@_STREAM
@click.option("--names", is_flag=True, help="Only the subjects.")
@command
@click.pass_obj
def ls(session: Session, subject: str, stream: str, names: bool) -> None:
    """List the counters of --stream whose subjects match SUBJECT, with their values."""
    if not stream and not subject:
        raise click.UsageError("give a SUBJECT or --stream")
    with session.connect() as client:
        js = session.jetstream(client)
        counter = _counter(js, stream, subject)
        state = js.stream_info(counter.stream, subjects_filter=subject or ">").state
        subjects = sorted(state.subjects)
        only_names = names or session.as_json  # as with nats; get --json prints a value
        found = [] if only_names else [counter.load(each) for each in subjects]
    if session.as_json:
        print_json(subjects)
    elif names:
        print("".join(f"{each}\n" for each in subjects), end="")
    else:
        rows = [(each.subject, _digits(each.value), moment(each.timestamp_ns)) for each in found]
        print_table(("Counter", "Value", "Time"), rows, right=frozenset(("Value",)))


def entry_data(entry: CounterEntry) -> dict[str, object]:
    """A counter in JSON. Numbers are texts, because they have any size."""
    return {
        "subject": entry.subject,
        "value": _digits(entry.value),
        "increment": None if entry.increment is None else _digits(entry.increment),
        "seq": entry.seq,
        "time": moment(entry.timestamp_ns),
        "sources": {
            name: {subject: _digits(value) for subject, value in values.items()}
            for name, values in entry.sources.items()
        },
    }
