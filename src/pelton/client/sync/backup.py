"""Backups of streams for blocking code: the chunks of STREAM.SNAPSHOT and STREAM.RESTORE, whose
contents only the server interprets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pelton.api import calls as wire
from pelton.api.codec import encode
from pelton.api.streams import StreamConfig, StreamState
from pelton.errors import PeltonError, PeltonTimeoutError, ProtocolError

from ..base.answers import decode
from ..base.models import StreamInfo, StreamInfoResponse

if TYPE_CHECKING:
    from .jetstream import JetStream

CHUNK_BYTES = 64 * 1024
CHUNK_TIMEOUT_S = 20.0
END_TIMEOUT_S = 3600.0
"""The timeout for the last answer: the server syncs everything first."""


class BackupError(PeltonError):
    """The server gave up a backup; str() says why."""


class Backup(Iterator[bytes]):
    """A backup under way: iterate over its chunks, once; together they are the archive.

    Ends with BackupError when the server gives up, PeltonTimeoutError when no chunk arrives. The chunks received
    until then are no backup.
    """

    def __init__(
        self,
        jetstream: JetStream,
        stream: str,
        *,
        consumers: bool = True,
        check: bool = False,
        chunk_bytes: int = 0,
        window_bytes: int = 0,
    ) -> None:
        """Begin the backup; 0 stands for the server's own sizes.

        Raises ApiError when it is not possible. With `check` the server reads all messages before it answers,
        however long that takes.
        """
        client = jetstream.client
        self._jetstream = jetstream
        self._subject = client.new_inbox()
        # Before the request: chunks may come ahead of its answer.
        self._subscription = client.subscribe(self._subject)
        request = wire.StreamSnapshotRequest(
            deliver_subject=self._subject,
            no_consumers=not consumers,
            chunk_size=chunk_bytes,
            window_size=window_bytes,
            jsck=check,
        )
        subject = jetstream.subjects.stream("SNAPSHOT", stream)
        try:
            timeout = END_TIMEOUT_S if check else jetstream.timeout
            answer = client.request(subject, encode(request), timeout=timeout)
            response = decode(answer.data, wire.StreamSnapshotResponse)
        except BaseException:
            self._subscription.unsubscribe()
            raise
        if response.config is None or response.state is None:
            raise ProtocolError(f"an answer without a stream: {answer.data[:200]!r}")
        self.stream = stream
        self.config: StreamConfig = response.config
        self.state: StreamState = response.state
        self._ended = False

    def __iter__(self) -> Backup:
        """The backup itself."""
        return self

    def __next__(self) -> bytes:
        """The next chunk, which is acknowledged."""
        if self._ended:
            raise StopIteration
        try:
            message = self._subscription.next(timeout=CHUNK_TIMEOUT_S)
        except BaseException:
            self.close()
            raise
        if message is None:
            self.close()
            raise PeltonTimeoutError(f"no chunk of stream {self.stream} in {CHUNK_TIMEOUT_S} s")
        if message.data:
            # The server sends on when chunks are acknowledged.
            if message.reply:
                self._jetstream.client.publish(message.reply)
            return message.data
        self.close()
        # 204 ends a backup (or no headers at all, from older servers); anything else is a failure.
        if message.raw_headers and message.status != 204:
            line = message.raw_headers.partition(b"\r\n")[0].decode("utf-8", "replace")
            raise BackupError(f"backup of stream {self.stream}: {line.removeprefix('NATS/1.0 ')}")
        raise StopIteration

    def close(self) -> None:
        """End the backup early; the server notices."""
        if not self._ended:
            self._ended = True
            self._subscription.unsubscribe()


def restore(
    jetstream: JetStream,
    config: StreamConfig,
    chunks: Iterable[bytes],
    state: StreamState | None = None,
) -> StreamInfo:
    """Create a stream from a backup's bytes.

    Its name is that of the backup; everything else in `config` may differ. `state` is that of the backup.
    Raises ApiError when a stream of that name exists, or when the archive is invalid; then no stream is
    created.
    """
    client = jetstream.client
    request = wire.StreamRestoreRequest(config=config, state=state or StreamState())
    subject = jetstream.subjects.stream("RESTORE", config.name)
    answer = client.request(subject, encode(request), timeout=jetstream.timeout)
    target = decode(answer.data, wire.StreamRestoreResponse).deliver_subject
    for chunk in chunks:
        for at in range(0, len(chunk), CHUNK_BYTES):
            part = chunk[at : at + CHUNK_BYTES]
            answer = client.request(target, part, timeout=CHUNK_TIMEOUT_S)
            # An answer with content before the end is an error of the server.
            if answer.data:
                decode(answer.data, StreamInfoResponse)
                raise ProtocolError(f"unexpected answer to a chunk: {answer.data[:200]!r}")
    # An empty chunk ends the archive.
    answer = client.request(target, b"", timeout=END_TIMEOUT_S)
    info = decode(answer.data, StreamInfoResponse).info
    if info is None:
        raise ProtocolError(f"an answer without a stream: {answer.data[:200]!r}")
    return info
