"""What a stream with workqueue retention asks of its consumers: each message has one that takes it.

Knows the entries of streams and consumers; changes nothing. Internal consumers (direct, sourcing)
take messages beside the others.
"""

from penstock.api import errors_generated as errors
from penstock.api.consumers import ConsumerConfig
from penstock.core.subjects import collide
from penstock.engine.consumer_config import filters_of
from penstock.engine.entries import StreamEntry
from penstock.engine.subject_rules import is_literal


def check_new(stream: StreamEntry, name: str, config: ConsumerConfig) -> None:
    """Whether a queue may have this consumer as well; 10098 to 10101."""
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
    """Whether another consumer takes some of the same messages."""
    filters = filters_of(config)
    if not filters:
        return False  # as in other servers: an update may take the filters away
    for subject in filters:
        if is_literal(subject):
            names = {consumer.name for consumer in stream.core.takers(subject)}
        else:
            names = {
                other
                for other, entry in stream.consumers.items()
                if _collides(subject, filters_of(entry.config))
            }
        others = (stream.consumers.get(other) for other in names - {name})
        if any(other is not None and not _internal(other.config) for other in others):
            return True
    return False


def _collides(subject: str, filters: tuple[str, ...]) -> bool:
    return not filters or any(collide(subject, one) for one in filters)


def _internal(config: ConsumerConfig) -> bool:
    return config.direct or config.sourcing
