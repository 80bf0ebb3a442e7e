"""Which messages of a stream a command means, by sequence, time and subject; and reading them.

Nothing in the stream changes. A stream with interest or work queue retention is read with one request for
each message, all others through consumers without acks.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from pelton.cli.values import DURATION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pelton.client.base.models import StreamInfo
    from pelton.client.sync.jetstream import JetStream
    from pelton.core.bulk.columns import Columns

if TYPE_CHECKING:
    _Kind = click.ParamType[Any]
else:
    _Kind = click.ParamType  # not generic in every supported version of click

F = TypeVar("F", bound="Callable[..., object]")


class Row(NamedTuple):
    """A stored message; ``headers`` is the block as it was received, b"" for none."""

    seq: int
    ts_ns: int
    subject: str
    headers: bytes
    data: bytes

    def decoded(self) -> dict[str, list[str]]:
        """The headers; ValueError when they are malformed."""
        from pelton.core.protocol.wire import decode_headers

        return decode_headers(self.headers)[2] if self.headers else {}


@dataclass(frozen=True)
class Limit:
    """A sequence, or a time in nanoseconds; the other one is 0. Both 0: no limit."""

    seq: int = 0
    ts_ns: int = 0


class _Limit(_Kind):
    name = "sequence or time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Limit:
        from pelton.api.times import parse_time

        text = str(value)
        if text.isdigit() and int(text):
            return Limit(seq=int(text))
        try:
            return Limit(ts_ns=parse_time(text))
        except ValueError:
            return self.fail(
                f'"{text}" is neither a sequence nor a time such as 2026-11-21T04:00:00Z',
                param,
                ctx,
            )


LIMIT = _Limit()


@dataclass(frozen=True)
class Range:
    """Messages from ``first`` to ``last`` (that sequence too, but not that time) on any of ``subjects``."""

    subjects: tuple[str, ...] = ()
    first: Limit = Limit()
    last: Limit = Limit()

    @classmethod
    def of(cls, asked: dict[str, Any]) -> Range:
        """Out of the values of ``range_options``, which it removes. UsageError."""
        subjects, first = asked.pop("subjects"), asked.pop("first")
        last, since = asked.pop("last"), asked.pop("since")
        if first and since is not None:
            raise click.UsageError("--from and --since exclude each other")
        if since is not None:
            first = Limit(ts_ns=max(time.time_ns() - since, 1))
        return cls(subjects, first or Limit(), last or Limit())


def range_options(function: F) -> F:
    """``--subject``, ``--from``, ``--to`` and ``--since``."""
    for option in (
        click.option(
            "--since", type=DURATION, default=None, help="Begin with messages of this age."
        ),
        click.option("--to", "last", type=LIMIT, help="Last sequence, or a time (not included)."),
        click.option(
            "--from", "first", type=LIMIT, help="First sequence, or time (2026-11-21T04:00:00Z)."
        ),
        click.option(
            "-S", "--subject", "subjects", multiple=True, help="Only matching subjects; repeatable."
        ),
    ):
        function = option(function)
    return function


def bounds(js: JetStream, info: StreamInfo, wanted: Range) -> tuple[int, int]:
    """(first sequence, the one after the last) of a range of the stream's messages."""
    from pelton.client.sync.gets import sequence_at

    state, name = info.state, info.config.name
    first = max(wanted.first.seq, state.first_seq, 1)
    stop = state.last_seq + 1
    if wanted.last.seq:
        stop = min(stop, wanted.last.seq + 1)
    if wanted.first.ts_ns:
        first = sequence_at(js, name, wanted.first.ts_ns, first, stop)
    if wanted.last.ts_ns:
        stop = sequence_at(js, name, wanted.last.ts_ns, first, stop)
    return first, max(first, stop)


def columns_of(
    js: JetStream, info: StreamInfo, first: int, stop: int, subjects: tuple[str, ...] = ()
) -> Iterator[Columns]:
    """The messages with ``first <= sequence < stop`` in batches."""
    from pelton.client.sync.columns import read_range
    from pelton.client.sync.gets import read_stored

    if first >= stop:
        return iter(())
    read = read_range if info.config.retention == "limits" else read_stored
    return read(js, info.config.name, first, stop, filter_subjects=subjects)


def rows_of(
    js: JetStream, info: StreamInfo, first: int, stop: int, subjects: tuple[str, ...] = ()
) -> Iterator[Row]:
    """The same one by one."""
    for columns in columns_of(js, info, first, stop, subjects):
        yield from (Row(*each) for each in columns.rows())
