"""Lifecycle of consumers: create, update, pause, delete, recover, and their states on the disk.

A created consumer is on the disk before the call returns. Consumers of memory streams and consumers
with `mem_storage` live until the server stops. The functions work on a JetStreamAccount; they know
neither JSON nor the dispatch table.
"""

from collections.abc import Iterator

import msgspec

from penstock.api import ApiError
from penstock.api import errors_generated as errors
from penstock.api.consumers import ConsumerConfig
from penstock.core.consumer.consumer import Consumer
from penstock.core.log import queries
from penstock.engine import consumer_config, limits, work_queue
from penstock.engine.account import JetStreamAccount
from penstock.engine.catalog import ConsumerEntry, StreamEntry, configure_consumer
from penstock.engine.consumer_states import SavedState
from penstock.engine.files import FORMAT, BadConsumer, ConsumerFile, is_file_name
from penstock.engine.settings import MAX_NAME_LENGTH, MILLISECOND
from penstock.engine.timers import Alarm

PULL_GRACE_NS = 100 * MILLISECOND
"""How much longer than its inactive threshold a pull consumer may be unused."""


def put(
    account: JetStreamAccount, stream: StreamEntry, name: str, config: ConsumerConfig, action: str
) -> ConsumerEntry:
    """Create or update a consumer to a configuration (checked already); `action`: "", "create" or
    "update".

    10148, 10149: it is (not) there; 10012, 10013: can't be changed so; 10026: one too many; 10098
    to 10101: not in a work queue; 10052: not supported here.
    """
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
    if config.sourcing:
        present.core.reset(0)
    return present


def pause(
    account: JetStreamAccount, stream: StreamEntry, entry: ConsumerEntry, until_ns: int
) -> None:
    """Pause a consumer until a time, or let it go on (0, or a time that is over); 10104 when the
    disk refuses.
    """
    metadata = dict(entry.config.metadata)
    config = msgspec.structs.replace(entry.config, pause_until=until_ns or None, metadata=metadata)
    consumer_config.set_required_level(config)
    told = entry.paused_until_ns != until_ns
    _write(stream, entry, config)
    _apply_pause(account, entry, told=told)


def reset(stream: StreamEntry, entry: ConsumerEntry, seq: int) -> int:
    """Let a consumer begin anew at a sequence, or behind its ack floor (0); the sequence. 10204:
    not allowed by its deliver policy.
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
    seq = entry.core.reset(seq)
    if stream.config.retention == "interest":
        stream.core.review()
    return seq


def delete(account: JetStreamAccount, stream: StreamEntry, entry: ConsumerEntry) -> None:
    """Remove a consumer with its state, and the messages that only it needed; 10051 when the disk
    refuses.
    """
    floor = entry.core.floor()
    detach(account, stream, entry, "Consumer Deleted")
    account.advisories.consumer(stream.config.name, entry.name, "delete", account.now_ns)
    if stream.files is not None and entry.persistent:
        try:
            _remove(stream, entry.name)
            stream.rewrites.pop(entry.name, None)
        except OSError as error:
            _remove_later(stream, entry.name)
            raise errors.StreamGeneralError(error) from error
    if stream.config.retention == "interest":
        stream.core.review(floor + 1, orphans=True)


def delete_offline(account: JetStreamAccount, stream: StreamEntry, name: str) -> None:
    """Remove a consumer that could not be opened, because a client says so; 10051 when the disk
    refuses, and the consumer stays.
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
    """End the consumer's data path; its files stay."""
    if stream.journal is not None and entry.persistent:
        stream.journal.forget(entry.core)
    if account.api_subjects is not None:
        account.api_subjects.remove(entry.core)
    entry.core.deadline_changed = entry.core.on_change = entry.core.on_unbound = None
    account.timers.set(entry, 0)
    account.alarms.set(entry.unused, 0)
    account.alarms.set(entry.resume, 0)
    entry.core.close(reason)
    del stream.consumers[entry.name]
    stream.changed.pop(entry, None)
    stream.internal_consumers -= entry.internal
    stream.direct_consumers -= entry.config.direct


