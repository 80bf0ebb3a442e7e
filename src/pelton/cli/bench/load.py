"""The common part of all commands of ``pelton bench``: the options of a load, and its run."""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pelton.cli.inputs import read_input
from pelton.cli.messages.showing import headers_of
from pelton.cli.output import number, size
from pelton.cli.values import DURATION, PAYLOAD_SIZE, Whole
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pelton.cli.session import Session

    from .links import Link, Role
    from .report import Results
    from .supply import Pace, Subjects

F = TypeVar("F", bound="Callable[..., object]")

CLIENTS_MAX = 4096
_COMMON = (
    click.option(
        "--clients",
        type=Whole(1, CLIENTS_MAX),
        default=1,
        show_default=True,
        help="How many clients work at once.",
    ),
    click.option(
        "--msgs",
        type=Whole(1),
        default=100_000,
        show_default=True,
        help="Messages of the whole load.",
    ),
    click.option(
        "--size",
        "bytes_each",
        type=PAYLOAD_SIZE,
        default="128",
        show_default=True,
        help="Bytes of a message.",
    ),
    click.option("--progress/--no-progress", default=True, help="Show a bar at a terminal."),
    click.option(
        "--csv",
        "csv_file",
        type=click.Path(dir_okay=False),
        help="Write the figures of each client.",
    ),
)
_SLEEP = (
    click.option("--sleep", type=DURATION, default=0, help="Pause between messages of a client."),
)
_RATE = (
    click.option(
        "--throughput",
        type=Whole(0),
        default=0,
        help="Messages per second of all clients together; 0 for as many as possible.",
    ),
    click.option(
        "--duration",
        type=DURATION,
        default=0,
        help="With --throughput: this long, instead of --msgs.",
    ),
)
_MESSAGES = (
    click.option(
        "--payload",
        "payload_file",
        type=click.Path(exists=True, dir_okay=False),
        help="A file with the payload of each message, instead of --size.",
    ),
    click.option("-H", "--header", "header", multiple=True, help='A header, as "name: value".'),
)
_SUBJECTS = (
    click.option("--multisubject", is_flag=True, help="Add the number of the message as a token."),
    click.option(
        "--multisubjectmax",
        type=Whole(0),
        default=100_000,
        show_default=True,
        help="How many of these subjects there are; 0 for no limit.",
    ),
    click.option("--multisubjectrandomize", is_flag=True, help="Take them at random."),
)
PARTS = {
    "common": _COMMON,
    "sleep": _SLEEP,
    "rate": _RATE,
    "messages": _MESSAGES,
    "subjects": _SUBJECTS,
}


def options(*parts: str) -> Callable[[F], F]:
    """The options of these parts, in their order."""

    def add(function: F) -> F:
        for part in reversed(parts):
            for each in reversed(PARTS[part]):
                function = each(function)
        return function

    return add


