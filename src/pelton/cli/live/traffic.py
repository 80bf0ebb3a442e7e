"""``pelton traffic``: messages per second by kind of subject."""

from __future__ import annotations

import time
from collections import Counter, deque

import click

from pelton.cli.live.screen import Screen, opened, table
from pelton.cli.messages.showing import arrived, hear_out
from pelton.cli.output import number, print_json_line, print_table, size
from pelton.cli.session import Session, command
from pelton.cli.values import Real, Whole

KINDS = {
    "requests": "Requests",
    "js_api": "JS API",
    "js_ack": "JS acks",
    "system": "System",
    "raft": "Raft",
    "cluster": "Cluster",
    "other": "Other",
}
COLUMNS = [*KINDS.values(), "Messages", "Bytes"]
_PREFIXES = (
    ("$SYS.", "system"),
    ("$JSC.", "cluster"),
    ("$NRG.", "raft"),
    ("$JS.ACK.", "js_ack"),
    ("$JS.API.", "js_api"),
)
_KEPT = 20
_PENDING = 1 << 30


def kind_of(subject: str, reply: str) -> str:
    """The kind of a message."""
    for prefix, kind in _PREFIXES:
        if subject.startswith(prefix):
            return kind
    return "requests" if reply else "other"


@click.command()
@click.argument("subjects", nargs=-1, metavar="[SUBJECT]...")
@click.option("-n", "--count", default=0, type=Whole(0), help="End after this many rows.")
@click.option(
    "-d",
    "--interval",
    type=Real(0.1, 86_400),
    default=1.0,
    show_default=True,
    help="Seconds of a row.",
)
@command
@click.pass_obj
def traffic(session: Session, subjects: tuple[str, ...], count: int, interval: float) -> None:
    """Count the messages on SUBJECT (all) each second, by kind: requests, acks, system ...

    The server sends all of these messages to this command: it costs as much as any subscriber. Acks of
    clustered streams and Raft are seen by a user of the system account.
    """
    rows: deque[dict[str, int]] = deque(maxlen=_KEPT)
    shown_rows = 0
    with session.connect(lasting=True) as client:
        # messages of a subject that several patterns match count several times
        listening = [
            client.subscribe(each, pending_messages_max=_PENDING, pending_bytes_max=_PENDING)
            for each in subjects or (">",)
        ]
        hear_out(client)
        with opened(wanted=not session.as_json and session.form == "table") as screen:
            while not count or shown_rows < count:
                counts: Counter[str] = Counter()

                def take(seconds: float, counts: Counter[str] = counts) -> None:
                    until = time.monotonic() + seconds
                    while (left := until - time.monotonic()) > 0:
                        client.wait_until(lambda: any(each.pending for each in listening), left)
                        for each in listening:
                            for message in arrived(each):
                                counts[kind_of(message.subject, message.reply)] += 1
                                counts["bytes"] += len(message.data)

                started = time.monotonic()
                take(0.001)
                if screen.wait(interval, take) == "q":
                    return
                seconds = time.monotonic() - started
                rows.append({name: round(n / seconds) for name, n in counts.items()})
                shown_rows += 1
                _show(session, screen, rows, first=shown_rows == 1)


def _cells(row: dict[str, int]) -> list[str]:
    messages = sum(row.get(name, 0) for name in KINDS)
    return [
        *(number(row.get(name, 0)) for name in KINDS),
        number(messages),
        size(row.get("bytes", 0)),
    ]


def _show(session: Session, screen: Screen, rows: deque[dict[str, int]], *, first: bool) -> None:
    last = rows[-1]
    right = frozenset(COLUMNS)
    if session.as_json:
        messages = sum(last.get(name, 0) for name in KINDS)
        kinds = {name: last.get(name, 0) for name in KINDS}
        print_json_line({**kinds, "messages": messages, "bytes": last.get("bytes", 0)})
    elif screen.is_terminal:
        screen.draw(
            table("Messages per second", COLUMNS, [_cells(row) for row in rows], right=right)
        )
    elif session.form == "table":
        cells = [cell.rjust(12) for cell in _cells(last)]
        if first:
            print("".join(name.rjust(12) for name in COLUMNS))
        print("".join(cells), flush=True)
    else:
        print_table(COLUMNS, [_cells(last)], right=right)
        print(end="", flush=True)