def recover(account: JetStreamAccount, stream: StreamEntry) -> None:
    """Recover the consumers of a stream; one that cannot be read is reported and stays offline.
    Messages that every consumer has acknowledged leave the stream, unless a consumer is offline: it
    may need them.
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
                f"stream {stream.config.name}: cannot open a consumer, it stays offline: {meta.why}"
            )
            stream.offline[meta.name or meta.why] = meta.why
            continue
        found = files.states.found.pop((meta.name, meta.created), None)
        ahead = _brought_back(stream, meta, found)
        entry = _start(account, stream, meta)
        if found is not None:
            _restore(account, stream, entry, found)
        if ahead:
            beyond = True
            stream.changed[entry] = None
    files.states.found.clear()
    if problems or stream.changed:
        save_states(account, stream, durable=True)  # so that nothing rests on what is damaged
    if beyond and files.states.error is not None:
        stream.core.owe(files.states.error, lambda: _save_owed(account, stream))
    if files.states.outdated:
        for _ in range(2):  # both bases, and the journal that the older one needs
            save_states(account, stream, durable=True)
    if not stream.offline:
        stream.core.review()


def _save_owed(account: JetStreamAccount, stream: StreamEntry) -> None:
    """States that have to be on the disk before a message is taken. OSError."""
    assert stream.files is not None
    save_states(account, stream, durable=True)
    if stream.files.states.error is not None:
        raise stream.files.states.error


def _brought_back(stream: StreamEntry, meta: ConsumerFile, found: SavedState | None) -> bool:
    """Bring a consumer's place back to the stream's end, when it is beyond it: what it had passed
    was lost with the power, and those sequences are given again. Whether it was; it has to be
    written then, before they are.
    """
    last = stream.core.log.last_seq
    asked = meta.config.deliver_policy == "by_start_sequence" and meta.start_seq > last
    if asked and (found is None or not found.numbers[0]):
        return False  # it waits for a sequence to come
    ahead = meta.start_seq > last + 1
    meta.start_seq = min(meta.start_seq, last + 1)
    return (found is not None and found.forget_above(last, meta.start_seq)) or ahead


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
    """Restore one consumer of a stream in memory from its saved state; empty: a new consumer."""
    entry = _start(account, stream, meta)
    if state:
        entry.core.restore(state)


def _restore(
    account: JetStreamAccount, stream: StreamEntry, entry: ConsumerEntry, found: SavedState
) -> None:
    policy = entry.config.deliver_policy
    if policy != "last_per_subject" and not consumer_config.filters_of(entry.config):
        found.look_again(entry.start_seq)
    try:
        state = found.packed(_handed_out(stream, entry, found.gaps))
        entry.core.restore(state)
    except ValueError as error:
        where = f"{stream.config.name} > {entry.name}"
        account.report(
            f"the saved state of consumer {where} is damaged; the consumer starts from the beginning: {error}"
        )
        return
    if stream.files is not None and stream.journal is not None:
        stream.files.states.put(entry.name, entry.created_ns, state)
        stream.journal.watch(entry.core, entry.created_ns)


def _handed_out(
    stream: StreamEntry, entry: ConsumerEntry, gaps: list[tuple[int, int]]
) -> Iterator[int]:
    """The messages that it takes in these ranges of sequences."""
    for first, end in gaps:
        for pattern in consumer_config.filters_of(entry.config) or (">",):
            message = queries.next_of(stream.core.log, pattern, first)
            while message is not None and message.seq < end:
                yield message.seq
                message = queries.next_of(stream.core.log, pattern, message.seq + 1)


def save_states(account: JetStreamAccount, stream: StreamEntry, *, durable: bool) -> None:
    """Write the states that have changed since the last time; with `durable` all are on the disk
    itself afterwards. A failure is reported once and tried again next time.
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
        states.error = None
    except OSError as error:
        for entry in fresh:
            entry.core.unsaved()  # snapshot() took it for written
        not_confirmed(account, stream, error)
    if journal.broken:
        account.unsaved[stream] = None


