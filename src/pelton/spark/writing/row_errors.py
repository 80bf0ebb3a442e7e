"""Rows that cannot be written: the write fails, or the rows go to a side output with the reason.

A side output is a folder of Parquet files, one for each partition and run of a write, or a subject
that a stream stores. The name of a file follows from the run and the partition, so a partition that
is written again replaces its own file; until the file is complete, its name is unique. A message has
an id, by which the stream recognizes a repeated one during its duplicate window.

Does not depend on Spark. :func:`judge` decides whether an error concerns one row or ends the write.
"""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from pelton.client.base.answers import decode_pub_ack
from pelton.client.publishing import IN_PROCESS
from pelton.core.protocol.wire import OP_PUB, ROLE_SERVER, Parser, decode_headers
from pelton.errors import ApiError, PeltonError
from pelton.spark.connection import jetstream_for
from pelton.spark.writing.options import FAIL

if TYPE_CHECKING:
    from pelton.spark.writing.options import WriteOptions

REASON_HEADER = "Pelton-Error"
ROW_HEADER = "Pelton-Row"
SUBJECT_HEADER = "Pelton-Subject"
_HELD_ROWS = 8192
_SCHEMA = pa.schema(
    [
        ("writer", pa.string()),
        ("epoch", pa.int64()),
        ("partition", pa.int32()),
        ("row", pa.int64()),
        ("subject", pa.string()),
        ("headers", pa.string()),
        ("data", pa.binary()),
        ("reason", pa.string()),
    ]
)
# Error codes of a stream that concern one message; any other error concerns the stream.
_ABOUT_THE_ROW = frozenset(
    {
        *(10054, 10097),  # too large, headers too large
        *(10060, 10070, 10071, 10193),  # an expectation
        *(10111, 10165, 10166),  # rollup, TTL
        *(10168, 10169, 10170, 10171),  # counters
        *(10188, 10189, 10190, 10191, 10192, 10203, 10212, 10223),  # schedules
    }
)
_NO_RESPONDERS = 503
_STORE_FAILED = 10077
_STORE_FAILED_OF_ROW = ("per subject", "too large")


class WriteError(RuntimeError):
    """Rows could not be written; the text says where and why."""


class RowRefused(WriteError):
    """A row that cannot be written, neither now nor when Spark runs the task again."""


@dataclass(frozen=True)
class Task:
    """One partition of one run of a write: the base of message ids and progress records."""

    writer: str
    epoch: int
    partition: int

    @property
    def id(self) -> str:
        """The text with which the ids of its rows begin."""
        return f"{self.writer}:{self.epoch}:{self.partition}:"

    def __str__(self) -> str:
        """The name of the task in errors."""
        return f"partition {self.partition} of batch {self.epoch}"


class Sent(NamedTuple):
    """A message that was published, or that would have been."""

    subject: str
    headers: bytes
    data: bytes

    def header(self, name: str) -> str | None:
        """The first value of a header."""
        values = decode_headers(self.headers)[2].get(name) if self.headers else None
        return values[0] if values else None


def message_of(operation: bytes) -> Sent:
    """The message that an encoded publish operation contains."""
    [(kind, subject, _, headers, data)] = Parser(ROLE_SERVER, max_payload=1 << 30).feed(operation)
    assert kind == OP_PUB
    return Sent(str(subject), headers, data)  # type: ignore[arg-type]  # bytes, as the parser has it


def no_stream(subject: str) -> str:
    """The reason of a publish that got no answer."""
    return f"no stream takes subject {subject!r}"


def in_process(payload: bytes) -> bool:
    """Whether a clustered stream is still storing the first copy of a repeated message."""
    if b"10158" not in payload:
        return False
    try:
        decode_pub_ack(payload)
    except ApiError as error:
        return error.err_code == IN_PROCESS
    except (PeltonError, ValueError):
        return False
    return False


def judge(subject: str, headers: bytes, payload: bytes, where: str) -> str:
    """The reason why a stream refused a message, when the refusal concerns this message.

    Raises :class:`WriteError` when the refusal concerns the stream, because the stream would refuse the
    next message, too.
    """
    try:
        if headers and decode_headers(headers)[0] == _NO_RESPONDERS:
            return no_stream(subject)
        decode_pub_ack(payload)
    except ApiError as error:
        about_row = error.err_code in _ABOUT_THE_ROW or (
            error.err_code == _STORE_FAILED and error.description.endswith(_STORE_FAILED_OF_ROW)
        )
        if about_row:
            return f"{where} refused it: {error}"
        raise WriteError(f"{where} takes no more: {error}") from None
    except (PeltonError, ValueError) as error:
        raise WriteError(f"{where} gave an answer that is no ack: {error}") from None
    raise WriteError(f"{where} gave an answer that is no plain ack: {payload[:200]!r}")


