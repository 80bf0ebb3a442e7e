"""Read a partition with a request for each message, where no consumer can be used.

A consumer on a work queue stream removes the messages that it reads, and on a stream with interest
retention a new or deleted consumer changes which messages are kept. Requests for stored messages
change nothing on any stream. They cost more: use direct gets where the stream allows them. Knows
nothing of Arrow or Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pelton.client.sync.gets import read_stored
from pelton.spark.connection import jetstream_for, state_of
from pelton.spark.reading.consumers import BATCH_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.core.bulk.columns import Columns
    from pelton.spark.reading.one_range import Reading


def read(reading: Reading) -> Iterator[Columns]:
    """Read the rest of a partition, in batches."""
    plan = reading.plan
    for columns in read_stored(
        jetstream_for(plan.servers),
        plan.stream,
        reading.position,
        reading.last + 1,
        filter_subjects=plan.subjects,
        rows=plan.batch_rows,
        max_bytes=BATCH_BYTES,
        timeout=plan.servers.request_timeout_seconds,
    ):
        # Checked after the messages came, so that it is the state of the stream they are from.
        reading.front = state_of(reading.look()).first_seq
        yield columns
