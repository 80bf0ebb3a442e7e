"""Snapshots of the JetStream state of a broker, and the way back.

A snapshot has the files of the store, as they are after a sync, and the streams and consumers in
memory. The way back stops JetStream, brings the files back, and recovers them as a restart does;
connections stay.
"""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pelton.core.log.recovery import open_log
from pelton.engine.lifecycles import consumers, streams
from pelton.server.files import lock_store

from .inodes import File, Folder, Journal

if TYPE_CHECKING:
    from pelton.api.streams import StreamConfig
    from pelton.core.log.log import Log, StoredMessage
    from pelton.engine.account.account import JetStreamAccount
    from pelton.engine.account.catalog import StreamEntry
    from pelton.engine.files.files import ConsumerFile
    from pelton.server.app import Server

    from .running import Runner
    from .simulated_disk import SimDisk


@dataclass
class MemoryStream:
    """A stream that is in no file."""

    account: str
    config: StreamConfig
    created_ns: int
    last_seq: int
    messages: list[StoredMessage]
    consumers: list[tuple[ConsumerFile, bytes]]


@dataclass(eq=False)
class Snapshot:
    """The JetStream state at a time; made by ``Broker.snapshot``.

    Example::

        with pelton.testing.broker() as broker:
            state = broker.snapshot()
            broker.rollback(state)
    """

    time_ns: int
    streams: list[MemoryStream] = field(default_factory=list)
    consumers: list[tuple[str, str, ConsumerFile, bytes]] = field(default_factory=list)
    """Consumers with `mem_storage`: account, stream, configuration, state."""
    root: Folder | None = None  # of a simulated disk
    folder: str = ""  # a copy of the files of a real one


def take(app: Server, runner: Runner) -> Snapshot:
    """Take a snapshot, in the server's thread."""
    loop = app.event_loop
    loop.now_ns = loop.clock.now()
    loop.rest()
    found = Snapshot(loop.clock.now())
    if app.jetstream is None:
        return found
    for account in app.jetstream.accounts():
        for entry in account.streams.values():
            for consumer in entry.consumers.values():
                consumer.core.floor()  # takes in purges that nobody has asked about since
            if entry.files is None:
                found.streams.append(_memory_stream(account, entry))
                continue
            consumers.save_states(account, entry, durable=True)
            entry.core.log.fsync()
            found.consumers += [
                (account.name, entry.config.name, copy.deepcopy(each.file()), each.core.snapshot())
                for each in entry.consumers.values()
                if not each.persistent and not each.internal
            ]
    if runner.disk is not None:
        found.root = copy_of(runner.disk.root)
    else:
        assert app.store is not None
        found.folder = tempfile.mkdtemp(prefix="pelton-snapshot-")
        weakref.finalize(found, shutil.rmtree, found.folder, ignore_errors=True)
        shutil.copytree(app.store.folder, os.path.join(found.folder, "store"))
    return found


def _memory_stream(account: JetStreamAccount, entry: StreamEntry) -> MemoryStream:
    log = entry.core.log
    kept = [log.get(seq) for seq in range(max(log.first_seq, 1), log.last_seq + 1)]
    return MemoryStream(
        account.name,
        copy.deepcopy(entry.config),
        entry.created_ns,
        log.last_seq,
        [message for message in kept if message is not None],
        [
            (copy.deepcopy(each.file()), each.core.snapshot())
            for each in entry.consumers.values()
            if not each.internal
        ],
    )


def bring_back(app: Server, runner: Runner, snapshot: Snapshot, *, rewind: bool) -> None:
    """Return to a snapshot, in the server's thread; ``rewind``: also to its time."""
    loop = app.event_loop
    if app.jetstream is not None:
        folder = app.store.folder if app.store is not None else ""
        if runner.disk is not None:
            runner.disk.heal()
            runner.disk.room = None
        app.close_jetstream()
        if rewind:
            loop.rewind(snapshot.time_ns)
        _bring_files_back(snapshot, runner.disk, folder)
        settings = app.settings
        app.store = runner.lock() or lock_store(folder, settings.domain, app.log.warn)
        app.open_jetstream()
        app.jetstream.recover_now()
        _bring_memory_back(app, snapshot)
    elif rewind:
        loop.rewind(snapshot.time_ns)
    loop.rest()


def _bring_files_back(snapshot: Snapshot, disk: SimDisk | None, folder: str) -> None:
    if disk is not None:
        assert snapshot.root is not None
        disk.root = copy_of(snapshot.root)
        disk.journal = Journal()
        disk.handles.clear()
        return
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    shutil.copytree(os.path.join(snapshot.folder, "store"), folder, dirs_exist_ok=True)


def _bring_memory_back(app: Server, snapshot: Snapshot) -> None:
    assert app.jetstream is not None
    accounts = {account.name: account for account in app.jetstream.accounts()}
    for kept in snapshot.streams:
        account = accounts.get(kept.account)
        if account is not None:
            streams.adopt(
                account,
                copy.deepcopy(kept.config),
                kept.created_ns,
                None,
                _log_of(kept),
                copy.deepcopy(kept.consumers),
            )
    for name, stream, meta, state in snapshot.consumers:
        account = accounts.get(name)
        if account is not None and stream in account.streams:
            consumers.restore(account, account.streams[stream], copy.deepcopy(meta), state)


def _log_of(kept: MemoryStream) -> Log:
    log = open_log(None, first_seq=kept.config.first_seq or 1)
    for message in kept.messages:
        if message.seq > log.last_seq + 1:
            log.skip(message.seq)
        log.add(message.ts_ns, message.subject, message.payload, message.headers)
    if kept.last_seq > log.last_seq:
        log.skip(kept.last_seq + 1)
    return log


def copy_of(folder: Folder) -> Folder:
    """A copy of a simulated folder as it reads, all of it durable; files with two names stay one."""
    return _copied(folder, {})


def _copied(folder: Folder, files: dict[int, File]) -> Folder:
    found = Folder()
    for name, node in folder.names.items():
        if isinstance(node, Folder):
            found.names[name] = _copied(node, files)
            continue
        if id(node) not in files:
            copied = files[id(node)] = File()
            copied.data = bytearray(node.data)
            copied.durable = bytearray(node.data)
        found.names[name] = files[id(node)]
    found.durable = dict(found.names)
    return found
