"""The shadow of a query: a durable consumer whose ack floor is the query's committed position.

Spark keeps a query's position in its checkpoint, where the server's tools can't see it. The shadow
is a durable that no client reads from. It moves to the end of each batch that Spark has committed::

    nats consumer info ORDERS my-query
      Acknowledgment Floor: Consumer sequence: 0 Stream sequence: 41
          Unprocessed Messages: 7                                           <- the query's lag

A stream with interest retention then keeps the messages that the query has still to read. The floor
is never ahead of the commit log: it follows ``commit(end)`` and the ``start`` with which Spark calls
``latestOffset``, which are both committed. The first move of a process also moves a floor back that
is ahead.

A shadow that can't be moved never harms the query: there is one warning for a row of failures and a
pause before the next attempt, and the shadow catches up later. Only a shadow that can't work from
the start is an error.

Does not depend on Spark; :mod:`pelton.spark.watching.lag_moves` moves the durable.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pelton.api.times import format_time
from pelton.core.protocol.subjects import collide
from pelton.errors import ApiError, ConsumerNotFoundError, PeltonError, PeltonTimeoutError
from pelton.spark.connection import ReadError, client_for
from pelton.spark.watching import lag_moves

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pelton.client.base.models import ConsumerConfig, ConsumerInfo
    from pelton.client.sync.jetstream import JetStream
    from pelton.spark.reading.offsets import Offset
    from pelton.spark.reading.options import Options
    from pelton.spark.servers import Servers

REQUEST_SECONDS = 2.0
PAUSE_SECONDS = 5.0


class ShadowError(ReadError):
    """The consumer of that name can't be the shadow of a query; the text says why."""