def not_confirmed(account: JetStreamAccount, stream: StreamEntry, error: OSError) -> None:
    """Note that states of consumers, or acks to be confirmed, could not be written."""
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
            stream.files.write_consumer(meta)
            stream.rewrites.pop(name, None)
        except OSError as error:
            _remove_later(stream, name)
            raise errors.ConsumerStoreFailedError(error) from error
    entry = _start(account, stream, meta)
    account.advisories.consumer(stream.config.name, name, "create", account.now_ns)
    return entry


def _created_ns(account: JetStreamAccount, stream: StreamEntry) -> int:
    """Now, but later than any consumer that the files tell of: name and creation time say whose a
    state is, and the clock may not have moved, or gone back.
    """
    if stream.files is None:
        return account.now_ns
    states = stream.files.states
    states.newest_ns = max(account.now_ns, states.newest_ns + 1)
    return states.newest_ns


def _remove(stream: StreamEntry, name: str) -> None:
    """Forget a consumer's files and state, durably. OSError."""
    assert stream.files is not None
    if stream.config.retention != "limits":
        # Its acks are what would remove their messages again, were the removals lost with the power.
        stream.core.log.fsync()
    stream.files.states.drop(name)
    stream.files.remove_consumer(name)


def _remove_later(stream: StreamEntry, name: str) -> None:
    """A file of a consumer that is not there may be on the disk."""
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
    """Give it another configuration, on disk first."""
    old, entry.config = entry.config, config
    if stream.files is not None and entry.persistent:
        try:
            stream.files.write_consumer(entry.file())
            stream.rewrites.pop(entry.name, None)
        except OSError as error:
            entry.config = old
            files = stream.files
            stream.rewrites[entry.name] = lambda: files.write_consumer(entry.file())
            raise errors.ConsumerStoreFailedError(error) from error


def _on_disk(stream: StreamEntry, config: ConsumerConfig) -> bool:
    return stream.files is not None and not config.mem_storage and not config.direct


def _start(account: JetStreamAccount, stream: StreamEntry, meta: ConsumerFile) -> ConsumerEntry:
    try:
        core = Consumer(stream.core, meta.name, start_seq=meta.start_seq)
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
    stream.consumers[meta.name] = entry
    stream.internal_consumers += entry.internal
    stream.direct_consumers += meta.config.direct
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
    """Do what pause_until says, and set the alarm for its end."""
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
    """Look whether it is used when its inactive threshold will be over."""
    threshold_ns = entry.config.inactive_threshold
    due_ns = account.now_ns + threshold_ns + _grace_ns(entry)
    account.alarms.set(entry.unused, due_ns if threshold_ns > 0 else 0)


def _grace_ns(entry: ConsumerEntry) -> int:
    return 0 if entry.config.deliver_subject else PULL_GRACE_NS


def _go_unused(
    account: JetStreamAccount, stream: StreamEntry, entry: ConsumerEntry, now_ns: int
) -> int:
    """Delete a consumer that was unused for its inactive threshold; the time of the next check."""
    threshold_ns = entry.config.inactive_threshold
    if threshold_ns <= 0:
        return 0
    idle_ns = entry.core.idle_since_ns()
    if not idle_ns:
        # a push consumer reports itself when its last subscriber is gone
        return 0 if entry.config.deliver_subject else now_ns + threshold_ns
    due_ns = idle_ns + threshold_ns + _grace_ns(entry)
    if due_ns > now_ns:
        return min(due_ns, now_ns + threshold_ns)
    try:
        delete(account, stream, entry)
    except ApiError as error:
        account.report(f"cannot remove the files of deleted consumer {entry.name}: {error}")
    return 0
