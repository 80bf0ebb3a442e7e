"""Checks the streams of a store: quickly (`check`) or every byte (`verify`).

Nothing is written. core/log/recovery opens the log on a disk that keeps changes in memory, so that
the counts are those of the next start; core/log/segment_reader locates the damage in each segment.
A quick check trusts a valid index file, as a start does; a full one reads every record, block and
file, and compares the index files with the records.

A folder that a server writes to is held at one moment. Messages that are erased during the check
may look damaged, so a problem in such a store counts only when a second check finds it too.
"""

import contextlib
from collections.abc import Callable

from msgspec.structs import replace

from pelton.api.times import format_time
from pelton.core.base.readonly_disk import OverlayDisk, ReadOnlyDisk
from pelton.core.log import queries
from pelton.core.log.encryption import LogLocked
from pelton.core.log.losses import is_segment_name
from pelton.core.log.segment_reader import LogReader, SegmentReader, SegmentScan
from pelton.engine.files.files import (
    BadFileError,
    Dated,
    MisplacedError,
    StreamFile,
    StreamFiles,
    unsynced_mark,
)
from pelton.engine.files.metadata_files import LockedError
from pelton.store.consumer_checks import look_at_consumers, tell_mended
from pelton.store.file_checks import bad_entries, bad_table
from pelton.store.layout import Store, StreamFolder, accounts_in
from pelton.store.reports import (
    LOCKED,
    LOST,
    NOTE,
    UNREADABLE,
    WORN,
    Problem,
    StoreReport,
    StreamReport,
)

Progress = Callable[[int], object]
AnyDisk = ReadOnlyDisk | OverlayDisk
LOOKS = 3  # how often a problem is checked while a server writes

REBUILT = "rebuilt from the records; the next start does the same"


def look_at(
    disk: ReadOnlyDisk,
    store: Store,
    places: list[StreamFolder],
    *,
    whole: bool = False,
    progress: Progress | None = None,
) -> StoreReport:
    """Check these streams. `progress` is called with the number of bytes done; see `size_of`."""
    owners = store.owners()
    report = StoreReport(store=store.path)
    for pid in owners.values():
        report.used_by = pid
    for place in places:
        live = place.root in owners
        try:
            report.streams.append(look(disk, place, whole=whole, live=live, progress=progress))
        except OSError as error:  # go on with the other streams
            if live and not disk.is_dir(place.folder):
                continue  # the stream was deleted meanwhile
            report.streams.append(_unreadable(place, error))
    for domain_root in {place.root for place in places}:
        _leftovers(disk, domain_root, report)
    return report


def _unreadable(place: StreamFolder, error: OSError) -> StreamReport:
    report = StreamReport(
        domain=place.domain, account=place.account, stream=place.name, folder=place.folder
    )
    reason = f"the stream cannot be read: {error.strerror or error}"
    repair = "none; check the disk"
    file = str(error.filename or place.folder)
    report.add(Problem(kind=LOST, file=file, reason=reason, repair=repair))
    report.state = UNREADABLE
    return report


def look(
    disk: ReadOnlyDisk,
    place: StreamFolder,
    *,
    whole: bool = False,
    live: bool = False,
    progress: Progress | None = None,
) -> StreamReport:
    """Check one stream; `live`: a server may be writing to it."""
    report = _look_once(disk, place, whole, live, progress)
    for _ in range(LOOKS - 1):
        if not live or not (report.of_kind(LOST) or report.of_kind(WORN)):
            break
        again = _look_once(disk, place, whole, live, None)
        found = {_key(problem) for problem in report.problems}
        both = [problem for problem in again.problems if _key(problem) in found]
        again.problems, again.lost = [], 0
        if again.state != UNREADABLE:
            again.state = StreamReport(account="", stream="", folder="").state
        for problem in both:
            again.add(problem)
        report = again
    return report


