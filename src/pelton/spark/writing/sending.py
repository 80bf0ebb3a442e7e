"""Send the rows of one partition to a stream, one message each, with many acks outstanding.

When the connection breaks, the sender connects again for up to ``retryTimeout``. It then finds which
of the messages without an ack the stream has (where ids make that possible), and sends the others
again, in order. It does the same after it has waited for another attempt at the partition.

Does not depend on Spark or on how a row becomes a message.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from pelton.client.base.answers import decode_pub_ack
from pelton.client.base.message import EXPECTED_STREAM, MSG_ID
from pelton.client.sync.rows import RowPublisher
from pelton.core.bulk.publish_window import LONG_SUBJECT, TOO_LARGE
from pelton.core.protocol.subjects import matches
from pelton.errors import (
    ApiError,
    ConnectionClosedError,
    NoRespondersError,
    PeltonError,
    PeltonTimeoutError,
    PermissionsViolationError,
    StreamNotFoundError,
)
from pelton.spark.connection import ReadError, client_for, forget_client, jetstream_for
from pelton.spark.writing.progress import AnotherAttempt, Found
from pelton.spark.writing.row_errors import (
    Sent,
    WriteError,
    in_process,
    judge,
    message_of,
    no_stream,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pelton.client.sync import Client
    from pelton.client.sync.jetstream import JetStream
    from pelton.spark.writing.composing import Messages
    from pelton.spark.writing.options import WriteOptions
    from pelton.spark.writing.progress import Progress
    from pelton.spark.writing.row_errors import RowErrors
    from pelton.spark.writing.target import Target

T = TypeVar("T")

RETRY_EVERY_SECONDS = 0.2
_LOOK_SECONDS_MAX = 1.0
# A server that is starting or stopping may report for a moment that there is no stream.
_DENIALS = 3  # after so many such answers in a row the stream is gone
_PASSING = (
    ConnectionClosedError,
    NoRespondersError,
    StreamNotFoundError,
    PeltonTimeoutError,
    OSError,
)


def common_lines(target: Target) -> bytes:
    """The header lines of every message."""
    return f"{EXPECTED_STREAM}: {target.stream}\r\n".encode() if target.expected else b""


def connect(options: WriteOptions, deadline: float) -> Client:
    """This process's connection, opened again until the deadline; :class:`WriteError` after that."""
    while True:
        try:
            return client_for(options.servers)
        except ReadError as error:
            if time.monotonic() >= deadline:
                raise WriteError(str(error)) from error
            time.sleep(RETRY_EVERY_SECONDS)


def patiently(options: WriteOptions, act: Callable[[JetStream], T]) -> T:
    """Run ``act``, which must be safe to repeat, for ``retryTimeout`` while the server is away."""
    deadline = time.monotonic() + options.servers.retry_timeout_seconds
    while True:
        connect(options, deadline)
        try:
            return act(jetstream_for(options.servers))
        except _PASSING:
            if time.monotonic() >= deadline:
                raise
            forget_client(options.servers)
            time.sleep(RETRY_EVERY_SECONDS)


def unsent(messages: Messages, row: int, first: int) -> Sent:
    """The message of a row that was not sent; ``first`` is the number of the batch's first row."""
    at = row - first
    lines = messages.lines_of(at)
    block = b"NATS/1.0\r\n" + lines + b"\r\n" if lines else b""
    return Sent(messages.subject_of(at), block, messages.payload_of(at))


def why_refused(code: int, size: int, limit: int) -> str:
    """The reason why an encoder refused a row."""
    if code == TOO_LARGE:
        return f"it has {size} bytes of headers and data, but only {limit} are taken"
    if code == LONG_SUBJECT:
        return f"its subject has {size} bytes, more than a server takes (max_control_line)"
    return "its subject is none that can be published to"


