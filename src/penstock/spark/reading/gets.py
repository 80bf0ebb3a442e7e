"""Reading a partition message by message, with a request for each: for streams that no consumer of
ours may touch, and where none may be made.

A consumer on a work queue takes what it reads away, and on a stream with interest retention its
coming and going decides what is kept. Requests for stored messages change nothing, anywhere. They
cost more: use direct gets where the stream allows them. Knows nothing of Arrow or Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.client.stored import read_stored
from penstock.spark.connection import jetstream_for, state_of
from penstock.spark.reading.consumers import BATCH_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.core.bulk.columns import Columns
    from penstock.spark.reading.one_range import Reading


def read(reading: Reading) -> Iterator[Columns]:
    """What is left of a partition, in batches."""
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
        # After they came, so that they are of the life that there is then.
        reading.front = state_of(reading.look()).first_seq
        yield columns
