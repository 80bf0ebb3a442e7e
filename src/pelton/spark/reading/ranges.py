"""The messages of a partition as Arrow batches, read on an executor.

Four transports give the same rows: an own consumer, batches of direct gets, a request for each
message, and the files of a Pelton store where the executor can see them. The plan names the
transport, or the reader chooses it by the plan, the server and the stream. A transport that cannot
read here gives way to the next one. A stream with interest or work queue retention is never read
with a consumer.

A read is exact, even when the server stops during it: it continues after the last row that it returned,
with another connection, consumer or transport. :mod:`pelton.spark.reading.one_range` detects losses.

Does not depend on Spark.
"""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, TypeVar

from pelton.errors import (
    ApiError,
    PeltonError,
    PeltonTimeoutError,
    PermissionsViolationError,
    StreamNotFoundError,
)
from pelton.spark.connection import ReadError, StreamMissingError, forget_client
from pelton.spark.reading import consumers, direct, gets
from pelton.spark.reading import plan as plans
from pelton.spark.reading.arrow import to_arrow
from pelton.spark.reading.one_range import Reading, StreamGone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from pelton.core.bulk.columns import Columns
    from pelton.spark.reading.plan import ReadPlan

    Transport = Callable[[Reading], Iterator[Columns]]

Answer = TypeVar("Answer")

_RETRY_EVERY_SECONDS = 0.2
_UNAVAILABLE = 503
LIMITS = "limits"


def read_range(plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """The messages of the plan's range that the stream still has, in order, as Arrow batches.

    Raises :class:`DataLossError` when messages were removed before they were read, or when the stream is
    another one, unless the plan goes on with the rest; :class:`ReadError` when the server stays away for
    ``retryTimeout`` or refuses.
    """
    if not len(plan.range):
        return
    reading = Reading(plan)
    try:
        for columns in _columns(reading):
            reading.take(columns)
            batch = to_arrow(columns, plan)
            if batch.num_rows:
                yield batch
        _patiently(reading, reading.end)
    except StreamGone:
        return


def _columns(reading: Reading) -> Iterator[Columns]:
    """Batches of columns from one transport after the other, until one reaches the end."""
    for transport in _transports(reading):
        try:
            yield from _persistently(reading, transport)
        except plans.UnfitError as error:
            reading.front = None
            if str(error):
                warnings.warn(f"stream {reading.plan.stream}: {error}", stacklevel=2)
            continue
        return


def _transports(reading: Reading) -> Iterator[Transport]:
    plan = reading.plan
    if plan.segments is not None and plan.transport in (plans.AUTO, plans.SEGMENTS):
        from pelton.spark.reading import segments as files

        yield files.read
    if plan.transport in (plans.AUTO, plans.SEGMENTS, plans.CONSUMER):
        info = _patiently(reading, reading.look)
        kept = info.config.retention == LIMITS
        if not kept and plan.transport == plans.CONSUMER:
            raise ReadError(
                f"stream {plan.stream} has {info.config.retention} retention: a consumer of this"
                " read would remove messages that others need. Leave out the option transport"
            )
        if plan.transport != plans.CONSUMER and _patiently(
            reading, lambda: (direct.is_better if kept else direct.is_exact)(reading, info)
        ):
            yield direct.read
        if kept:
            yield consumers.read
    elif plan.transport == plans.DIRECT:
        yield direct.read
        if _patiently(reading, reading.look).config.retention == LIMITS:
            yield consumers.read
    yield gets.read


def _persistently(reading: Reading, transport: Transport) -> Iterator[Columns]:
    """Read with one transport; go on behind the last row as long as the server comes back in time."""
    patience = _Patience(reading)
    while not reading.over:
        try:
            for columns in transport(reading):
                yield columns
                patience.renew()
        except (PeltonError, ReadError) as error:
            patience.bear(error)
        else:
            return


def _patiently(reading: Reading, ask: Callable[[], Answer]) -> Answer:
    """Ask, and ask again as long as the server comes back in time; returns the answer."""
    patience = _Patience(reading)
    while True:
        try:
            return ask()
        except (PeltonError, ReadError) as error:
            patience.bear(error)


class _Patience:
    """Limits how long a failing server is tried again."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self.renew()

    def renew(self) -> None:
        """The server sent something: count again."""
        servers = self._reading.plan.servers
        self._deadline = time.monotonic() + servers.retry_timeout_seconds

    def bear(self, error: Exception) -> None:
        """Wait a moment after a failure, or raise ReadError when another attempt is of no use."""
        plan = self._reading.plan
        if isinstance(error, StreamMissingError):
            raise error
        if isinstance(error, StreamNotFoundError):
            raise StreamMissingError(
                f"there is no stream {plan.stream} on {plan.servers}"
            ) from None
        if isinstance(error, ApiError) and error.code != _UNAVAILABLE:
            raise ReadError(f"stream {plan.stream}: {error}") from error
        if isinstance(error, PermissionsViolationError):
            raise ReadError(f"stream {plan.stream}: {error}") from error
        if isinstance(error.__cause__, PermissionsViolationError):
            raise error
        # After a PeltonTimeoutError the connection is good: the server is slow, or a message that was counted
        # is removed by now.
        if not isinstance(error, PeltonTimeoutError | ApiError):
            forget_client(plan.servers)
        if time.monotonic() > self._deadline:
            where = self._reading.position
            raise ReadError(f"stream {plan.stream}: cannot read on at {where}: {error}") from error
        time.sleep(_RETRY_EVERY_SECONDS)
