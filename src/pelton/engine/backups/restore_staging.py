"""The folder of a stream while it is being restored; it becomes the stream's folder at the end.

The functions work on a JetStreamAccount like engine/lifecycles/streams and do not know archives or chunks.
Before `adopt`, the account shows nothing of the stream but its bytes; `discard` removes the folder,
and so does the next start after a crash (engine/files/files).

An archive of a few kilobytes can claim terabytes of zeros. Messages go to the disk and count against
the limits of stored bytes. Everything else in an archive (`spool`), and a record that no client could
have published, may be a bounded multiple of the received bytes, and no consumer state names more
messages than the stream can have.
"""

import contextlib
import struct
from typing import TYPE_CHECKING

from msgspec import Struct

from pelton.api import errors_generated as errors
from pelton.api.consumers import ConsumerConfig
from pelton.api.errors import ApiError
from pelton.api.streams import StreamConfig
from pelton.api.subjects import valid_name
from pelton.core.log import maintenance
from pelton.core.log.log import Log
from pelton.core.log.recovery import open_log
from pelton.core.stream.stream import SYNC_INTERVAL, Stream
from pelton.engine.account import limits
from pelton.engine.account.catalog import StreamEntry
from pelton.engine.backups.archive import ArchiveError
from pelton.engine.backups.nats_consumer_state import from_peer
from pelton.engine.backups.nats_files import NatsConsumerState
from pelton.engine.backups.spool import Spool
from pelton.engine.base.settings import MAX_SEQUENCE
from pelton.engine.config import consumer_config
from pelton.engine.files.files import FORMAT, ConsumerFile, StreamFile
from pelton.engine.files.metadata_files import MetadataFiles
from pelton.engine.lifecycles import consumers, streams

if TYPE_CHECKING:
    from pelton.engine.account.account import JetStreamAccount

_SYNC_BYTES = 8 * 1024 * 1024
"""Bytes that are written before the next sync begins, so that the last sync is short."""
_ROOM_BYTES = 8 * 1024 * 1024
"""Bytes that any archive may hold besides messages."""
_ROOM_FACTOR = 64
"""Further bytes that it may hold for each received byte: such files compress to a tenth at best."""
_RECORD_EXTRA_BYTES = 128 * 1024
"""Bytes of a record besides headers and payload: a subject of up to 64 KiB, numbers."""
_REMOVED_MAX = 100_000
"""How many removed messages the state of a consumer may still name."""


class _Consumer(Struct, frozen=True):
    meta: ConsumerFile
    state: bytes  # b"": the state of a new consumer