@dataclass(frozen=True)
class Load:
    """A load: how many clients and messages, and how they are shaped."""

    clients: int
    msgs: int
    payload: bytes
    lines: bytes = b""
    """Header lines of each message."""
    sleep_ns: int = 0
    throughput: int = 0
    progress: bool = True
    csv_file: str | None = None
    many: bool = False
    most: int = 0
    shuffled: bool = False

    @classmethod
    def of(cls, asked: dict[str, Any]) -> Load:
        """The load of a command line; UsageError."""
        throughput, duration = asked.get("throughput") or 0, asked.get("duration") or 0
        msgs = asked["msgs"]
        if duration:
            if not throughput:
                raise click.UsageError("--duration needs --throughput")
            msgs = round(throughput * duration / 1e9)
            if not msgs:
                raise click.UsageError("--throughput and --duration give no message")
        if asked.get("payload_file"):
            payload = read_input(Path(asked["payload_file"]))
        else:
            if asked["bytes_each"] < 0:
                raise click.BadParameter("0 or more", param_hint="--size")
            period, length = 26 * 26, asked["bytes_each"]
            letters = bytes(97 + (at * 7 + at // 26) % 26 for at in range(period))
            payload = (letters * (length // period + 1))[:length]
        lines = "".join(
            f"{name}: {value}\r\n"
            for name, values in headers_of(asked.get("header") or ()).items()
            for value in values
        )
        if "\n" in lines.replace("\r\n", "") or "\r" in lines.replace("\r\n", ""):
            raise click.BadParameter("a header has no line ends", param_hint="--header")
        return cls(
            asked["clients"],
            msgs,
            payload,
            lines.encode(),
            asked.get("sleep") or 0,
            throughput,
            asked["progress"],
            asked.get("csv_file"),
            bool(asked.get("multisubject")),
            asked.get("multisubjectmax") or 0,
            bool(asked.get("multisubjectrandomize")),
        )

    def subjects(self, subject: str) -> Subjects:
        """The subjects of the messages; InvalidSubjectError."""
        from pelton.client.base.arguments import check_literal

        from .supply import Subjects

        check_literal(subject)
        if self.shuffled and not (self.many and self.most):
            raise click.UsageError("--multisubjectrandomize needs --multisubject and its maximum")
        return Subjects(subject, many=self.many, most=self.most, shuffled=self.shuffled)

    def pace(self) -> Pace:
        """How fast one client sends."""
        from .supply import Pace

        return Pace(self.sleep_ns, self.throughput / self.clients)


def shares(total: int, parts: int) -> list[int]:
    """The messages of each client: as equal as can be, in sum `total`."""
    return [total // parts + (at < total % parts) for at in range(parts)]


@contextlib.contextmanager
def opened_links(session: Session, count: int) -> Iterator[list[Link]]:
    """Connections with the options of the session, closed at the end."""
    from .links import Link

    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(contextlib.closing(Link(session.connect()))) for _ in range(count)
        ]


def banner(session: Session, what: str, facts: dict[str, object]) -> None:
    """Say on stderr what begins."""
    if not session.as_json:
        told = ", ".join(f"{name}={value}" for name, value in facts.items())
        print(shown(f"Starting {what} benchmark [{told}]"), file=sys.stderr, flush=True)


def run_load(
    session: Session,
    what: str,
    load: Load,
    make: Callable[[Link, int, int], Role],
    *,
    facts: dict[str, object] | None = None,
    each_has_all: bool = False,
    limit: bool = True,
    beside: Callable[[Link], Role] | None = None,
) -> None:
    """Open the clients, run the load, print its figures.

    ``make``: the role for a link, its share of the messages, and the number of its first one. With ``each_has_all``
    the share of each client is all messages. Without ``limit`` the load waits for messages as long as it takes.
    ``beside``: a role for one more link, which helps and counts nothing.
    """
    told = {"clients": number(load.clients), "msgs": number(load.msgs)}
    told["msg-size"] = size(len(load.payload))
    if load.throughput:
        told["throughput"] = number(load.throughput)
    banner(session, what, {**(facts or {}), **told})
    if load.clients > load.msgs and not each_has_all:
        raise click.UsageError(f"{load.clients} clients cannot share {load.msgs} messages")
    counts = [load.msgs] * load.clients if each_has_all else shares(load.msgs, load.clients)
    with opened_links(session, load.clients + (beside is not None)) as links:
        helpers = [beside(links.pop())] if beside else []
        roles: list[Role] = []
        first = 0
        for link, count in zip(links, counts, strict=True):
            roles.append(make(link, count, 0 if each_has_all else first))
            first += count
        results = measured(session, what, load, roles, helpers, limit=limit)
    results.show(session)
    if load.csv_file:
        from secrets import token_hex

        Path(load.csv_file).write_text(results.csv(token_hex(11)))
        if not session.as_json:
            print(shown(f"wrote {load.csv_file}"), file=sys.stderr)
    if results.interrupted:
        raise KeyboardInterrupt


def measured(
    session: Session,
    what: str,
    load: Load,
    roles: Sequence[Role],
    beside: Sequence[Role] = (),
    *,
    limit: bool,
) -> Results:
    """Run the roles until all are over, or until an interrupt; the counts until then are kept."""
    from pelton.cli.progress import counting_bar

    from .links import Crowd
    from .report import Results

    wanted = load.progress and not session.as_json
    interrupted = False
    with counting_bar(what, sum(role.quota for role in roles), wanted=wanted) as tell:
        limit_s = session.timeout / 1e9 if limit else None
        crowd = Crowd(roles, beside, limit_s=limit_s, tell=tell)
        before_s = time.process_time()
        try:
            crowd.run()
        except KeyboardInterrupt:
            crowd.stop()
            interrupted = True
        spent_s = time.process_time() - before_s
    return Results(what, len(load.payload), roles, processor_s=spent_s, interrupted=interrupted)


def check_size(load: Load, most: int) -> None:
    """PayloadTooLargeError for messages that the server does not take."""
    from pelton.errors import PayloadTooLargeError

    headers = len(load.lines) + 12 if load.lines else 0
    if len(load.payload) + headers > most:
        raise PayloadTooLargeError(
            f"messages of {len(load.payload)} bytes; the server takes at most {most}"
        )


def names(values: Sequence[str]) -> list[str]:
    """Values of an option that may be repeated and may have commas."""
    return [name for value in values for name in value.split(",") if name]
