"""Lifecycle of streams: create, update, delete, recover, close.

A created stream is on the disk before the call is answered, or, on a server with `sync_interval`,
when `sync_creates` has synced it; a create that fails is undone. The functions
work on a JetStreamAccount; they know neither JSON nor the dispatch table. engine/lifecycles/stream_opening decides
when a stream is recovered.
"""

import contextlib
import errno
from collections.abc import Generator, Iterable, Iterator
from functools import partial

from pelton.api import errors_generated as errors
from pelton.api.streams import StreamConfig
from pelton.core.consumer.ack_journal import AckJournal
from pelton.core.log import maintenance
from pelton.core.log.log import Log
from pelton.core.log.recovery import LogOpening, begin_log, open_log
from pelton.core.stream.stream import SYNC_ALWAYS, SYNC_INTERVAL, Stream
from pelton.engine import rules
from pelton.engine.account import disk_recovery, limits
from pelton.engine.account.account import JetStreamAccount, OfflineStream, ReopenRetry
from pelton.engine.account.catalog import StreamEntry, configure_stream
from pelton.engine.config import stream_config
from pelton.engine.files.files import (
    BadFileError,
    ConsumerFile,
    StreamFile,
    StreamFiles,
    is_file_name,
)
from pelton.engine.lifecycles import consumers
from pelton.engine.sources import checks, upstreams

CREATES_MAX = 64
"""The number of files that one call syncs."""


def create(account: JetStreamAccount, config: StreamConfig) -> StreamEntry:
    """Create a stream, or return the existing one with the same configuration, which is checked.

    The files of a new one may wait for the end of the turn: see `JetStreamAccount.waiting_files`.

    10058: the name has another configuration; 10026, 10028, 10047: the account's limits; 10065:
    another stream has a subject; 10049: the disk refuses.
    """
    present = account.streams.get(config.name)
    if present is not None:
        if not stream_config.same(present.config, config):
            raise errors.StreamNameExistError()
        if "" in present.rewrites:  # the next server may find the configuration of a refused update
            try:
                _write(present, present.config)
            except OSError as error:
                raise errors.StreamCreateError(error) from error
        return present
    account.check_online(config.name)
    limits.check_stream(account, config)
    if wrong := checks.bad_filter(config):
        raise errors.StreamCreateError(wrong)
    check_new(account, config)
    files = None if config.storage == "memory" else account.files.stream(config.name)
    if files is not None and not is_file_name(config.name):
        raise errors.StreamCreateError("error creating store for stream")
    try:
        if files is not None:
            account.check_room()
        if config.name in account.leftovers:
            clear_leftovers(account)
        entry = _open(account, config, account.stream_created_ns(), files, new=True)
    except OSError as error:
        if files is not None and not isinstance(error, FileExistsError):
            _discard(account, config.name, files)
        raise errors.StreamCreateError(error) from error
    _enter(account, entry)
    rules.start(entry)
    if files is None:
        # before the stream listens: a stream of advisories does not store its own creation
        account.advisories.stream(config.name, "create", account.now_ns)
    else:
        paths, data = files.to_write(entry.file())
        account.waiting_files.write(
            files,
            paths,
            data,
            lambda error: _created(account, entry, files, error),
            durable=not account.creates_late(files),
            new_folder=True,
        )
    _attach(account, entry, config.subjects)
    upstreams.start(account, entry)
    upstreams.origin_made(account, entry)
    return entry


def _created(
    account: JetStreamAccount, entry: StreamEntry, files: StreamFiles, error: OSError | None
) -> OSError | None:
    """The configuration of a new stream is written; or it is not, and there is no such stream."""
    try:
        if error is not None:
            raise error
        if account.creates_late(files):
            files.created_late()
        entry.core.log.flush()  # makes its files
    except OSError as refused:
        _end(account, entry)
        with contextlib.suppress(OSError):  # what is left goes with the folder
            maintenance.destroy(entry.core.log)
        _discard(account, entry.config.name, files)
        return refused
    _detach(account, entry)  # a stream of advisories does not store its own creation
    account.advisories.stream(entry.config.name, "create", account.now_ns)
    _attach(account, entry, entry.config.subjects)
    return None


