"""JetStream's API as plans: the requests of each call and their answers, without transport or waiting.

A plan is a generator that yields ``Request``s, is sent the bytes of each answer, and returns the
result::

    plan = Plans().stream_names()                shell:  request = next(plan)
    Request("$JS.API.STREAM.NAMES", b"...")              answer = <ask request.subject>
    ... as many as there are pages ...                   request = plan.send(answer)
    StopIteration(value=[...])

Both shells run the same plans, so a call means the same in asyncio and in blocking code.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from pelton.api import JsonError, decode_response, encode, error_from
from pelton.api import calls as wire
from pelton.api.subjects import Api
from pelton.api.times import format_duration
from pelton.core.protocol.wire import decode_headers, encode_headers
from pelton.errors import (
    ApiError,
    NoRespondersError,
    PeltonTimeoutError,
    PermissionsViolationError,
    ProtocolError,
)

from ..base.arguments import refuse, refuse_field, unknown_words
from ..base.durations import Duration, to_nanoseconds
from ..base.steps import Request

if TYPE_CHECKING:
    from pelton.api.fields import ConsumerAction

from ..base.models import (
    AccountInfo,
    ConsumerConfig,
    ConsumerInfo,
    ConsumerInfoResponse,
    ConsumerListResponse,
    PubAck,
    StreamConfig,
    StreamInfo,
    StreamInfoResponse,
    StreamListResponse,
)
from .needs import NO_NAMES, Need, check_level, check_made, needs_of

T = TypeVar("T")
R = TypeVar("R", bound=wire.Response)
Headers: TypeAlias = Mapping[str, str | Sequence[str]]
"""Headers of a message that is sent: each name with a value, or with several values in order."""

MSG_ID = "Nats-Msg-Id"
EXPECTED_STREAM = "Nats-Expected-Stream"
EXPECTED_LAST_SEQ = "Nats-Expected-Last-Sequence"
EXPECTED_LAST_SUBJECT_SEQ = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_LAST_MSG_ID = "Nats-Expected-Last-Msg-Id"
TTL = "Nats-TTL"

_pub_ack = msgspec.json.Decoder(PubAck)

INVALID_JSON = 10025
ALLOWED_BY = {
    10166: "allow_msg_ttl",
    10168: "allow_msg_counter",
    10174: "allow_atomic",
    10188: "allow_msg_schedules",
    10205: "allow_batched",
}
"""The error codes of messages that a stream does not allow, and the field that allows them."""


Plan: TypeAlias = Generator[Request, bytes, T]


class StoredMessage(NamedTuple):
    """A message that a stream holds.

    Example::

        stored = await js.get_message("ORDERS", 1)
        print(stored.subject, stored.seq, stored.data, stored.timestamp_ns)
    """

    subject: str
    seq: int
    data: bytes
    headers: dict[str, list[str]]
    timestamp_ns: int
    """When it was stored, nanoseconds since 1970 UTC."""


def decode(answer: bytes, kind: type[R]) -> R:
    """Decode an answer; ApiError when it is an error, ProtocolError when it has a wrong form."""
    try:
        response = decode_response(kind, answer)
    except JsonError as error:
        raise ProtocolError(f"unexpected answer: {error}: {answer[:200]!r}") from error
    if response.error is not None:
        raise error_from(response.error)
    return response


def encode_config(config: StreamConfig | ConsumerConfig) -> bytes:
    """A configuration as JSON; TypeError for a field of a wrong kind, ValueError for a number out of
    range, which every server refuses.

    Unknown words pass: a newer server may know them.
    """
    try:
        body = encode(config)
        decode_response(type(config), body)
    except (JsonError, AttributeError, TypeError) as error:
        refuse_field(config, error)
    return body


def present(value: T | None, answer: bytes = b"") -> T:
    """What an answer was asked for; ProtocolError when it is missing."""
    if value is None:
        raise ProtocolError(f"the answer lacks the requested content: {answer[:200]!r}")
    return value


def decode_pub_ack(answer: bytes) -> PubAck:
    """Decode the PubAck of a publish; ApiError when the stream refused the message."""
    try:
        ack = _pub_ack.decode(answer)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"not an ack of a publish: {error}: {answer[:200]!r}") from error
    if ack.error is not None:
        refusal = error_from(ack.error)
        if field := ALLOWED_BY.get(refusal.err_code):
            refusal.add_note(f"the stream's configuration allows it with {field}=True")
        raise refusal
    return ack


def encode_header_map(headers: Headers | None) -> bytes:
    """The header block of a mapping from names to a value or to several; b"" for none.

    Raises ValueError for characters that a header cannot hold.
    """
    if headers is None:
        return b""
    if not isinstance(headers, Mapping):
        refuse("headers", "a mapping from names to text, or to several texts", headers)
    for name, value in headers.items():
        if not isinstance(name, str):
            refuse("the name of a header", "text", name)
        if isinstance(value, str):
            continue
        if not isinstance(value, Sequence) or isinstance(value, bytes):
            refuse(f"header {name}", "text, or several texts", value)
    try:
        return encode_headers(headers) if headers else b""
    except TypeError as error:
        raise TypeError(f"headers are text, or several texts each: {error}") from None


def publish_headers(
    headers: Headers | None,
    *,
    msg_id: str | None = None,
    expected_stream: str | None = None,
    expected_last_seq: int | None = None,
    expected_last_subject_seq: int | None = None,
    expected_last_msg_id: str | None = None,
    ttl: Duration | None = None,
) -> bytes:
    """The header block of a publish into a stream; ValueError for characters that a header cannot
    hold.
    """
    extra: dict[str, str | Sequence[str]] = {}
    if msg_id is not None:
        extra[MSG_ID] = msg_id
    if expected_stream is not None:
        extra[EXPECTED_STREAM] = expected_stream
    if expected_last_seq is not None:
        extra[EXPECTED_LAST_SEQ] = str(expected_last_seq)
    if expected_last_subject_seq is not None:
        extra[EXPECTED_LAST_SUBJECT_SEQ] = str(expected_last_subject_seq)
    if expected_last_msg_id is not None:
        extra[EXPECTED_LAST_MSG_ID] = expected_last_msg_id
    if ttl is not None:
        extra[TTL] = format_duration(to_nanoseconds(ttl))
    if not extra:
        return encode_header_map(headers)
    return encode_header_map({**headers, **extra} if headers else extra)


@dataclass
class Listing(Generic[T]):
    """The result of a list call.

    Example::

        listing = await js.stream_listing()
        print(len(listing.found), "streams;", listing.unavailable)

    A server also names streams (and consumers) that it can't describe: they are on its disk and can't be
    opened, or no server that holds them answers.
    """

    found: list[T] = field(default_factory=list)
    unavailable: dict[str, str] = field(default_factory=dict)
    """Reasons by name, in order of names; "" when the server gave no reason."""

    def add(
        self, page: list[T] | None, missing: list[str], offline: dict[str, str], total: int
    ) -> bool:
        """Add one page of answers; returns whether it was the last one."""
        self.found += page or []
        for name in missing:
            self.unavailable.setdefault(name, "")
        self.unavailable.update(offline)
        self.unavailable = dict(sorted(self.unavailable.items()))
        return not page or len(self.found) + len(self.unavailable) >= total


@contextmanager
def _words(config: StreamConfig | ConsumerConfig) -> Iterator[None]:
    """Add what a server's refusal of a configuration leaves out: which words it may have."""
    try:
        yield
    except ApiError as error:
        for note in unknown_words(config) if error.err_code == INVALID_JSON else ():
            error.add_note(note)
        raise


