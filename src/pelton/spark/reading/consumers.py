"""Read a partition with an own consumer: works with every server, for streams with limits retention.

Pull requests overlap, and replies are parsed straight into columns (:mod:`pelton.client.sync.columns`).
The server applies the subject filters where it can, and leaves out the payloads when no column needs
them. Does not depend on Arrow or Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pelton.client.sync import columns as bulk
from pelton.errors import ApiError
from pelton.spark.connection import client_for, jetstream_for
from pelton.spark.reading.patterns import askable, cover
from pelton.spark.reading.plan import UnfitError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.core.bulk.columns import Columns
    from pelton.spark.reading.one_range import Reading

BATCH_BYTES = 4 * 2**20
SEVERAL_FILTERS = (2, 10)
"""The first server version whose consumers take more than one filter."""
_TOO_MANY_CONSUMERS = 10026


def read(reading: Reading) -> Iterator[Columns]:
    """Read the rest of a partition, in batches.

    Each time it has created a consumer, it checks the stream, so that the consumer is known to be of the
    stream that was planned. When the server cannot apply all filters at once (it is too old for several,
    or two of them overlap), it gets one filter that covers them, and sends messages that match none.
    Raises UnfitError when the stream, or the account, has as many consumers as it may.
    """
    try:
        yield from _read(reading)
    except ApiError as error:
        if error.err_code != _TOO_MANY_CONSUMERS:
            raise
        raise UnfitError(f"no consumer can be made to read it: {error}") from error


def _read(reading: Reading) -> Iterator[Columns]:
    plan = reading.plan
    yield from bulk.read_range(
        jetstream_for(plan.servers),
        plan.stream,
        reading.position,
        reading.last + 1,
        filter_subjects=plan.subjects if _can_filter(reading) else (cover(plan.subjects),),
        rows=plan.batch_rows,
        max_bytes=BATCH_BYTES,
        timeout=plan.servers.request_timeout_seconds,
        headers_only="data" not in plan.needed,
        replies="reply" in plan.needed,
        begun=reading.look,
    )


def _can_filter(reading: Reading) -> bool:
    subjects = reading.plan.subjects
    if len(subjects) < 2:
        return True
    server = client_for(reading.plan.servers).server_info
    return askable(subjects) and server.version_at_least(*SEVERAL_FILTERS)
