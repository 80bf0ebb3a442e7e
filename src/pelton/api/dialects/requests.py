"""The table of the dialects: an old request as a conversation with today's API, and its old answer.

    subject, body ──► a row of ROWS ──► Call, Call, Unacknowledged, … ──► the bytes of the old answer

A conversation is a generator: it yields what it asks and is sent the answers. `DialectError` inside
of it is the refusal that the old answer says. A subject without a row gets no answer.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from pelton.api import calls
from pelton.api.codec import JsonError, encode
from pelton.api.dialects import configurations as old
from pelton.api.dialects import templates
from pelton.api.dialects.configurations import DialectError
from pelton.api.dialects.names import MSGSETS, STREAMS
from pelton.api.subjects import valid_name
from pelton.api.times import format_time
from pelton.api.whole import decode_whole

if TYPE_CHECKING:
    from pelton.api.consumers import ConsumerInfo
    from pelton.api.errors import ErrorBody
    from pelton.api.streams import StreamInfo

T = TypeVar("T", bound=msgspec.Struct)

OK = b"+OK"
_BAD = "bad request"
_NOT_FOUND = frozenset({10014, 10059})
_SEQUENCES = frozenset({10043, 10057})  # a message that is not there
_NOT_PERMITTED = "not permitted"


class Call(msgspec.Struct, frozen=True):
    """A call of today's API: the subject behind `$JS.API.`, the body, the class of the answer."""

    subject: str
    body: bytes
    response: type[calls.Response]


class Unacknowledged(msgspec.Struct, frozen=True):
    """Asks which messages of a consumer have no ack: a list of (sequence, when delivered in ns,
    deliveries). A message that had all its deliveries waits no more: its time is 0. Who cannot know
    sends None.
    """

    stream: str
    consumer: str


class ServerLimits(msgspec.Struct, frozen=True):
    """Asks how many bytes of memory and of disk the server may use: (memory, disk), which an account
    without limits of its own has. Who cannot know sends None.
    """


class HasInterest(msgspec.Struct, frozen=True):
    """Asks whether a client subscribes to a subject: True or False. Who cannot know sends None."""

    subject: str


Conversation = Generator[
    "Call | Unacknowledged | ServerLimits | HasInterest | templates.TemplateCall", Any, bytes
]


class Row(msgspec.Struct, frozen=True):
    """One request of a dialect. `empty`: the body must be empty."""

    pattern: str
    dialect: str
    answer: Callable[..., Conversation]  # (names from the subject, body)
    empty: bool = False


def converse(subject: str, body: bytes) -> Conversation | None:
    """The conversation that answers a request; None: no row has the subject."""
    tokens = subject.split(".")[1:]
    for row in ROWS:
        names = _match(row.pattern.split("."), tokens)
        if names is not None:
            return _answered(row, names, body)
    return None


def refusal(dialect: str, text: str) -> bytes:
    """A refusal in a dialect."""
    return f"-ERR '{text}'".encode() if dialect == STREAMS else f"-ERR {text}".encode()


def dialect_of_subject(subject: str) -> str:
    """The dialect of a request."""
    tokens = subject.split(".")[1:]
    return next((r.dialect for r in ROWS if _match(r.pattern.split("."), tokens) is not None), "")


def _match(pattern: list[str], tokens: list[str]) -> list[str] | None:
    if len(pattern) != len(tokens):
        return None
    names = []
    for wanted, token in zip(pattern, tokens, strict=True):
        if wanted == "*" and token:
            names.append(token)
        elif wanted != token:
            return None
    return names


def _answered(row: Row, names: list[str], body: bytes) -> Conversation:
    try:
        if row.empty and body:
            raise DialectError(_BAD)
        return (yield from row.answer(*names, body))
    except DialectError as error:
        return refusal(row.dialect, str(error))


# -- asking today's API ----------------------------------------------------------------------------


def _ask(
    subject: str, kind: type[calls.Response], body: bytes = b""
) -> Generator[Any, Any, calls.Response]:
    response: calls.Response = yield Call(subject, body, kind)
    return response


def _demand(
    subject: str, kind: type[calls.Response], dialect: str, body: bytes = b""
) -> Generator[Any, Any, Any]:
    """The answer of a call. DialectError: the call was refused."""
    response = yield from _ask(subject, kind, body)
    if response.error is not None:
        raise DialectError(words(response.error, dialect))
    return response


