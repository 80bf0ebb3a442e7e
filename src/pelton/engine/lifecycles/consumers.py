"""Lifecycle of consumers: create, update, pause, delete, recover, and their states on the disk.

A created consumer is on the disk before the call is answered, or, on a server with `sync_interval`,
when `streams.sync_creates` has synced it. Consumers of memory streams and consumers
with `mem_storage` live until the server stops. The functions work on a JetStreamAccount; they know
neither JSON nor the dispatch table.
"""

from collections.abc import Iterator

import msgspec

from pelton.api import errors_generated as errors
from pelton.api.consumers import ConsumerConfig
from pelton.api.dialects.names import dialect_of
from pelton.core.consumer.consumer import Consumer
from pelton.core.log import queries
from pelton.engine.account import disk_recovery, limits
from pelton.engine.account.account import JetStreamAccount
from pelton.engine.account.catalog import ConsumerEntry, StreamEntry, configure_consumer
from pelton.engine.base.settings import MAX_NAME_LENGTH, MILLISECOND
from pelton.engine.base.timers import Alarm
from pelton.engine.config import consumer_config
from pelton.engine.files.consumer_states import SavedState
from pelton.engine.files.files import FORMAT, BadConsumer, ConsumerFile, is_file_name
from pelton.engine.lifecycles import work_queue

PULL_GRACE_NS = 100 * MILLISECOND
"""How much longer than its inactive threshold a pull consumer may be unused."""


def put(
    account: JetStreamAccount, stream: StreamEntry, name: str, config: ConsumerConfig, action: str
) -> ConsumerEntry:
    """Create a consumer or update it to a configuration that is checked. `action`: "", "create" or
    "update".

    The files of a new one may wait for the end of the turn: see `JetStreamAccount.waiting_files`.

    10148, 10149: the consumer exists, or does not; 10012, 10013: the change is not allowed; 10026:
    too many consumers; 10098 to 10101: not allowed on a work queue; 10052: not supported here.
    """
    present = stream.consumers.get(name)
    if account.waiting_files.waits(present):
        account.waiting_files.commit()
        present = stream.consumers.get(name)
    if present is None:
        if action == "update":
            raise errors.ConsumerDoesNotExistError()
        return _create(account, stream, name, config)
    config.pause_until = present.config.pause_until
    if config.sourcing and config.durable_name:
        config.deliver_policy = present.config.deliver_policy
        config.opt_start_seq = present.config.opt_start_seq
        config.opt_start_time = present.config.opt_start_time
    consumer_config.set_required_level(config)
    same = consumer_config.same(present.config, config)
    if action == "create" and not same:
        raise errors.ConsumerAlreadyExistsError()
    if stream.config.retention == "workqueue" and work_queue.shared(stream, name, config):
        raise errors.ConsumerWQConsumerNotUniqueError()
    if not same:
        durable = bool(present.config.durable_name)
        consumer_config.settle_threshold(config, durable=durable)
        _update(account, stream, present, config)
    elif name in stream.rewrites:  # the next server may find the configuration of a refused update
        _write(stream, present, present.config)
    if config.sourcing:
        present.core.reset(0)
    return present


def pause(
    account: JetStreamAccount, stream: StreamEntry, entry: ConsumerEntry, until_ns: int
) -> None:
    """Pause a consumer until a time, or resume it (0, or a time in the past).

    10104: the disk refuses the write.
    """
    metadata = dict(entry.config.metadata)
    config = msgspec.structs.replace(entry.config, pause_until=until_ns or None, metadata=metadata)
    consumer_config.set_required_level(config)
    told = entry.paused_until_ns != until_ns
    _write(stream, entry, config)
    _apply_pause(account, entry, told=told)