def _discard(account: JetStreamAccount, name: str, files: StreamFiles) -> None:
    """Remove the files of a failed create, now or later."""
    if not account.files.discard(files, account.ids.next()):
        account.leftovers[name] = files


def clear_leftovers(account: JetStreamAccount) -> None:
    """Try again to remove the files of failed creates. OSError: the disk still refuses."""
    for name, files in list(account.leftovers.items()):
        if not account.files.discard(files, account.ids.next()):
            raise OSError(errno.EIO, "cannot remove the files of a failed create", files.folder)
        del account.leftovers[name]


def update(account: JetStreamAccount, config: StreamConfig) -> StreamEntry:
    """Update a stream to a configuration that is checked; lower limits apply at once, and new
    sources are followed after some turns when there are many.

    10059: no such stream; 10052: the change is not allowed; 10065, 10069.
    """
    entry = account.stream(config.name)
    # a default may conflict with another field, and other streams may have changed
    caps = limits.stream_caps(account, config)
    config = stream_config.check_update(
        entry.config, stream_config.checked_again(config, find=account.config_of, caps=caps)
    )
    limits.check_stream(account, config, present=entry.config)
    if wrong := checks.bad_filter(config):
        raise errors.StreamUpdateError(wrong)
    _check_overlap(account, config)
    _check_consumer_limits(entry, config)
    old = entry.config
    try:
        _write(entry, config)
        account.revision += 1
    except OSError as error:
        raise errors.StreamUpdateError(error) from error
    limits.count(account, old, -1)
    limits.count(account, config, 1)
    gone, come = set(old.subjects) - set(config.subjects), set(config.subjects) - set(old.subjects)
    for subject in gone:
        account.router.detach(subject, entry.core)
    account.listening.drop(config.name, gone)
    _attach(account, entry, [subject for subject in config.subjects if subject in come])
    account.listening.add(config.name, come)
    configure_stream(entry.core, config)
    if config.retention != old.retention:
        entry.core.review(orphans=not entry.consumers)
    rules.apply(account, entry)
    upstreams.changed(account, entry)
    if (old.retention == "limits") != (config.retention == "limits"):
        # a stream with another retention is read in another way
        upstreams.origin_gone(account, config.name)
        upstreams.origin_made(account, entry)
    entry.expire_at_ns = 0
    account.advisories.stream(config.name, "modify", account.now_ns)
    return entry


def delete(account: JetStreamAccount, name: str) -> None:
    """Remove a stream with its consumers and its messages. Raises 10059, 10050."""
    account.waiting_files.commit()
    if name in account.offline:
        try:
            moved = account.files.move_away(account.offline[name].files, account.ids.next())
        except OSError as error:
            raise errors.StreamDeleteError(error) from error
        forget_offline(account, name)
        _finish_removal(account, moved)
        return
    entry = account.stream(name)
    moved = ""
    if entry.files is not None:
        try:
            moved = account.files.move_away(entry.files, account.ids.next())
        except OSError as error:
            raise errors.StreamDeleteError(error) from error  # nothing has changed
    for consumer in list(entry.consumers.values()):
        consumers.detach(account, entry, consumer, "Consumer Deleted")
        account.advisories.consumer(name, consumer.name, "delete", account.now_ns)
    _end(account, entry)
    try:
        maintenance.destroy(entry.core.log)
    except OSError as error:
        raise errors.StreamDeleteError(error) from error
    finally:  # the stream is deleted, even when the removal of its files fails
        if moved:
            _finish_removal(account, moved)
    account.advisories.stream(name, "delete", account.now_ns)


