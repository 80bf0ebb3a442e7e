"""The configuration of a stream and of its consumers as plain data, as far as the files are readable."""

import msgspec

from pelton.api.codec import encode
from pelton.api.streams import StreamInfo, StreamState
from pelton.core.base.readonly_disk import OverlayDisk, ReadOnlyDisk
from pelton.core.consumer.snapshot import SPENT, unpack
from pelton.core.log import queries
from pelton.core.log.segment_reader import LogReader
from pelton.engine.files.consumer_states import SavedState
from pelton.engine.files.files import BadConsumer, BadFileError, ConsumerFile, StreamFiles
from pelton.store.layout import StoreError, StreamFolder

_NUMBERS = (
    "delivered_consumer_seq",
    "delivered_stream_seq",
    "next_stream_seq",
    "last_delivery_ns",
    "ack_floor_consumer_seq",
    "ack_floor_stream_seq",
    "last_ack_ns",
)


def configuration(disk: ReadOnlyDisk, place: StreamFolder) -> tuple[object, list[str]]:
    """Return (meta.json as data, or None; errors in words)."""
    problems: list[str] = []
    try:
        meta = StreamFiles(OverlayDisk(disk), place.folder, place.vault).read(problems.append)
    except (BadFileError, OSError) as error:
        return None, [str(error)]
    if meta is None:
        return None, [f"{place.folder} has no meta.json"]
    return msgspec.json.decode(encode(meta)), problems


def described(disk: ReadOnlyDisk, place: StreamFolder) -> StreamInfo:
    """Return configuration and state of a stream, as a server would tell them. StoreError, OSError:
    it cannot be read.
    """
    try:
        meta = StreamFiles(OverlayDisk(disk), place.folder, place.vault).read(lambda problem: None)
    except BadFileError as error:
        raise StoreError(str(error)) from None
    if meta is None:
        raise StoreError(f"{place.folder} has no meta.json")
    state = StreamState()
    names = disk.list_dir(place.consumers_folder)
    state.consumer_count = sum(name.endswith(".json") for name in names)
    if not disk.hold(place.log_folder):
        return StreamInfo(config=meta.config, created=meta.created, state=state)
    try:
        cipher = place.cipher(disk)
        reader = LogReader(
            disk,
            place.log_folder,
            quick=True,
            survey=False,
            cipher=cipher,
            numbered=meta.config.mirror is not None,
        )
        log = reader.log
        newest = queries.last_of(log, ">") if log.msgs else None
        state.messages, state.bytes = log.msgs, log.bytes
        state.first_seq, state.last_seq = log.first_seq, log.last_seq
        state.first_ts = log.first_ts_ns
        state.last_ts = newest.ts_ns if newest is not None else 0
        state.num_subjects = log.subject_count
        state.num_deleted = log.deleted_count()
        reader.close()
    finally:
        disk.release(place.log_folder)
    return StreamInfo(config=meta.config, created=meta.created, state=state)


def consumer_states(
    disk: ReadOnlyDisk, place: StreamFolder, *, held: bool = False
) -> tuple[list[dict[str, object]], list[str]]:
    """Return (each consumer with its configuration and its state; errors in words). `held`: the
    folder is held already.
    """
    problems: list[str] = []
    try:
        if not held:
            disk.hold(place.consumers_folder)
        files = StreamFiles(OverlayDisk(disk), place.folder, place.vault)
        files.small.cipher = place.cipher(disk)
        metas = []
        for meta in files.consumers(problems.append):
            if isinstance(meta, BadConsumer):
                problems.append(meta.why)
            else:
                metas.append(meta)
        problems += files.states.load({(each.name, each.created): each.start_seq for each in metas})
        found = [
            _one(each, files.states.found.get((each.name, each.created)), problems)
            for each in metas
        ]
    finally:
        if not held:
            disk.release(place.consumers_folder)
    return found, problems


def _one(meta: ConsumerFile, found: SavedState | None, problems: list[str]) -> dict[str, object]:
    told = msgspec.json.decode(encode(meta))
    assert isinstance(told, dict)
    told["state"] = None
    if found is None:
        return told
    try:
        numbers, entries, starts = unpack(found.packed())
    except ValueError as error:
        problems.append(f"consumer {meta.name}: {error}")
        return told
    pending = [
        {"stream_seq": seq, "consumer_seq": cseq, "time_ns": ns, "deliveries": times}
        for seq, cseq, ns, times, state in entries
        if state != SPENT
    ]
    told["state"] = dict(zip(_NUMBERS, numbers, strict=True)) | {
        "unacknowledged": pending,
        "spent": [entry[0] for entry in entries if entry[4] == SPENT],
        "first_messages": starts,
        "unknown_ranges": found.gaps,
    }
    return told