def reset(account: JetStreamAccount, stream: StreamEntry, entry: ConsumerEntry, seq: int) -> int:
    """Let a consumer begin again at a sequence, or behind its ack floor (0); return the sequence.

    The new position is written before this returns, so that it survives the process; it is synced
    with the next confirmed ack or saved base. 10204: the deliver policy does not allow the sequence.
    10104: the disk refuses the write; the consumer begins again all the same, and its position is
    written as soon as the disk accepts writes.
    """
    config = entry.config
    if seq:
        if config.deliver_policy == "by_start_sequence":
            if seq < config.opt_start_seq:
                raise errors.ConsumerInvalidResetError("below start seq")
        elif config.deliver_policy == "by_start_time":
            if seq < stream.core.log.at_time(config.opt_start_time or 0):
                raise errors.ConsumerInvalidResetError("below start time")
        elif config.deliver_policy != "all":
            raise errors.ConsumerInvalidResetError("not allowed")
    if account.waiting_files.waits(entry):
        account.waiting_files.commit()
    seq = entry.core.reset(seq)
    if entry.persistent and stream.files is not None:
        save_states(account, stream, durable=False)
        if stream.files.states.error is not None:
            raise errors.ConsumerStoreFailedError(stream.files.states.error)
    if stream.config.retention == "interest":
        stream.core.review()
    return seq


def delete(account: JetStreamAccount, stream: StreamEntry, entry: ConsumerEntry) -> None:
    """Remove a consumer, its state, and the messages that only this consumer needed.

    Its files may wait for the end of the turn: see `JetStreamAccount.waiting_files`. A removal that
    the disk refuses is tried again.
    """
    floor = entry.core.floor()
    detach(account, stream, entry, "Consumer Deleted")
    account.advisories.consumer(stream.config.name, entry.name, "delete", account.now_ns)

    def settle(error: OSError | None) -> OSError | None:
        if error is not None:
            _remove_later(stream, entry.name)
            return error
        stream.rewrites.pop(entry.name, None)
        if stream.config.retention == "interest":
            stream.core.review(floor + 1, orphans=True)
        return None

    if stream.files is None or not entry.persistent:
        settle(None)
        return
    folder = stream.files.consumers_folder
    account.waiting_files.remove(entry, folder, lambda: _unlink(stream, entry.name), settle)


def delete_offline(account: JetStreamAccount, stream: StreamEntry, name: str) -> None:
    """Remove a consumer that cannot be opened, at a client's request.

    10051: the disk refuses the removal, and the consumer stays.
    """
    try:
        _remove(stream, name)
    except OSError as error:
        raise errors.StreamGeneralError(error) from error
    del stream.offline[name]
    account.advisories.consumer(stream.config.name, name, "delete", account.now_ns)


def detach(
    account: JetStreamAccount, stream: StreamEntry, entry: ConsumerEntry, reason: str
) -> None:
    """Stop the deliveries of a consumer; its files stay."""
    if stream.journal is not None and entry.persistent:
        stream.journal.forget(entry.core)
    if account.api_subjects is not None:
        account.api_subjects.remove(entry.core)
    entry.core.deadline_changed = entry.core.on_change = entry.core.on_unbound = None
    account.timers.set(entry, 0)
    account.alarms.set(entry.unused, 0)
    account.alarms.set(entry.resume, 0)
    entry.core.close(reason)
    stream.drop_consumer(entry)