def delete_all(account: JetStreamAccount) -> list[str]:
    """Remove all streams, also those that are offline. Returns the errors of those that cannot be
    removed.
    """
    problems = []
    for name in [*account.streams, *account.offline]:
        try:
            delete(account, name)
        except errors.StreamDeleteError as problem:
            problems.append(f"{name}: {problem}")
    return problems


def _end(account: JetStreamAccount, entry: StreamEntry) -> None:
    """Stop a stream without consumers for good; its files stay."""
    _detach(account, entry)
    rules.close(entry, for_good=True)
    upstreams.stop(entry, for_good=True)
    upstreams.origin_gone(account, entry.config.name)
    _leave(account, entry)
    account.unsaved.pop(entry, None)
    if entry.journal is not None:
        entry.journal.close()
    entry.core.log.join(None)
    entry.core.close()


def _finish_removal(account: JetStreamAccount, moved: str) -> None:
    """Remove the moved folder of a deleted stream. StreamDeleteError: the disk refuses; the engine
    tries again, and until then a power cut may bring the stream back.
    """
    try:
        account.files.finish_removal(moved)
    except OSError as error:
        account.removals_left = True
        raise errors.StreamDeleteError(error) from error


def found(account: JetStreamAccount) -> Iterator[tuple[StreamFiles, StreamFile]]:
    """Yield the unopened streams of a store. A folder that cannot be read is reported, left as it
    is, and offline.

    OSError: the store cannot be used.
    """
    names = set(account.streams)
    left: list[tuple[str, StreamFiles, Exception]] = []
    frozen = account.settings.frozen
    late = account.settings.sync_interval_ns > 0 and not frozen
    folders = account.files.open(late_creates=late)
    synced = account.files.closed_cleanly()
    disk_recovery.retry_removals(account, account.now_ns)
    for folder in folders:
        files = account.files.stream(folder, by_name=False)
        files.synced = synced
        files.had_unsynced = account.files.had_unsynced and not synced
        name = files.stream_name()
        try:
            meta = files.read(account.report)
            if meta is None and files.had_unsynced:
                _set_aside(account, files)
                continue
            if meta is None and not files.has_log():
                account.report(
                    f"ignored stream folder {folder}: an interrupted create left it; its name is free"
                )
                continue
            if meta is None:
                raise BadFileError(
                    "the folder has messages but no meta.json; its files stay as they are"
                )
            name = meta.config.name
            _check_level(account, meta.config)
            if name in names:
                raise BadFileError(f"a stream {name} already exists")
        except (OSError, BadFileError) as error:
            left.append((name, files, error))
            continue
        names.add(name)
        yield files, meta
    for name, files, why in left:
        put_offline(account, "" if name in names else name, files, why)


def _set_aside(account: JetStreamAccount, files: StreamFiles) -> None:
    """Set aside what a power cut left of a create that was answered and not synced."""
    what = f"stream folder {files.folder}: a power cut interrupted the create of this stream"
    if account.settings.frozen:
        account.report(f"ignored {what}")
        return
    try:
        moved = account.files.set_aside(files, account.ids.next())
    except OSError as error:  # the next start tries again; until then, the name is taken
        account.report(f"cannot move {what}: {error}")
    else:
        account.report(f"moved {what}; its name is free; its files are now in {moved}")


def sync_creates(account: JetStreamAccount, entry: StreamEntry, most: int = CREATES_MAX) -> int:
    """Sync at most so many files of creates that were answered before; return how many were tried.

    What the disk refuses is tried again (`StreamEntry.rewrites`).
    """
    files = entry.files
    if files is None or not files.unsynced:
        return 0
    tried = min(most, len(files.unsynced))
    for name in files.sync_created(most):
        disk_recovery.take_back(entry, name, partial(_write_again, entry, name))
    return tried


def _write_again(entry: StreamEntry, name: str) -> None:
    """Write the configuration of the stream (""), or of a consumer, durably. OSError."""
    if entry.files is None:
        return
    if not name:
        entry.files.write(entry.file())
    elif name in entry.consumers:
        entry.files.write_consumer(entry.consumers[name].file())