def size_of(disk: ReadOnlyDisk, places: list[StreamFolder]) -> int:
    """Return the bytes that a full check of these streams reads."""
    total = 0
    for place in places:
        with contextlib.suppress(OSError):
            for name in disk.list_dir(place.log_folder):
                if name.endswith(".seg"):
                    total += disk.facts(f"{place.log_folder}/{name}")[1]
    return total


def _key(problem: Problem) -> tuple[object, ...]:
    return problem.kind, problem.file, problem.offset, problem.first_seq, problem.reason


def _look_once(
    disk: ReadOnlyDisk, place: StreamFolder, whole: bool, live: bool, progress: Progress | None
) -> StreamReport:
    held = [place.consumers_folder, place.log_folder, place.folder]
    try:
        # consumers first: the log then has the messages in their states
        for folder in held:
            disk.hold(folder)
        return look_held(disk, place, whole=whole, live=live, progress=progress)
    finally:
        for folder in held:
            disk.release(folder)


def look_held(
    disk: AnyDisk,
    place: StreamFolder,
    *,
    whole: bool = False,
    live: bool = False,
    progress: Progress | None = None,
) -> StreamReport:
    """Check one stream once, whose folders are held."""
    report = StreamReport(
        domain=place.domain, account=place.account, stream=place.name, folder=place.folder
    )
    overlay = OverlayDisk(disk)
    files = StreamFiles(overlay, place.folder, place.vault)
    files.had_unsynced = overlay.exists(unsynced_mark(place.folder))
    meta = _look_at_meta(files, report)
    if report.encrypted:
        _look_at_sealed(disk, place, report, whole, progress)
    else:
        _look_at_log(disk, place, report, whole, live, progress)
        look_at_consumers(files, report)
        _look_at_sources(files, report)
    report.disk_bytes = sum(
        disk.facts(f"{folder}/{name}")[1]
        for folder in (place.folder, place.log_folder, place.consumers_folder)
        for name in disk.list_dir(folder)
        if not disk.is_dir(f"{folder}/{name}")
    )
    if meta is not None and meta.config.name != place.name:
        report.stream = meta.config.name
    return report


def _look_at_meta(files: StreamFiles, report: StreamReport) -> StreamFile | None:
    path = f"{files.folder}/meta.json"
    said: list[str] = []
    try:
        meta = files.read(said.append)
    except LockedError as error:
        report.encrypted, report.state = True, LOCKED
        repair = "none needed; without the key only the checksums of the records are checked"
        report.add(Problem(kind=NOTE, file=files.folder, reason=str(error), repair=repair))
        return None
    except (BadFileError, OSError) as error:
        reason = str(error).removeprefix(f"{path}: ")
        repair = "none; dump reads the messages, restore brings the stream back from a backup"
        if isinstance(error, MisplacedError):
            repair = "none; rename the folder back, or move it out of the store"
        report.add(Problem(kind=LOST, file=path, reason=reason, repair=repair))
        report.state = UNREADABLE
        return None
    tell_mended(said, report)
    if meta is None:
        if files.has_log() and not files.had_unsynced:
            reason = "the stream has messages but no configuration"
            repair = "none; dump reads the messages, restore brings the stream back from a backup"
            report.add(Problem(kind=LOST, file=path, reason=reason, repair=repair))
            report.state = UNREADABLE
        else:
            reason = "an interrupted create left this folder"
            repair = "none needed; the name is free"
            report.add(Problem(kind=NOTE, file=path, reason=reason, repair=repair))
    return meta


def _look_at_sources(files: StreamFiles, report: StreamReport) -> None:
    try:
        files.read_positions(Dated)
    except (BadFileError, OSError) as error:
        path = f"{files.folder}/sources.json"
        reason = str(error).removeprefix(f"{path}: ")
        repair = "kept aside; positions are read from the newest messages"
        report.add(Problem(kind=WORN, file=path, reason=reason, repair=repair))