def recover(account: JetStreamAccount, stream: StreamEntry) -> None:
    """Recover the consumers of a stream.

    A consumer that cannot be read is reported and stays offline. Messages that every consumer has
    acknowledged are removed, unless a consumer is offline, which may need them.
    """
    files = stream.files
    if files is None:
        return
    metas = [_supported(account, meta) for meta in files.consumers(account.report)]
    known = [meta for meta in metas if not isinstance(meta, BadConsumer)]
    starts = {(meta.name, meta.created): meta.start_seq for meta in known}
    problems = files.states.load(starts)
    for problem in problems:
        account.report(f"stream {stream.config.name}: saved consumer states: {problem}")
    if stream.journal is not None:
        states = files.states
        stream.journal.begin(
            oldest=states.oldest,
            number=states.number,
            size_bytes=states.journal_bytes,
            base_bytes=states.base_bytes,
            base_slot=states.base_slot,
            base_upto=states.base_upto,
        )
    beyond = False
    for meta in metas:
        if isinstance(meta, BadConsumer):
            account.report(
                f"stream {stream.config.name}: a consumer cannot be opened and stays offline: {meta.why}"
            )
            stream.offline[meta.name or meta.why] = meta.why
            continue
        found = files.states.found.pop((meta.name, meta.created), None)
        ahead = _brought_back(stream, meta, found)
        entry = _start(account, stream, meta)
        if found is not None and _restore(account, stream, entry, found) and files.synced:
            stream.changed.pop(entry, None)  # the base has the same state
        if ahead:
            beyond = True
            stream.changed[entry] = None
    files.states.found.clear()
    if problems or stream.changed:
        save_states(account, stream, durable=True)  # replace the damaged files
    elif files.synced:
        account.unsaved.pop(stream, None)
        files.states.durable_upto = files.states.number
    if beyond and files.states.error is not None:
        stream.core.defer(files.states.error, lambda: _save_deferred(account, stream))
    if files.states.outdated:
        for _ in range(2):  # replace both bases, and the journal that the older base needs
            save_states(account, stream, durable=True)
    if not stream.offline:
        stream.core.review()


def _save_deferred(account: JetStreamAccount, stream: StreamEntry) -> None:
    """Save states that have to be on the disk before the stream accepts a message. OSError."""
    assert stream.files is not None
    save_states(account, stream, durable=True)
    if stream.files.states.error is not None:
        raise stream.files.states.error


def _brought_back(stream: StreamEntry, meta: ConsumerFile, found: SavedState | None) -> bool:
    """Move a consumer that is beyond the stream's end back to it; return whether it was beyond.

    The messages between were lost in a power cut, and their sequences will be used again. The
    corrected state has to be on the disk before that.
    """
    last = stream.core.log.last_seq
    asked = meta.config.deliver_policy == "by_start_sequence" and meta.start_seq > last
    if asked and (found is None or not found.numbers[0]):
        return False  # the consumer waits for a sequence in the future
    ahead = meta.start_seq > last + 1
    meta.start_seq = min(meta.start_seq, last + 1)
    return (found is not None and found.forget_above(last)) or ahead


def _supported(
    account: JetStreamAccount, meta: ConsumerFile | BadConsumer
) -> ConsumerFile | BadConsumer:
    if isinstance(meta, BadConsumer):
        return meta
    needed, level = consumer_config.required_level(meta.config), account.settings.api_level
    if needed <= level:
        return meta
    why = f"unsupported - required API level: {needed}, current API level: {level}"
    return BadConsumer(meta.name, why)


def restore(
    account: JetStreamAccount, stream: StreamEntry, meta: ConsumerFile, state: bytes
) -> None:
    """Restore a consumer without files from its saved state; empty: a new consumer."""
    entry = _start(account, stream, meta)
    if state:
        entry.core.restore(state)


def _restore(
    account: JetStreamAccount, stream: StreamEntry, entry: ConsumerEntry, found: SavedState
) -> bool:
    """Return whether the consumer has the state that was saved as a whole."""
    assert stream.files is not None
    if entry.config.deliver_policy != "last_per_subject" and not stream.files.synced:
        found.look_again()
    whole = found.state is not None
    try:
        state = found.packed(_handed_out(stream, entry, found.gaps))
        entry.core.restore(state)
    except ValueError as error:
        where = f"{stream.config.name} > {entry.name}"
        account.report(
            f"the saved state of consumer {where} is damaged; the consumer starts from the beginning: {error}"
        )
        return False
    if stream.journal is not None:
        stream.files.states.put(entry.name, entry.created_ns, state)
        stream.journal.watch(entry.core, entry.created_ns)
    return whole


