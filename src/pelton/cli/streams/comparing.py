"""``pelton diff-stream``: what one stream has and another has not.

Both are read once, side by side. ``--by`` says which messages belong together:

    seq     those of the same sequence: mirrors, backups, restored streams
    order   the sequence of contents: imports and other copies with sequences of their own
    id      those with the same Nats-Msg-Id, in any order
"""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.failures import DONE
from pelton.cli.output import number, print_json, print_table
from pelton.cli.session import Session, command
from pelton.cli.streams.importing import DROPPED, mapping
from pelton.cli.streams.ranges import Range, bounds, range_options, rows_of
from pelton.cli.values import Whole, Word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pelton.cli.streams.importing import Map
    from pelton.cli.streams.ranges import Row

DIFFERENT = 2
WINDOW = 4096
"""How far ``--by order`` looks for the place where both streams agree again."""
MISSING, EXTRA, CHANGED = "missing", "extra", "different"


@dataclass(frozen=True)
class Message:
    """The compared fields of a message."""

    seq: int
    ts_ns: int
    subject: str
    headers: tuple[tuple[str, tuple[str, ...]], ...]
    data: bytes
    msg_id: str

    def content(self) -> tuple[object, ...]:
        """The fields that do not depend on the stream."""
        return self.subject, self.headers, self.data


@dataclass(frozen=True)
class Difference:
    """One message that is not the same in both. ``fields``: what differs."""

    kind: str
    a: Message | None
    b: Message | None
    fields: tuple[str, ...] = ()


@click.command()
@click.argument("a")
@click.argument("b")
@click.option(
    "--by",
    type=Word(("seq", "order", "id")),
    default="seq",
    show_default=True,
    help="Which messages belong together: those of one sequence, those in one place, of one id.",
)
@range_options
@click.option("--other-server", default=None, metavar="URL", help="B is on this server.")
@click.option("--other-context", default=None, metavar="NAME", help="B is on that of a context.")
@click.option("--other-store", default=None, metavar="PATH", help="B is in this folder or backup.")
@click.option("--map", "maps", multiple=True, metavar="FROM:TO", help="The subjects of A, before.")
@click.option("--ignore-header", "ignored", multiple=True, metavar="NAME", help="Repeatable.")
@click.option("--ignore-time", is_flag=True, help="With --by seq: the times may differ.")
@click.option("-n", "--limit", default=0, type=Whole(0), help="Show so many; count all.")
@command
@click.pass_obj
def diff_stream(session: Session, /, a: str, b: str, by: str, **asked: Any) -> int:
    """Compare the stream B with the stream A, message by message. Exit status 2 if they differ.

    "missing" is in A alone, "extra" in B alone. B is on the same server, unless --other-server,
    --other-context or --other-store says another place; with --store A is in a folder. Headers with which a
    message was published (Nats-Expected-..., Nats-Batch-..., Nats-Stream-Source) are not compared.
    """
    wanted = Range.of(asked)
    mapped = mapping(asked["maps"])
    left_out = DROPPED | set(asked["ignored"])
    other = _other(session, asked)
    counts = {"a": 0, "b": 0, MISSING: 0, EXTRA: 0, CHANGED: 0}
    with session.connect() as first, other.connect() as second:
        left = _messages(session, first, a, wanted, mapped, left_out)
        same = replace(wanted, subjects=tuple(map(mapped, wanted.subjects)))
        right = _messages(other, second, b, same, lambda subject: subject, left_out)
        found = _FUNCTIONS[by](
            _counted(left, counts, "a"), _counted(right, counts, "b"), not asked["ignore_time"]
        )
        shown: list[Difference] = []
        for each in found:
            counts[each.kind] += 1
            if not asked["limit"] or len(shown) < asked["limit"]:
                shown.append(each)
    _show(session, shown, counts)
    return DIFFERENT if counts[MISSING] + counts[EXTRA] + counts[CHANGED] else DONE


def _other(session: Session, asked: dict[str, Any]) -> Session:
    given = {k: asked[f"other_{k}"] for k in ("server", "context", "store")}
    named = [k for k, value in given.items() if value is not None]
    if len(named) > 1:
        raise click.UsageError(f"--other-{named[0]} and --other-{named[1]} exclude each other")
    if not named:
        return session
    place = {"server": "", "context": "", "store": "", **{k: v for k, v in given.items() if v}}
    return replace(session, **place, store_account="", store_backup="", _stored=None)


def _messages(
    session: Session, client: Any, stream: str, wanted: Range, mapped: Map, left_out: frozenset[str]
) -> Iterator[Message]:
    js = session.jetstream(client)
    info = js.stream_info(stream)
    first, stop = bounds(js, info, wanted)
    for row in rows_of(js, info, first, stop, wanted.subjects):
        yield _message(row, mapped, left_out)


def _message(row: Row, mapped: Map, left_out: frozenset[str]) -> Message:
    found = row.decoded()
    headers = tuple((name, tuple(v)) for name, v in sorted(found.items()) if name not in left_out)
    msg_id = (found.get("Nats-Msg-Id") or [""])[0]
    return Message(row.seq, row.ts_ns, mapped(row.subject), headers, row.data, msg_id)


