"""Calls that manage streams and consumers beyond create, change and delete: plans without I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pelton.api import calls as wire
from pelton.api import encode, error_from
from pelton.api.errors import ErrorBody
from pelton.errors import StreamNotFoundError

from ..base.durations import Moment, to_moment
from ..base.models import (
    ConsumerConfig,
    ConsumerInfo,
    ConsumerInfoResponse,
    ConsumerListResponse,
    StreamConfig,
    StreamInfo,
    StreamListResponse,
)
from .jetstream import Plan, Plans, present
from .needs import NO_NAMES, PAUSES, RESETS, UNPINS

if TYPE_CHECKING:
    from ..base.models import Placement
    from ..base.steps import Flow

STREAM_NOT_FOUND = 10059


class ConsumerPause(NamedTuple):
    """The state of a consumer after ``pause_consumer`` and ``resume_consumer``.

    Example::

        pause = js.pause_consumer("ORDERS", "packing", datetime.now(UTC) + timedelta(hours=1))
        print(pause.paused, pause.pause_remaining_ns)
        js.resume_consumer("ORDERS", "packing")
    """

    paused: bool
    pause_until_ns: int
    """Nanoseconds since 1970 UTC; 0 when it is not paused."""
    pause_remaining_ns: int


class ManagementPlans(Plans):
    """The plans of one JetStream API."""

    def create_or_update_stream(
        self, config: StreamConfig, *, strict: bool = True
    ) -> Plan[StreamInfo]:
        """Change a stream to this whole config; create it when it does not exist. NotEnabledError and ``strict``
        as in ``create_stream``.
        """
        try:
            return (yield from self.update_stream(config, strict=strict))
        except StreamNotFoundError:
            return (yield from self.create_stream(config, strict=strict))

    def stream_name_by_subject(self, subject: str) -> Plan[str]:
        """The name of the stream that stores messages of this subject, which may have wildcards.

        The first by name when there are several. Raises StreamNotFoundError.
        """
        if not subject:
            raise ValueError("the subject is empty")
        body = encode(wire.StreamNamesRequest(subject=subject))
        page = yield from self._read(self.subjects.stream("NAMES"), body, wire.StreamNamesResponse)
        if not page.streams:
            raise error_from(
                ErrorBody(
                    code=404,
                    err_code=STREAM_NOT_FOUND,
                    description=f"no stream stores the subject {subject!r}",
                )
            )
        return page.streams[0]

    def step_down_stream(self, stream: str, *, placement: Placement | None = None) -> Plan[None]:
        """Let the leader of a stream hand over to another server of the cluster.

        ``placement.preferred`` names that server. Raises NotClusteredError with a single server.
        """
        body = encode(wire.LeaderStepDownRequest(placement=placement)) if placement else b""
        subject = self._stream("LEADER.STEPDOWN", stream)
        yield from self._one(subject, body, wire.SuccessResponse)

    def remove_stream_peer(self, stream: str, peer: str) -> Plan[None]:
        """Move a stream's copy away from the server with this name to another one of the cluster.

        Raises NotClusteredError with a single server.
        """
        if not peer:
            raise ValueError("the name of the peer is empty")
        body = encode(wire.PeerRemoveRequest(peer=peer))
        yield from self._one(self._stream("PEER.REMOVE", stream), body, wire.SuccessResponse)

    # -- consumers ---------------------------------------------------------------------------------

    def create_or_update_consumer(
        self, stream: str, config: ConsumerConfig, *, strict: bool = True
    ) -> Plan[ConsumerInfo]:
        """Create a consumer, or change an existing one to this whole config. NotEnabledError and ``strict`` as in
        ``create_stream``.
        """
        return self.create_consumer(stream, config, strict=strict)

    def pause_consumer(self, stream: str, consumer: str, until: Moment) -> Plan[ConsumerPause]:
        """Deliver nothing until a moment: a datetime with a zone, RFC 3339 text or nanoseconds.

        A moment in the past resumes the consumer. NotEnabledError before nats-server 2.11.
        """
        moment = to_moment(until) or 0
        yield from self._knowing([PAUSES], NO_NAMES)
        body = encode(wire.ConsumerPauseRequest(pause_until=moment))
        subject = self._consumer("PAUSE", stream, consumer)
        answer = yield from self._one(subject, body, wire.ConsumerPauseResponse)
        left = answer.pause_remaining if answer.paused else 0
        return ConsumerPause(answer.paused, answer.pause_until if answer.paused else 0, left)

    def resume_consumer(self, stream: str, consumer: str) -> Plan[ConsumerPause]:
        """Deliver again after ``pause_consumer``."""
        return self.pause_consumer(stream, consumer, 0)

    def reset_consumer(self, stream: str, consumer: str, seq: int = 0) -> Plan[ConsumerInfo]:
        """Deliver again from a stream sequence on, or from the message after the ack floor.

        Forgets deliveries and acks after that. NotEnabledError before nats-server 2.14.
        """
        yield from self._knowing([RESETS], NO_NAMES)
        body = encode(wire.ConsumerResetRequest(seq=seq)) if seq else b""
        subject = self._consumer("RESET", stream, consumer)
        return present((yield from self._one(subject, body, ConsumerInfoResponse)).info)

    def unpin_consumer(self, stream: str, consumer: str, group: str) -> Plan[None]:
        """Take the pin of a priority group from the client that has it, so that another one gets it.

        NotEnabledError before nats-server 2.11.
        """
        if not group:
            raise ValueError("the name of the priority group is empty")
        yield from self._knowing([UNPINS], NO_NAMES)
        body = encode(wire.ConsumerUnpinRequest(group=group))
        yield from self._one(self._consumer("UNPIN", stream, consumer), body, wire.Response)

    def step_down_consumer(
        self, stream: str, consumer: str, *, placement: Placement | None = None
    ) -> Plan[None]:
        """Let the leader of a consumer hand over, to ``placement.preferred`` if that is given.

        Raises NotClusteredError with a single server.
        """
        body = encode(wire.LeaderStepDownRequest(placement=placement)) if placement else b""
        subject = self._consumer("LEADER.STEPDOWN", stream, consumer)
        yield from self._one(subject, body, wire.SuccessResponse)

    # -- lists, page after page --------------------------------------------------------------------

    def each_stream_name(self, subject: str = "") -> Flow[str]:
        """The names of streams in order, of those that store the subject; one page in memory at a time."""
        offset = 0
        while True:
            body = encode(wire.StreamNamesRequest(offset=offset, subject=subject))
            page = yield from self._read(
                self.subjects.stream("NAMES"), body, wire.StreamNamesResponse
            )
            yield from page.streams or []
            offset += len(page.streams or [])
            if not page.streams or offset >= page.total:
                return

    def each_stream(self, subject: str = "") -> Flow[StreamInfo]:
        """Config and state of streams by name, of those that store the subject; one page in memory at a
        time. Streams that the server can't describe are left out; see ``stream_listing``.
        """
        offset = 0
        while True:
            body = encode(wire.StreamListRequest(offset=offset, subject=subject))
            page = yield from self._read(self.subjects.stream("LIST"), body, StreamListResponse)
            yield from page.streams or []
            offset += len(page.streams or [])
            if not page.streams or offset >= page.total:
                return

    def each_consumer_name(self, stream: str) -> Flow[str]:
        """The names of a stream's consumers in order; one page in memory at a time."""
        subject, offset = self.subjects.consumer("NAMES", stream), 0
        while True:
            body = encode(wire.ConsumersRequest(offset=offset))
            page = yield from self._read(subject, body, wire.ConsumerNamesResponse)
            yield from page.consumers or []
            offset += len(page.consumers or [])
            if not page.consumers or offset >= page.total:
                return

    def each_consumer(self, stream: str) -> Flow[ConsumerInfo]:
        """Config and state of a stream's consumers by name; one page in memory at a time. Consumers that
        the server can't describe are left out; see ``consumer_listing``.
        """
        subject, offset = self.subjects.consumer("LIST", stream), 0
        while True:
            body = encode(wire.ConsumersRequest(offset=offset))
            page = yield from self._read(subject, body, ConsumerListResponse)
            yield from page.consumers or []
            offset += len(page.consumers or [])
            if not page.consumers or offset >= page.total:
                return
