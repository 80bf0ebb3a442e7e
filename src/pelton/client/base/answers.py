"""The bodies of requests to JetStream's API, and what its answers say."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import msgspec

from pelton.api import JsonError, decode_response, encode, error_from
from pelton.api.calls import Response
from pelton.errors import ApiError, ProtocolError

from .arguments import refuse_field, unknown_words
from .models import PubAck

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .models import ConsumerConfig, StreamConfig

T = TypeVar("T")
R = TypeVar("R", bound=Response)

_pub_ack = msgspec.json.Decoder(PubAck)

INVALID_JSON = 10025
IN_PROCESS = 10158
"""The error code of a message whose first copy is being stored."""
ALLOWED_BY = {
    10166: "allow_msg_ttl",
    10168: "allow_msg_counter",
    10174: "allow_atomic",
    10188: "allow_msg_schedules",
    10205: "allow_batched",
}
"""The error codes of messages that a stream does not allow, and the field that allows them."""


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


@contextmanager
def words_told(config: StreamConfig | ConsumerConfig) -> Iterator[None]:
    """Add what a server's refusal of a configuration leaves out: which words it may have."""
    try:
        yield
    except ApiError as error:
        for note in unknown_words(config) if error.err_code == INVALID_JSON else ():
            error.add_note(note)
        raise