def recover(
    account: JetStreamAccount, files: StreamFiles, meta: StreamFile, opening: LogOpening
) -> Generator[None, None, StreamEntry]:
    """Open a stream of the store with its log and its consumers, in steps. The stream accepts no
    messages before `serve`.

    OSError, BadFileError: the stream cannot be opened.
    """
    while opening.step():
        yield
    log = opening.log
    entry = _open(account, meta.config, meta.created, files, new=False, log=log, recall=False)
    # a message that a rule stores now would reach no consumer, and interest retention would drop it
    entry.incomplete = True
    _enter(account, entry)
    try:
        yield from entry.core.rebuilding()
        report_lost(account, entry)
        consumers.recover(account, entry)
        entry.rewrites |= files.unwritten
        if entry.offline and entry.config.retention == "interest":
            # acks of the other consumers would remove messages that this consumer needs
            raise BadFileError(f'stopped - damaged consumer "{min(entry.offline)}"')
        entry.incomplete = False
        yield from _expire(account, entry)
    except BaseException:
        _drop(account, entry)
        raise
    return entry


def _expire(account: JetStreamAccount, entry: StreamEntry) -> Iterator[None]:
    """Remove what has expired, in steps: no client gets it. It expired while no server ran, when
    the disk was too full for a record of the removal, or in a backup.
    """
    if account.settings.frozen:
        return
    with contextlib.suppress(OSError):  # the engine's timer tries again, and reports it
        entry.expire_at_ns = entry.core.expire()
        while rules.expire(entry, account.now_ns):
            yield


def serve(account: JetStreamAccount, entry: StreamEntry) -> None:
    """Attach a recovered stream to its subjects. The removals of the opening are synced, so that a
    removed message does not come back after a power cut.
    """
    _attach(account, entry, entry.config.subjects)
    rules.start(entry)
    if not (account.files.late_creates or account.settings.frozen):
        # a message that this server acknowledges is durable, so its stream has to be
        sync_creates(account, entry, len(entry.files.unsynced) if entry.files else 0)
    try:
        entry.core.log.fsync()
    except OSError as error:  # the stream serves its messages, and the log tries the sync again
        entry.core.defer(error, None)


def _drop(account: JetStreamAccount, entry: StreamEntry) -> None:
    """Close a stream that is open in part; its files stay."""
    for consumer in list(entry.consumers.values()):
        consumers.detach(account, entry, consumer, "Server Shutdown")
    if entry.journal is not None:
        entry.journal.close()
    rules.close(entry, for_good=False)
    entry.core.log.join(None)
    entry.core.close()
    with contextlib.suppress(OSError):
        maintenance.close(entry.core.log)
    _leave(account, entry)
    account.unsaved.pop(entry, None)


def put_offline(
    account: JetStreamAccount, name: str, files: StreamFiles, why: Exception | str
) -> None:
    """Report a stream that cannot be opened, and keep it offline. `name` is "" when it is not
    known.

    After an error of the disk the engine tries again (engine/lifecycles/stream_reopening).
    """
    account.report(f"cannot open stream folder {files.folder}, the stream stays offline: {why}")
    files.synced = False  # the opening may have changed some
    if name and name not in account.streams:
        retry = ReopenRetry(account.now_ns) if isinstance(why, OSError) else None
        account.offline[name] = OfflineStream(str(why), files, retry)


def forget_offline(account: JetStreamAccount, name: str) -> None:
    """Remove a stream from the offline streams."""
    retry = account.offline.pop(name).retry
    if retry is not None:
        retry.end()


