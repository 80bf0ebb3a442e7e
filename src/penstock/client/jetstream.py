"""JetStream's API as plans: what to ask, and what the answers mean. No transport, no waiting.

A plan is a generator that yields ``Request``s, is sent the bytes of each answer, and returns the result::

    plan = Api().stream_names()                  shell:  request = next(plan)
    Request("$JS.API.STREAM.NAMES", b"...")              answer = <ask request.subject>
    ... as many as there are pages ...                   request = plan.send(answer)   # or StopIteration.value

Both shells run the same plans, so that a call means the same in asyncio and in blocking code.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from penstock.core.wire import decode_headers, encode_headers
from penstock.errors import ApiError, ProtocolError

from .models import AccountInfo, ConsumerConfig, ConsumerInfo, PubAck, StreamConfig, StreamInfo

T = TypeVar("T")
Headers: TypeAlias = Mapping[str, str | Sequence[str]]

API_PREFIX = "$JS.API"
MSG_ID = "Nats-Msg-Id"
EXPECTED_STREAM = "Nats-Expected-Stream"
EXPECTED_LAST_SEQ = "Nats-Expected-Last-Sequence"
EXPECTED_LAST_SUBJECT_SEQ = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_LAST_MSG_ID = "Nats-Expected-Last-Msg-Id"
TTL = "Nats-TTL"
_NAME_BAD = re.compile(r"[ \t\r\n\f\0.*>/\\]")


class Request(NamedTuple):
    """One request of a plan: publish ``body`` to ``subject``, the answer is one message."""

    subject: str
    body: bytes = b""


Plan: TypeAlias = Generator[Request, bytes, T]


class StoredMessage(NamedTuple):
    """A message as a stream holds it."""

    subject: str
    seq: int
    data: bytes
    headers: dict[str, list[str]]
    time: str
    """When it was stored, RFC 3339 with nanoseconds, UTC."""


class _Error(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Failure(msgspec.Struct):
    error: _Error | None = None


class _Success(msgspec.Struct):
    success: bool = False
    purged: int = 0


class _Names(msgspec.Struct):
    total: int = 0
    offset: int = 0
    limit: int = 0
    streams: list[str] | None = None
    consumers: list[str] | None = None


class _Streams(msgspec.Struct):
    total: int = 0
    streams: list[StreamInfo] | None = None


class _Consumers(msgspec.Struct):
    total: int = 0
    consumers: list[ConsumerInfo] | None = None


class _Stored(msgspec.Struct):
    subject: str
    seq: int
    hdrs: str = ""
    data: str = ""
    time: str = ""


class _StoredAnswer(msgspec.Struct):
    message: _Stored


_failure = msgspec.json.Decoder(_Failure)
_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


def decode(answer: bytes, kind: type[T]) -> T:
    """The answer as a struct; ApiError when it carries an error, ProtocolError when it is not what it should be."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        if b'"error"' in answer:
            error = _failure.decode(answer).error
            if error is not None:
                raise ApiError.make(error.code, error.err_code, error.description)
        result: T = decoder.decode(answer)
    except msgspec.MsgspecError as error:
        raise ProtocolError(
            f"unexpected answer from JetStream: {error}: {answer[:200]!r}"
        ) from error
    return result


def decode_pub_ack(answer: bytes) -> PubAck:
    """The acknowledgement of a publish; ApiError when the stream refused it."""
    return decode(answer, PubAck)


def encode_header_map(headers: Headers | None) -> bytes:
    """The header block of a mapping from names to a value or to several; b"" for none. ValueError on bad characters."""
    if not headers:
        return b""
    return encode_headers(
        {
            name: [value] if isinstance(value, str) else list(value)
            for name, value in headers.items()
        }
    )