def words(error: ErrorBody, dialect: str) -> str:
    """The text of an error as the dialect had it."""
    code, early = error.err_code, dialect == MSGSETS
    if code in (10039, 10076):
        return "jetstream not enabled for account"
    if code == 10059:
        return "msgset not found" if early else "stream not found"
    if code == 10014:
        return "observable not found" if early else "consumer not found"
    if code == 10058:
        return "message set name already in use" if early else "stream name already in use"
    if code in (10003, 10025):
        return _BAD
    return error.description


def _read(kind: type[T], body: bytes) -> T:
    try:
        return decode_whole(kind, body)
    except JsonError:
        raise DialectError(_BAD) from None


def _indented(value: object) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode("utf-8", "surrogateescape")


def _tree(message: msgspec.Struct) -> Any:
    return json.loads(encode(message))


def _words_of(body: bytes, count: int) -> list[str]:
    """The names in a body. DialectError: there are not as many."""
    words = body.decode("utf-8", "surrogateescape").split(" ")
    if len(words) != count or not all(words):
        raise DialectError(_BAD)
    for name in words[: 2 if count == 2 else 1]:
        if not valid_name(name):
            raise DialectError(_BAD)
    return words


# -- the account -----------------------------------------------------------------------------------


def _enabled(body: bytes) -> Conversation:
    yield from _demand("INFO", calls.AccountInfoResponse, STREAMS)
    return OK


def _account(body: bytes) -> Conversation:
    response = yield from _demand("INFO", calls.AccountInfoResponse, STREAMS)
    info: calls.AccountInfo = response.info
    limits = info.limits
    memory, disk = (yield ServerLimits()) or (-1, -1)
    return _indented(
        {
            "memory": info.memory,
            "storage": info.storage,
            "streams": info.streams,
            "limits": {
                "max_memory": memory if limits.max_memory < 0 else limits.max_memory,
                "max_storage": disk if limits.max_storage < 0 else limits.max_storage,
                "max_streams": limits.max_streams,
                "max_consumers": limits.max_consumers,
            },
        }
    )


# -- streams and message sets ----------------------------------------------------------------------


def _names(
    subject: str, kind: type[calls.Response], member: str, dialect: str
) -> Generator[Any, Any, bytes]:
    found: list[str] = []
    while True:
        page = yield from _demand(subject, kind, dialect, b'{"offset":%d}' % len(found))
        found += getattr(page, member) or []
        if len(found) >= page.total or not getattr(page, member):
            return _indented(found or None)


def _streams(body: bytes) -> Conversation:
    return (yield from _names("STREAM.NAMES", calls.StreamNamesResponse, "streams", STREAMS))


def _message_sets(body: bytes) -> Conversation:
    return (yield from _names("STREAM.NAMES", calls.StreamNamesResponse, "streams", MSGSETS))


def _make_stream(given: old.OldStream | old.MessageSet, dialect: str) -> Conversation:
    noun = "message set" if dialect == MSGSETS else "stream"
    if not valid_name(given.name):
        raise DialectError(f"{noun} name required, can not contain '.', '*', '>'")
    config = old.stream_of(given)
    present = yield from _ask(f"STREAM.INFO.{given.name}", calls.StreamInfoResponse)
    if present.error is None:
        raise DialectError(f"{noun} name already in use")
    subject = f"STREAM.CREATE.{given.name}"
    yield from _demand(subject, calls.StreamCreateResponse, dialect, encode(config))
    return OK


def _create_message_set(body: bytes) -> Conversation:
    return (yield from _make_stream(_read(old.MessageSet, body), MSGSETS))


def _create_stream(name: str, body: bytes) -> Conversation:
    given = _read(old.OldStream, body)
    if given.name != name:
        raise DialectError("stream name in subject does not match request")
    return (yield from _make_stream(given, STREAMS))


def _update_stream(name: str, body: bytes) -> Conversation:
    given = _read(old.OldStream, body)
    if given.name != name:
        raise DialectError("stream name in subject does not match request")
    response = yield from _demand(f"STREAM.INFO.{name}", calls.StreamInfoResponse, STREAMS)
    config = old.updated(response.info.config, given)
    subject = f"STREAM.UPDATE.{name}"
    yield from _demand(subject, calls.StreamUpdateResponse, STREAMS, encode(config))
    return OK