class Sender:
    """Sends the rows of one partition and counts their acks.

    ``progress`` knows which rows the stream has; None where rows have no ids.
    """

    def __init__(
        self,
        options: WriteOptions,
        target: Target,
        errors: RowErrors,
        progress: Progress | None,
        task_id: str,
    ) -> None:
        """Opens a connection; :class:`WriteError` when that fails in time."""
        self._options = options
        self._target = target
        self._errors = errors
        self._progress = progress
        self._where = f"stream {target.stream}" if target.stream else "the stream"
        self._own_ids = False
        # Whether more rows are known to be stored than when the rows to send were chosen.
        self._learned = False
        self._patience_seconds = options.servers.retry_timeout_seconds
        numbered = f"{MSG_ID}: {task_id}".encode() if progress is not None else b""
        retry = options.servers.retry_timeout_seconds
        self._publisher = RowPublisher(
            connect(options, time.monotonic() + retry),
            common=common_lines(target),
            numbered=numbered,
            window=options.window_rows,
            window_bytes=options.window_bytes,
            payload_max=target.message_bytes_max,
        )

    @property
    def acked(self) -> int:
        """The number of rows that the stream acknowledged."""
        return self._publisher.flow.acked

    @property
    def duplicates(self) -> int:
        """The number of acknowledged rows that the stream had already."""
        return self._publisher.flow.duplicates

    def send(self, messages: Messages, first: int, known: Callable[[], list[int]]) -> int:
        """Send a batch without the rows that are ``known`` to be stored; returns how many are known.

        Waits only while the window is full, or while another attempt writes the partition. Raises
        :class:`WriteError` when the write was ended or a later epoch has begun.
        """
        self._own_ids = self._own_ids or bool(messages.named)
        for row, reason in messages.bad.items():
            self._errors.add(first + row, reason, unsent(messages, first + row, first))
        skip = known()
        rows = messages.rows(first, skip)
        flow = self._publisher.flow
        at = 0
        while at < rows.count:
            if self._look():
                skip = known()
                rows = messages.rows(first, skip)
            try:
                at = self._publisher.publish(rows, at)
            except (PeltonError, OSError) as error:
                self._recover(error)
            self._take_refusals(messages, first)
            if flow.full:
                self._wait(flow.outstanding // 2)
        return len(skip)

    def finish(self) -> None:
        """Wait for every ack; raises as :meth:`send`."""
        self._look()
        self._wait(0)

    def close(self) -> None:
        """Give the connection back; close it when answers are still on their way."""
        self._publisher.close()
        if self._publisher.flow.outstanding:
            forget_client(self._options.servers)

    def _look(self) -> bool:
        """Check for another attempt when the check is due; returns whether more rows are known to
        be stored.

        The caller then chooses the unsent rows again, since they may have waited for long.
        """
        progress = self._progress
        if progress is not None and progress.look_due:
            try:
                patiently(self._options, lambda js: progress.over(js).look())
            except AnotherAttempt as other:
                self._give_way(progress, other)
            else:
                self._learn(progress)
        learned, self._learned = self._learned, False
        return learned

    def _learn(self, progress: Progress) -> None:
        """After a check, find the rows that other attempts stored, when a scan is due or they are
        complete.
        """
        if not progress.scan_due and not progress.finished:
            return
        self._publisher.close()
        if not progress.finished:
            patiently(self._options, lambda js: progress.over(js).scan_again(own_ids=self._own_ids))
        self._go_on(progress)

    def _give_way(self, progress: Progress, other: AnotherAttempt) -> None:
        """Wait until a later attempt is complete; take over when it seems to be dead.

        Raises as :meth:`send`.
        """
        self._publisher.close()
        pause = min(progress.look_every_seconds, _LOOK_SECONDS_MAX)
        deadline = time.monotonic() + self._patience_seconds
        while True:
            time.sleep(pause)
            late = time.monotonic() >= deadline
            try:
                if late:
                    patiently(self._options, self._take_over)
                else:
                    patiently(self._options, lambda js: progress.over(js).look())
                break
            except AnotherAttempt as newest:
                if newest.revision != other.revision:
                    deadline = time.monotonic() + self._patience_seconds
                other = newest
        if late:
            self._patience_seconds *= 2  # so of two slow attempts one completes
        self._go_on(progress)

    def _take_over(self, js: JetStream) -> None:
        assert self._progress is not None
        self._progress.over(js).take_over(own_ids=self._own_ids)

    def _go_on(self, progress: Progress) -> None:
        """Send the messages again that are not answered and that the stream does not have."""
        self._learned = True
        self._settle_found(progress.found)
        try:
            self._publisher.open(client_for(self._options.servers))
            self._publisher.send_again()
        except (PeltonError, OSError) as error:
            self._recover(error)

    def _wait(self, outstanding_max: int) -> None:
        patience = self._options.servers.request_timeout_seconds
        while True:
            try:
                if self._publisher.wait(outstanding_max, patience):
                    break
                raise PeltonTimeoutError(f"no ack from {self._where} in {patience:g} s")
            except (PeltonError, OSError) as error:
                self._recover(error)
        self._take_failures()

    def _take_refusals(self, messages: Messages, first: int) -> None:
        encoder = self._publisher.flow.encoder
        refused = encoder.refused[:]
        encoder.refused.clear()
        for row, code, size in refused:
            reason = why_refused(code, size, encoder.max_payload)
            self._errors.add(row, reason, unsent(messages, row, first))
        self._take_failures()

    def _take_failures(self) -> None:
        failures = self._publisher.flow.failures[:]
        self._publisher.flow.failures.clear()
        unheard = []
        for row, operation, headers, payload in failures:
            message = message_of(operation)
            if in_process(payload):
                unheard.append((row, message))
                continue
            reason = judge(message.subject, headers, payload, self._where)
            if reason == no_stream(message.subject) and self._target.takes(message.subject):
                unheard.append((row, message))
            else:
                self._errors.add(row, reason, message)
        if unheard:
            self._repeat(unheard)

    def _repeat(self, unheard: list[tuple[int, Sent]]) -> None:
        """Send messages again that got no answer, although the stream takes their subjects.

        The server is about to stop, a cluster elects a leader, or the stream is gone. When the stream is
        back, these messages are sent first, in the order of rows together with unanswered ones before them,
        so that rows stay in order. Raises :class:`WriteError` when the stream does not come back.
        """
        self._publisher.close()
        self._await_stream(unheard[0][1].subject)
        self._catch_up()
        missing = self._missing(unheard)

        def publish(js: JetStream) -> None:
            while missing:
                row, sent, number = missing[0]
                client = js.client
                answer = client._answer_to(
                    client._ask(sent.subject, sent.data, raw_headers=sent.headers), js.timeout
                )
                if in_process(answer.data):
                    raise PeltonTimeoutError(f"{self._where} is storing a message of the same id")
                try:
                    decode_pub_ack(answer.data)
                except ApiError:
                    reason = judge(sent.subject, b"", answer.data, self._where)
                    self._errors.add(row, reason, sent)
                if number is not None:
                    self._publisher.flow.settle(number)
                del missing[0]

        patiently(self._options, publish)
        try:
            self._publisher.open(client_for(self._options.servers))
            self._publisher.send_again()
        except (PeltonError, OSError) as error:
            self._recover(error)

    def _catch_up(self) -> None:
        """Find which rows the stream has now, and give way to another attempt that has begun."""
        progress = self._progress
        if progress is None:
            return
        try:
            patiently(self._options, lambda js: progress.over(js).look())
        except AnotherAttempt as other:
            self._give_way(progress, other)
            self._publisher.close()
        patiently(self._options, lambda _: self._settle())

    def _missing(self, unheard: list[tuple[int, Sent]]) -> list[tuple[int, Sent, int | None]]:
        """The unheard messages that the stream does not have, and the unanswered ones before the last of
        them, in the order of rows; with the number in the window for those that still have one.
        """
        through = self._progress is not None and self._progress.finished
        found = Found() if self._progress is None else self._progress.found
        missing: list[tuple[int, Sent, int | None]] = []
        for row, sent in unheard:
            own = sent.header(MSG_ID) if self._own_ids else None
            if not through and not found.has(row, sent.subject, own):
                missing.append((row, sent, None))
        last = max(row for row, _ in unheard)
        for number, row, operation in self._publisher.flow.unanswered():
            if row < last:
                missing.append((row, message_of(operation), number))
        return sorted(missing, key=lambda one: one[0])

    def _await_stream(self, subject: str) -> None:
        """Wait until the server has the stream.

        Raises :class:`WriteError` when the server reports that the stream is gone, or stays away.
        """
        deadline = time.monotonic() + self._options.servers.retry_timeout_seconds
        denied = 0
        while True:
            try:
                stream = jetstream_for(self._options.servers).stream_info(str(self._target.stream))
                if any(matches(subject, taken) for taken in stream.config.subjects):
                    return
                denied = _DENIALS
            except StreamNotFoundError:
                denied += 1
            except (ReadError, *_PASSING):
                denied = 0
                forget_client(self._options.servers)
            if denied >= _DENIALS or time.monotonic() >= deadline:
                raise WriteError(f"{self._where} is gone: {no_stream(subject)}")
            time.sleep(RETRY_EVERY_SECONDS)

    def _recover(self, error: Exception) -> None:
        """Connect again, and send the messages that the stream does not have."""
        self._take_failures()
        flow = self._publisher.flow
        deadline = time.monotonic() + self._options.servers.retry_timeout_seconds
        while True:
            if isinstance(error, PermissionsViolationError):
                raise WriteError(f"{self._where}: {error}") from error
            if time.monotonic() >= deadline:
                raise WriteError(
                    f"{self._where}: {flow.outstanding} rows are without an ack after"
                    f" {self._options.servers.retry_timeout_seconds:g} s: {error}"
                ) from error
            self._publisher.close()
            forget_client(self._options.servers)
            try:
                client = connect(self._options, deadline)
                if self._progress is not None:
                    self._progress.over(jetstream_for(self._options.servers)).look()
                self._settle()
                self._publisher.open(client)
                self._publisher.send_again()
            except AnotherAttempt as other:
                assert self._progress is not None
                self._give_way(self._progress, other)
                return
            except _PASSING as again:
                error = again
                time.sleep(RETRY_EVERY_SECONDS)
                continue
            if not isinstance(error, PeltonTimeoutError) or not flow.outstanding:
                return
            # The error was a missing ack: an ack must arrive now, or the loop connects again.
            before = flow.outstanding
            patience = max(0.0, deadline - time.monotonic())
            patience = min(patience, self._options.servers.request_timeout_seconds)
            try:
                if self._publisher.wait(before - 1, patience):
                    return
            except (PeltonError, OSError) as again:
                error = again

    def _settle(self) -> None:
        flow = self._publisher.flow
        if self._progress is None or self._progress.record is None or not flow.outstanding:
            return
        after = max(self._progress.record.after, flow.floor_seq)
        js = jetstream_for(self._options.servers)
        self._settle_found(self._progress.over(js).scan(after, own_ids=self._own_ids))

    def _settle_found(self, found: Found) -> None:
        flow = self._publisher.flow
        through = self._progress is not None and self._progress.finished
        for number, row, operation in flow.unanswered():
            message = message_of(operation)
            own = message.header(MSG_ID) if self._own_ids else None
            if through or found.has(row, message.subject, own):
                flow.settle(number)
