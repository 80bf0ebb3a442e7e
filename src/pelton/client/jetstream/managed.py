"""Management of streams and consumers, and direct gets, as calls of both shells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from pelton.api import calls as wire
from pelton.api import encode

from ..base.durations import Moment, to_moment
from ..base.message import BaseMessage
from ..base.steps import call, flow, planned, planned_flow
from ..plans.management import ManagementPlans
from .direct import DirectGets, itself, single_get, stored_message, subjects_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..base.steps import Flow, Steps
    from ..plans.jetstream import StoredMessage
    from ..session.session import Session

T = TypeVar("T")
M = TypeVar("M", bound=BaseMessage)


class Managed(Generic[M]):
    """The calls of ``js`` that are not about publishing and reading."""

    client: Session[M]
    _plans: ManagementPlans
    timeout: float

    create_or_update_stream = planned(ManagementPlans.create_or_update_stream)
    stream_name_by_subject = planned(ManagementPlans.stream_name_by_subject)
    step_down_stream = planned(ManagementPlans.step_down_stream)
    remove_stream_peer = planned(ManagementPlans.remove_stream_peer)
    iter_streams = planned_flow(ManagementPlans.each_stream)
    iter_stream_names = planned_flow(ManagementPlans.each_stream_name)

    create_or_update_consumer = planned(ManagementPlans.create_or_update_consumer)
    pause_consumer = planned(ManagementPlans.pause_consumer)
    resume_consumer = planned(ManagementPlans.resume_consumer)
    reset_consumer = planned(ManagementPlans.reset_consumer)
    unpin_consumer = planned(ManagementPlans.unpin_consumer)
    step_down_consumer = planned(ManagementPlans.step_down_consumer)
    iter_consumers = planned_flow(ManagementPlans.each_consumer)
    iter_consumer_names = planned_flow(ManagementPlans.each_consumer_name)

    # -- direct gets -------------------------------------------------------------------------------

    def _getting_directly(
        self,
        stream: str,
        seq: int | None = None,
        *,
        last_by_subject: str | None = None,
        next_by_subject: str | None = None,
        start_time: Moment | None = None,
    ) -> Steps[StoredMessage]:
        """One stored message, from any server that has a copy: the stream needs ``allow_direct``.

        By its sequence; the last one of a subject; or the first one at or after ``seq`` or
        ``start_time``, of the subject ``next_by_subject`` if that is given. A copy may be behind the
        leader, whom ``get_message`` asks. Raises MessageNotFoundError, DirectGetError, NotEnabledError for a
        ``start_time`` before nats-server 2.11, and NoRespondersError when the stream does not exist or does not
        allow direct gets.
        """
        request = single_get(seq, last_by_subject, next_by_subject, start_time)
        subject, body = self._plans.direct_get(stream), encode(request)
        if last_by_subject is not None and {"*", ">"}.isdisjoint(last_by_subject.split(".")):
            subject, body = self._plans.direct_get(stream, last_by_subject), b""
        answer = yield from self.client._reading(subject, body, self.timeout)
        return stored_message(answer)

    direct_get = call(_getting_directly)

    def _getting_batch(
        self,
        stream: str,
        batch: int | None = None,
        *,
        seq: int | None = None,
        subject: str | None = None,
        start_time: Moment | None = None,
        max_bytes: int = 0,
    ) -> Flow[StoredMessage]:
        """Stored messages in the order of their sequences, many of them in one direct get.

        At most ``batch`` messages (None: all), from ``seq`` (1) or ``start_time`` on, of one
        ``subject``, which may have wildcards. ``max_bytes`` limits one answer of the server; the next
        get follows by itself. Needs ``allow_direct`` and nats-server 2.11 (NotEnabledError). Raises
        NoRespondersError, DirectGetError, PeltonTimeoutError, ConnectionLostError.
        """
        yield from self._batch_of(stream, batch, seq, subject, start_time, max_bytes, itself)

    get_batch = flow(_getting_batch)

    def _batch_of(
        self,
        stream: str,
        batch: int | None,
        seq: int | None,
        subject: str | None,
        start_time: Moment | None,
        max_bytes: int,
        make: Callable[[StoredMessage], T | None],
    ) -> Flow[T]:
        """``get_batch`` for callers that make something else of each message."""
        if batch is not None and batch < 1:
            raise ValueError(f"batch must be at least 1, got {batch}")
        if seq is not None and start_time is not None:
            raise ValueError("give seq or start_time, not both")
        request = wire.MsgGetRequest(
            seq=(seq or 1) if start_time is None else 0,
            next_by_subj=subject or "",
            start_time=to_moment(start_time),
            max_bytes=max_bytes,
        )
        gets = DirectGets(self.client, self._plans.direct_get(stream), self.timeout)
        yield from gets.pages(request, batch, make)

    def _getting_last(
        self,
        stream: str,
        subjects: str | Iterable[str],
        *,
        batch: int | None = None,
        up_to_seq: int | None = None,
        up_to_time: Moment | None = None,
        max_bytes: int = 0,
    ) -> Flow[StoredMessage]:
        """The last message of every subject that matches, in the order of their sequences.

        All of them belong to one state of the stream: that at ``up_to_seq`` or ``up_to_time`` if one
        is given. At most 1024 subjects may match, otherwise DirectGetError with the status 413. Needs
        ``allow_direct`` and nats-server 2.11; raises as ``get_batch``.
        """
        if batch is not None and batch < 1:
            raise ValueError(f"batch must be at least 1, got {batch}")
        if up_to_seq is not None and up_to_time is not None:
            raise ValueError("give up_to_seq or up_to_time, not both")
        request = wire.MsgGetRequest(
            multi_last=subjects_of(subjects),
            up_to_seq=up_to_seq or 0,
            up_to_time=to_moment(up_to_time),
            max_bytes=max_bytes,
        )
        gets = DirectGets(self.client, self._plans.direct_get(stream), self.timeout)
        yield from gets.pages(request, batch, itself)

    get_last_messages_for = flow(_getting_last)