def publish_headers(
    headers: Headers | None,
    *,
    msg_id: str | None = None,
    expected_stream: str | None = None,
    expected_last_seq: int | None = None,
    expected_last_subject_seq: int | None = None,
    expected_last_msg_id: str | None = None,
    ttl_s: float | None = None,
) -> bytes:
    """The header block of a publish into a stream; ValueError on bad characters."""
    given = (
        (MSG_ID, msg_id),
        (EXPECTED_STREAM, expected_stream),
        (EXPECTED_LAST_SEQ, expected_last_seq),
        (EXPECTED_LAST_SUBJECT_SEQ, expected_last_subject_seq),
        (EXPECTED_LAST_MSG_ID, expected_last_msg_id),
        (TTL, None if ttl_s is None else f"{round(ttl_s * 1e9)}ns"),
    )
    extra = {name: str(value) for name, value in given if value is not None}
    if not extra:
        return encode_header_map(headers)
    return encode_header_map({**(headers or {}), **extra})


def check_name(name: str) -> str:
    """The name of a stream or a consumer, as it goes into a subject; ValueError when it cannot be one."""
    if not name or _NAME_BAD.search(name):
        raise ValueError(f"not a name of a stream or consumer: {name!r}")
    return name


def _body(**fields: Any) -> bytes:
    present = {name: value for name, value in fields.items() if value is not None}
    return msgspec.json.encode(present) if present else b""


