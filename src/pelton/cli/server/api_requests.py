"""``pelton server watch api requests``: a live table of requests to the JetStream API, by client
and call.

Servers send the system account a copy of each request, with a header that names the client.
Requests for messages (CONSUMER.MSG.NEXT, DIRECT.GET) are not among them.
"""

from __future__ import annotations

import json
import re
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.output import number
from pelton.cli.server.reporting import Column, Row
from pelton.cli.server.watching import draw
from pelton.cli.session import Session, command
from pelton.cli.values import DURATION, PATTERN_ERRORS, Whole

if TYPE_CHECKING:
    from pelton.client.sync.messages import Message
    from pelton.client.sync.subscription import Subscription

_SUBJECTS = "$JS.API.>"
_WITHOUT_NAMES = ("INFO", "STREAM.NAMES", "STREAM.LIST")
_VERBS = (
    *("STREAM.CREATE", "STREAM.UPDATE", "STREAM.INFO", "STREAM.DELETE", "STREAM.PURGE"),
    *("STREAM.SNAPSHOT", "STREAM.RESTORE", "STREAM.MSG.GET", "STREAM.MSG.DELETE"),
    *("STREAM.LEADER.STEPDOWN", "STREAM.PEER.REMOVE", "STREAM.PEER.EVACUATE", "STREAM.CANCEL_MOVE"),
    *("CONSUMER.CREATE", "CONSUMER.DURABLE.CREATE", "CONSUMER.NAMES", "CONSUMER.LIST"),
    *("CONSUMER.INFO", "CONSUMER.DELETE", "CONSUMER.PAUSE", "CONSUMER.UNPIN", "CONSUMER.RESET"),
    *("CONSUMER.MSG.NEXT", "CONSUMER.LEADER.STEPDOWN", "DIRECT.GET"),
)
_KINDS_MOST = 10_000
"""So many combinations are counted; beyond, those that are quiet for longest are forgotten."""


@dataclass
class Kind:
    """Requests of one kind, of one account, for one stream or consumer."""

    verb: str
    account: str
    stream: str
    consumer: str
    count: int = 0
    seconds: deque[list[int]] = field(default_factory=deque)  # [second, requests in it]

    def take(self, second: int) -> None:
        """One request more."""
        self.count += 1
        if self.seconds and self.seconds[-1][0] == second:
            self.seconds[-1][1] += 1
        else:
            self.seconds.append([second, 1])

    def recent(self, since: int) -> int:
        """Requests since then; forgets older ones."""
        while self.seconds and self.seconds[0][0] <= since:
            self.seconds.popleft()
        return sum(count for _, count in self.seconds)

    @property
    def asset(self) -> str:
        """The stream, or the stream and the consumer."""
        return f"{self.stream} > {self.consumer}" if self.consumer else self.stream


class Counter:
    """Requests by kind. The time in seconds is passed in."""

    def __init__(self, accounts: re.Pattern[str] | None, consumers: bool, interval_s: int) -> None:
        """Counts requests of accounts that match; ``interval_s`` is that of the rates."""
        self._accounts = accounts
        self._consumers = consumers
        self._interval_s = interval_s
        self._kinds: dict[tuple[str, str, str, str], Kind] = {}

    def take(self, subject: str, account: str, second: int) -> None:
        """Count a request; one of an account that does not match, or of no known verb, counts nothing."""
        found = parts(subject)
        if found is None or (self._accounts and not self._accounts.search(account)):
            return
        verb, stream, consumer = found
        key = (verb, account, stream, consumer if self._consumers else "")
        kind = self._kinds.pop(key, None) or Kind(key[0], *key[1:])
        self._kinds[key] = kind  # the newest is last
        kind.take(second)
        if len(self._kinds) > _KINDS_MOST:
            del self._kinds[next(iter(self._kinds))]

    def rows(self, second: int, *, reverse: bool) -> list[Row]:
        """The kinds, those with the most requests of late first."""
        since = second - self._interval_s
        found: list[Row] = [
            {
                "type": each.verb,
                "account": each.account,
                "count": each.count,
                "recent": each.recent(since),
                "stream": each.stream,
                "consumer": each.consumer,
                "asset": each.asset,
            }
            for each in self._kinds.values()
        ]
        found.sort(key=lambda row: (row["recent"], row["count"], row["asset"]), reverse=not reverse)
        return found