def report_lost(account: JetStreamAccount, entry: StreamEntry) -> None:
    """Report each lost range of messages, and each repair of an opening, once."""
    notes, lost = entry.core.log.notes, entry.core.log.lost
    for note in notes[entry.notes_reported :]:
        account.report(f"stream {entry.config.name}: {note}")
    entry.notes_reported = len(notes)
    entry.lost_reported = min(
        entry.lost_reported, len(lost)
    )  # a purge clears the list of lost messages
    for first, count, why in lost[entry.lost_reported :]:
        what = (
            f"messages {first} to {first + count - 1} are" if count != 1 else f"message {first} is"
        )
        if count == 0:
            what = f"a record between the messages {first - 1} and {first} is"
        account.report(f"stream {entry.config.name}: {what} lost: {why}")
    entry.lost_reported = len(lost)


def close(account: JetStreamAccount) -> None:
    """Stop every stream cleanly: consumer states and logs are on the disk afterwards. Backups and
    restores in progress are given up.
    """
    sound = account.complete and not (account.offline or account.leftovers)
    for transfer in list(account.transfers):
        transfer.close()
    for entry in account.streams.values():
        upstreams.stop(entry, for_good=False)
    for entry in list(account.streams.values()):
        if entry.consumers:
            for consumer in entry.consumers.values():
                consumer.core.floor()  # brings the ack floor up to date with purges before the save
            consumers.save_for_good(account, entry)
        for consumer in list(entry.consumers.values()):
            consumers.detach(account, entry, consumer, "Server Shutdown")
        if entry.journal is not None:
            entry.journal.close()
        _detach(account, entry)
        _leave(account, entry)
        rules.close(entry, for_good=False)
        entry.core.close()
        sync_creates(account, entry, len(entry.files.unsynced) if entry.files else 0)
        try:
            maintenance.close(entry.core.log)
        except OSError as error:
            account.report(f"cannot close stream {entry.config.name}: {error}")
            sound = False
            continue
        sound = sound and _is_synced(entry)
        if entry.upstreams is not None:
            entry.upstreams.closed()
    for name in list(account.offline):
        forget_offline(account, name)
    account.complete = False
    if sound:
        with contextlib.suppress(OSError):  # the next opening syncs all files
            account.files.mark_closed()


def _is_synced(entry: StreamEntry) -> bool:
    """Return whether all that a closed stream has is on the disk."""
    files, log = entry.files, entry.core.log
    return files is None or not (
        log.synced_seq < log.last_seq
        or files.states.error
        or entry.rewrites
        or files.unwritten
        or files.unsynced
    )


def check_new(account: JetStreamAccount, config: StreamConfig) -> None:
    """Check a new stream, whose configuration is checked, against the other streams. Raises 10065,
    10052.
    """
    _check_overlap(account, config)


def adopt(
    account: JetStreamAccount,
    config: StreamConfig,
    created_ns: int,
    files: StreamFiles | None,
    log: Log | None = None,
    kept: Iterable[tuple[ConsumerFile, bytes]] = (),
) -> StreamEntry:
    """Add a restored stream to the account: from its folder, or from memory with its log. `kept` are
    the consumers without files.

    OSError: the stream cannot be opened.
    """
    entry = _open(account, config, created_ns, files, new=False, log=log)
    _enter(account, entry)
    account.advisories.stream(config.name, "create", account.now_ns)
    _attach(account, entry, config.subjects)
    for meta, state in kept:  # first: what only these consumers need must stay
        consumers.restore(account, entry, meta, state)
    consumers.recover(account, entry)
    for _ in _expire(account, entry):
        pass
    entry.core.review()
    rules.start(entry)
    upstreams.start(account, entry)
    upstreams.origin_made(account, entry)
    return entry