def _info(name: str, dialect: str) -> Generator[Any, Any, StreamInfo]:
    response = yield from _demand(f"STREAM.INFO.{name}", calls.StreamInfoResponse, dialect)
    info: StreamInfo = response.info
    return info


def _message_set_info(body: bytes) -> Conversation:
    (name,) = _words_of(body, 1)
    state = (yield from _info(name, MSGSETS)).state
    return _indented(
        {
            "Msgs": state.messages,
            "Bytes": state.bytes,
            "FirstSeq": state.first_seq,
            "LastSeq": state.last_seq,
        }
    )


def _stream_info(name: str, body: bytes) -> Conversation:
    info = yield from _info(name, STREAMS)
    state = info.state
    return _indented(
        {
            "config": _tree(old.old_stream(info.config)),
            "state": {
                "messages": state.messages,
                "bytes": state.bytes,
                "first_seq": state.first_seq,
                "last_seq": state.last_seq,
                "consumer_count": state.consumer_count,
            },
        }
    )


def _delete(name: str, dialect: str) -> Conversation:
    yield from _demand(f"STREAM.DELETE.{name}", calls.SuccessResponse, dialect)
    return OK


def _delete_message_set(body: bytes) -> Conversation:
    return (yield from _delete(_words_of(body, 1)[0], MSGSETS))


def _delete_stream(name: str, body: bytes) -> Conversation:
    return (yield from _delete(name, STREAMS))


def _purge(name: str, dialect: str) -> Conversation:
    yield from _demand(f"STREAM.PURGE.{name}", calls.StreamPurgeResponse, dialect)
    return OK


def _purge_message_set(body: bytes) -> Conversation:
    return (yield from _purge(_words_of(body, 1)[0], MSGSETS))


def _purge_stream(name: str, body: bytes) -> Conversation:
    return (yield from _purge(name, STREAMS))


# -- messages --------------------------------------------------------------------------------------


def _sequence(text: str, fault: str = _BAD) -> int:
    if not (text.isascii() and text.isdigit()) or not 0 < int(text[:20]) < 1 << 63:
        raise DialectError(fault)
    return int(text)


def _erase(name: str, seq: int, dialect: str) -> Conversation:
    body = b'{"seq":%d}' % seq
    response = yield from _ask(f"STREAM.MSG.DELETE.{name}", calls.SuccessResponse, body)
    error = response.error
    if error is not None:
        absent = error.err_code in _SEQUENCES and _NOT_PERMITTED not in error.description
        raise DialectError(f"sequence [{seq}] not found" if absent else words(error, dialect))
    return OK


def _delete_of_message_set(body: bytes) -> Conversation:
    name, seq = _words_of(body, 2)[0], body.decode("utf-8", "surrogateescape").split(" ")[1]
    return (yield from _erase(name, _sequence(seq), MSGSETS))


def _delete_message(name: str, body: bytes) -> Conversation:
    return (yield from _erase(name, _sequence(body.decode("utf-8", "replace")), STREAMS))


def _message(name: str, body: bytes, dialect: str) -> Conversation:
    wanted = b'{"last_by_subj":">"}'
    if body:
        seq = _sequence(body.decode("utf-8", "replace"), "bad sequence argument")
        wanted = b'{"seq":%d}' % seq
    response = yield from _ask(f"STREAM.MSG.GET.{name}", calls.MsgGetResponse, wanted)
    if response.error is not None:
        if response.error.err_code in _NOT_FOUND:
            raise DialectError(words(response.error, dialect))
        raise DialectError("could not load message from storage")
    assert isinstance(response, calls.MsgGetResponse)
    assert response.message is not None
    found = response.message
    return _indented(
        {
            "subject": found.subject,
            "seq": found.seq,
            "data": base64.b64encode(found.data).decode(),
            "time": format_time(found.time),
        }
    )


def _message_of_stream(name: str, body: bytes) -> Conversation:
    return (yield from _message(name, body, STREAMS))


def _message_of_set(name: str, body: bytes) -> Conversation:
    return (yield from _message(name, body, MSGSETS))


# -- consumers and observables ---------------------------------------------------------------------


class _CreateConsumer(msgspec.Struct, kw_only=True):
    type_name = "CreateConsumerRequest"
    stream_name: str = ""
    config: old.OldConsumer = msgspec.field(default_factory=old.OldConsumer)


class _CreateObservable(msgspec.Struct, kw_only=True):
    type_name = "CreateObservableRequest"
    msg_set_name: str = ""
    config: old.Observable = msgspec.field(default_factory=old.Observable)