def _handed_out(
    stream: StreamEntry, entry: ConsumerEntry, gaps: list[tuple[int, int]]
) -> Iterator[int]:
    """Yield the sequences in these ranges that match the consumer's filters."""
    for first, end in gaps:
        for pattern in consumer_config.filters_of(entry.config) or (">",):
            message = queries.next_of(stream.core.log, pattern, first)
            while message is not None and message.seq < end:
                yield message.seq
                message = queries.next_of(stream.core.log, pattern, message.seq + 1)


def save_states(account: JetStreamAccount, stream: StreamEntry, *, durable: bool) -> None:
    """Write the states that have changed since the last save. A failure is reported once, and the
    next save tries again.

    With `durable`, all states are synced afterwards.
    """
    if stream.files is None or stream.journal is None:
        return
    states, journal = stream.files.states, stream.journal
    account.unsaved.pop(stream, None)
    fresh, stream.changed = list(stream.changed), {}
    try:
        saved = journal.save([entry.core for entry in fresh])
        for entry, state in zip(fresh, saved, strict=True):
            states.put(entry.name, entry.created_ns, state)
        states.saved_bytes = sum(map(len, saved))
        if durable or journal.wants_base():
            journal.rebase(states.base(journal.number), now=durable)
            if durable:
                states.durable_upto = journal.number
        states.error = None
    except OSError as error:
        for entry in fresh:
            entry.core.unsaved()  # the save failed: mark the state as unsaved again
        not_confirmed(account, stream, error)
    if journal.broken:
        account.unsaved[stream] = None


def save_for_good(account: JetStreamAccount, stream: StreamEntry) -> None:
    """Have all states of a stream in a base on the disk: the server stops."""
    journal = stream.journal
    if journal is None or stream.files is None:
        return
    if stream.changed or journal.broken or stream.files.states.durable_upto != journal.number:
        save_states(account, stream, durable=True)


def not_confirmed(account: JetStreamAccount, stream: StreamEntry, error: OSError) -> None:
    """Report once that consumer states or confirmed acks could not be written."""
    account.unsaved[stream] = None
    if stream.files is None:
        return
    known, stream.files.states.error = stream.files.states.error, error
    if known is None:
        name = stream.config.name
        account.report(f"stream {name} cannot write the states of its consumers: {error}")


def first_sequence(stream: StreamEntry, config: ConsumerConfig) -> int:
    """The stream sequence that a new consumer starts at, by its deliver policy."""
    log = stream.core.log
    first = log.first_seq if log.msgs else log.last_seq + 1
    policy = config.deliver_policy
    if policy == "new":
        return log.last_seq + 1
    if policy == "last":
        filters = consumer_config.filters_of(config) or (">",)
        return max(queries.last_seq_of(log, each) for each in filters) or first
    if policy == "by_start_sequence":
        return max(config.opt_start_seq, first)
    if policy == "by_start_time":
        return max(log.at_time(config.opt_start_time or 0), first)
    return first


def _create(
    account: JetStreamAccount, stream: StreamEntry, name: str, config: ConsumerConfig
) -> ConsumerEntry:
    if name in stream.offline:
        raise errors.ConsumerOfflineReasonError(stream.offline[name])
    present = len(stream.consumers) - stream.internal_consumers
    limits.check_consumer_count(account, stream.config, config, present)
    if len(name.encode(errors="surrogateescape")) > MAX_NAME_LENGTH:
        if config.durable_name:
            raise errors.ConsumerNameTooLongError(MAX_NAME_LENGTH)
        raise errors.ConsumerCreateError("error creating store for consumer")
    consumer_config.settle_threshold(config, durable=bool(config.durable_name))
    if stream.config.retention == "workqueue":
        work_queue.check_new(stream, name, config)
    meta = ConsumerFile(
        format=FORMAT,
        created=_created_ns(account, stream),
        name=name,
        start_seq=first_sequence(stream, config),
        config=config,
    )
    if _on_disk(stream, config):
        assert stream.files is not None
        if not is_file_name(name):
            raise errors.ConsumerCreateError("error creating store for consumer")
        try:
            account.check_room()
        except OSError as error:
            raise errors.ConsumerStoreFailedError(error) from error
        entry = _start(account, stream, meta)
        paths, data = stream.files.consumer_to_write(meta)
        account.waiting_files.write(
            entry,
            paths,
            data,
            lambda error: _created(account, stream, entry, error),
            durable=not account.creates_late(stream.files),
        )
        return entry
    entry = _start(account, stream, meta)
    account.advisories.consumer(stream.config.name, name, "create", account.now_ns)
    return entry


