"""``pelton top``: the connections of a server with their rates, again and again."""

from __future__ import annotations

import contextlib
import io
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.live.hosts import HostNames
from pelton.cli.live.screen import Screen, opened, table
from pelton.cli.output import number, print_json_line, print_table, size
from pelton.cli.session import Session, command
from pelton.cli.values import WHOLE, Real, Whole, Word
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from pelton.client.sync import Client

Connection = dict[str, Any]

SORTS = {
    "cid": "cid",
    "start": "start",
    "subs": "subscriptions",
    "pending": "pending_bytes",
    "msgs_to": "out_msgs",
    "msgs_from": "in_msgs",
    "bytes_to": "out_bytes",
    "bytes_from": "in_bytes",
    "last": "last_activity",
    "idle": "idle_s",
    "uptime": "uptime_s",
    "rtt": "rtt_s",
}
_RISING = ("cid", "start")
_COUNTS = ("out_msgs", "in_msgs", "out_bytes", "in_bytes")
_UNITS = {"y": 31_536_000.0, "d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
COLUMNS = [
    "Host",
    "CID",
    "Name",
    "Subs",
    "Pending",
    "Msgs to",
    "Msgs from",
    "Bytes to",
    "Bytes from",
    "Lang",
    "Version",
    "Uptime",
    "RTT",
]
RIGHT = frozenset(
    {"CID", "Subs", "Pending", "Msgs to", "Msgs from", "Bytes to", "Bytes from", "Uptime", "RTT"}
)
HELP = (
    "o: sort order   r: rates or totals   s: subscriptions   n: next page   space: pause   q: end"
)


def seconds_of(text: str) -> float:
    """The seconds of a duration as servers write them: 1h2m3s, 12.5ms, 85µs; 0 for other text."""
    total, digits, rest = 0.0, "", text
    while rest:
        if rest[0].isdigit() or rest[0] == ".":
            digits, rest = digits + rest[0], rest[1:]
            continue
        unit = next((u for u in ("ms", "µs", "us", "ns") if rest.startswith(u)), rest[0])
        scale = {"ms": 1e-3, "µs": 1e-6, "us": 1e-6, "ns": 1e-9}.get(unit, _UNITS.get(unit))
        if scale is None or not digits:
            return 0.0
        total += float(digits) * scale
        digits, rest = "", rest[len(unit) :]
    return total


class Snapshots:
    """The server's counters, and their increase since the previous ones."""

    def __init__(self) -> None:
        """Start without a snapshot."""
        self.server: dict[str, Any] = {}
        self.figures: dict[str, Any] = {}
        self.connections: list[Connection] = []
        self.total = 0
        self._at = 0.0
        self._before: dict[int, Connection] = {}
        self._figures_before: dict[str, Any] = {}
        self.rates: dict[str, float] = {}
        """Messages and bytes per second of the whole server."""

    def take(self, varz: dict[str, Any], connz: dict[str, Any], now: float) -> None:
        """Take two pages, at a time in seconds; every connection gets its rates."""
        passed = now - self._at if self._at else 0.0
        self._figures_before, self.figures = self.figures, varz.get("data") or {}
        self.server = varz.get("server") or {}
        page = connz.get("data") or {}
        self.total = page.get("total") or page.get("num_connections") or 0
        self.connections = page.get("connections") or []
        self.rates = _rates(self.figures, self._figures_before, passed)
        for each in self.connections:
            before = self._before.get(each["cid"], {})
            each["rates"] = _rates(each, before, passed)
            each["idle_s"] = seconds_of(str(each.get("idle") or ""))
            each["uptime_s"] = seconds_of(str(each.get("uptime") or ""))
            each["rtt_s"] = seconds_of(str(each.get("rtt") or ""))
        self._before = {each["cid"]: each for each in self.connections}
        self._at = now

    def sorted(self, sort: str) -> list[Connection]:
        """The connections in an order: the largest first, but the oldest first by cid and start."""
        name = SORTS[sort]
        kind: Any = "" if name in ("start", "last_activity") else 0
        return sorted(
            self.connections, key=lambda each: each.get(name) or kind, reverse=sort not in _RISING
        )


def _rates(now: dict[str, Any], before: dict[str, Any], seconds: float) -> dict[str, float]:
    if not seconds or not before:
        return dict.fromkeys(_COUNTS, 0.0)
    return {
        name: max(0, (now.get(name) or 0) - (before.get(name) or 0)) / seconds for name in _COUNTS
    }


@click.command()
@click.argument("name", required=False)
@click.option("-n", "--conns", type=Whole(1), default=1024, help="Connections to ask for at most.")
@click.option(
    "-d",
    "--interval",
    type=Real(0.1, 86_400),
    default=1.0,
    show_default=True,
    help="Seconds between snapshots.",
)
@click.option("--sort", type=Word(list(SORTS)), default="cid", show_default=True, help="Order.")
@click.option("-b", "--raw", is_flag=True, help="Bytes as plain numbers.")
@click.option("-r", "--max-refresh", type=WHOLE, default=-1, help="End after this many snapshots.")
@click.option("--once", is_flag=True, help="One snapshot.")
@click.option("--subs", is_flag=True, help="With the subscriptions of each connection.")
@click.option("--lookup", is_flag=True, help="Names of hosts out of DNS instead of addresses.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, writable=True),
    help="Write one snapshot into this file, and end.",
)
@click.option("--delimiter", default="", help="With --output: what parts the columns.")
@command
@click.pass_obj
def top(
    session: Session,
    name: str | None,
    conns: int,
    interval: float,
    sort: str,
    raw: bool,
    max_refresh: int,
    once: bool,
    subs: bool,
    lookup: bool,
    output: str | None,
    delimiter: str,
) -> None:
    """Follow the connections of the server NAME, by default that of this connection.

    Needs a user of the system account. At a terminal the figures are rates, and keys change the view;
    elsewhere and with --once they are totals.
    """
    if delimiter and not output:
        raise click.UsageError("--delimiter needs --output")
    with session.connect(lasting=True) as client:
        server = name or client.server_info.server_id
        hosts = HostNames() if lookup else None
        view = _View(session, client, server, sort, conns=conns, raw=raw, subs=subs, hosts=hosts)
        if output:
            view.refresh()
            Path(output).write_text(view.text(delimiter), encoding="utf-8")
            return
        limit = 1 if once else max_refresh
        with opened(wanted=not (session.as_json or once or session.form != "table")) as screen:
            done = 0
            while True:
                view.refresh()
                view.show(screen)
                done += 1
                if 0 < limit <= done:
                    return
                if not _pause(screen, view, client, interval):
                    return


def _pause(screen: Screen, view: _View, client: Client, interval: float) -> bool:
    """Wait for the next snapshot, and obey keys; False for the end."""
    deadline = time.monotonic() + interval
    while True:
        key = screen.wait(
            max(0.0, deadline - time.monotonic()), lambda s: client.wait_until(lambda: False, s)
        )
        if key == "q":
            return False
        if key:
            view.obey(key)
            view.show(screen)
        if not view.paused and time.monotonic() >= deadline:
            return True
        if view.paused:
            deadline = time.monotonic() + interval


class _View:
    """The rows to show, and their format."""

    def __init__(
        self,
        session: Session,
        client: Client,
        server: str,
        sort: str,
        *,
        conns: int,
        raw: bool,
        subs: bool,
        hosts: HostNames | None,
    ) -> None:
        self.paused = False
        self._hosts = hosts
        self._session = session
        self._client = client
        self._server = server
        self._sort = sort
        self._conns = conns
        self._raw = raw
        self._subs = subs
        self._page = 0
        self._totals = False
        self._snapshots = Snapshots()

    def refresh(self) -> None:
        """Ask the server; ClickException if it does not answer."""
        from pelton.cli.server.asking import Live, Where, sound

        live = Live(self._client, Where(name=self._server))
        wanted = {"limit": self._conns, "subscriptions": self._subs, "auth": True, "state": 0}
        varz = sound(live.ask("VARZ"))[0].whole
        connz = sound(live.ask("CONNZ", wanted))[0].whole
        self._snapshots.take(dict(varz), dict(connz), time.monotonic())
        if self._hosts:
            self._hosts.learn(str(each.get("ip") or "") for each in self._snapshots.connections)
            for each in self._snapshots.connections:
                each["host"] = self._hosts.name(str(each.get("ip") or ""))

    def text(self, delimiter: str) -> str:
        """The output without a terminal; ``delimiter``, if given, separates the columns."""
        if not delimiter:
            with contextlib.redirect_stdout(io.StringIO()) as written:
                self.show(Screen(None, keys=False))
            return written.getvalue()
        rows = [self._cells(each, totals=True) for each in self._snapshots.sorted(self._sort)]
        lines = [delimiter.join(map(shown, row)) for row in [self._columns(), *rows]]
        return "\n".join([*map(shown, self._title().splitlines()), *lines, ""])

    def _columns(self) -> list[str]:
        return [*COLUMNS, "Subscriptions"] if self._subs else COLUMNS

    def obey(self, key: str) -> None:
        """Change the view."""
        if key == "o":
            names = list(SORTS)
            self._sort = names[(names.index(self._sort) + 1) % len(names)]
        elif key == "r":
            self._totals = not self._totals
        elif key == "s":
            self._subs = not self._subs
        elif key == "n":
            self._page += 1
        elif key == " ":
            self.paused = not self.paused

    def show(self, screen: Screen) -> None:
        """Draw the screen, or print."""
        found = self._snapshots
        if self._session.as_json:
            print_json_line(
                {
                    "server": found.server,
                    "connections": found.sorted(self._sort),
                    "rates": found.rates,
                }
            )
            return
        title = self._title()
        columns = self._columns()
        if not screen.is_terminal:
            rows = [self._cells(each, totals=True) for each in found.sorted(self._sort)]
            if self._session.form == "table":
                print("\n".join(shown(line) for line in title.splitlines()))
            print_table(columns, rows, right=RIGHT)
            print(end="", flush=True)
            return
        from rich.console import Group
        from rich.text import Text

        rows = [self._cells(each, totals=self._totals) for each in found.sorted(self._sort)]
        if self._subs:  # in place of the rates: a terminal has no room for both
            at = [columns.index(name) for name in ("Host", "CID", "Name", "Subs", "Subscriptions")]
            columns, *rows = [[row[each] for each in at] for row in (columns, *rows)]
        content = table(title, columns, self._visible(rows), right=RIGHT)
        screen.draw(Group(content, Text(HELP, style="dim")))

    def _visible(self, rows: list[list[str]]) -> list[list[str]]:
        """The rows of the page that fit on the terminal."""
        import shutil

        title_lines = 8
        room = max(1, shutil.get_terminal_size().lines - title_lines)
        if self._page * room >= len(rows):
            self._page = 0
        return rows[self._page * room :][:room]

    def _title(self) -> str:
        found = self._snapshots
        figures, rates = found.figures, found.rates
        name, version = found.server.get("name", ""), figures.get("version", "")
        state = "  (paused)" if self.paused else ""
        lines = [
            f"Server {name} {version}, up {figures.get('uptime', '')}{state}",
            f"CPU {figures.get('cpu') or 0:.1f} %, memory {size(figures.get('mem') or 0)},"
            f" slow consumers {number(figures.get('slow_consumers') or 0)}",
            f"In  {number(round(rates['in_msgs']))} msgs/s, {self._size(rates['in_bytes'])}/s;"
            f" total {number(figures.get('in_msgs') or 0)} msgs, {self._size(figures.get('in_bytes') or 0)}",
            f"Out {number(round(rates['out_msgs']))} msgs/s, {self._size(rates['out_bytes'])}/s;"
            f" total {number(figures.get('out_msgs') or 0)} msgs, {self._size(figures.get('out_bytes') or 0)}",
            f"Connections {number(found.total)}, by {self._sort}",
        ]
        return "\n".join(lines)

    def _size(self, value: float) -> str:
        return number(round(value)) if self._raw else size(round(value))

    def _cells(self, each: Connection, *, totals: bool) -> list[str]:
        def count(name: str) -> str:
            return number((each.get(name) or 0) if totals else round(each["rates"][name]))

        def volume(name: str) -> str:
            return self._size((each.get(name) or 0) if totals else each["rates"][name])

        cells = [
            f"{each.get('host') or each.get('ip', '')}:{each.get('port', '')}",
            str(each["cid"]),
            str(each.get("name") or ""),
            number(each.get("subscriptions") or 0),
            self._size(each.get("pending_bytes") or 0),
            count("out_msgs"),
            count("in_msgs"),
            volume("out_bytes"),
            volume("in_bytes"),
            str(each.get("lang") or ""),
            str(each.get("version") or ""),
            str(each.get("uptime") or ""),
            str(each.get("rtt") or ""),
        ]
        if self._subs:
            cells.append(", ".join(each.get("subscriptions_list") or ()))
        return cells
