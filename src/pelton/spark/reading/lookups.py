"""The requests of planning: states of streams, the last sequence that filters match, times.

Every error is a :class:`ReadError` of one line. Does not depend on Spark.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from pelton.client.base.models import ConsumerConfig
from pelton.client.sync.columns import next_stored
from pelton.errors import ApiError, MessageNotFoundError, StreamNotFoundError
from pelton.spark.asking import Asking
from pelton.spark.connection import ReadError, state_of
from pelton.spark.reading.patterns import cover

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pelton.client.base.models import StoredMessage
    from pelton.client.sync.jetstream import JetStream
    from pelton.spark.reading.offsets import StreamState
    from pelton.spark.reading.options import Options
    from pelton.spark.reading.positions import Position

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FILTERS_ASKED = 8
_NANOSECONDS_MAX = 2**63 - 1  # the last time of a server's clock, in the year 2262


class Lookups:
    """The requests of one reader, over this process's connection."""

    def __init__(self, options: Options) -> None:
        """Sends no request."""
        self._options = options
        self._asking = Asking(options.servers)
        self._ends: dict[str, tuple[tuple[str, int, tuple[str, ...]], int]] = {}

    def states(self, known: Iterable[str] = ()) -> dict[str, StreamState]:
        """The states of the selected streams that exist, by name.

        ``known`` are streams that a pattern selects and that must be asked for by name as well: a list of
        streams that change while the server sends it can miss one.
        """
        options = self._options
        found: dict[str, StreamState] = {}
        if options.stream_pattern is not None:
            listed = self._ask("list of streams", lambda js: js.streams())
            states = [state_of(info) for info in listed]
            found = {state.stream: state for state in states if options.selects(state.stream)}
        wanted = [name for name in known if options.selects(name)]
        for name in dict.fromkeys([*options.streams, *wanted]):
            if name not in found and (state := self.state(name)) is not None:
                found[name] = state
        return found

    def required_states(self) -> dict[str, StreamState]:
        """The states of all named streams; ReadError when one is missing."""
        found = self.states()
        for name in self._options.streams:
            if name not in found:
                raise ReadError(f"there is no stream {name} on {self._options.servers}")
        return found

    def state(self, stream: str) -> StreamState | None:
        """The state of a stream; None when it does not exist."""
        try:
            info = self._ask(f"stream {stream}", lambda js: js.stream_info(stream))
        except StreamNotFoundError:
            return None
        return state_of(info)

    def end(self, state: StreamState, subjects: tuple[str, ...]) -> int:
        """The last sequence of a message that the filters match; 0 when they match none.

        Many filters are replaced by one that covers them. Without filters it is the stream's last sequence.
        """
        if not subjects:
            return state.last_seq
        asked, end = self._ends.get(state.stream, (None, 0))
        if asked != (state.born, state.last_seq, subjects):
            few = subjects if len(subjects) <= _FILTERS_ASKED else (cover(subjects),)
            end = max(self._last_of(state.stream, each) for each in few)
            self._ends[state.stream] = ((state.born, state.last_seq, subjects), end)
        return min(end, state.last_seq)

    def next_behind(self, state: StreamState, seq: int, subjects: tuple[str, ...]) -> int | None:
        """The sequence of the first message behind ``seq`` that the filters match, stored or still to come.

        None when that is the next sequence, or unknown.
        """
        if seq >= self.end(state, subjects):
            found: int | None = state.last_seq + 1
        elif subjects or state.has_holes:
            few = subjects if len(subjects) <= _FILTERS_ASKED else (cover(subjects),)
            found = self._ask(
                f"stream {state.stream}",
                lambda js: next_stored(js, state.stream, seq + 1, few),
            )
        else:
            return None
        if found is None or found <= seq + 1 or not self.begins_by(state, seq + 1):
            return None
        return found

    def begins_by(self, state: StreamState, seq: int) -> bool:
        """Whether the stream still begins at or before ``seq``, so nothing behind it was removed
        since ``state``.
        """
        now = self.state(state.stream)
        return now is not None and now.born == state.born and now.first_seq <= seq

    def _last_of(self, stream: str, subject: str) -> int:
        try:
            return self._ask(
                f"stream {stream}", lambda js: js.get_message(stream, last_by_subject=subject)
            ).seq
        except (MessageNotFoundError, StreamNotFoundError):
            return 0

    def at_position(self, state: StreamState, position: Position) -> int | None:
        """The sequence at a position that is a time; None for other positions."""
        return None if position.time is None else self.sequence_at(state, position.time)

    def sequence_at(self, state: StreamState, at: datetime) -> int | None:
        """The sequence of the first message stored at or after a time; None when there is none yet.

        Creates a consumer that would start there, which every server since 2.9 knows. With interest or work
        queue retention, or when no more consumers may be created, it finds the sequence by bisection.
        """
        nanoseconds = (at - _EPOCH) // timedelta(microseconds=1) * 1000
        if nanoseconds <= 0:
            return state.first_seq if state.first_seq <= state.last_seq else None
        if nanoseconds > _NANOSECONDS_MAX:
            return None
        if state.retention != "limits":
            return self._sequence_between(state, nanoseconds)
        config = ConsumerConfig(
            deliver_policy="by_start_time",
            opt_start_time=nanoseconds,
            ack_policy="none",
            mem_storage=True,
            inactive_threshold=5,
        )

        def ask(js: JetStream) -> int:
            consumer = js.create_consumer(state.stream, config)
            js.delete_consumer(state.stream, consumer.name)
            return consumer.delivered.stream_seq + 1

        try:
            first = self._ask(f"stream {state.stream}", ask)
        except ReadError as error:
            if not isinstance(error.__cause__, ApiError):
                raise
            return self._sequence_between(state, nanoseconds)
        return first if first <= state.last_seq else None

    def _sequence_between(self, state: StreamState, nanoseconds: int) -> int | None:
        low, high = state.first_seq, state.last_seq + 1
        while low < high:
            middle = (low + high) // 2
            found = self._message_from(state.stream, middle)
            if found is None or found.seq >= high or found.timestamp_ns >= nanoseconds:
                high = middle
            else:
                low = found.seq + 1
        found = self._message_from(state.stream, low)
        return None if found is None or found.seq > state.last_seq else found.seq

    def _message_from(self, stream: str, seq: int) -> StoredMessage | None:
        """The first message at or behind a sequence."""
        try:
            return self._ask(
                f"stream {stream}", lambda js: js.get_message(stream, seq, next_by_subject=">")
            )
        except (MessageNotFoundError, StreamNotFoundError):
            return None

    def _ask(self, what: str, question: Callable[[JetStream], T]) -> T:
        return self._asking.ask(what, question)