def _created(
    account: JetStreamAccount, stream: StreamEntry, entry: ConsumerEntry, error: OSError | None
) -> OSError | None:
    """The files of a new consumer are written; or they are not, and there is no such consumer."""
    if error is None:
        if stream.files is not None and account.creates_late(stream.files):
            stream.files.created_late(entry.name)
        stream.rewrites.pop(entry.name, None)
        account.advisories.consumer(stream.config.name, entry.name, "create", account.now_ns)
        return None
    floor = entry.core.floor()
    detach(account, stream, entry, "Consumer Deleted")
    _remove_later(stream, entry.name)
    if stream.config.retention == "interest":
        stream.core.review(floor + 1, orphans=True)
    return error


def _created_ns(account: JetStreamAccount, stream: StreamEntry) -> int:
    """Return the current time, or a later one when a saved consumer is as new.

    The key of a state is the name and the creation time of its consumer, and the clock may stand
    still or go back.
    """
    if stream.files is None:
        return account.now_ns
    states = stream.files.states
    states.newest_ns = max(account.now_ns, states.newest_ns + 1)
    return states.newest_ns


def _remove(stream: StreamEntry, name: str) -> None:
    """Remove a consumer's files and state, durably. OSError."""
    assert stream.files is not None
    _unlink(stream, name)
    stream.files.remove_consumer(name)


def _unlink(stream: StreamEntry, name: str) -> None:
    """Remove a consumer's files and state; the caller syncs the folder. OSError."""
    assert stream.files is not None
    if stream.config.retention != "limits":
        # Sync the removals of acknowledged messages before the acks are deleted: after a power cut,
        # the acks would repeat lost removals.
        stream.core.log.fsync()
    stream.files.states.drop(name)
    stream.files.unlink_consumer(name)


def _remove_later(stream: StreamEntry, name: str) -> None:
    """Note that a file of a removed consumer may be on the disk."""
    stream.rewrites[name] = lambda: _remove(stream, name)


def _update(
    account: JetStreamAccount, stream: StreamEntry, entry: ConsumerEntry, config: ConsumerConfig
) -> None:
    bound = bool(entry.config.deliver_subject) and entry.core.push_bound()
    consumer_config.check_update(entry.config, config, bound=bound)
    old = entry.config
    _write(stream, entry, config)
    floor = entry.core.floor()
    configure_consumer(entry.core, config, stream.config)
    if consumer_config.filters_of(config) != consumer_config.filters_of(old):
        stream.core.review(floor + 1, orphans=True)
    if config.inactive_threshold != old.inactive_threshold:
        _watch_use(account, entry)


def _write(stream: StreamEntry, entry: ConsumerEntry, config: ConsumerConfig) -> None:
    """Change the configuration of a consumer, on the disk first."""
    old, entry.config = entry.config, config
    if stream.files is not None and entry.persistent:
        try:
            stream.files.write_consumer(entry.file())
            stream.rewrites.pop(entry.name, None)
        except OSError as error:
            entry.config = old
            files = stream.files
            disk_recovery.take_back(stream, entry.name, lambda: files.write_consumer(entry.file()))
            raise errors.ConsumerStoreFailedError(error) from error


