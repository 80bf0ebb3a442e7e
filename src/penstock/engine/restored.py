"""Where a stream stands while it is being restored: a folder that no stream has, until all of it is
there.

Works on an Account like engine/streams; knows nothing of archives or of chunks. Until `adopt`
nothing of it can be seen; `discard` removes what there is, and a server that starts does the same
with what a crash left (engine/files).
"""

import contextlib
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.api import errors_generated as errors
from penstock.api.consumers import ConsumerConfig
from penstock.api.errors import ApiError
from penstock.api.streams import StreamConfig
from penstock.api.subjects import valid_name
from penstock.core.log import Log
from penstock.core.stream import SYNC_INTERVAL, Stream
from penstock.engine import consumer_config, consumers, streams
from penstock.engine.archive import ArchiveError
from penstock.engine.entries import StreamEntry
from penstock.engine.files import FORMAT, ConsumerFile, StreamFile
from penstock.engine.peer_consumers import from_peer
from penstock.engine.peer_files import PeerState
from penstock.engine.settings import MAX_SEQUENCE

if TYPE_CHECKING:
    from penstock.engine.account import Account

_SYNC_BYTES = 8 * 1024 * 1024
"""Bytes that are written before the next sync begins, so that the end has few to wait for."""


@dataclass(frozen=True)
class _Consumer:
    meta: ConsumerFile
    state: bytes  # b"": as new


class Staging:
    """A stream that is being restored to a configuration (checked already)."""

    def __init__(self, account: "Account", config: StreamConfig) -> None:
        """Nothing is on disk before `open`."""
        self.config = config
        self.now_ns = account.now_ns
        self.created_ns = account.now_ns
        self._account = account
        self._files = None
        if config.storage == "file":
            self._files = account.files.restoring(account.ids.next())
        self._core: Stream | None = None
        self._consumers: list[_Consumer] = []
        self._synced_bytes = 0

    def open(self, first_seq: int = 1) -> Log:
        """Its log, empty at first. OSError."""
        if self._core is None:
            if self._files is None:
                log = Log(None, first_seq=first_seq)
            else:
                self._files.create()
                log = Log(
                    self._files.log_folder,
                    self._account.disk,
                    first_seq=first_seq,
                    cipher=self._files.small.cipher,
                    segment_bytes=self._account.settings.segment_bytes,
                )
            # attached to no subject: it is there for its syncs, which no turn waits for
            self._core = Stream(self._account.router, self.config.name, log, sync=SYNC_INTERVAL)
        return self._core.log

    def written(self) -> None:
        """A slice is in the log: bring it to the file. OSError."""
        if self._core is None:
            return
        log = self._core.log
        log.flush()
        if log.bytes - self._synced_bytes >= _SYNC_BYTES:
            self._synced_bytes = log.bytes
            self._core.sync_soon()

    def settle(self, first: int, last: int) -> None:
        """All messages are there: what lies before `first` is removed, `last` is given."""
        log = self.open()
        if max(first - 1, last) >= MAX_SEQUENCE:
            raise ArchiveError("sequences that are too high")
        if last > log.last_seq:
            log.skip(last + 1)
        if log.first_seq < first <= log.last_seq + 1:
            log.purge(below=first)

    def consumer(
        self, name: str, config: ConsumerConfig, created_ns: int, state: PeerState
    ) -> None:
        """One of its consumers, after `settle`. ArchiveError: it is not one."""
        try:
            self._consumers.append(self._checked(name, config, created_ns, state))
        except (ApiError, ValueError, struct.error) as error:
            raise ArchiveError(f'error restoring consumer ["{name}"]: {error}') from None

    def _checked(
        self, name: str, config: ConsumerConfig, created_ns: int, state: PeerState
    ) -> _Consumer:
        if not valid_name(name) or config.durable_name not in ("", name):
            raise ValueError("a name that does not fit")
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
        """What the operator should know."""
        self._account.report(f"restore of stream {self.config.name}: {text}")

    def adopt(self) -> StreamEntry:
        """It is the account's stream from now on. ApiError, OSError: it is not."""
        account, files, core = self._account, self._files, self._core
        assert core is not None
        if self.config.name in account.streams:
            raise errors.StreamNameExistRestoreFailedError()
        streams.check_new(account, self.config)
        if files is None:
            self._core = None
            kept = [(each.meta, each.state) for each in self._consumers]
            return streams.adopt(account, self.config, self.created_ns, None, core.log, kept)
        core.log.fsync()
        core.close()
        core.log.close()
        for each in self._consumers:
            files.write_consumer(each.meta)
            if each.state:
                files.states.put(each.meta.name, each.meta.created, each.state)
        files.states.begin()
        meta = StreamFile(format=FORMAT, created=self.created_ns, config=self.config)
        files.write(meta)
        placed = account.files.adopt(files, self.config.name)
        self._core = self._files = None
        return streams.adopt(account, self.config, self.created_ns, placed)

    def discard(self) -> None:
        """Remove what was not adopted."""
        if self._core is not None:
            self._core.close()
            with contextlib.suppress(OSError):
                self._core.log.close()
            self._core = None
        if self._files is not None:
            with contextlib.suppress(OSError):
                self._files.remove()
            self._files = None