def _look_at_log(
    disk: AnyDisk,
    place: StreamFolder,
    report: StreamReport,
    whole: bool,
    live: bool,
    progress: Progress | None,
) -> None:
    folder = place.log_folder
    if not disk.exists(folder):
        return
    try:
        cipher = place.cipher(disk)
        numbered = place.numbered(disk)
        reader = LogReader(
            disk, folder, quick=not whole, progress=progress, cipher=cipher, numbered=numbered
        )
    except LogLocked as error:
        reason = error.strerror or str(error)
        repair = "none needed; give the key in PELTON_STORE_KEY"
        report.add(Problem(kind=NOTE, file=folder, reason=reason, repair=repair))
        report.state = UNREADABLE
        return
    except OSError as error:
        problem = Problem(kind=LOST, file=folder, reason=str(error), repair="none")
        report.add(problem)
        report.state = UNREADABLE
        return
    log = reader.log
    report.messages, report.bytes = log.msgs, log.bytes
    report.first_seq, report.last_seq = log.first_seq, log.last_seq
    report.first_time = format_time(log.first_ts_ns) if log.first_ts_ns else ""
    newest = queries.last_of(log, ">") if log.msgs else None
    report.last_time = format_time(newest.ts_ns) if newest is not None else ""
    report.segments = len(reader.segments)
    report.compressed = sum(segment.packed for segment in reader.segments)
    report.checked_bytes = sum(segment.stored for segment in reader.segments) if whole else 0
    report.cut = cut_of(reader)
    for segment in reader.segments:
        _look_at_segment(disk, segment, report, whole)
    _look_at_rest(reader, report)
    _look_at_end(reader, report, live)
    _look_at_indexes(disk, reader, report, whole)
    for name in disk.list_dir(folder):
        if ".torn-" in name:
            report.add(
                Problem(
                    kind=NOTE,
                    file=f"{folder}/{name}",
                    length=disk.facts(f"{folder}/{name}")[1],
                    reason="a torn end that an earlier start cut off and kept",
                    repair="none needed; you may remove the file",
                )
            )


def _look_at_sealed(
    disk: AnyDisk,
    place: StreamFolder,
    report: StreamReport,
    whole: bool,
    progress: Progress | None,
) -> None:
    """Check the records of an encrypted stream without its key: their checksums need none."""
    names = [name for name in disk.list_dir(place.log_folder) if is_segment_name(name)]
    report.segments = len(names)
    for name in names if whole else ():
        path = f"{place.log_folder}/{name}"
        reader = SegmentReader(disk, path, int(name[:20]))
        report.compressed += reader.packed
        if progress is not None:
            progress(reader.stored)
        if reader.packed:
            continue  # the blocks of a compressed segment are encrypted as a whole
        report.checked_bytes += reader.stored
        if not reader.sound():
            repair = "none without the key: repair the store with it, or start the server"
            reason = "damaged records"
            report.add(Problem(kind=LOST, file=path, reason=reason, repair=repair))


def _look_at_segment(
    disk: AnyDisk, segment: SegmentScan, report: StreamReport, whole: bool
) -> None:
    if segment.mended:
        report.add(
            Problem(
                kind=WORN,
                file=segment.path,
                length=32,
                reason="the head of the segment is damaged; its content is known from other records",
                repair="rewritten",
            )
        )
    for offset, end, parts, mendable in segment.faults:
        where = Problem(
            kind=WORN,
            file=segment.path,
            offset=offset,
            length=end - offset,
            reason="damaged bytes; no message is lost",
            repair="checksum repair of one flipped bit"
            if mendable
            else "none; the bytes stay in the file",
        )
        found = [part for part in parts if part[1]]
        for first, count, reason in found:
            repair = (
                "checksum repair of one flipped bit"
                if mendable
                else "none; the bytes stay in the file (dump)"
            )
            if segment.headless:
                repair = "none; no record of the segment can be verified without its head"
            report.add(
                replace(
                    where, kind=LOST, first_seq=first, count=count, reason=reason, repair=repair
                )
            )
        if not found and not _is_end(report, segment, offset):
            report.add(where)
    if whole and segment.packed:
        reason = bad_table(disk.read_file(segment.path))
        if reason:
            repair = "rewritten, with checksum repair of one flipped bit"
            report.add(Problem(kind=WORN, file=segment.path, reason=reason, repair=repair))


