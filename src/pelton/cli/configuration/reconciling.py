"""``pelton drift`` and ``pelton apply --watch``: keep an eye on a server, tell what differs, or mend it.

A look compares the server with the files. The next look comes when a file changes, when an advisory says that a
stream or consumer has, and at the latest after ``--every``. After a failure the program waits, and tries again.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pelton.apply.watching import Event, Glances, Patience, Watch
from pelton.cli.configuration.declaring import (
    CHANGES,
    FILES,
    OWNER,
    PRUNE,
    VARIABLES,
    Command,
    declared_in,
    planned,
    show,
)
from pelton.cli.session import Session, command
from pelton.core.base.quoting import shown
from pelton.errors import ConnectError, ConnectionClosedError, PeltonError, PeltonTimeoutError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.apply.model import Declared
    from pelton.client.sync import Client
    from pelton.client.sync.subscription import Subscription

_ADVISORIES = "$JS.EVENT.ADVISORY.*.*.>"
_TELLING = ("CREATED", "UPDATED", "DELETED", "PAUSE")
_GLANCE_S = 0.25
"""How often files are looked at."""
_GATHER_S = 0.05
"""How long to gather the advisories that come together."""
_COLOURS = {
    "drift": "yellow",
    "agrees": "green",
    "done": "green",
    "failed": "bright_red",
    "held": "bright_red",
}
_DONE = {"create": "created", "update": "updated", "replace": "replaced", "delete": "deleted"}


@dataclass(frozen=True)
class Order:
    """The files and the server to watch, and the allowed changes. ``every_ns``: the longest time between two looks."""

    files: tuple[str, ...]
    variables: tuple[str, ...]
    owner: str
    prune: bool
    enforce: bool
    allow_data_loss: bool
    every_ns: int


def every_option(function: Any) -> Any:
    """``--every``."""
    from pelton.cli.values import DURATION

    return click.option(
        "--every",
        "every_ns",
        type=DURATION,
        default="30s",
        show_default=True,
        help="Look at the server at least this often.",
    )(function)


@click.command(cls=Command)
@FILES
@VARIABLES
@OWNER
@PRUNE
@click.option("--enforce", is_flag=True, help="Change the server back.")
@click.option("--allow-data-loss", is_flag=True, help="Also what loses messages or positions.")
@click.option("--once", is_flag=True, help="Look once.")
@every_option
@command
@click.pass_obj
def drift(
    session: Session,
    files: tuple[str, ...],
    variables: tuple[str, ...],
    owner: str,
    prune: bool,
    enforce: bool,
    allow_data_loss: bool,
    once: bool,
    every_ns: int,
) -> int:
    """Watch whether the server is as FILEs declare; tell each difference when it comes and goes.

    Looks when a stream or consumer or a file changes, and every 30 seconds. Exit status: 0 no
    difference, 2 the server differs, 1 an error.
    """
    order = Order(files, variables, owner, prune, enforce, allow_data_loss, every_ns)
    if once and not enforce:
        declared = declared_in(files, variables)
        with session.connect() as client:
            found = planned(declared, session.jetstream(client), owner, prune)
        show(session, found)
        return 1 if found.refused else CHANGES if found.pending else 0
    if once:
        raise click.ClickException("--once and --enforce exclude each other; see pelton apply")
    drifting = watch(session, order)
    return CHANGES if drifting else 0


def watch(session: Session, order: Order) -> bool:
    """Watch until a signal ends the program; whether the server then differs."""
    if "-" in order.files:
        raise click.ClickException("the standard input cannot be watched; name files or folders")
    reconciler = _Reconciler(session, order)
    with _ending(), suppress(_Ended):
        reconciler.run()
    return reconciler.watch.drifting


class _Ended(BaseException):  # ends the loop wherever it is
    """A signal ends the program."""


@contextmanager
def _ending() -> Iterator[None]:
    """SIGINT and SIGTERM raise ``_Ended``."""

    def end(*_: object) -> None:
        raise _Ended

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Reconciler:
    def __init__(self, session: Session, order: Order) -> None:
        self.session, self.order = session, order
        before = _signature(order.files)
        self.declared: Declared = declared_in(order.files, order.variables)
        self.glances = Glances(before)
        self.watch, self.patience = Watch(), Patience()
        self.trouble = ""
        self.agrees: bool | None = None

    def run(self) -> None:
        """Connect, again and again, and look."""
        while True:
            try:
                with self.session.connect(lasting=True) as client:
                    self.look_on(client)
            except (ConnectError, ConnectionClosedError, OSError) as error:
                self.wait(None, self.failure(str(error)))

    def look_on(self, client: Client) -> None:
        """Look at the server whenever something may have changed."""
        advisories = client.subscribe(_ADVISORIES)
        while True:
            try:
                wait_s = self.look(client)
            except ConnectionClosedError:
                raise
            except PeltonTimeoutError:
                wait_s = self.failure("the server does not answer")
            except PeltonError as error:
                wait_s = self.failure(str(error))
            self.wait(advisories, wait_s)

    def look(self, client: Client) -> float:
        """Compare, report, and make the allowed changes. The seconds until the next look."""
        from pelton.apply.executing import execute_each

        order, jetstream = self.order, self.session.jetstream(client)
        found = planned(self.declared, jetstream, order.owner, order.prune)
        if self.trouble:
            self.trouble = ""
            self.say("the server answers", "answers")
        if not order.enforce:
            self.tell(self.watch.compared(found))
        elif found.pending or found.refused:
            execute_each(
                jetstream,
                found,
                allow_data_loss=order.allow_data_loss,
                done=lambda change: self.tell(self.watch.made(change)),
                held=lambda change, why: self.tell(self.watch.stuck("held", change, why)),
                failed=lambda change, why: self.tell(self.watch.stuck("failed", change, why)),
            )
            found = planned(self.declared, jetstream, order.owner, order.prune)
            self.tell(each for each in self.watch.compared(found) if each.happening == "agrees")
        else:
            self.tell(self.watch.compared(found))
        if self.agrees != (not self.watch.drifting):
            self.agrees = not self.watch.drifting
            if self.agrees:
                self.say(f"{len(found.changes)} as declared", "agrees")
        # what was made may be gone again, as after a restart of a server, which no advisory tells
        if order.enforce and (self.watch.in_trouble or found.pending):
            return min(self.patience.failed(), order.every_ns / 1e9)
        self.patience.succeeded()
        return order.every_ns / 1e9

    def failure(self, text: str) -> float:
        """Tell once that the server cannot be asked; the seconds until the next try."""
        if self.trouble != text:
            self.trouble = text
            self.say(f"{text}; trying again", "unreachable")
        return self.patience.failed()

    def wait(self, advisories: Subscription | None, seconds: float) -> None:
        """Wait, not longer than until a file or, as an advisory says, the server has changed."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self.files_changed():
                return
            glance_s = min(left, _GLANCE_S)
            if advisories is None:
                time.sleep(glance_s)
                continue
            told = advisories.next(glance_s)
            if told is None:
                continue
            if told.subject.split(".")[4] in _TELLING:
                until = min(until, time.monotonic() + _GATHER_S)

    def files_changed(self) -> bool:
        """Read the files again if they have changed. Files with mistakes are reported and not used."""
        if not self.glances.changed(_signature(self.order.files)):
            return False
        try:
            self.declared = declared_in(self.order.files, self.order.variables)
        except click.ClickException as error:
            for line in error.format_message().splitlines():
                self.say(line, "mistake")
            self.say(
                "the files have mistakes; their last correct version stays in force", "mistake"
            )
            return False
        self.say("the files have changed", "files")
        return True

    def tell(self, events: Iterator[Event]) -> None:
        """Print events."""
        for event in events:
            self.tell_one(event)

    def tell_one(self, event: Event) -> None:
        """Print an event: a line, and of a difference all fields."""
        if self.session.as_json:
            self.print_json(event.happening, event)
            return
        from pelton.apply.showing import change_lines

        change = event.change
        text = {"drift": "differs:", "agrees": "agrees again:"}.get(event.happening, "")
        if change is None or event.happening == "drift":
            self.say(f"{text} {event.title}", event.happening)
        elif event.happening == "done":
            self.say(f"{_DONE[change.action]} {event.title}", event.happening)
        else:
            word = "cannot change" if change.action == "refuse" else f"cannot {change.action}"
            self.say(f"{word} {event.title}: {event.text}", event.happening)
        if event.happening == "drift" and change is not None:
            for line in change_lines(change):
                print(shown(line.text), flush=True)

    def say(self, text: str, happening: str) -> None:
        """Print a line with the time."""
        if self.session.as_json:
            self.print_json(happening, None, text)
            return
        now = datetime.now().strftime("%H:%M:%S")
        colour = _COLOURS.get(happening)
        line = shown(text)
        if colour and sys.stdout.isatty():
            line = click.style(line, fg=colour)
        print(f"{now} {line}", flush=True)

    def print_json(self, happening: str, event: Event | None, text: str = "") -> None:
        """Print an event as JSON in one line."""
        from pelton.apply.showing import change_as_json

        data: dict[str, Any] = {"time": datetime.now(UTC).isoformat(), "event": happening}
        if event is not None:
            data["resource"] = event.title
            text = event.text
            if event.change is not None:
                data["change"] = change_as_json(event.change)
        if text:
            data["text"] = text
        print(json.dumps(data, ensure_ascii=False), flush=True)


def _signature(files: tuple[str, ...]) -> list[tuple[str, int, int, int]]:
    """What changes when a file does, or a link on the way to it, as those of mounted ConfigMaps."""
    found = []
    for name in files:
        path = Path(name)
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        for each in inside:
            try:
                state = os.stat(each)
            except OSError:
                continue
            found.append((str(each), state.st_ino, state.st_mtime_ns, state.st_size))
    return found