def _make_consumer(
    stream: str, given: old.OldConsumer | old.Observable, dialect: str
) -> Generator[Any, Any, ConsumerInfo]:
    noun = "observable" if dialect == MSGSETS else "consumer"
    config = old.consumer_of(given)
    name = config.durable_name
    if not valid_name(stream):
        raise DialectError(_BAD)
    if name and not valid_name(name):
        raise DialectError("durable name can not contain '.', '*', '>'")
    if name:
        subject = f"CONSUMER.INFO.{stream}.{name}"
        present = yield from _ask(subject, calls.ConsumerInfoResponse)
        if present.error is None:
            assert isinstance(present, calls.ConsumerInfoResponse)
            assert present.info is not None
            _check_replaces(present.info, old.old_consumer(config), noun)
        subject = f"CONSUMER.DURABLE.CREATE.{stream}.{name}"
    else:
        if config.deliver_subject and (yield HasInterest(config.deliver_subject)) is False:
            raise DialectError(f"{noun} requires interest for delivery subject when ephemeral")
        subject = f"CONSUMER.CREATE.{stream}"
    body = encode(calls.CreateConsumerRequest(stream_name=stream, config=config))
    response = yield from _demand(subject, calls.ConsumerInfoResponse, dialect, body)
    info: ConsumerInfo = response.info
    return info


def _check_replaces(present: ConsumerInfo, wanted: old.OldConsumer, noun: str) -> None:
    """An inactive push consumer may be created again, with another delivery subject."""
    assert present.config is not None
    if not present.config.deliver_subject:
        raise DialectError(f"{noun} already exists")
    if present.push_bound:
        raise DialectError(f"{noun} already exists and is still active")
    known = old.old_consumer(present.config)
    known.delivery_subject = wanted.delivery_subject
    if not wanted.ack_wait:
        known.ack_wait = 0
    if known != wanted:
        raise DialectError(f"{noun} replacement durable config not the same")


def _create_observable(body: bytes) -> Conversation:
    given = _read(_CreateObservable, body)
    yield from _make_consumer(given.msg_set_name, given.config, MSGSETS)
    return OK


def _create_consumer(stream: str, name: str, body: bytes) -> Conversation:
    given = _read(_CreateConsumer, body)
    if given.stream_name != stream:
        raise DialectError("stream name in subject does not match request")
    if given.config.durable_name != name:
        raise DialectError("consumer name in subject does not match durable name in request")
    yield from _make_consumer(stream, given.config, STREAMS)
    return OK


def _create_ephemeral(stream: str, body: bytes) -> Conversation:
    given = _read(_CreateConsumer, body)
    if given.stream_name != stream:
        raise DialectError("stream name in subject does not match request")
    if given.config.durable_name:
        raise DialectError("consumer expected to be ephemeral but a durable name was set")
    made = yield from _make_consumer(stream, given.config, STREAMS)
    return b"+OK " + made.name.encode()


def _observables(body: bytes) -> Conversation:
    (name,) = _words_of(body, 1)
    kind = calls.ConsumerNamesResponse
    return (yield from _names(f"CONSUMER.NAMES.{name}", kind, "consumers", MSGSETS))


def _consumers(stream: str, body: bytes) -> Conversation:
    kind = calls.ConsumerNamesResponse
    return (yield from _names(f"CONSUMER.NAMES.{stream}", kind, "consumers", STREAMS))


def _position(stream: str, name: str, dialect: str) -> Generator[Any, Any, Any]:
    """The info of a consumer, and its maps of pending and of redelivered messages."""
    subject = f"CONSUMER.INFO.{stream}.{name}"
    response = yield from _demand(subject, calls.ConsumerInfoResponse, dialect)
    waits = yield Unacknowledged(stream, name)
    pending = {str(seq): ns for seq, ns, _ in waits or () if ns}
    again = {str(seq): count - 1 for seq, _, count in waits or () if count > 1}
    return response.info, pending or None, again or None


def _observable_info(body: bytes) -> Conversation:
    stream, name = _words_of(body, 2)
    info, pending, again = yield from _position(stream, name, MSGSETS)
    # "delivered" was what comes next
    return _indented(
        {
            "Delivered": {
                "ObsSeq": info.delivered.consumer_seq + 1,
                "SetSeq": info.delivered.stream_seq + 1,
            },
            "AckFloor": {
                "ObsSeq": info.ack_floor.consumer_seq,
                "SetSeq": info.ack_floor.stream_seq,
            },
            "Pending": pending,
            "Redelivery": again,
        }
    )


