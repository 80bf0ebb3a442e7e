# Made of client/aio/management.py by tools/gen_sync.py: change that file, and run it again.
"""The calls of JetStream that manage streams and consumers: each sends a request to ``$JS.API``.

::

    js.stream_info("ORDERS") ──► $JS.API.STREAM.INFO.ORDERS {}
                             ◄── {"type": "...stream_info_response", "config": {...}, "state": {...}}
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, Unpack

from pelton.api import calls as wire
from pelton.api import encode, error_from
from pelton.api.errors import ErrorBody
from pelton.api.subjects import Api
from pelton.core.protocol.wire import decode_headers
from pelton.errors import (
    ApiError,
    NoRespondersError,
    PeltonTimeoutError,
    PermissionsViolationError,
    StreamNotFoundError,
)

from ..base.answers import (
    NO_NAMES,
    PAUSES,
    RESETS,
    UNPINS,
    Need,
    check_level,
    check_made,
    decode,
    encode_config,
    needs_of,
    present,
    words_told,
)
from ..base.arguments import check_number, check_texts, make_config, refuse
from ..base.durations import Duration, Moment, to_moment, to_seconds
from ..base.message import Headers
from ..base.models import (
    AccountInfo,
    ConsumerConfig,
    ConsumerFields,
    ConsumerInfo,
    ConsumerInfoResponse,
    ConsumerListResponse,
    ConsumerPause,
    Listing,
    Placement,
    StoredMessage,
    StreamConfig,
    StreamFields,
    StreamInfo,
    StreamInfoResponse,
    StreamListResponse,
)
from .locks import locked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pelton.api.fields import ConsumerAction

    from .connection import Client

R = TypeVar("R", bound=wire.Response)

STREAM_NOT_FOUND = 10059


class Management:
    """Streams and consumers of one JetStream API; a part of ``JetStream``."""

    def __init__(
        self, client: Client, *, domain: str | None, prefix: str | None, timeout: float
    ) -> None:
        """``timeout`` of every call, in seconds. ValueError for both a domain and a prefix, or a bad prefix."""
        if domain and prefix:
            raise ValueError("give a domain or a prefix, not both")
        self.client = client
        """The client that it belongs to."""
        self.timeout = timeout
        """How long its calls wait for an answer, in seconds, unless they are told."""
        self.subjects = Api(prefix) if prefix else Api.of_domain(domain or "")
        """The subjects of the API."""
        # A server tells its API level for itself, not for what is behind a domain or a prefix.
        self._tells_level = domain is None and prefix is None

    def _seconds_of(self, timeout: Duration | None) -> float:
        """The timeout in seconds: the given one, or that of every call."""
        return self.timeout if timeout is None else to_seconds(timeout, "timeout")

    # -- requests ----------------------------------------------------------------------------------

    def _call(self, subject: str, body: bytes, kind: type[R]) -> R:
        """The answer to a request that may change something, which is sent once."""
        answer = self.client._request(subject, body, self.timeout)
        return _decode(answer.data, kind, subject)

    def _read(self, subject: str, body: bytes, kind: type[R], seconds: float | None = None) -> R:
        """The answer to a request that changes nothing: in a cluster it is sent again while none comes."""
        seconds = self.timeout if seconds is None else seconds
        answer = self.client._read(subject, body, seconds)
        return _decode(answer.data, kind, subject)

    def _check_known(self, needs: Sequence[Need], names: Mapping[str, str]) -> None:
        """Raise NotEnabledError when the server tells that it is too old; it is asked if it has told no level."""
        wanted = max((need.level for need in needs), default=0)
        told = self.client.server_info.api_lvl if self._tells_level else 0
        if wanted <= told:
            return
        try:
            account = self.account_info()
        except (NoRespondersError, PermissionsViolationError, PeltonTimeoutError):
            return  # its answer to the call itself will tell
        check_level(needs, account.api.level, names)

    def _stream(self, call: str, stream: str) -> str:
        if not stream:
            raise ValueError("the name of a stream is empty")
        return self.subjects.stream(call, stream)

    def _consumer(self, call: str, stream: str, consumer: str) -> str:
        if not stream or not consumer:
            raise ValueError(f"a name is empty: stream {stream!r}, consumer {consumer!r}")
        return self.subjects.consumer(call, stream, consumer)

    @locked
    def account_info(self) -> AccountInfo:
        """The account's usage and limits."""
        answer = self._read(self.subjects.info(), b"", wire.AccountInfoResponse)
        return present(answer.info)

    # -- streams -----------------------------------------------------------------------------------

    @locked
    def create_stream(
        self, name: str | StreamConfig, *, strict: bool = True, **fields: Unpack[StreamFields]
    ) -> StreamInfo:
        """Create a stream; returns an existing one with the same config, StreamExistsError for another
        config.

        ``name``, and ``fields`` that ``help(StreamConfig)`` explains; or a whole StreamConfig. ::

            js.create_stream("ORDERS", subjects=["orders.>"], max_age="7d")

        NotEnabledError when the server is too old for a field that is set: before anything is made, or for a field
        of 2.10 after the answer of an older server, which has made the stream without it. ``strict=False``
        takes what the server makes of the config.
        """
        config = make_config(StreamConfig, name, fields, "name")
        return self._make_stream("CREATE", config, strict=strict)

    @locked
    def update_stream(
        self, name: str | StreamConfig, *, strict: bool = True, **fields: Unpack[StreamFields]
    ) -> StreamInfo:
        """Change a stream to this whole config: a field that is not given gets its default.

        Arguments, NotEnabledError and ``strict`` as in ``create_stream``.
        """
        config = make_config(StreamConfig, name, fields, "name")
        return self._make_stream("UPDATE", config, strict=strict)

    @locked
    def create_or_update_stream(
        self, name: str | StreamConfig, *, strict: bool = True, **fields: Unpack[StreamFields]
    ) -> StreamInfo:
        """Change a stream to this whole config; create it when it does not exist.

        Arguments, NotEnabledError and ``strict`` as in ``create_stream``.
        """
        config = make_config(StreamConfig, name, fields, "name")
        try:
            return self._make_stream("UPDATE", config, strict=strict)
        except StreamNotFoundError:
            return self._make_stream("CREATE", config, strict=strict)

    def _make_stream(
        self,
        verb: str,
        config: StreamConfig,
        *,
        strict: bool = True,
        names: Mapping[str, str] = NO_NAMES,
    ) -> StreamInfo:
        """Create or update a stream; ``names``: those that users know for fields."""
        subject, body = self._stream(verb, config.name), encode_config(config)
        # A server ignores fields that are newer than it is: without this check, nobody would notice.
        needs = needs_of(config) if strict else []
        self._check_known(needs, names)
        with words_told(config):
            info = present(self._call(subject, body, StreamInfoResponse).info)
        check_made(needs, info.config, names)
        return info

    @locked
    def stream_info(
        self, stream: str, *, subjects_filter: str | None = None, deleted_details: bool = False
    ) -> StreamInfo:
        """Config and state; with a filter also message counts per matching subject."""
        subject = self._stream("INFO", stream)
        check_texts(subjects_filter=subjects_filter)
        request = wire.StreamInfoRequest(
            subjects_filter=subjects_filter or "", deleted_details=bool(deleted_details)
        )
        answer = self._read(subject, encode(request), StreamInfoResponse)
        info = present(answer.info)
        found = info.state.subjects
        # Servers return at most 100,000 subjects at a time.
        while subjects_filter and len(found) < answer.total:
            request.offset = len(found)
            answer = self._read(subject, encode(request), StreamInfoResponse)
            page = present(answer.info).state.subjects
            # Subjects may have gone since the first page; then the total is never reached.
            if not page:
                break
            found.update(page)
        return info

    @locked
    def stream_names(self, subject: str | None = None) -> list[str]:
        """Names in order; with a subject only streams that store its messages."""
        return list(self.iter_stream_names(subject or ""))

    @locked
    def streams(self, subject: str | None = None) -> list[StreamInfo]:
        """Config and state of every stream, by name."""
        return self.stream_listing(subject).found

    @locked
    def stream_listing(self, subject: str | None = None) -> Listing[StreamInfo]:
        """Config and state of every stream, or the reason why the server can't describe it."""
        check_texts(subject=subject)
        listing: Listing[StreamInfo] = Listing()
        while True:
            request = wire.StreamListRequest(offset=len(listing.found), subject=subject or "")
            page = self._read(self.subjects.stream("LIST"), encode(request), StreamListResponse)
            if listing.add(page.streams, page.missing, page.offline, page.total):
                return listing

    @locked
    def iter_streams(self, subject: str = "") -> Iterator[StreamInfo]:
        """Config and state of streams by name, of those that store the subject; one page in memory at a
        time. Streams that the server can't describe are left out; see ``stream_listing``.
        """
        check_texts(subject=subject)
        offset = 0
        while True:
            request = wire.StreamListRequest(offset=offset, subject=subject)
            page = self._read(self.subjects.stream("LIST"), encode(request), StreamListResponse)
            yield from page.streams or []
            offset += len(page.streams or [])
            if not page.streams or offset >= page.total:
                return

    @locked
    def iter_stream_names(self, subject: str = "") -> Iterator[str]:
        """The names of streams in order, of those that store the subject; one page in memory at a time."""
        check_texts(subject=subject)
        offset = 0
        while True:
            request = wire.StreamNamesRequest(offset=offset, subject=subject)
            page = self._read(
                self.subjects.stream("NAMES"), encode(request), wire.StreamNamesResponse
            )
            yield from page.streams or []
            offset += len(page.streams or [])
            if not page.streams or offset >= page.total:
                return

    @locked
    def stream_name_by_subject(self, subject: str) -> str:
        """The name of the stream that stores messages of this subject, which may have wildcards.

        The first by name when there are several. Raises StreamNotFoundError.
        """
        check_texts(subject=subject)
        if not subject:
            raise ValueError("the subject is empty")
        body = encode(wire.StreamNamesRequest(subject=subject))
        page = self._read(self.subjects.stream("NAMES"), body, wire.StreamNamesResponse)
        if not page.streams:
            raise error_from(
                ErrorBody(
                    code=404,
                    err_code=STREAM_NOT_FOUND,
                    description=f"no stream stores the subject {subject!r}",
                )
            )
        return page.streams[0]

    @locked
    def delete_stream(self, stream: str) -> None:
        """Remove a stream with its messages and consumers."""
        self._call(self._stream("DELETE", stream), b"", wire.SuccessResponse)

    @locked
    def purge_stream(
        self,
        stream: str,
        *,
        filter_subject: str | None = None,
        seq: int | None = None,
        keep: int | None = None,
    ) -> int:
        """Remove messages: all, of one subject, below ``seq``, or all but the newest ``keep``.

        Returns their number.
        """
        check_texts(filter_subject=filter_subject)
        check_number("seq", seq, optional=True)
        check_number("keep", keep, optional=True)
        if seq is not None and keep is not None:
            raise ValueError("give seq or keep, not both")
        # On the wire 0 is the same as no limit, and would purge everything.
        if keep == 0 or seq == 0:
            raise ValueError("seq and keep are at least 1; leave them out to purge all")
        request = wire.StreamPurgeRequest(filter=filter_subject or "", seq=seq or 0, keep=keep or 0)
        subject = self._stream("PURGE", stream)
        return self._call(subject, encode(request), wire.StreamPurgeResponse).purged

    @locked
    def step_down_stream(self, stream: str, *, placement: Placement | None = None) -> None:
        """Let the leader of a stream hand over to another server of the cluster.

        ``placement.preferred`` names that server. Raises NotClusteredError with a single server.
        """
        body = _step_down(placement)
        self._call(self._stream("LEADER.STEPDOWN", stream), body, wire.SuccessResponse)

    @locked
    def remove_stream_peer(self, stream: str, peer: str) -> None:
        """Move a stream's copy away from the server with this name to another one of the cluster.

        Raises NotClusteredError with a single server.
        """
        check_texts(peer=peer)
        if not peer:
            raise ValueError("the name of the peer is empty")
        body = encode(wire.PeerRemoveRequest(peer=peer))
        self._call(self._stream("PEER.REMOVE", stream), body, wire.SuccessResponse)

    # -- stored messages ---------------------------------------------------------------------------

    @locked
    def get_message(
        self,
        stream: str,
        seq: int | None = None,
        *,
        last_by_subject: str | None = None,
        next_by_subject: str | None = None,
        timeout: Duration | None = None,
    ) -> StoredMessage:
        """One stored message; MessageNotFoundError when there is none."""
        check_texts(last_by_subject=last_by_subject, next_by_subject=next_by_subject)
        check_number("seq", seq, optional=True)
        if seq is None and last_by_subject is None and next_by_subject is None:
            raise ValueError("give seq, last_by_subject or next_by_subject")
        request = wire.MsgGetRequest(
            seq=seq or 0, last_by_subj=last_by_subject or "", next_by_subj=next_by_subject or ""
        )
        subject, seconds = self._stream("MSG.GET", stream), self._seconds_of(timeout)
        answer = self._read(subject, encode(request), wire.MsgGetResponse, seconds)
        stored = present(answer.message)
        headers = Headers(decode_headers(stored.hdrs)[2] if stored.hdrs else None)
        return StoredMessage(stored.subject, stored.seq, stored.data, headers, stored.time)

    @locked
    def delete_message(self, stream: str, seq: int, *, erase: bool = True) -> None:
        """Remove one message; ``erase`` also overwrites its bytes on disk."""
        check_number("seq", seq)
        body = encode(wire.MsgDeleteRequest(seq=seq, no_erase=not erase))
        self._call(self._stream("MSG.DELETE", stream), body, wire.SuccessResponse)

    # -- consumers ---------------------------------------------------------------------------------

    @locked
    def create_consumer(
        self,
        stream: str,
        name: str | ConsumerConfig = "",
        *,
        action: ConsumerAction = "",
        strict: bool = True,
        **fields: Unpack[ConsumerFields],
    ) -> ConsumerInfo:
        """Create or change a consumer.

        ``name``, and ``fields`` that ``help(ConsumerConfig)`` explains; or a whole ConsumerConfig. Without a name
        the server chooses one. A consumer that is not used goes after its ``inactive_threshold``, unless it has
        a ``durable_name``. ::

            js.create_consumer("ORDERS", durable_name="billing", filter_subject="orders.new")

        ``action`` is "create", "update", or "" for either. NotEnabledError and ``strict`` as in
        ``create_stream``.
        """
        config = make_config(ConsumerConfig, name, fields, "name")
        subject = self._creation_subject(stream, config)
        # For its checks only: the body has the config within a request.
        encode_config(config)
        needs = needs_of(config) if strict else []
        self._check_known(needs, NO_NAMES)
        body = encode(wire.CreateConsumerRequest(stream_name=stream, config=config, action=action))
        with words_told(config):
            info = present(self._call(subject, body, ConsumerInfoResponse).info)
        if info.config is not None:
            check_made(needs, info.config, NO_NAMES)
        return info

    def _creation_subject(self, stream: str, config: ConsumerConfig) -> str:
        # Name and filter are part of the subject, so that permissions can restrict what is created.
        name = config.name or config.durable_name
        if config.name:
            # a subject with wildcards cannot be published to; then only the body has it
            literal = not {"*", ">"} & set(config.filter_subject.split("."))
            filter_subject = config.filter_subject if literal else ""
            return self.subjects.create_consumer(stream, name, filter_subject)
        if name:
            return self._consumer("DURABLE.CREATE", stream, name)
        return self.subjects.consumer("CREATE", stream)

    @locked
    def update_consumer(
        self,
        stream: str,
        name: str | ConsumerConfig,
        *,
        strict: bool = True,
        **fields: Unpack[ConsumerFields],
    ) -> ConsumerInfo:
        """Change an existing consumer to this whole config: a field that is not given gets its default.

        Arguments, NotEnabledError and ``strict`` as in ``create_consumer``.
        """
        return self.create_consumer(stream, name, action="update", strict=strict, **fields)

    @locked
    def create_or_update_consumer(
        self,
        stream: str,
        name: str | ConsumerConfig = "",
        *,
        strict: bool = True,
        **fields: Unpack[ConsumerFields],
    ) -> ConsumerInfo:
        """Create a consumer, or change an existing one to this whole config.

        Arguments, NotEnabledError and ``strict`` as in ``create_consumer``.
        """
        return self.create_consumer(stream, name, strict=strict, **fields)

    @locked
    def consumer_info(self, stream: str, consumer: str) -> ConsumerInfo:
        """Config and state of one consumer."""
        subject = self._consumer("INFO", stream, consumer)
        return present(self._read(subject, b"", ConsumerInfoResponse).info)

    @locked
    def consumer_names(self, stream: str) -> list[str]:
        """Names of a stream's consumers in order."""
        return list(self.iter_consumer_names(stream))

    @locked
    def consumers(self, stream: str) -> list[ConsumerInfo]:
        """Config and state of every consumer of a stream, by name."""
        return self.consumer_listing(stream).found

    @locked
    def consumer_listing(self, stream: str) -> Listing[ConsumerInfo]:
        """Config and state of every consumer, or the reason why the server can't describe it."""
        subject = self.subjects.consumer("LIST", stream)
        listing: Listing[ConsumerInfo] = Listing()
        while True:
            body = encode(wire.ConsumersRequest(offset=len(listing.found)))
            page = self._read(subject, body, ConsumerListResponse)
            if listing.add(page.consumers, page.missing, page.offline, page.total):
                return listing

    @locked
    def iter_consumers(self, stream: str) -> Iterator[ConsumerInfo]:
        """Config and state of a stream's consumers by name; one page in memory at a time. Consumers that
        the server can't describe are left out; see ``consumer_listing``.
        """
        subject, offset = self.subjects.consumer("LIST", stream), 0
        while True:
            body = encode(wire.ConsumersRequest(offset=offset))
            page = self._read(subject, body, ConsumerListResponse)
            yield from page.consumers or []
            offset += len(page.consumers or [])
            if not page.consumers or offset >= page.total:
                return

    @locked
    def iter_consumer_names(self, stream: str) -> Iterator[str]:
        """The names of a stream's consumers in order; one page in memory at a time."""
        subject, offset = self.subjects.consumer("NAMES", stream), 0
        while True:
            body = encode(wire.ConsumersRequest(offset=offset))
            page = self._read(subject, body, wire.ConsumerNamesResponse)
            yield from page.consumers or []
            offset += len(page.consumers or [])
            if not page.consumers or offset >= page.total:
                return

    @locked
    def delete_consumer(self, stream: str, consumer: str) -> None:
        """Remove a consumer."""
        self._call(self._consumer("DELETE", stream, consumer), b"", wire.SuccessResponse)

    @locked
    def pause_consumer(self, stream: str, consumer: str, until: Moment) -> ConsumerPause:
        """Deliver nothing until a moment: a datetime with a zone, RFC 3339 text or nanoseconds.

        A moment in the past resumes the consumer. NotEnabledError before nats-server 2.11.
        """
        moment = to_moment(until, "until") or 0
        self._check_known([PAUSES], NO_NAMES)
        body = encode(wire.ConsumerPauseRequest(pause_until=moment))
        subject = self._consumer("PAUSE", stream, consumer)
        answer = self._call(subject, body, wire.ConsumerPauseResponse)
        left = answer.pause_remaining if answer.paused else 0
        return ConsumerPause(answer.paused, answer.pause_until if answer.paused else 0, left)

    @locked
    def resume_consumer(self, stream: str, consumer: str) -> ConsumerPause:
        """Deliver again after ``pause_consumer``."""
        return self.pause_consumer(stream, consumer, 0)

    @locked
    def reset_consumer(self, stream: str, consumer: str, seq: int = 0) -> ConsumerInfo:
        """Deliver again from a stream sequence on, or from the message after the ack floor.

        Forgets deliveries and acks after that. NotEnabledError before nats-server 2.14.
        """
        check_number("seq", seq)
        self._check_known([RESETS], NO_NAMES)
        body = encode(wire.ConsumerResetRequest(seq=seq)) if seq else b""
        subject = self._consumer("RESET", stream, consumer)
        return present(self._call(subject, body, ConsumerInfoResponse).info)

    @locked
    def unpin_consumer(self, stream: str, consumer: str, group: str) -> None:
        """Take the pin of a priority group from the client that has it, so that another one gets it.

        NotEnabledError before nats-server 2.11.
        """
        check_texts(group=group)
        if not group:
            raise ValueError("the name of the priority group is empty")
        self._check_known([UNPINS], NO_NAMES)
        body = encode(wire.ConsumerUnpinRequest(group=group))
        self._call(self._consumer("UNPIN", stream, consumer), body, wire.Response)

    @locked
    def step_down_consumer(
        self, stream: str, consumer: str, *, placement: Placement | None = None
    ) -> None:
        """Let the leader of a consumer hand over, to ``placement.preferred`` if that is given.

        Raises NotClusteredError with a single server.
        """
        body = _step_down(placement)
        subject = self._consumer("LEADER.STEPDOWN", stream, consumer)
        self._call(subject, body, wire.SuccessResponse)


def _step_down(placement: Placement | None) -> bytes:
    """The body of the request that a leader hands over; TypeError."""
    if placement is None:
        return b""
    if not isinstance(placement, Placement):
        refuse("placement", "a Placement", placement)
    return encode(wire.LeaderStepDownRequest(placement=placement))


def _decode(answer: bytes, kind: type[R], subject: str) -> R:
    try:
        return decode(answer, kind)
    except ApiError as error:
        error.add_note(f"the answer to {subject}")
        raise