def _open(
    account: JetStreamAccount,
    config: StreamConfig,
    created_ns: int,
    files: StreamFiles | None,
    *,
    new: bool,
    log: Log | None = None,
    recall: bool = True,
) -> StreamEntry:
    first_seq = config.first_seq or 1
    if log is not None:
        pass
    elif files is None:
        log = open_log(None, first_seq=first_seq)
    else:
        if new:
            files.create()
            log = begin_log(
                files.log_folder,
                account.disk,
                # the configuration comes first: a folder without one has no acknowledged message
                lambda: account.waiting_files.bring(files),
                first_seq=first_seq,
                cipher=files.small.cipher,
                segment_bytes=account.settings.segment_bytes,
            )
        else:
            log = open_log(
                files.log_folder,
                account.disk,
                first_seq=first_seq,
                cipher=files.small.cipher,
                segment_bytes=account.settings.segment_bytes,
            )
    durable = (
        files is not None
        and not account.settings.sync_interval_ns
        and config.persist_mode != "async"  # an async PubAck does not wait for the disk
    )
    core = Stream(
        account.router,
        config.name,
        log,
        sync=SYNC_ALWAYS if durable else SYNC_INTERVAL,
        domain=account.settings.domain,
    )
    # before the limits remove the messages that have the positions
    positions = None if new else upstreams.recall(account, config, files, log)
    configure_stream(core, config)
    if not new and recall:
        core.rebuild_dedupe()
    log.join(account.quota(config.storage))
    entry = StreamEntry(config, created_ns, core, files, positions=positions)
    if files is not None:
        entry.rewrites |= files.unwritten
        entry.journal = AckJournal(
            account.reactor,
            account.disk,
            files.states.folder,
            durable=durable,
            cipher=files.small.cipher,
        )
        entry.journal.keep_bytes = account.settings.journal_bytes
        entry.journal.on_failure = lambda error: consumers.not_confirmed(account, entry, error)
    rules.apply(account, entry)
    return entry


def _write(entry: StreamEntry, config: StreamConfig) -> None:
    """Change the configuration of a stream, on the disk first.

    OSError: the stream keeps its configuration, and its files get that one later.
    """
    old, entry.config = entry.config, config
    files = entry.files
    if files is None:
        return
    try:
        files.write(entry.file())
        entry.rewrites.pop("", None)
    except OSError:
        entry.config = old
        disk_recovery.take_back(entry, "", lambda: files.write(entry.file()))
        raise


def _enter(account: JetStreamAccount, entry: StreamEntry) -> None:
    account.streams[entry.config.name] = entry
    limits.count(account, entry.config, 1)
    account.revision += 1
    account.listening.add(entry.config.name, entry.config.subjects)


def _leave(account: JetStreamAccount, entry: StreamEntry) -> None:
    del account.streams[entry.config.name]
    limits.count(account, entry.config, -1)
    account.revision += 1
    account.listening.forget(entry.config.name, entry.config.subjects)


def _attach(account: JetStreamAccount, entry: StreamEntry, subjects: Iterable[str]) -> None:
    if account.settings.frozen:  # it takes nothing
        return
    for subject in subjects:
        account.router.attach(subject, entry.core)


def _detach(account: JetStreamAccount, entry: StreamEntry) -> None:
    for subject in entry.config.subjects:
        account.router.detach(subject, entry.core)


def _check_level(account: JetStreamAccount, config: StreamConfig) -> None:
    needed = stream_config.required_level(config)
    level = account.settings.api_level
    if needed > level:
        what = f"unsupported - required API level: {needed}, current API level: {level}"
        raise BadFileError(what)


def _check_overlap(account: JetStreamAccount, config: StreamConfig) -> None:
    if account.listening.taken(config.name, config.subjects):
        raise errors.StreamSubjectOverlapError()


def _check_consumer_limits(entry: StreamEntry, config: StreamConfig) -> None:
    most = config.consumer_limits
    broken = [
        name
        for name, consumer in sorted(entry.consumers.items())
        if 0 < most.inactive_threshold < consumer.config.inactive_threshold
        or 0 < most.max_ack_pending < consumer.config.max_ack_pending
    ]
    if broken:
        what = f"change to limits violates consumers: {', '.join(broken)}"
        raise errors.StreamUpdateError(what)
