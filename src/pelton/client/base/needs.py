"""What a server must know for a configuration: servers ignore fields that are newer than they are.

A field belongs to a level of the JetStream API, which servers tell from 2.11 on, or to a version before::

    asked  allow_msg_ttl  ─►  level 1  ─►  the server tells level 0  ─►  NotEnabledError; nothing is made
    asked  metadata       ─►  2.10     ─►  the answer has none       ─►  NotEnabledError, after the answer

Sends no requests; ``jetstream`` asks for the level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pelton.api.streams import SERVERS_OWN
from pelton.errors import NotEnabledError

from .models import ConsumerConfig, StreamConfig, StreamConsumerLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

"""The beginning of the names of metadata that servers add."""
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
        return lambda config: getattr(config, field)

    return [Need(field, since, level, value_of(field)) for field in fields]


def _users(config: Config) -> list[str]:
    return [name for name in config.metadata if not name.startswith(SERVERS_OWN)]


def _limits(config: StreamConfig) -> bool:
    return config.consumer_limits != StreamConsumerLimits()


def _transforms(config: StreamConfig) -> bool:
    mirror = [config.mirror] if config.mirror is not None else []
    return any(each.subject_transforms for each in (*mirror, *config.sources))


def _filters(config: ConsumerConfig) -> list[str]:
    return config.filter_subjects or ([config.filter_subject] if config.filter_subject else [])


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
    fields = dict.fromkeys(names.get(need.field, need.field) for need in missing)
    return ", ".join(fields), max(need.since for need in missing)