def _consumer_info(stream: str, name: str, body: bytes) -> Conversation:
    info, pending, again = yield from _position(stream, name, STREAMS)
    places = {
        each: {
            "consumer_seq": getattr(info, each).consumer_seq,
            "stream_seq": getattr(info, each).stream_seq,
        }
        for each in ("delivered", "ack_floor")
    }
    return _indented(
        {
            "stream_name": stream,
            "name": name,
            "config": _tree(old.old_consumer(info.config)),
            "state": {**places, "pending": pending, "redelivered": again},
        }
    )


def _delete_observable(body: bytes) -> Conversation:
    stream, name = _words_of(body, 2)
    yield from _demand(f"CONSUMER.DELETE.{stream}.{name}", calls.SuccessResponse, MSGSETS)
    return OK


def _delete_consumer(stream: str, name: str, body: bytes) -> Conversation:
    yield from _demand(f"CONSUMER.DELETE.{stream}.{name}", calls.SuccessResponse, STREAMS)
    return OK


ROWS: tuple[Row, ...] = (
    Row("ENABLED", STREAMS, _enabled),
    Row("INFO", STREAMS, _account),
    Row("MSGSETS", MSGSETS, _message_sets),
    Row("MSGSET.CREATE", MSGSETS, _create_message_set),
    Row("MSGSET.INFO", MSGSETS, _message_set_info),
    Row("MSGSET.DELETE", MSGSETS, _delete_message_set),
    Row("MSGSET.PURGE", MSGSETS, _purge_message_set),
    Row("MSGSET.MSG.DELETE", MSGSETS, _delete_of_message_set),
    Row("BYSEQ.*", MSGSETS, _message_of_set),
    Row("OBSERVABLE.CREATE", MSGSETS, _create_observable),
    Row("OBSERVABLES", MSGSETS, _observables),
    Row("OBSERVABLE.INFO", MSGSETS, _observable_info),
    Row("OBSERVABLE.DELETE", MSGSETS, _delete_observable),
    Row("STREAM.LIST", STREAMS, _streams),
    Row("STREAM.*.CREATE", STREAMS, _create_stream),
    Row("STREAM.*.UPDATE", STREAMS, _update_stream),
    Row("STREAM.*.INFO", STREAMS, _stream_info, empty=True),
    Row("STREAM.*.DELETE", STREAMS, _delete_stream, empty=True),
    Row("STREAM.*.PURGE", STREAMS, _purge_stream, empty=True),
    Row("STREAM.*.MSG.DELETE", STREAMS, _delete_message),
    Row("STREAM.*.MSG.BYSEQ", STREAMS, _message_of_stream),
    Row("STREAM.*.CONSUMERS", STREAMS, _consumers, empty=True),
    Row("STREAM.*.EPHEMERAL.CONSUMER.CREATE", STREAMS, _create_ephemeral),
    Row("STREAM.*.CONSUMER.*.CREATE", STREAMS, _create_consumer),
    Row("STREAM.*.CONSUMER.*.INFO", STREAMS, _consumer_info, empty=True),
    Row("STREAM.*.CONSUMER.*.DELETE", STREAMS, _delete_consumer, empty=True),
    *(Row(pattern, STREAMS, answer, empty) for pattern, answer, empty in templates.ROWS),
)

SUBJECTS = (
    *(f"$JS.{row.pattern}" for row in ROWS),
    "$JS.STREAM.*.CONSUMER.*.NEXT",
    "$JS.RN.*.*",
)
"""Every subject of a request in a dialect, as patterns."""


def forwarded(subject: str, body: bytes) -> tuple[str, bytes] | None:
    """Today's subject and body of a pull request or an ack, which consumers answer themselves; None:
    the subject is neither.
    """
    tokens = subject.split(".")[1:]
    batch = body if body.isdigit() else b""
    names = _match(["STREAM", "*", "CONSUMER", "*", "NEXT"], tokens)
    names = names or _match(["RN", "*", "*"], tokens)
    if names is not None:
        return f"$JS.API.CONSUMER.MSG.NEXT.{names[0]}.{names[1]}", batch
    if tokens[0] == "A":
        return "$JS.ACK." + ".".join(tokens[1:]), body
    return None
