"""Checks of consumers on streams with workqueue retention: each message has one consumer.

The checks read the entries of streams and consumers and change nothing. Internal consumers (direct,
sourcing) may read the same messages as other consumers.
"""

from pelton.api import errors_generated as errors
from pelton.api.consumers import ConsumerConfig
from pelton.core.protocol.overlaps import Patterns
from pelton.engine.account.catalog import StreamEntry
from pelton.engine.base.settings import MAX_STEPS
from pelton.engine.base.subject_checks import bounded, is_literal
from pelton.engine.config.consumer_config import filters_of


def check_new(stream: StreamEntry, name: str, config: ConsumerConfig) -> None:
    """Check whether a work queue may have this consumer too. Raises 10098 to 10101."""
    if _internal(config):
        return
    if config.ack_policy not in ("explicit", "flow_control"):
        raise errors.ConsumerWQRequiresExplicitAckError()
    if config.deliver_policy != "all":
        raise errors.ConsumerWQConsumerNotDeliverAllError()
    if all(_internal(entry.config) for entry in stream.consumers.values()):
        return
    if not filters_of(config):
        raise errors.ConsumerWQMultipleUnfilteredError()
    if shared(stream, name, config):
        raise errors.ConsumerWQConsumerNotUniqueError()


def shared(stream: StreamEntry, name: str, config: ConsumerConfig) -> bool:
    """Return whether another consumer gets some of the same messages."""
    filters = filters_of(config)
    if not filters:
        return False  # like other servers: an update may remove the filters
    asked: Patterns | None = None
    for subject in filters:
        if is_literal(subject):
            names = {consumer.name for consumer in stream.core.takers(subject)}
            others = (stream.consumers.get(other) for other in names - {name})
            if any(other is not None and not _internal(other.config) for other in others):
                return True
        else:
            asked = asked or Patterns(MAX_STEPS)
            asked.add(subject, 0)
    if asked is None:
        return False
    with bounded():
        return any(
            _collides(asked, filters_of(entry.config))
            for other, entry in stream.consumers.items()
            if other != name and not _internal(entry.config)
        )


def _collides(asked: Patterns, filters: tuple[str, ...]) -> bool:
    return not filters or any(asked.collides(one) for one in filters)


def _internal(config: ConsumerConfig) -> bool:
    return config.direct or config.sourcing
