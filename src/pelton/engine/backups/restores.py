"""STREAM.RESTORE: creates a stream from a backup that a client sends in chunks.

Backups of Pelton and of nats-server are accepted. A chunk is a message with a reply; the server
answers it (empty) after processing it, so that the sender waits for the disk. An empty chunk ends
the backup; its reply gets the info of the stream or the error.

The chunks are unpacked into a staging folder. The folder becomes the folder of the stream when the
backup is complete, sound and on the disk; a restore that fails, stalls or ends with the server
leaves nothing behind. Names in an archive are never used as paths.
"""

from typing import TYPE_CHECKING

from pelton.api import errors_generated as errors
from pelton.api.calls import (
    TYPE_PREFIX,
    StreamCreateResponse,
    StreamRestoreRequest,
    StreamRestoreResponse,
)
from pelton.api.codec import encode
from pelton.api.errors import ApiError
from pelton.core.base.s2 import FrameReader
from pelton.core.broker.job import Job
from pelton.core.broker.reactor import Connection
from pelton.core.broker.router import CallbackSink
from pelton.engine.account import limits
from pelton.engine.account.catalog import stream_info
from pelton.engine.backups.archive import ArchiveError
from pelton.engine.backups.restore_staging import Staging
from pelton.engine.backups.unpackers import Unpacker, unpacker_of
from pelton.engine.base.settings import SECOND
from pelton.engine.config import stream_config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.engine.account.account import JetStreamAccount

_SLICE_BYTES = 256 * 1024
"""Decompressed bytes of the archive that one turn processes."""
_WAITING_MAX_BYTES = 16 * 1024 * 1024
"""Bytes of chunks that a sender may send ahead of the answers."""
_COUNT_MAX = 256
"""How many restores may be in progress on a server."""
_HELD_MAX_BYTES = 64 * 1024 * 1024
"""Bytes of memory for content that all restores have not written yet; small restores go on beyond
it.
"""
_SMALL_BYTES = 256 * 1024
_STALL_NS = 5 * SECOND
_MAGIC_BYTES = 8


def start(
    account: "JetStreamAccount", request: StreamRestoreRequest, name: str
) -> StreamRestoreResponse:
    """Start a restore; the answer names the subject for the chunks."""
    config = request.config
    config.name = config.name or name
    if config.name != name:
        raise errors.StreamMismatchError()
    if "/" in name or "\\" in name:
        raise errors.StreamNameContainsPathSeparatorsError()
    config = stream_config.checked(config, caps=limits.stream_caps(account, config))
    limits.check_stream_count(account, config)
    if name in account.streams or name in account.offline:
        raise errors.StreamNameExistRestoreFailedError()
    if account.transit.count >= _COUNT_MAX:
        raise errors.StreamRestoreError(f"{_COUNT_MAX} other restores are in progress")
    restore = Restore(account, Staging(account, config))
    account.transfers.append(restore)
    account.advisories.restore_create(name, account.client_info(), account.now_ns)
    return StreamRestoreResponse(deliver_subject=restore.subject)