def _is_end(report: StreamReport, segment: SegmentScan, offset: int) -> bool:
    # a torn end has its own problem in the report
    return report.cut is not None and report.cut[0] == segment.path and offset >= report.cut[1]


def _look_at_rest(reader: LogReader, report: StreamReport) -> None:
    """Report lost messages of whole segments, which have no damaged bytes."""
    told = [
        (first, first + count)
        for segment in reader.segments
        for _, _, parts, _ in segment.faults
        for first, count, _ in parts
    ]
    for first, count, reason in reader.lost:
        for low, high in _without(first, first + count, told):
            report.add(
                Problem(
                    kind=LOST,
                    file=reader.folder,
                    first_seq=low,
                    count=high - low,
                    reason=reason,
                    repair="none; a backup may contain them",
                )
            )


def _without(low: int, high: int, told: list[tuple[int, int]]) -> list[tuple[int, int]]:
    parts = []
    for first, end in sorted(told):
        if end <= low or first >= high:
            continue
        if first > low:
            parts.append((low, first))
        low = max(low, end)
    return [*parts, (low, high)] if low < high else parts


def cut_of(reader: LogReader) -> tuple[str, int] | None:
    """Return (segment, offset) of a torn end that a start would cut off, or None."""
    for path, data in reader.overlay.changes().items():
        if ".torn-" in path and data is not None and reader.segments:
            last = reader.segments[-1]
            return last.path, last.stored - len(data)
    return None


def _look_at_end(reader: LogReader, report: StreamReport, live: bool) -> None:
    if report.cut is None:
        return
    path, offset = report.cut
    reason = "a torn end; a server is writing to this segment" if live else "a torn end"
    report.add(
        Problem(
            kind=NOTE,
            file=path,
            offset=offset,
            length=reader.segments[-1].stored - offset,
            reason=reason,
            repair="cut off and kept beside the segment; the next start does the same",
        )
    )


def _look_at_indexes(disk: AnyDisk, reader: LogReader, report: StreamReport, whole: bool) -> None:
    quick = LogReader(disk, reader.folder, quick=True, cipher=reader.cipher) if whole else reader
    for segment in reader.segments[:-1]:
        path = f"{segment.path.removesuffix('.seg')}.idx"
        if segment.faults or segment.mended or segment.headless:
            continue  # the segment has no trusted index file, so that each start reports the damage
        if path in quick.overlay.forgotten:
            there = disk.exists(path)
            reason = (
                "the index file does not match the segment"
                if there
                else "the index file is missing"
            )
        elif whole and quick.live_sum(segment.first) != reader.live_sum(segment.first):
            reason = "the index file contradicts the records"
        elif whole and disk.exists(path) and bad_entries(disk.read_file(path)):
            reason = "the entries of the index file are damaged"
        else:
            continue
        report.add(Problem(kind=WORN, file=path, reason=reason, repair=REBUILT))


def _leftovers(disk: ReadOnlyDisk, root: str, report: StoreReport) -> None:
    for account in accounts_in(disk, root):
        for kind, reason in (
            ("deleted", "an interrupted deletion of a stream"),
            ("restoring", "an interrupted restore"),
        ):
            inner = f"{root}/jetstream/{account}/{kind}"
            for name in disk.list_dir(inner):
                problem = Problem(
                    kind=NOTE,
                    file=f"{inner}/{name}",
                    reason=reason,
                    repair="none; the next start removes it",
                )
                report.problems.append(problem)