class Api:
    """The plans of one JetStream API: the server's own, or that of a ``domain``."""

    def __init__(self, domain: str | None = None, prefix: str | None = None) -> None:
        if domain and prefix:
            raise ValueError("give a domain or a prefix, not both")
        self.prefix = prefix or (f"$JS.{domain}.API" if domain else API_PREFIX)

    def _one(self, path: str, body: bytes, kind: type[T]) -> Plan[T]:
        return decode((yield Request(f"{self.prefix}.{path}", body)), kind)

    def account_info(self) -> Plan[AccountInfo]:
        """What the account uses and may use."""
        return self._one("INFO", b"", AccountInfo)

    # -- streams ---------------------------------------------------------------------------------------------

    def create_stream(self, config: StreamConfig) -> Plan[StreamInfo]:
        """Create; the same config again is fine, another one under that name is StreamExists."""
        return self._one(
            f"STREAM.CREATE.{check_name(config.name)}", msgspec.json.encode(config), StreamInfo
        )

    def update_stream(self, config: StreamConfig) -> Plan[StreamInfo]:
        """Change a stream to this whole config."""
        return self._one(
            f"STREAM.UPDATE.{check_name(config.name)}", msgspec.json.encode(config), StreamInfo
        )

    def stream_info(
        self, stream: str, subjects_filter: str | None = None, deleted_details: bool = False
    ) -> Plan[StreamInfo]:
        """Config and state; with a filter also the matching subjects with their message counts, all pages of them."""
        path = f"STREAM.INFO.{check_name(stream)}"
        details = True if deleted_details else None
        info = yield from self._one(
            path, _body(subjects_filter=subjects_filter, deleted_details=details), StreamInfo
        )
        subjects = dict(info.state.subjects or {})
        while subjects_filter is not None and len(subjects) < info.total:
            body = _body(subjects_filter=subjects_filter, offset=len(subjects))
            page = (yield from self._one(path, body, StreamInfo)).state.subjects
            if not page:
                break
            subjects.update(page)
        if subjects_filter is not None:
            info.state.subjects = subjects
        return info

    def stream_names(self, subject: str | None = None) -> Plan[list[str]]:
        """Names in order; with a subject only streams that take messages of it."""
        names: list[str] = []
        while True:
            page = yield from self._one(
                "STREAM.NAMES", _body(offset=len(names) or None, subject=subject), _Names
            )
            names += page.streams or []
            if not page.streams or len(names) >= page.total:
                return names

    def streams(self, subject: str | None = None) -> Plan[list[StreamInfo]]:
        """Config and state of every stream, by name."""
        found: list[StreamInfo] = []
        while True:
            page = yield from self._one(
                "STREAM.LIST", _body(offset=len(found) or None, subject=subject), _Streams
            )
            found += page.streams or []
            if not page.streams or len(found) >= page.total:
                return found

    def delete_stream(self, stream: str) -> Plan[None]:
        """Remove a stream with its messages and consumers."""
        yield from self._one(f"STREAM.DELETE.{check_name(stream)}", b"", _Success)

    def purge_stream(
        self, stream: str, filter_subject: str | None, seq: int | None, keep: int | None
    ) -> Plan[int]:
        """Remove messages: all, those of a subject, below a sequence, or all but the newest; returns how many."""
        if seq is not None and keep is not None:
            raise ValueError("give seq or keep, not both")
        body = _body(filter=filter_subject, seq=seq, keep=keep)
        return (yield from self._one(f"STREAM.PURGE.{check_name(stream)}", body, _Success)).purged

    def get_message(
        self, stream: str, seq: int | None, last_by_subject: str | None, next_by_subject: str | None
    ) -> Plan[StoredMessage]:
        """One stored message; MessageNotFound when there is none."""
        if seq is None and last_by_subject is None and next_by_subject is None:
            raise ValueError("give seq, last_by_subject or next_by_subject")
        body = _body(seq=seq, last_by_subj=last_by_subject, next_by_subj=next_by_subject)
        stored = (
            yield from self._one(f"STREAM.MSG.GET.{check_name(stream)}", body, _StoredAnswer)
        ).message
        block = base64.b64decode(stored.hdrs)
        headers = decode_headers(block)[2] if block else {}
        return StoredMessage(
            stored.subject, stored.seq, base64.b64decode(stored.data), headers, stored.time
        )

    def delete_message(self, stream: str, seq: int, erase: bool) -> Plan[None]:
        """Remove one message; erase also overwrites its bytes on disk."""
        body = _body(seq=seq, no_erase=None if erase else True)
        yield from self._one(f"STREAM.MSG.DELETE.{check_name(stream)}", body, _Success)

    # -- consumers -------------------------------------------------------------------------------------------

    def create_consumer(
        self, stream: str, config: ConsumerConfig, action: str | None = None
    ) -> Plan[ConsumerInfo]:
        """Create or, depending on ``action`` ("create", "update", None for either), change a consumer."""
        name = config.name or config.durable_name
        if name:
            check_name(name)
        body = _body(stream_name=stream, config=config, action=action)
        path = f"CONSUMER.CREATE.{check_name(stream)}"
        if config.name:
            path += f".{name}.{config.filter_subject}" if config.filter_subject else f".{name}"
        elif name:
            path = f"CONSUMER.DURABLE.CREATE.{check_name(stream)}.{name}"
        return self._one(path, body, ConsumerInfo)

    def consumer_info(self, stream: str, consumer: str) -> Plan[ConsumerInfo]:
        """Config and state of one consumer."""
        return self._one(
            f"CONSUMER.INFO.{check_name(stream)}.{check_name(consumer)}", b"", ConsumerInfo
        )

    def consumer_names(self, stream: str) -> Plan[list[str]]:
        """Names of a stream's consumers in order."""
        names: list[str] = []
        while True:
            body = _body(offset=len(names) or None)
            page = yield from self._one(f"CONSUMER.NAMES.{check_name(stream)}", body, _Names)
            names += page.consumers or []
            if not page.consumers or len(names) >= page.total:
                return names

    def consumers(self, stream: str) -> Plan[list[ConsumerInfo]]:
        """Config and state of every consumer of a stream, by name."""
        found: list[ConsumerInfo] = []
        while True:
            body = _body(offset=len(found) or None)
            page = yield from self._one(f"CONSUMER.LIST.{check_name(stream)}", body, _Consumers)
            found += page.consumers or []
            if not page.consumers or len(found) >= page.total:
                return found

    def delete_consumer(self, stream: str, consumer: str) -> Plan[None]:
        """Remove a consumer."""
        yield from self._one(
            f"CONSUMER.DELETE.{check_name(stream)}.{check_name(consumer)}", b"", _Success
        )