def _no_level() -> int:
    return 0


class Plans:
    """The plans of one JetStream API: the server's own, that of a ``domain``, or any ``prefix``."""

    def __init__(
        self,
        domain: str | None = None,
        prefix: str | None = None,
        seconds: float | None = None,
        level_told: Callable[[], int] = _no_level,
    ) -> None:
        """``seconds`` is how long to wait for each answer; None for the time of the client's options.

        ``level_told``: the API level that the server of the connection has told, 0 for none. Raises ValueError
        for both a domain and a prefix, or for an invalid prefix.
        """
        if domain and prefix:
            raise ValueError("give a domain or a prefix, not both")
        self._seconds = seconds
        self._level_told = level_told
        self.subjects = Api(prefix) if prefix else Api.of_domain(domain or "")

    def _stream(self, call: str, stream: str) -> str:
        if not stream:
            raise ValueError("the name of a stream is empty")
        return self.subjects.stream(call, stream)

    def _consumer(self, call: str, stream: str, consumer: str) -> str:
        if not stream or not consumer:
            raise ValueError(f"a name is empty: stream {stream!r}, consumer {consumer!r}")
        return self.subjects.consumer(call, stream, consumer)

    def direct_get(self, stream: str, last_by_subject: str = "") -> str:
        """The subject of direct gets; ValueError for an invalid name."""
        return self.subjects.direct_get(stream, last_by_subject)

    def _read(self, subject: str, body: bytes, kind: type[R]) -> Plan[R]:
        """One answer to a request that changes nothing."""
        return self._one(subject, body, kind, reads=True)

    def _one(self, subject: str, body: bytes, kind: type[R], *, reads: bool = False) -> Plan[R]:
        answer = yield Request(subject, body, self._seconds, reads=reads)
        try:
            return decode(answer, kind)
        except ApiError as error:
            error.add_note(f"the answer to {subject}")
            raise

    def account_info(self) -> Plan[AccountInfo]:
        """The account's usage and limits."""
        answer = yield from self._read(self.subjects.info(), b"", wire.AccountInfoResponse)
        return present(answer.info)

    # -- streams -----------------------------------------------------------------------------------

    def create_stream(self, config: StreamConfig, *, strict: bool = True) -> Plan[StreamInfo]:
        """Create a stream; returns an existing one with the same config, StreamExistsError for another
        config.

        NotEnabledError when the server is too old for a field that is set: before anything is made, or for a field
        of 2.10 after the answer of an older server, which has made the stream without it. ``strict=False``
        takes what the server makes of the config.
        """
        return self.making_stream("CREATE", config, strict=strict)

    def update_stream(self, config: StreamConfig, *, strict: bool = True) -> Plan[StreamInfo]:
        """Change a stream to this whole config; NotEnabledError and ``strict`` as in ``create_stream``."""
        return self.making_stream("UPDATE", config, strict=strict)

    def making_stream(
        self,
        verb: str,
        config: StreamConfig,
        *,
        strict: bool = True,
        names: Mapping[str, str] = NO_NAMES,
    ) -> Plan[StreamInfo]:
        """Create or update a stream; ``names``: those that users know for fields."""
        subject, body = self._stream(verb, config.name), encode_config(config)
        needs = needs_of(config) if strict else []
        yield from self._knowing(needs, names)
        with _words(config):
            info = present((yield from self._one(subject, body, StreamInfoResponse)).info)
        check_made(needs, info.config, names)
        return info

    def _knowing(self, needs: Sequence[Need], names: Mapping[str, str]) -> Plan[None]:
        """Raise NotEnabledError when the server tells that it is too old; it is asked if it has told no level."""
        wanted = max((need.level for need in needs), default=0)
        if wanted <= self._level_told():
            return
        try:
            account = yield from self.account_info()
        except (NoRespondersError, PermissionsViolationError, PeltonTimeoutError):
            return  # its answer to the call itself will tell
        check_level(needs, account.api.level, names)

    def stream_info(
        self, stream: str, *, subjects_filter: str | None = None, deleted_details: bool = False
    ) -> Plan[StreamInfo]:
        """Config and state; with a filter also message counts per matching subject."""
        subject = self._stream("INFO", stream)
        request = wire.StreamInfoRequest(
            subjects_filter=subjects_filter or "", deleted_details=deleted_details
        )
        answer = yield from self._read(subject, encode(request), StreamInfoResponse)
        info = present(answer.info)
        found = info.state.subjects
        while subjects_filter and len(found) < answer.total:
            request.offset = len(found)
            answer = yield from self._read(subject, encode(request), StreamInfoResponse)
            page = present(answer.info).state.subjects
            if not page:
                break
            found.update(page)
        return info

    def stream_names(self, subject: str | None = None) -> Plan[list[str]]:
        """Names in order; with a subject only streams that store its messages."""
        names: list[str] = []
        while True:
            body = encode(wire.StreamNamesRequest(offset=len(names), subject=subject or ""))
            page = yield from self._read(
                self.subjects.stream("NAMES"), body, wire.StreamNamesResponse
            )
            names += page.streams or []
            if not page.streams or len(names) >= page.total:
                return names

    def streams(self, subject: str | None = None) -> Plan[list[StreamInfo]]:
        """Config and state of every stream, by name."""
        return (yield from self.stream_listing(subject)).found

    def stream_listing(self, subject: str | None = None) -> Plan[Listing[StreamInfo]]:
        """Config and state of every stream, or the reason why the server can't describe it."""
        listing: Listing[StreamInfo] = Listing()
        while True:
            body = encode(wire.StreamListRequest(offset=len(listing.found), subject=subject or ""))
            page = yield from self._read(self.subjects.stream("LIST"), body, StreamListResponse)
            if listing.add(page.streams, page.missing, page.offline, page.total):
                return listing

    def delete_stream(self, stream: str) -> Plan[None]:
        """Remove a stream with its messages and consumers."""
        yield from self._one(self._stream("DELETE", stream), b"", wire.SuccessResponse)

    def purge_stream(
        self,
        stream: str,
        *,
        filter_subject: str | None = None,
        seq: int | None = None,
        keep: int | None = None,
    ) -> Plan[int]:
        """Remove messages: all, of one subject, below ``seq``, or all but the newest ``keep``.

        Returns their number.
        """
        if seq is not None and keep is not None:
            raise ValueError("give seq or keep, not both")
        if keep == 0 or seq == 0:
            raise ValueError("seq and keep are at least 1; leave them out to purge all")
        body = encode(
            wire.StreamPurgeRequest(filter=filter_subject or "", seq=seq or 0, keep=keep or 0)
        )
        subject = self._stream("PURGE", stream)
        return (yield from self._one(subject, body, wire.StreamPurgeResponse)).purged

    def get_message(
        self,
        stream: str,
        seq: int | None = None,
        *,
        last_by_subject: str | None = None,
        next_by_subject: str | None = None,
    ) -> Plan[StoredMessage]:
        """One stored message; MessageNotFoundError when there is none."""
        if seq is None and last_by_subject is None and next_by_subject is None:
            raise ValueError("give seq, last_by_subject or next_by_subject")
        request = wire.MsgGetRequest(
            seq=seq or 0, last_by_subj=last_by_subject or "", next_by_subj=next_by_subject or ""
        )
        subject = self._stream("MSG.GET", stream)
        answer = yield from self._read(subject, encode(request), wire.MsgGetResponse)
        stored = present(answer.message)
        headers = decode_headers(stored.hdrs)[2] if stored.hdrs else {}
        return StoredMessage(stored.subject, stored.seq, stored.data, headers, stored.time)

    def delete_message(self, stream: str, seq: int, *, erase: bool = True) -> Plan[None]:
        """Remove one message; ``erase`` also overwrites its bytes on disk."""
        body = encode(wire.MsgDeleteRequest(seq=seq, no_erase=not erase))
        yield from self._one(self._stream("MSG.DELETE", stream), body, wire.SuccessResponse)

    # -- consumers ---------------------------------------------------------------------------------

    def create_consumer(
        self,
        stream: str,
        config: ConsumerConfig,
        *,
        action: ConsumerAction = "",
        strict: bool = True,
    ) -> Plan[ConsumerInfo]:
        """Create or change a consumer.

        ``action`` is "create", "update", or "" for either. NotEnabledError and ``strict`` as in
        ``create_stream``.
        """
        name = config.name or config.durable_name
        if config.name:
            # a subject with wildcards cannot be published to; then only the body has it
            literal = not {"*", ">"} & set(config.filter_subject.split("."))
            filter_subject = config.filter_subject if literal else ""
            subject = self.subjects.create_consumer(stream, name, filter_subject)
        elif name:
            subject = self._consumer("DURABLE.CREATE", stream, name)
        else:
            subject = self.subjects.consumer("CREATE", stream)
        encode_config(config)
        needs = needs_of(config) if strict else []
        yield from self._knowing(needs, NO_NAMES)
        body = encode(wire.CreateConsumerRequest(stream_name=stream, config=config, action=action))
        with _words(config):
            info = present((yield from self._one(subject, body, ConsumerInfoResponse)).info)
        if info.config is not None:
            check_made(needs, info.config, NO_NAMES)
        return info

    def update_consumer(
        self, stream: str, config: ConsumerConfig, *, strict: bool = True
    ) -> Plan[ConsumerInfo]:
        """Change an existing consumer to this whole config; NotEnabledError and ``strict`` as in
        ``create_stream``.
        """
        return self.create_consumer(stream, config, action="update", strict=strict)

    def consumer_info(self, stream: str, consumer: str) -> Plan[ConsumerInfo]:
        """Config and state of one consumer."""
        subject = self._consumer("INFO", stream, consumer)
        return present((yield from self._read(subject, b"", ConsumerInfoResponse)).info)

    def consumer_names(self, stream: str) -> Plan[list[str]]:
        """Names of a stream's consumers in order."""
        subject = self.subjects.consumer("NAMES", stream)
        names: list[str] = []
        while True:
            body = encode(wire.ConsumersRequest(offset=len(names)))
            page = yield from self._read(subject, body, wire.ConsumerNamesResponse)
            names += page.consumers or []
            if not page.consumers or len(names) >= page.total:
                return names

    def consumers(self, stream: str) -> Plan[list[ConsumerInfo]]:
        """Config and state of every consumer of a stream, by name."""
        return (yield from self.consumer_listing(stream)).found

    def consumer_listing(self, stream: str) -> Plan[Listing[ConsumerInfo]]:
        """Config and state of every consumer, or the reason why the server can't describe it."""
        subject = self.subjects.consumer("LIST", stream)
        listing: Listing[ConsumerInfo] = Listing()
        while True:
            body = encode(wire.ConsumersRequest(offset=len(listing.found)))
            page = yield from self._read(subject, body, ConsumerListResponse)
            if listing.add(page.consumers, page.missing, page.offline, page.total):
                return listing

    def delete_consumer(self, stream: str, consumer: str) -> Plan[None]:
        """Remove a consumer."""
        yield from self._one(self._consumer("DELETE", stream, consumer), b"", wire.SuccessResponse)