class Restore:
    """One restore in progress."""

    def __init__(self, account: "JetStreamAccount", staging: Staging) -> None:
        """Start to accept chunks."""
        self._account = account
        self._client = account.client_info()
        self._staging = staging
        self._name = staging.config.name
        self.subject = f"$JS.SNAPSHOT.RESTORE.{self._name}.{account.ids.next()}"
        self._sink = CallbackSink(self._take)
        account.router.attach(self.subject, self._sink)
        self._job = Job(account.reactor, self._step)
        self._start_ns = self._active_ns = account.now_ns
        self._bytes = 0
        self._unpacked_bytes = 0
        # received chunks; the first may be processed in part
        self._chunks: list[tuple[str, bytes]] = []
        self._waiting_bytes = 0  # bytes of those chunks
        self._fed = False  # whether the frame reader has the first chunk
        self._frames = FrameReader()
        self._block: memoryview | None = None  # the next bytes of the archive
        self._unpacker: Unpacker | None = None
        self._begun = b""  # the first bytes, until the kind of the archive is known
        self._held_bytes = 0  # the bytes that this restore counts in the account's transit
        self._ended = False
        account.transit.count += 1
        self._ending: Iterator[None] | None = None  # the steps after the last chunk

    def _take(
        self, _c: Connection | None, _s: str, reply: str, _headers: bytes, payload: bytes
    ) -> bool:
        self._active_ns = self._account.now_ns
        self._bytes += len(payload)
        if reply:
            self._waiting_bytes += len(payload)
            if self._chunks and self._waiting_bytes > _WAITING_MAX_BYTES:
                why = f"the sender sent more than {_WAITING_MAX_BYTES} bytes without waiting for answers"
                self._finish(reply, errors.StreamRestoreError(why))
                return True
            self._chunks.append((reply, payload))
            try:
                self._check_held()
            except ArchiveError as error:
                self._finish(reply, errors.StreamRestoreError(error))
                return True
            self._job.soon()
        else:
            why = f"restore for stream '$G > {self._name}' requires reply subject for each chunk"
            self._finish("", errors.StreamRestoreError(why))
        return True

    # -- processing chunks

    def _step(self) -> bool:
        """Process one slice; return whether more is to do."""
        if not self._chunks:
            return False
        reply, payload = self._chunks[0]
        try:
            if not payload:
                return self._complete(reply)
            if not self._fed:
                self._frames.feed(payload)
                self._fed = True
            if self._slice():
                return True
        except ApiError as error:
            self._finish(reply, error)
            return False
        except OSError as error:
            full = errors.StorageResourcesExceededError() if error.errno == 28 else None
            self._finish(reply, full or errors.StreamRestoreError(error))
            return False
        except (ArchiveError, ValueError) as error:
            self._finish(reply, errors.StreamRestoreError(error))
            return False
        except Exception as error:
            # a fault of the server: report it, and remove the restore
            self._finish(reply, errors.StreamRestoreError(error))
            raise
        del self._chunks[0]
        self._waiting_bytes -= len(payload)
        self._count()
        self._fed = False
        self._active_ns = self._account.now_ns
        self._account.router.publish_message(reply, b"")
        return bool(self._chunks)

    def _slice(self) -> bool:
        """Process about one slice; False: all bytes that were fed are processed."""
        transit = self._account.transit
        if self._block is None:
            if transit.working is not None:
                # only one restore of the server holds a block: a few bytes may decompress to 4 MiB
                return True
            data = self._frames.next()
            if data is None:
                self._staging.written()
                return False
            self._block = memoryview(data)
            transit.working = self
        part, self._block = self._block[:_SLICE_BYTES], self._block[_SLICE_BYTES:]
        if not self._block:
            self._block = transit.working = None
        if self._unpacker is None:
            self._begun += part
            if len(self._begun) < _MAGIC_BYTES:
                return True
            self._unpacker = unpacker_of(self._begun[:_MAGIC_BYTES], self._staging)
            part, self._begun = memoryview(self._begun), b""
        self._unpacked_bytes += len(part)
        limits.check_stream(self._account, self._staging.config, besides_bytes=self._unpacked_bytes)
        self._unpacker.feed(part)
        self._staging.check(self._bytes, self._unpacker.waiting)
        self._check_held()
        self._staging.written()
        return True

    def _count(self) -> None:
        """Count the memory that the restore uses now."""
        held = 0
        if not self._ended:
            held = self._waiting_bytes + self._staging.held_bytes
            held += self._unpacker.waiting if self._unpacker is not None else 0
        transit = self._account.transit
        transit.held_bytes += held - self._held_bytes
        self._held_bytes = held

    def _check_held(self) -> None:
        """Raise ArchiveError when all restores together use too much memory."""
        self._count()
        all_of_them = self._account.transit.held_bytes
        most = max(_HELD_MAX_BYTES, 4 * self._account.reactor.max_payload)
        if self._held_bytes > _SMALL_BYTES and all_of_them > most:
            raise ArchiveError(f"all restores together hold {all_of_them} bytes in memory")

    def _complete(self, reply: str) -> bool:
        """Do one step after the last chunk; return whether there are more."""
        if self._ending is None:
            if self._unpacker is None or self._frames.waiting:
                raise ArchiveError("unexpected EOF")
            self._ending = self._unpacker.finish()
        for _ in self._ending:
            return True
        try:  # not before the upload, as nats-server does
            stream_config.check_replicas_supported(self._staging.config)
        except errors.StreamReplicasNotSupportedError as error:
            raise errors.StreamRestoreError(f"error adding stream: {error}") from None
        self._staging.adopt()
        self._finish(reply, None)
        return False

    def tick(self, now_ns: int) -> None:
        """Called from time to time: give the restore up when no chunks arrive."""
        if not self._chunks and now_ns - self._active_ns >= _STALL_NS:
            self._account.report(f"restore for stream '$G > {self._name}' is stalled")
            self._end()

    # -- the end

    def _finish(self, reply: str, error: ApiError | None) -> None:
        account = self._account
        self._end()
        account.advisories.restore_complete(
            self._name, self._start_ns, self._client, account.now_ns, self._bytes
        )
        response = StreamCreateResponse(type=f"{TYPE_PREFIX}stream_create_response")
        if error is not None:
            response.error = error.body()
            account.report(f"restore of stream {self._name} failed: {error}")
        else:
            entry = account.streams[self._name]
            response.info = stream_info(entry, account.settings, account.now_ns)
            response.info.domain = ""
        if reply:
            account.router.publish_message(reply, encode(response))

    def close(self) -> None:
        """Give the restore up."""
        self._end()

    def _end(self) -> None:
        self._job.end()
        self._chunks = []
        self._begun, self._block, self._frames = b"", None, FrameReader()
        self._unpacker = self._ending = None  # release their memory
        transit = self._account.transit
        if transit.working is self:
            transit.working = None
        if not self._ended:
            self._ended = True
            transit.count -= 1
            self._count()
        self._account.router.detach(self.subject, self._sink)
        if self in self._account.transfers:
            self._account.transfers.remove(self)
        self._staging.discard()