class Staging:
    """A stream that is being restored to a configuration that is checked."""

    def __init__(self, account: "JetStreamAccount", config: StreamConfig) -> None:
        """Write nothing before `open`."""
        self.config = config
        self.now_ns = account.now_ns
        self.created_ns = account.stream_created_ns()
        self._account = account
        self._folder = account.files.restoring(account.ids.next())
        self._made = False  # whether the folder exists
        self._files = self._folder if config.storage == "file" else None
        self._core: Stream | None = None
        self._consumers: list[_Consumer] = []  # consumers without files
        self._names: set[str] = set()
        self._synced_bytes = 0
        self.spool = Spool(self._spool_files, account.quota(config.storage))
        self.noted_bytes = 0  # bytes of memory for the places of files in the spool
        self.payload_max = account.reactor.max_payload

    def _make(self) -> None:
        if not self._made:
            self._made = True
            self._folder.create()

    def _spool_files(self) -> MetadataFiles:
        self._make()
        return self._folder.small

    def open(self, first_seq: int = 1) -> Log:
        """Return the log of the stream, empty at first. OSError."""
        if self._core is None:
            if self._files is None:
                log = open_log(None, first_seq=first_seq)
            else:
                self._make()
                log = open_log(
                    self._files.log_folder,
                    self._account.disk,
                    first_seq=first_seq,
                    cipher=self._files.small.cipher,
                    segment_bytes=self._account.settings.segment_bytes,
                )
            log.join(self._account.quota(self.config.storage))
            # a stream without subjects: only its syncs are used, and no turn waits for them
            self._core = Stream(self._account.router, self.config.name, log, sync=SYNC_INTERVAL)
        return self._core.log

    def written(self) -> None:
        """Write the appended messages to the file. OSError."""
        if self._core is None:
            return
        log = self._core.log
        log.flush()
        if log.bytes - self._synced_bytes >= _SYNC_BYTES:
            self._synced_bytes = log.bytes
            self._core.sync_soon()

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that grow with the archive."""
        return self.spool.held_bytes + self.noted_bytes

    def check(self, received: int, waiting: int) -> None:
        """Check that the archive has not more content than its received bytes allow.

        `waiting`: bytes of an incomplete record. ArchiveError, ApiError.
        """
        room = _ROOM_BYTES + _ROOM_FACTOR * received
        record = self.payload_max + _RECORD_EXTRA_BYTES + _ROOM_FACTOR * received
        if self.spool.size + self.noted_bytes > room or waiting > record:
            raise ArchiveError(
                f"{received} bytes of the archive decompress to more than a backup can hold"
            )
        limits.check_held(self._account, self.config.storage)

    @property
    def named_max(self) -> int:
        """The number of messages that the state of a consumer may name, after `settle`."""
        return self.open().msgs + _REMOVED_MAX

    @property
    def meta_max(self) -> int:
        """The maximum size of a configuration: a client can send it in one message."""
        return max(self.payload_max, 1 << 20) + 4096

    def settle(self, first: int, last: int) -> None:
        """Set the first and the last sequence, after the last message."""
        log = self.open()
        if max(first - 1, last) >= MAX_SEQUENCE:
            raise ArchiveError("the sequences are too high")
        if last > log.last_seq:
            log.skip(last + 1)
        if log.first_seq < first <= log.last_seq + 1:
            maintenance.purge(log, below=first)

    def consumer(
        self, name: str, config: ConsumerConfig, created_ns: int, state: NatsConsumerState
    ) -> None:
        """Add a consumer, after `settle`. ArchiveError: it is not valid. OSError."""
        try:
            found = self._checked(name, config, created_ns, state)
        except (ApiError, ValueError, struct.error) as error:
            raise ArchiveError(f'error restoring consumer ["{name}"]: {error}') from None
        self._names.add(name)
        if self._files is None or found.meta.config.mem_storage:
            self._consumers.append(found)
            return
        self._files.write_consumer(found.meta)
        if found.state:
            self._files.states.put(name, found.meta.created, found.state)

    def _checked(
        self, name: str, config: ConsumerConfig, created_ns: int, state: NatsConsumerState
    ) -> _Consumer:
        if not valid_name(name) or config.durable_name not in ("", name):
            raise ValueError("the name is not valid, or is not the durable name")
        if name in self._names:
            raise ValueError("the archive has the consumer twice")
        limits.check_consumer_count(self._account, self.config, config, len(self._names))
        config.name = name
        config = consumer_config.with_defaults(config, self.config)
        consumer_config.check(config, self.config)
        assert self._core is not None
        entry = StreamEntry(self.config, self.created_ns, self._core, self._files)
        start_seq = consumers.first_sequence(entry, config)
        untouched = not state.delivered_consumer
        if untouched and state.delivered_stream and config.deliver_policy != "last_per_subject":
            start_seq = state.delivered_stream + 1
        meta = ConsumerFile(
            format=FORMAT,
            created=created_ns if created_ns > 0 else self.now_ns,
            name=name,
            start_seq=start_seq,
            config=config,
        )
        new = untouched and not state.pending
        return _Consumer(meta, b"" if new else from_peer(state))

    def warn(self, text: str) -> None:
        """Report a warning."""
        self._account.report(f"restore of stream {self.config.name}: {text}")

    def adopt(self) -> StreamEntry:
        """Make the staged stream a stream of the account. ApiError, OSError."""
        account, files, core = self._account, self._files, self._core
        assert core is not None
        if self.config.name in account.streams:
            raise errors.StreamNameExistRestoreFailedError()
        limits.check_stream_count(account, self.config)
        streams.check_new(account, self.config)
        self.spool.close()
        kept = [(each.meta, each.state) for each in self._consumers]
        if files is None:
            self._core = None
            return streams.adopt(account, self.config, self.created_ns, None, core.log, kept)
        core.log.fsync()
        core.log.join(None)
        core.close()
        maintenance.close(core.log)
        files.states.begin()
        meta = StreamFile(format=FORMAT, created=self.created_ns, config=self.config)
        files.write(meta)
        placed = account.files.adopt(files, self.config.name)
        self._core = self._files = None
        self._made = False
        return streams.adopt(account, self.config, self.created_ns, placed, kept=kept)

    def discard(self) -> None:
        """Remove everything that `adopt` has not taken over."""
        self.spool.close()
        self._consumers = []
        if self._core is not None:
            self._core.log.join(None)
            self._core.close()
            with contextlib.suppress(OSError):
                maintenance.close(self._core.log)
            self._core = None
        if self._made:
            with contextlib.suppress(OSError):
                self._folder.remove()
            self._made = False
