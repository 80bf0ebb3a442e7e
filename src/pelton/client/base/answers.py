"""JetStream's API as calls use it: the bodies of requests, what answers say, and what a server must know.

Servers ignore fields of a configuration that are newer than they are. A field belongs to a level of the API,
which servers tell from 2.11 on, or to a version before::

    asked  allow_msg_ttl  ─►  level 1  ─►  the server tells level 0  ─►  NotEnabledError; nothing is made
    asked  metadata       ─►  2.10     ─►  the answer has none       ─►  NotEnabledError, after the answer

Sends no requests; ``management`` asks for the level.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from pelton.api import JsonError, decode_response, encode, error_from
from pelton.api.calls import Response
from pelton.api.streams import SERVERS_OWN
from pelton.errors import ApiError, NotEnabledError, ProtocolError

from .arguments import refuse_field, unknown_words
from .models import ConsumerConfig, PubAck, StreamConfig, StreamConsumerLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

T = TypeVar("T")
R = TypeVar("R", bound=Response)

_pub_ack = msgspec.json.Decoder(PubAck)

INVALID_JSON = 10025
# 10158 has no error class of its own: callers send the message again.
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
        # Encoded and decoded by the server's rules: a server would only answer "invalid JSON", without
        # the name of the field.
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


NO_NAMES: Mapping[str, str] = {}
_UNSET = ("none", "default")
"""Words that say the same as nothing."""
Config: TypeAlias = StreamConfig | ConsumerConfig


class Need(NamedTuple):
    """A field, what knows it, and what it is set to in a configuration."""

    field: str
    since: str
    level: int
    value: Callable[[Any], object]

    def of(self, config: Config) -> bool:
        """Whether the configuration sets the field."""
        value = self.value(config)
        return bool(value) and value not in _UNSET


def _plain(since: str, level: int, *fields: str) -> list[Need]:
    def value_of(field: str) -> Callable[[Any], object]:
        # A function of its own keeps this field; a lambda in the list below would see the last one.
        return lambda config: getattr(config, field)

    return [Need(field, since, level, value_of(field)) for field in fields]


def _users(config: Config) -> list[str]:
    # Servers from 2.11 on add names of their own (ADR-44).
    return [name for name in config.metadata if not name.startswith(SERVERS_OWN)]


def _limits(config: StreamConfig) -> bool:
    return config.consumer_limits != StreamConsumerLimits()


def _transforms(config: StreamConfig) -> bool:
    mirror = [config.mirror] if config.mirror is not None else []
    return any(each.subject_transforms for each in (*mirror, *config.sources))


def _filters(config: ConsumerConfig) -> list[str]:
    return config.filter_subjects or ([config.filter_subject] if config.filter_subject else [])


# The levels of the API and their servers: ADR-44.
_OF_STREAMS = [
    *_plain("2.10", 0, "compression", "first_seq", "subject_transform"),
    Need("metadata", "2.10", 0, _users),
    Need("consumer_limits", "2.10", 0, _limits),
    Need("subject_transforms", "2.10", 0, _transforms),
    *_plain("2.11", 1, "allow_msg_ttl", "subject_delete_marker_ttl"),
    *_plain("2.12", 2, "allow_msg_counter", "allow_atomic", "allow_msg_schedules", "persist_mode"),
    *_plain("2.14", 4, "allow_batched"),
]
_OF_CONSUMERS = [
    Need("metadata", "2.10", 0, _users),
    Need("filter_subjects", "2.10", 0, _filters),
    *_plain("2.11", 1, "pause_until", "priority_groups", "priority_policy", "priority_timeout"),
]

PAUSES = Need("pauses of consumers", "2.11", 1, bool)
UNPINS = Need("pins of priority groups", "2.11", 1, bool)
DIRECT_GETS = Need("direct gets by time or in batches", "2.11", 1, bool)
RESETS = Need("resets of consumers", "2.14", 4, bool)
"""What calls need."""
NEEDS = (*_OF_STREAMS, *_OF_CONSUMERS, PAUSES, UNPINS, DIRECT_GETS, RESETS)
"""All that servers from 2.9 on may not know."""


def needs_of(config: Config) -> list[Need]:
    """What a server must know for this configuration."""
    known = _OF_STREAMS if isinstance(config, StreamConfig) else _OF_CONSUMERS
    return [need for need in known if need.of(config)]


def check_level(needs: Sequence[Need], level: int, names: Mapping[str, str]) -> None:
    """Raise NotEnabledError when a server of this level does not know a field; ``names``: those for users."""
    missing = [need for need in needs if need.level > level]
    if missing:
        raise unknown(missing, names)


def unknown(missing: Sequence[Need], names: Mapping[str, str] = NO_NAMES) -> NotEnabledError:
    """The error of a call that a server does not know."""
    fields, since = _told(missing, names)
    return NotEnabledError(f"the server does not know {fields}: it needs nats-server {since}")


def check_made(needs: Sequence[Need], made: Config, names: Mapping[str, str]) -> None:
    """Raise NotEnabledError when the configuration of a server's answer lacks a field."""
    missing = [need for need in needs if not need.of(made)]
    if missing:
        fields, since = _told(missing, names)
        what = f"stream {made.name}" if isinstance(made, StreamConfig) else "the consumer"
        raise NotEnabledError(
            f"the server has {what} without {fields}, which it does not know: it needs nats-server {since}"
        )


def _told(missing: Sequence[Need], names: Mapping[str, str]) -> tuple[str, str]:
    # Versions are compared as text, which is right while all have two digits after the dot.
    fields = dict.fromkeys(names.get(need.field, need.field) for need in missing)
    return ", ".join(fields), max(need.since for need in missing)