def _on_disk(stream: StreamEntry, config: ConsumerConfig) -> bool:
    return stream.files is not None and not config.mem_storage and not config.direct


def _start(account: JetStreamAccount, stream: StreamEntry, meta: ConsumerFile) -> ConsumerEntry:
    try:
        dialect = dialect_of(meta.config.metadata)
        core = Consumer(
            stream.core,
            meta.name,
            start_seq=meta.start_seq,
            dialect=dialect,
            owner=account.ack_owner if account.settings.long_acks and not dialect else b"",
        )
    except ValueError as error:
        raise errors.ConsumerCreateError(error) from error
    entry = ConsumerEntry(
        name=meta.name,
        config=meta.config,
        created_ns=meta.created,
        start_seq=meta.start_seq,
        core=core,
        persistent=_on_disk(stream, meta.config),
        unused=Alarm(lambda now_ns: _go_unused(account, stream, entry, now_ns)),
        resume=Alarm(lambda _: _apply_pause(account, entry)),
    )
    core.deadline_changed = lambda _, due_ns: account.timers.set(entry, due_ns)
    core.on_unbound = lambda: _watch_use(account, entry)
    if entry.persistent:
        assert stream.journal is not None
        stream.journal.watch(core, entry.created_ns)
        core.on_change = lambda: _note_change(account, stream, entry)
        _note_change(account, stream, entry)
    stream.add_consumer(entry)
    if account.api_subjects is not None:
        account.api_subjects.add(core)
    configure_consumer(core, meta.config, stream.config)
    if meta.config.pause_until:
        _apply_pause(account, entry, told=False)
    _watch_use(account, entry)
    return entry


def _note_change(account: JetStreamAccount, stream: StreamEntry, entry: ConsumerEntry) -> None:
    stream.changed[entry] = None
    account.unsaved[stream] = None


def _apply_pause(account: JetStreamAccount, entry: ConsumerEntry, *, told: bool = True) -> int:
    """Pause or resume the consumer by its `pause_until`, and set the alarm for the end of the
    pause.
    """
    until_ns = entry.paused_until_ns
    paused = account.now_ns < until_ns
    if paused != entry.core.paused:
        entry.core.pause(paused)
    account.alarms.set(entry.resume, until_ns if paused else 0)
    if told:
        stream = entry.core.stream.name
        account.advisories.pause(stream, entry.name, until_ns, account.now_ns)
    return until_ns if paused else 0


def _watch_use(account: JetStreamAccount, entry: ConsumerEntry) -> None:
    """Set the alarm that checks the use of the consumer after its inactive threshold."""
    threshold_ns = entry.config.inactive_threshold
    due_ns = account.now_ns + threshold_ns + _grace_ns(entry)
    account.alarms.set(entry.unused, due_ns if threshold_ns > 0 else 0)


def _grace_ns(entry: ConsumerEntry) -> int:
    return 0 if entry.config.deliver_subject else PULL_GRACE_NS


def _go_unused(
    account: JetStreamAccount, stream: StreamEntry, entry: ConsumerEntry, now_ns: int
) -> int:
    """Delete a consumer that was unused for its inactive threshold; return the time of the next
    check.
    """
    threshold_ns = entry.config.inactive_threshold
    if threshold_ns <= 0:
        return 0
    idle_ns = entry.core.idle_since_ns()
    if not idle_ns:
        # a push consumer sets the alarm itself when its last subscriber leaves
        return 0 if entry.config.deliver_subject else now_ns + threshold_ns
    due_ns = idle_ns + threshold_ns + _grace_ns(entry)
    if due_ns > now_ns:
        return min(due_ns, now_ns + threshold_ns)
    delete(account, stream, entry)

    def told(error: OSError | None) -> None:
        if error is not None:
            account.report(f"cannot remove the files of deleted consumer {entry.name}: {error}")

    if account.waiting_files.waits(entry):
        account.waiting_files.then(entry, told)
    return 0
