"""A server of this process that answers from stored streams, and never changes what is stored.

Its engine is frozen: nothing expires, is delivered again or copied from other streams, so a client sees the
streams as they were. What recovery writes goes to memory; archives are unpacked into a temporary folder.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from typing import TYPE_CHECKING, Self

from pelton.api.archives import MAGIC
from pelton.client.sync import connect
from pelton.client.sync.backup import restore
from pelton.core.base.clock import Clock
from pelton.core.base.disk import PyDisk
from pelton.core.base.readonly_disk import OverlayDisk
from pelton.core.base.s2 import FrameWriter
from pelton.embedded.host import LOGGER, Host
from pelton.embedded.loop_thread import LoopThread
from pelton.embedded.options import make_settings
from pelton.errors import ApiError
from pelton.server.files import StoreLock
from pelton.server.settings import Encryption

from .finding import FRAMED, Archives, NotStoredError, find

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pelton.api.calls import StreamRestoreRequest
    from pelton.client.protocol.options import ConnectOptions
    from pelton.client.sync import Client
    from pelton.core.base.disk import Disk

    from .mapped import MappedFiles

READ_BYTES = 1 << 20
NEVER_PINGS = "876000h"
STORAGE_BYTES = 1 << 60


class _Folder(StoreLock):
    """A folder that nothing is written to, so it is not locked."""

    def __init__(self, folder: str) -> None:
        """Touches no file."""
        self.folder = folder

    def close(self) -> None:
        """Nothing is locked."""


class StoredServer:
    """The streams at a path, over memory, in ``with``: for clients of other threads of this process."""

    def __init__(
        self, path: str, *, account: str = "", domain: str = "", backup: str = "", key: str = ""
    ) -> None:
        """``account`` and ``domain``: of the streams, if the store has several. ``backup``: the id of a
        backup in a backup folder; "": the newest. ``key``: opens an encrypted store.

        Raises NotStoredError, StoreError: there is nothing of that kind; OSError.
        """
        self._key = key
        self._folder = ""  # unpacked archives
        self._files: MappedFiles | None = None
        found = find(path, account=account, domain=domain, backup=backup)
        archives = found.streams if isinstance(found, Archives) else []
        now_ns = time.time_ns()
        if isinstance(found, Archives):
            self._folder = root = tempfile.mkdtemp(prefix="pelton-unpacked-")
            self._clock = Clock(found.time_ns or now_ns)
            disk: Disk | None = None
        else:
            self._files, root = found.files, found.root
            self._clock = Clock(now_ns)
            disk = OverlayDisk(PyDisk(found.files), forget=".idx")
        try:
            self._start(root, disk)
            for facts, archive in archives:
                self._unpack(facts, archive)
        except BaseException:
            self.close()
            raise

    def _start(self, root: str, disk: Disk | None) -> None:
        logging.getLogger(LOGGER).addHandler(logging.NullHandler())  # the API says what is wrong
        settings, warnings = make_settings(
            None,
            root,
            "",
            "",
            {"ping_interval": NEVER_PINGS, "max_storage": STORAGE_BYTES, "sync_interval": "1h"},
        )
        settings.frozen = True
        settings.encryption = Encryption(key=self._key)
        host = Host(
            settings,
            warnings,
            listens=False,
            reload=lambda: (settings, []),
            clock=self._clock,
            disk=disk,
            store=_Folder(root),
        )
        thread = LoopThread(f"pelton {host.name}")
        try:
            thread.run(host.start())
        except BaseException:
            thread.stop()
            raise
        self._host, self._thread = host, thread

    def _unpack(self, facts: StreamRestoreRequest, archive: Path) -> None:
        with self.connect_sync() as client:
            try:
                restore(client.jetstream(), facts.config, _pieces(archive), facts.state)
            except ApiError as error:
                raise NotStoredError(f"{archive}: {error.description}") from None

    @property
    def url(self) -> str:
        """The URL over memory."""
        return f"memory://{self._host.name}"

    def connect_sync(self, **options: ConnectOptions) -> Client:
        """A client of these streams."""
        return connect(self.url, **options)  # type: ignore[arg-type]  # as of that function

    def close(self) -> None:
        """Stop; nothing happens when it is stopped."""
        host, thread = getattr(self, "_host", None), getattr(self, "_thread", None)
        if host is not None and thread is not None:
            self._host = self._thread = None  # type: ignore[assignment]  # it is stopped
            try:
                thread.run(host.stop())
            finally:
                thread.stop()
        if self._files is not None:
            self._files.release()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        """The server."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.close()


def _pieces(path: Path) -> Iterator[bytes]:
    """The bytes of an archive, compressed, as a restore takes them."""
    with path.open("rb") as file:
        begins = file.read(len(FRAMED))
        file.seek(0)
        frames = FrameWriter() if begins.startswith(MAGIC) else None
        while piece := file.read(READ_BYTES):
            if frames is None:
                yield piece
                continue
            frames.put(piece)
            while len(frames):
                yield frames.take(READ_BYTES)
        if frames is not None:
            frames.finish()
            while len(frames):
                yield frames.take(READ_BYTES)
