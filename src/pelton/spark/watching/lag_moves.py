"""Three ways to move the ack floor of a durable that no client reads from, for different servers.

==========  ===========================  =====================================  ====================
way         where                        requests                               cost
==========  ===========================  =====================================  ====================
reset       2.14 and newer, Pelton     CONSUMER.RESET to the next sequence    one request
again       older, retention limits      delete it, create it at the last       four requests
                                         message of the batch, acknowledge that
fetch       older, retention interest    its messages' headers, an ack of the   grows with the batch
                                         last one
==========  ===========================  =====================================  ====================

An ack of a message that was never delivered would be one request with every server, but servers from
2.10 on ignore it, and older ones move the floor without the count of pending messages. A durable that
is only created at a later sequence counts right, but its floor reads 0 until a message is
acknowledged. While a durable is deleted and created again, a stream with interest retention may remove
messages that are not read yet; when the durable has to move back there, a second consumer, the guard,
holds these messages.

Does not depend on Spark; :mod:`pelton.spark.watching.lag` decides when to move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from pelton.api.calls import ConsumerResetRequest, ConsumerResetResponse
from pelton.api.codec import encode
from pelton.api.subjects import ACK_PREFIX
from pelton.client.base.answers import decode
from pelton.client.base.message import ACK
from pelton.client.base.models import ConsumerConfig
from pelton.client.sync.columns import ColumnReader
from pelton.errors import ConsumerNotFoundError, PeltonTimeoutError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pelton.client.base.models import ConsumerInfo
    from pelton.client.sync.jetstream import JetStream

DESCRIPTION = "Shadow of a Spark query: the ack floor is what the query has committed."
_RESETS = (2, 14)
_SEVERAL_FILTERS = (2, 10)
_ACK_WAIT_S = 3600
_GUARD_S = 60
_ROWS = 16_384
_ACK_SECONDS = 10.0  # with interest retention the server answers after it removed the messages


def version_of(jetstream: JetStream) -> tuple[int, ...]:
    """The version of the connected server, major and minor."""
    parts = jetstream.client.server_info.version.partition("-")[0].split(".")
    return tuple(int(part) for part in parts[:2] if part.isdigit())


def takes_several_filters(jetstream: JetStream) -> bool:
    """Whether a consumer may have more than one filter."""
    return version_of(jetstream) >= _SEVERAL_FILTERS


def takes_resets(jetstream: JetStream) -> bool:
    """Whether the server can move a consumer by a request."""
    return version_of(jetstream) >= _RESETS


def config(name: str, subjects: Sequence[str], after: int) -> ConsumerConfig:
    """The configuration of the durable with its floor at ``after``."""
    return ConsumerConfig(
        durable_name=name,
        name=name,
        description=DESCRIPTION,
        deliver_policy="by_start_sequence",
        opt_start_seq=after + 1,
        ack_policy="all",
        ack_wait=_ACK_WAIT_S,
        max_ack_pending=-1,
        headers_only=True,
        filter_subject=subjects[0] if len(subjects) == 1 else "",
        filter_subjects=list(subjects) if len(subjects) > 1 else [],
    )


def reset(jetstream: JetStream, stream: str, name: str, after: int) -> None:
    """Move the floor with CONSUMER.RESET.

    Raises PeltonTimeoutError when the server does not know the request or has no such consumer, since it does
    not answer then; ApiError for a sequence below the one where the durable was created.
    """
    subject = jetstream.subjects.consumer("RESET", stream, name)
    body = encode(ConsumerResetRequest(seq=after + 1))
    answer = jetstream.client.request(subject, body, timeout=jetstream.timeout)
    decode(answer.data, ConsumerResetResponse)


def make_again(
    jetstream: JetStream, stream: str, name: str, subjects: Sequence[str], after: int
) -> None:
    """Delete the durable and create it with its floor at ``after``; for streams with limits."""
    _delete(jetstream, stream, name)
    create(jetstream, stream, name, subjects, after)


def create(
    jetstream: JetStream, stream: str, name: str, subjects: Sequence[str], after: int
) -> None:
    """Create the durable so that servers report its floor at ``after``; for streams with limits.

    Older servers report 0 when there is no message ``after`` to acknowledge.
    """
    if takes_resets(jetstream) or not after:
        jetstream.create_consumer(stream, config(name, subjects, after))
        return
    jetstream.create_consumer(stream, config(name, subjects, after - 1))
    with jetstream.consumer(stream, name, verify=False) as consumer:
        for message in consumer.fetch(1, timeout=jetstream.timeout, no_wait=True):
            if message.metadata.stream_seq == after:
                jetstream.client.request(message.reply, ACK, timeout=jetstream.timeout)
                return
    _delete(jetstream, stream, name)
    jetstream.create_consumer(stream, config(name, subjects, after))


def move_back(
    jetstream: JetStream, stream: str, name: str, subjects: Sequence[str], after: int
) -> None:
    """Create the durable again while a guard consumer holds its messages; for interest retention."""
    wanted = config(name, subjects, after)
    guard = f"{name}-moves"
    jetstream.create_consumer(
        stream, replace(wanted, durable_name="", name=guard, inactive_threshold=_GUARD_S)
    )
    _delete(jetstream, stream, name)
    jetstream.create_consumer(stream, wanted)
    _delete(jetstream, stream, guard)


def _delete(jetstream: JetStream, stream: str, name: str) -> None:
    try:
        jetstream.delete_consumer(stream, name)
    except ConsumerNotFoundError:
        return  # it is gone already


def fetch(jetstream: JetStream, info: ConsumerInfo, after: int) -> None:
    """Let the server deliver the messages, headers alone, and acknowledge the last one up to
    ``after``.

    Messages that were delivered beyond ``after`` stay unacknowledged. Raises PeltonTimeoutError when messages
    do not come.
    """
    floor, delivered = info.ack_floor, info.delivered
    if after <= delivered.stream_seq:
        # An earlier process had it delivered: any consumer sequence above the floor will do.
        _acknowledge(jetstream, info, after, floor.consumer_seq + 1)
        return
    reader = ColumnReader(
        jetstream, info.stream_name, info.name, rows=_ROWS, batch=_ROWS, stop_seq=after + 1
    )
    reader.last_seq = delivered.stream_seq
    last: tuple[int, int] | None = None
    pending, position = info.num_pending, delivered.stream_seq
    try:
        while pending and position < after:
            columns = reader.read(jetstream.timeout)
            if not columns.count:
                raise PeltonTimeoutError(
                    f"message {position + 1} or later is pending, but does not come"
                )
            sequences = columns.seq.view("q")[: columns.count]
            below = [row for row, seq in enumerate(sequences) if seq <= after]
            if below:
                behind = columns.count - 1 - below[-1]
                last = sequences[below[-1]], columns.last_consumer_seq - behind
            pending, position = columns.last_pending, columns.last_seq
    finally:
        reader.close()
    if last is not None:
        _acknowledge(jetstream, info, *last)
    elif delivered.stream_seq > floor.stream_seq:
        _acknowledge(jetstream, info, delivered.stream_seq, floor.consumer_seq + 1)


def _acknowledge(
    jetstream: JetStream, info: ConsumerInfo, stream_seq: int, consumer_seq: int
) -> None:
    subject = f"{ACK_PREFIX}.{info.stream_name}.{info.name}.1.{stream_seq}.{consumer_seq}.0.0"
    jetstream.client.request(subject, ACK, timeout=_ACK_SECONDS)