def parts(subject: str) -> tuple[str, str, str] | None:
    """The verb, stream and consumer of a request's subject; None if it has no known verb."""
    rest = subject.partition(".API.")[2]
    if rest in _WITHOUT_NAMES:
        return rest, "", ""
    verb = next((each for each in _VERBS if rest.startswith(f"{each}.")), None)
    if verb is None:
        return None
    stream, _, consumer = rest.removeprefix(f"{verb}.").partition(".")
    if not verb.startswith("CONSUMER."):
        consumer = ""  # DIRECT.GET: a subject
    return (
        verb,
        stream,
        consumer.partition(".")[0],
    )  # CONSUMER.CREATE: the filter is behind the name


def account_of(message: Message) -> str:
    """The account that asks; "" if the server does not say."""
    try:
        found: Any = json.loads(message.headers.get("Nats-Request-Info", ""))
    except ValueError:
        return ""
    return str(found.get("acc", "")) if isinstance(found, dict) else ""


@click.command()
@click.option("--account", metavar="REGEX", help="Only accounts whose name matches.")
@click.option("-n", "--top", type=Whole(1), default=10, show_default=True, help="Rows.")
@click.option(
    "--rate", type=DURATION, default="1m", show_default=True, help="Time that Recent counts."
)
@click.option(
    "--record-consumer/--no-record-consumer", default=True, help="Count each consumer apart."
)
@click.option("--compact/--no-compact", default=True, help="Shorten long names in the table.")
@click.option("-R", "--reverse", is_flag=True, help="The quietest first.")
@click.option(
    "--interval", type=DURATION, default="1s", show_default=True, help="Time between tables."
)
@click.option("--count", type=Whole(0), default=0, help="End after this many tables.")
@command
@click.pass_obj
def requests(
    session: Session,
    account: str | None,
    top: int,
    rate: int,
    record_consumer: bool,
    compact: bool,
    reverse: bool,
    interval: int,
    count: int,
) -> None:
    """Follow the requests to JetStream: which kind, of which account, for what, how often.

    Requests for messages are not shown. Needs a user of the system account.
    """
    try:
        accounts = re.compile(account) if account else None
    except PATTERN_ERRORS as error:
        text = f"--account: {account!r} is not a regular expression: {error}"
        raise click.UsageError(text) from None
    counter = Counter(accounts, record_consumer, max(rate // 1_000_000_000, 1))
    columns = (
        Column("Type", "type"),
        Column(
            "Account", "account", lambda name: _short(str(name), 10, 5) if compact else str(name)
        ),
        Column("Count", "count", number),
        Column("Recent", "recent", number),
        Column("Asset", "asset", lambda name: _short(str(name), 28, 8) if compact else str(name)),
    )
    with session.connect(lasting=True) as client:
        watched = client.subscribe(_SUBJECTS)
        client.flush()
        done = 0
        while True:
            _listen(watched, counter, time.monotonic() + interval / 1e9)
            if client.last_error is not None and not done:
                raise client.last_error
            draw(session, counter.rows(int(time.monotonic()), reverse=reverse)[:top], columns)
            done += 1
            if count and done >= count:
                return


def _listen(watched: Subscription, counter: Counter, until: float) -> None:
    """Count requests until then."""
    while (left := until - time.monotonic()) > 0:
        message = watched.next(timeout=left)
        if message is None:
            return
        counter.take(message.subject, account_of(message), int(time.monotonic()))


def _short(text: str, begin: int, end: int) -> str:
    return text if len(text) <= begin + end + 5 else f"{text[:begin]}...{text[-end:]}"
