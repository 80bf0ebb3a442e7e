"""A key-value bucket as its stream: the names of its parts, and its current state.

A bucket ``devices`` is the stream ``KV_devices``, a key ``a.b`` its subject ``$KV.devices.a.b``, a
revision its sequence, a delete a message with the header ``KV-Operation``. A bucket that mirrors
another one keeps the subjects of that one.

Does not depend on Spark or Arrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pelton.api.keyvalue import STREAM_PREFIX, prefix_of, stream_of
from pelton.api.times import format_time
from pelton.errors import MessageNotFoundError, StreamNotFoundError
from pelton.spark.connection import ReadError

if TYPE_CHECKING:
    from pelton.client.base.models import StreamConfig
    from pelton.spark.asking import Asking


class BucketError(ReadError):
    """The bucket does not exist, or the stream of its name is no bucket; a new try does not help."""


@dataclass(frozen=True)
class Bucket:
    """The needed properties of the stream behind a bucket.

    The stream keeps ``history`` revisions of each key. An empty bucket has ``first == last + 1``.
    """

    name: str
    stream: str
    prefix: str
    history: int
    born: str
    first: int
    last: int

    def subjects(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        """The subjects of these keys or patterns of keys."""
        return tuple(self.prefix + key for key in keys)


def look(asking: Asking, name: str) -> Bucket:
    """The bucket as it is now.

    Raises :class:`BucketError` when the bucket does not exist or the stream of its name is no
    bucket, and :class:`ReadError` when the server does not answer or refuses.
    """
    stream = stream_of(name)
    try:
        info = asking.ask(f"bucket {name}", lambda jetstream: jetstream.stream_info(stream))
    except StreamNotFoundError:
        raise BucketError(f"there is no bucket {name} on {asking.servers}") from None
    prefix = _prefix(name, info.config)
    state = info.state
    first = state.first_seq if state.messages else state.last_seq + 1
    history = info.config.max_msgs_per_subject
    return Bucket(name, stream, prefix, history, format_time(info.created), first, state.last_seq)


def _prefix(name: str, config: StreamConfig) -> str:
    """The subject prefix of the bucket's keys; BucketError when the stream is no bucket."""
    origin = config.mirror.name if config.mirror is not None else config.name
    prefix = prefix_of(origin.removeprefix(STREAM_PREFIX))
    keeps_keys = config.mirror is not None or f"{prefix}>" in config.subjects
    if not origin.startswith(STREAM_PREFIX) or not keeps_keys or config.max_msgs_per_subject < 1:
        raise BucketError(
            f"{name} is not a bucket: stream {config.name} does not keep the last values of"
            f" {prefix}>"
        )
    return prefix


def last_change(asking: Asking, bucket: Bucket, keys: tuple[str, ...]) -> int:
    """The last revision that matches the patterns of keys, 0 when there is none."""
    if ">" in keys:
        return bucket.last
    return min(bucket.last, max(_last_of(asking, bucket, each) for each in bucket.subjects(keys)))


def _last_of(asking: Asking, bucket: Bucket, subject: str) -> int:
    try:
        found = asking.ask(
            f"bucket {bucket.name}",
            lambda jetstream: jetstream.get_message(bucket.stream, last_by_subject=subject),
        )
    except (MessageNotFoundError, StreamNotFoundError):
        return 0
    return found.seq