@dataclass
class Shadow:
    """The durables called ``name`` on the streams that a query reads; its reader holds this object.

    ``subjects`` are the query's filters, none for all. ``failures`` counts moves that failed.
    """

    servers: Servers
    name: str
    subjects: tuple[str, ...] = ()
    failures: int = 0
    _places: dict[str, tuple[str, int]] = field(default_factory=dict)
    _retentions: dict[str, str] = field(default_factory=dict)
    _failing: bool = False
    _pause_until: float = 0.0
    _has_reset: bool = False
    _without_resets: bool = False

    def advance(self, committed: Mapping[str, Offset]) -> None:
        """Move the floors to the offsets that Spark has committed; sends no request when they are
        there.

        Raises only :class:`ShadowError`, and only before a stream's shadow was moved for the first
        time.
        """
        for stream, offset in committed.items():
            born, seq = self._places.get(stream, ("", -1))
            if born == offset.born and offset.seq <= seq:
                continue
            if self._failing and time.monotonic() < self._pause_until:
                return
            try:
                self._move(stream, offset, known=born == offset.born)
            except ShadowError as error:
                if stream not in self._places:
                    raise
                self._failed(stream, offset.seq, error)
            except (PeltonError, OSError, RuntimeError, ValueError) as error:
                self._failed(stream, offset.seq, error)
            else:
                self._places[stream] = offset.born, offset.seq
                self._failing = False

    def _failed(self, stream: str, seq: int, error: Exception) -> None:
        self.failures += 1
        self._pause_until = time.monotonic() + PAUSE_SECONDS
        if not self._failing:
            self._failing = True
            warnings.warn(
                f"consumer {self.name} of stream {stream} could not be moved to {seq}; the query"
                f" goes on, its lag is not shown (failures so far: {self.failures}): {error}",
                stacklevel=4,
            )

    def _jetstream(self) -> JetStream:
        seconds = min(self.servers.request_timeout_seconds, REQUEST_SECONDS)
        return client_for(self.servers).jetstream(
            domain=self.servers.domain, prefix=self.servers.api_prefix, timeout=seconds
        )

    def _move(self, stream: str, offset: Offset, *, known: bool) -> None:
        jetstream = self._jetstream()
        if known:
            try:
                self._forward(jetstream, stream, offset.seq)
            except ConsumerNotFoundError:
                pass  # the consumer or the stream was deleted: check both
            else:
                return
        self._settle(jetstream, stream, offset)

    def _forward(self, jetstream: JetStream, stream: str, seq: int) -> None:
        """Move a durable that was seen before; raises ConsumerNotFoundError."""
        if self._resets(jetstream):
            try:
                lag_moves.reset(jetstream, stream, self.name, seq)
            except PeltonTimeoutError:
                # No answer: the durable is gone, the server has much to remove, or it knows no
                # resets.
                if _floor(jetstream.consumer_info(stream, self.name)) >= seq:
                    return
                if self._has_reset:
                    raise
                self._without_resets = True
            else:
                self._has_reset = True
                return
        if self._retentions[stream] == "limits":
            subjects = self._filters(jetstream, stream)
            lag_moves.make_again(jetstream, stream, self.name, subjects, seq)
        else:
            lag_moves.fetch(jetstream, jetstream.consumer_info(stream, self.name), seq)

    def _settle(self, jetstream: JetStream, stream: str, offset: Offset) -> None:
        """Check the stream and the durable, and put the durable exactly at the offset."""
        about = jetstream.stream_info(stream)
        self._retentions[stream] = about.config.retention
        if about.config.retention == "workqueue":
            raise ShadowError(
                f"stream {stream} is a work queue, whose messages belong to one consumer:"
                " leave out the option consumer, or write consumer: none in a pipeline file"
            )
        if format_time(about.created) != offset.born:
            return  # the query does not know yet that the stream was created again
        subjects = self._filters(jetstream, stream)
        wanted = lag_moves.config(self.name, subjects, offset.seq)
        try:
            info = jetstream.consumer_info(stream, self.name)
        except ConsumerNotFoundError:
            if about.config.retention == "limits":
                lag_moves.create(jetstream, stream, self.name, subjects, offset.seq)
            else:
                jetstream.create_consumer(stream, wanted)
            return
        self._check_kind(info)
        if not _same_filters(info.config, wanted):
            info = jetstream.update_consumer(stream, _with_filters(info.config, wanted))
        floor = _floor(info)
        if floor < offset.seq:
            self._forward(jetstream, stream, offset.seq)
        elif floor > offset.seq:
            self._back(jetstream, stream, offset.seq)

    def _back(self, jetstream: JetStream, stream: str, seq: int) -> None:
        """Move the durable back, for a query that begins again or from an older copy of its
        checkpoint.
        """
        if self._resets(jetstream):
            try:
                lag_moves.reset(jetstream, stream, self.name, seq)
            except (PeltonTimeoutError, ApiError):
                pass  # below the sequence where the durable was created: create it again
            else:
                return
        subjects = self._filters(jetstream, stream)
        limits = self._retentions[stream] == "limits"
        back = lag_moves.make_again if limits else lag_moves.move_back
        back(jetstream, stream, self.name, subjects, seq)

    def _resets(self, jetstream: JetStream) -> bool:
        return not self._without_resets and lag_moves.takes_resets(jetstream)

    def _filters(self, jetstream: JetStream, stream: str) -> tuple[str, ...]:
        """The durable's filters; none where the server would not take them.

        No filter is safe: the stream holds more messages and the lag counts more. With interest retention
        there is none either: the stream would not store messages that no consumer matches, and the reader
        could not tell these from messages that were removed before it read them.
        """
        subjects = self.subjects
        if self._retentions[stream] != "limits":
            return ()
        several = len(subjects) > 1
        if several and not (lag_moves.takes_several_filters(jetstream) and _disjoint(subjects)):
            return ()
        return subjects

    def _check_kind(self, info: ConsumerInfo) -> None:
        found = info.config
        if found is None or found.description != lag_moves.DESCRIPTION:
            problem = "was not made for a query"
        elif found.deliver_subject or found.ack_policy != "all":
            problem = "was changed: it must pull, with the ack policy all"
        else:
            return
        raise ShadowError(
            f"consumer {self.name} of stream {info.stream_name} {problem}; delete it, or give the"
            " option consumer another name"
        )


def shadow_of(options: Options) -> Shadow | None:
    """The shadow that the option consumer asks a reader for; None without the option."""
    if options.consumer is None:
        return None
    return Shadow(options.servers, options.consumer, options.subjects)


def _disjoint(subjects: tuple[str, ...]) -> bool:
    return not any(
        collide(subject, other)
        for index, subject in enumerate(subjects)
        for other in subjects[index + 1 :]
    )


def _floor(info: ConsumerInfo) -> int:
    """The stream sequence of the durable's ack floor.

    Before the first ack older servers report 0; the floor is then the sequence before the first one that
    the durable delivers.
    """
    started = 0 if info.config is None else max(0, info.config.opt_start_seq - 1)
    return info.ack_floor.stream_seq or started


def _filters(config: ConsumerConfig | None) -> set[str]:
    if config is None:
        return set()
    one = [config.filter_subject] if config.filter_subject else []
    return {*one, *config.filter_subjects} - {">"}


def _same_filters(found: ConsumerConfig | None, wanted: ConsumerConfig) -> bool:
    return _filters(found) == _filters(wanted)


def _with_filters(found: ConsumerConfig | None, wanted: ConsumerConfig) -> ConsumerConfig:
    return replace(
        found or wanted,
        filter_subject=wanted.filter_subject,
        filter_subjects=wanted.filter_subjects,
    )
