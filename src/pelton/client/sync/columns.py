"""The methods of JetStream that read in bulk: messages as columns, without a Python object per message."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from .bulk.columns import END_OF_SEQUENCES, IN_FLIGHT, MAX_BYTES, ROWS, ColumnReader, read_range
from .management import Management

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pelton.core.bulk.columns import Columns

    from ..base.durations import Duration
    from .jetstream import JetStream


class ColumnReading(Management):
    """Reading in bulk; a part of ``JetStream``."""

    def column_reader(
        self,
        stream: str,
        consumer: str,
        *,
        rows: int = ROWS,
        batch: int = 2 * ROWS,
        max_bytes: int = MAX_BYTES,
        in_flight: int = IN_FLIGHT,
        stop_seq: int = END_OF_SEQUENCES,
        headers_only: bool = False,
        replies: bool = False,
    ) -> ColumnReader:
        """Read a consumer without acks in batches of columns; one reader per connection at a time.

        ``headers_only`` says that the consumer delivers only headers; ``replies`` keeps the ack subjects.
        With either of them the columns are ``WireColumns``. Raises RuntimeError when another reader is
        open, ValueError on limits below 1.
        """
        return ColumnReader(
            cast("JetStream", self),
            stream,
            consumer,
            rows=rows,
            batch=batch,
            max_bytes=max_bytes,
            in_flight=in_flight,
            stop_seq=stop_seq,
            headers_only=headers_only,
            replies=replies,
        )

    def read_columns(
        self,
        stream: str,
        start_seq: int,
        stop_seq: int,
        *,
        filter_subjects: Iterable[str] = (),
        rows: int = ROWS,
        max_bytes: int = MAX_BYTES,
        timeout: Duration | None = None,
        headers_only: bool = False,
        replies: bool = False,
        begun: Callable[[], object] | None = None,
    ) -> Iterator[Columns]:
        """The messages with ``start_seq <= seq < stop_seq`` that the stream holds, in order.

        Creates consumers without acks, and a new one after the last row when one is lost; calls ``begun``
        after each creation. With ``headers_only`` payloads stay on the server, with ``replies`` the ack
        subjects are kept (``WireColumns``). Ends at the current end of the stream if that is before
        ``stop_seq``. Raises PeltonTimeoutError when a stored message does not come, ConnectionClosedError when
        no server can be reached again, ApiError (StreamNotFoundError ...), and the errors of a pull when
        several consumers in a row deliver nothing.
        """
        return read_range(
            cast("JetStream", self),
            stream,
            start_seq,
            stop_seq,
            filter_subjects=filter_subjects,
            rows=rows,
            max_bytes=max_bytes,
            timeout=timeout,
            headers_only=headers_only,
            replies=replies,
            begun=begun,
        )
