"""Lifecycle of consumers: create, update, delete, recover, and their state on disk.

A create is on disk before it returns. Consumers of memory streams and those with `mem_storage` live
until the server stops. Works on an Account; knows neither JSON nor the dispatch table.
"""

from penstock.api import errors_generated as errors
from penstock.api.consumers import ConsumerConfig
from penstock.core.consumer import Consumer
from penstock.engine import consumer_config, limits
from penstock.engine.account import Account
from penstock.engine.entries import ConsumerEntry, StreamEntry, configure_consumer
from penstock.engine.files import FORMAT, BadFileError, ConsumerFile


def put(
    account: Account, stream: StreamEntry, name: str, config: ConsumerConfig, action: str
) -> ConsumerEntry:
    """Create or update a consumer to a configuration (checked already); `action`: "", "create" or
    "update".

    10148, 10149: it is (not) there; 10012, 10013: can't be changed so; 10026: one too many; 10052:
    not supported here.
    """
    present = stream.consumers.get(name)
    if present is None:
        if action == "update":
            raise errors.ConsumerDoesNotExistError()
        return _create(account, stream, name, config)
    config.pause_until = present.config.pause_until
    if consumer_config.same(present.config, config):
        return present
    if action == "create":
        raise errors.ConsumerAlreadyExistsError()
    return _update(stream, present, config)


def delete(account: Account, stream: StreamEntry, entry: ConsumerEntry) -> None:
    """Remove a consumer with its state; 10051 when the disk refuses."""
    detach(account, stream, entry, "Consumer Deleted")
    account.advisories.consumer(stream.config.name, entry.name, "delete", account.now_ns)
    if stream.files is not None and entry.persistent:
        stream.files.states.drop(entry.name)
        try:
            stream.files.remove_consumer(entry.name)
        except OSError as error:
            raise errors.StreamGeneralError(error) from error


def detach(account: Account, stream: StreamEntry, entry: ConsumerEntry, reason: str) -> None:
    """End the consumer's data path; its files stay."""
    entry.core.save = None
    if account.desk is not None:
        account.desk.remove(entry.core)
    entry.core.deadline_changed = None
    account.timers.set(entry, 0)
    entry.core.close(reason)
    del stream.consumers[entry.name]


def recover(account: Account, stream: StreamEntry) -> None:
    """Bring back a stream's consumers; what can't be read is reported and left."""
    files = stream.files
    if files is None:
        return
    for problem in files.states.load():
        account.report(f"consumer states are left aside: {problem}")
    for meta in files.consumers():
        if isinstance(meta, BadFileError):
            account.report(f"consumer file is left aside: {meta}")
            continue
        entry = _start(account, stream, meta)
        state = files.states.get(meta.name, meta.created)
        if state is not None:
            try:
                entry.core.restore(state)
            except ValueError as error:
                where = f"{stream.config.name} > {meta.name}"
                account.report(f"state of consumer {where} is damaged, it starts anew: {error}")


def save_states(account: Account, stream: StreamEntry, *, durable: bool) -> None:
    """Write the states that have changed since the last time, then answer the acks that wait for
    it; a failure is reported once and tried again next time.
    """
    if stream.files is None:
        return
    states = stream.files.states
    fresh = []
    for entry in stream.consumers.values():
        if entry.core.changed and entry.persistent:
            states.put(entry.name, entry.created_ns, entry.core.snapshot())
            fresh.append(entry)
    if not (states.unsaved or durable):
        return
    failed_before = states.failed
    try:
        states.write(durable=durable)
    except OSError as error:
        for entry in fresh:
            entry.core.changed = True  # snapshot() took it for written
        if not failed_before:
            what = f"consumer states of stream {stream.config.name}"
            account.report(f"{what} can't be written: {error}")
        return
    for entry in stream.consumers.values():
        entry.core.saved()


def confirm(account: Account, stream: StreamEntry, entry: ConsumerEntry) -> None:
    """Write one consumer's state and answer the acks that wait for it; when that fails they wait
    for `save_states`. Called at most once a turn.
    """
    if stream.files is None:
        return
    states, path = stream.files.states, stream.files.state_path(entry.name)
    try:
        states.write_one(entry.name, entry.created_ns, entry.core.snapshot(), path)
    except OSError as error:
        entry.core.changed = True
        if not states.failed:
            states.failed = True
            account.report(
                f"state of consumer {stream.config.name} > {entry.name} can't be written: {error}"
            )
        return
    entry.core.saved()


def first_sequence(stream: StreamEntry, config: ConsumerConfig) -> int:
    """The stream sequence that a new consumer starts at, by its deliver policy."""
    log = stream.core.log
    first = log.first_seq if log.msgs else log.last_seq + 1
    policy = config.deliver_policy
    if policy == "new":
        return log.last_seq + 1
    if policy == "last":
        filters = consumer_config.filters_of(config) or (">",)
        newest = [message.seq for one in filters if (message := log.last_of(one))]
        return max(newest, default=first)
    if policy == "by_start_sequence":
        return max(config.opt_start_seq, first)
    if policy == "by_start_time":
        return max(log.at_time(config.opt_start_time or 0), first)
    return first


def _create(
    account: Account, stream: StreamEntry, name: str, config: ConsumerConfig
) -> ConsumerEntry:
    limits.check_consumer_count(account, stream, config)
    consumer_config.check_supported(config)
    meta = ConsumerFile(
        format=FORMAT,
        created=account.now_ns,
        name=name,
        start_seq=first_sequence(stream, config),
        config=config,
    )
    if stream.files is not None and not config.mem_storage:
        try:
            stream.files.write_consumer(meta)
        except OSError as error:
            raise errors.ConsumerStoreFailedError(error) from error
    entry = _start(account, stream, meta)
    account.advisories.consumer(stream.config.name, name, "create", account.now_ns)
    return entry


def _update(stream: StreamEntry, entry: ConsumerEntry, config: ConsumerConfig) -> ConsumerEntry:
    bound = bool(entry.config.deliver_subject) and entry.core.push_bound()
    consumer_config.check_update(entry.config, config, bound=bound)
    consumer_config.check_supported(config)
    old, entry.config = entry.config, config
    if stream.files is not None and entry.persistent:
        try:
            stream.files.write_consumer(entry.file())
        except OSError as error:
            entry.config = old
            raise errors.ConsumerStoreFailedError(error) from error
    configure_consumer(entry.core, config, stream.config)
    return entry


def _start(account: Account, stream: StreamEntry, meta: ConsumerFile) -> ConsumerEntry:
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
        persistent=stream.files is not None and not meta.config.mem_storage,
    )
    core.deadline_changed = lambda _, due_ns: account.timers.set(entry, due_ns)
    if entry.persistent:
        core.save = lambda: confirm(account, stream, entry)
    stream.consumers[meta.name] = entry
    if account.desk is not None:
        account.desk.add(core)
    configure_consumer(core, meta.config, stream.config)
    return entry