def _counted(messages: Iterator[Message], counts: dict[str, int], side: str) -> Iterator[Message]:
    for each in messages:
        counts[side] += 1
        yield each


# -- comparing ------------------------------------------------------------------------------------------


def _fields(a: Message, b: Message, times: bool) -> tuple[str, ...]:
    differ = {
        "subject": a.subject != b.subject,
        "headers": a.headers != b.headers,
        "payload": a.data != b.data,
        "time": times and a.ts_ns != b.ts_ns,
    }
    return tuple(name for name, is_other in differ.items() if is_other)


def by_seq(a: Iterator[Message], b: Iterator[Message], times: bool) -> Iterator[Difference]:
    """Both in the order of their sequences."""
    left, right = next(a, None), next(b, None)
    while left is not None or right is not None:
        if right is None or (left is not None and left.seq < right.seq):
            yield Difference(MISSING, left, None)
            left = next(a, None)
        elif left is None or right.seq < left.seq:
            yield Difference(EXTRA, None, right)
            right = next(b, None)
        else:
            if fields := _fields(left, right, times):
                yield Difference(CHANGED, left, right, fields)
            left, right = next(a, None), next(b, None)


def by_order(a: Iterator[Message], b: Iterator[Message], times: bool) -> Iterator[Difference]:
    """Both in their order; after a difference from the next place on where they agree."""
    left: deque[Message] = deque()
    right: deque[Message] = deque()
    while True:
        _fill(left, a, 1)
        _fill(right, b, 1)
        if not left or not right:
            break
        if left[0].content() == right[0].content():
            left.popleft()
            right.popleft()
            continue
        _fill(left, a, WINDOW)
        _fill(right, b, WINDOW)
        gone, come = _agree(left, right)
        for _ in range(gone):
            yield Difference(MISSING, left.popleft(), None)
        for _ in range(come):
            yield Difference(EXTRA, None, right.popleft())
    for each in (*left, *a):
        yield Difference(MISSING, each, None)
    for each in (*right, *b):
        yield Difference(EXTRA, None, each)


def _fill(waiting: deque[Message], messages: Iterator[Message], count: int) -> None:
    waiting.extend(islice(messages, max(count - len(waiting), 0)))


def _agree(left: deque[Message], right: deque[Message]) -> tuple[int, int]:
    """How many of both to pass over, as few as possible, until they agree."""
    places: dict[tuple[object, ...], int] = {}
    for place, each in enumerate(right):
        places.setdefault(each.content(), place)
    best = len(left), len(right)
    for place, each in enumerate(left):
        if place >= sum(best):
            break
        found = places.get(each.content())
        if found is not None and place + found < sum(best):
            best = place, found
    return best


def by_id(a: Iterator[Message], b: Iterator[Message], times: bool) -> Iterator[Difference]:
    """By message id; those without one by what they contain. Keeps a hash for each message of A."""
    known: dict[str, deque[tuple[Message, bytes]]] = {}
    for each in a:
        known.setdefault(_key(each), deque()).append((replace(each, data=b""), _hash(each)))
    for each in b:
        same = known.get(_key(each))
        if not same:
            yield Difference(EXTRA, None, each)
            continue
        mine, digest = same.popleft()
        if digest != _hash(each):
            fields = _fields(replace(mine, data=each.data), each, times=False)
            yield Difference(CHANGED, mine, each, fields or ("payload",))
    for waiting in known.values():
        for mine, _ in waiting:
            yield Difference(MISSING, mine, None)


def _key(message: Message) -> str:
    return f"id {message.msg_id}" if message.msg_id else _hash(message).hex()


def _hash(message: Message) -> bytes:
    return hashlib.blake2b(repr(message.content()).encode(), digest_size=16).digest()


_FUNCTIONS: dict[
    str, Callable[[Iterator[Message], Iterator[Message], bool], Iterator[Difference]]
] = {"seq": by_seq, "order": by_order, "id": by_id}


# -- showing --------------------------------------------------------------------------------------------


def _show(session: Session, found: list[Difference], counts: dict[str, int]) -> None:
    if session.as_json:
        rows = [
            {
                "kind": each.kind,
                "seq_a": each.a.seq if each.a else None,
                "seq_b": each.b.seq if each.b else None,
                "subject": (each.a or each.b).subject,  # type: ignore[union-attr]  # one is there
                "differs": list(each.fields),
            }
            for each in found
        ]
        print_json({"counts": counts, "differences": rows})
        return
    if found:
        cells = [
            (
                each.kind,
                number(each.a.seq) if each.a else "",
                number(each.b.seq) if each.b else "",
                (each.a or each.b).subject,  # type: ignore[union-attr]  # one is there
                ", ".join(each.fields),
            )
            for each in found
        ]
        print_table(("Kind", "A", "B", "Subject", "Differs"), cells, right=frozenset("AB"))
    different = counts[MISSING] + counts[EXTRA] + counts[CHANGED]
    told = f"{number(counts['a'])} messages in A, {number(counts['b'])} in B: "
    if not different:
        print(told + "the same")
        return
    parts = [f"{number(counts[kind])} {kind}" for kind in (MISSING, EXTRA, CHANGED) if counts[kind]]
    hidden = f" ({number(different - len(found))} not shown)" if different > len(found) else ""
    print(told + ", ".join(parts) + hidden)