class RowErrors:
    """The rows of one partition that could not be written."""

    def __init__(self, options: WriteOptions, task: Task) -> None:
        """Opens no file and no connection."""
        self.count = 0
        """The number of rows that went to the side output."""
        self._options = options
        self._task = task
        self._held: list[tuple[int, str, bytes, bytes, str]] = []
        self._file: pq.ParquetWriter | None = None
        self._unfinished: Path | None = None

    def add(self, row: int, reason: str, message: Sent) -> None:
        """Take a row that cannot be written; :class:`RowRefused` where that fails the write."""
        if self._options.on_row_error == FAIL:
            about = f" (subject {message.subject!r})" if message.subject else ""
            raise RowRefused(
                f"row {row} of {self._task}{about} cannot be written: {reason}."
                " To write the others, set onRowError to side"
            )
        self.count += 1
        self._held.append((row, message.subject, message.headers, message.data, reason))
        if len(self._held) >= _HELD_ROWS:
            self._release()

    def close(self) -> None:
        """Complete the side output with every row; :class:`WriteError` when it cannot be written."""
        self._release()
        if self._options.error_path is None:
            return
        path = self._path()
        try:
            if self._file is None:
                path.unlink(missing_ok=True)  # an earlier attempt refused rows that this one wrote
            else:
                self._file.close()
                assert self._unfinished is not None
                self._unfinished.replace(path)
                self._unfinished = None
        except (OSError, pa.ArrowException) as error:
            raise self._failure(error) from None

    def drop(self) -> None:
        """End the attempt, and remove a file that is not complete."""
        if self._unfinished is None or self._file is None:
            return
        with contextlib.suppress(OSError, pa.ArrowException):
            self._file.close()
        with contextlib.suppress(OSError):
            self._unfinished.unlink(missing_ok=True)

    def _release(self) -> None:
        if not self._held:
            return
        try:
            if self._options.error_subject is not None:
                self._publish(self._options.error_subject)
            if self._options.error_path is not None:
                self._write_file()
        except (OSError, pa.ArrowException, PeltonError) as error:
            raise self._failure(error) from None
        self._held.clear()

    def _failure(self, error: Exception) -> WriteError:
        return WriteError(f"the side output of {self._task} cannot be written: {error}")

    def _publish(self, subject: str) -> None:
        with jetstream_for(self._options.servers).publisher() as publisher:
            for row, its_subject, headers, data, reason in self._held:
                # Nats- headers were for the stream that refused the message.
                its_headers = {
                    name: values
                    for name, values in (decode_headers(headers)[2] if headers else {}).items()
                    if not name.lower().startswith("nats-")
                }
                its_headers.update(
                    {
                        REASON_HEADER: [" ".join(reason.split())],
                        ROW_HEADER: [f"{self._task.id}{row}"],
                        SUBJECT_HEADER: [" ".join(its_subject.split())],
                    }
                )
                publisher.publish(
                    subject, data, headers=its_headers, msg_id=f"refused:{self._task.id}{row}"
                )

    def _path(self) -> Path:
        assert self._options.error_path is not None
        name = f"{self._task.writer}-{self._task.epoch}-{self._task.partition}.parquet"
        return Path(self._options.error_path) / name

    def _write_file(self) -> None:
        if self._file is None:
            path = self._path()
            path.parent.mkdir(parents=True, exist_ok=True)
            self._unfinished = path.with_suffix(f".{uuid.uuid4().hex}.tmp")
            self._file = pq.ParquetWriter(self._unfinished, _SCHEMA)
        rows = list(zip(*self._held, strict=True))
        task, count = self._task, len(self._held)
        columns = [
            pa.array([task.writer] * count, pa.string()),
            pa.array([task.epoch] * count, pa.int64()),
            pa.array([task.partition] * count, pa.int32()),
            pa.array(rows[0], pa.int64()),
            pa.array([_text(subject) for subject in rows[1]], pa.string()),
            pa.array([_text(headers) for headers in rows[2]], pa.string()),
            pa.array(rows[3], pa.binary()),
            pa.array([_text(reason) for reason in rows[4]], pa.string()),
        ]
        self._file.write_batch(pa.record_batch(columns, schema=_SCHEMA))


def _text(text: str | bytes) -> str:
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
    return raw.decode("utf-8", "replace")
