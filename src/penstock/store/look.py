"""Looking at the streams of a store: quick (`check`) or at every byte (`verify`).

Nothing is written. The log is opened by core/recovery on a disk that keeps what it writes to
itself, so that the counts are those of the next start; where the damage is, segment by segment,
says core/segment_reader. A quick look believes an index file that holds, as a start does; a whole
one reads every record, block and file, and compares the index files with the records.

A folder that a server writes in is held as it is at one moment. What is changed in place while it
is read (erased messages) could look damaged: what is found in such a store counts only when another
look finds it too.
"""

from collections.abc import Callable

from msgspec.structs import replace

from penstock.api.times import format_time
from penstock.core.log import Log
from penstock.core.readonly import OverlayDisk, ReadOnlyDisk
from penstock.core.segment_reader import LogReader, SegmentScan
from penstock.engine.files import BadFileError, Dated, StreamFile, StreamFiles
from penstock.store.consumers import look_at_consumers
from penstock.store.files import bad_entries, bad_table
from penstock.store.places import Store, StreamPlace
from penstock.store.reports import (
    LOST,
    NOTE,
    UNREADABLE,
    WORN,
    Problem,
    StoreReport,
    StreamReport,
)

Progress = Callable[[int], object]
LOOKS = 3  # at what seems wrong while a server writes

REBUILT = "made again from the records, by the next start too"


def look_at(
    disk: ReadOnlyDisk,
    store: Store,
    places: list[StreamPlace],
    *,
    whole: bool = False,
    progress: Progress | None = None,
) -> StoreReport:
    """All of these streams. `progress` is called with bytes that are done; see `size_of`."""
    owners = store.owners()
    report = StoreReport(store=store.path)
    for pid in owners.values():
        report.used_by = pid
    for place in places:
        live = place.root in owners
        report.streams.append(look(disk, place, whole=whole, live=live, progress=progress))
    for domain_root in {place.root for place in places}:
        _leftovers(disk, domain_root, report)
    return report


def look(
    disk: ReadOnlyDisk,
    place: StreamPlace,
    *,
    whole: bool = False,
    live: bool = False,
    progress: Progress | None = None,
) -> StreamReport:
    """One stream; `live`: a server may be writing in it."""
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


def size_of(disk: ReadOnlyDisk, places: list[StreamPlace]) -> int:
    """The bytes that a whole look at these streams reads."""
    return sum(
        disk.facts(f"{place.log_folder}/{name}")[1]
        for place in places
        for name in disk.list_dir(place.log_folder)
        if name.endswith(".seg")
    )


def _key(problem: Problem) -> tuple[object, ...]:
    return problem.kind, problem.file, problem.offset, problem.first_seq, problem.reason


def _look_once(
    disk: ReadOnlyDisk, place: StreamPlace, whole: bool, live: bool, progress: Progress | None
) -> StreamReport:
    held = [place.consumers_folder, place.log_folder, place.folder]
    try:
        # consumers first: what their states speak of is in the log then
        for folder in held:
            disk.hold(folder)
        return look_held(disk, place, whole=whole, live=live, progress=progress)
    finally:
        for folder in held:
            disk.release(folder)


def look_held(
    disk: ReadOnlyDisk,
    place: StreamPlace,
    *,
    whole: bool = False,
    live: bool = False,
    progress: Progress | None = None,
) -> StreamReport:
    """One stream whose folders are held, once."""
    report = StreamReport(
        domain=place.domain, account=place.account, stream=place.name, folder=place.folder
    )
    overlay = OverlayDisk(disk)
    files = StreamFiles(overlay, place.folder)
    meta = _look_at_meta(files, report)
    _look_at_log(disk, overlay, place, report, whole, live, progress)
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
    try:
        meta = files.read()
    except (BadFileError, OSError) as error:
        reason = str(error).removeprefix(f"{path}: ")
        repair = "put right if one bit is flipped; else kept, the messages stay readable by dump"
        report.add(Problem(kind=LOST, file=path, reason=reason, repair=repair))
        report.state = UNREADABLE
        return None
    if meta is None:
        if files.has_log():
            reason = "there are messages but no configuration"
            repair = "none; dump reads the messages, restore of a backup brings it back"
            report.add(Problem(kind=LOST, file=path, reason=reason, repair=repair))
            report.state = UNREADABLE
        else:
            reason = "what a create that was cut short left behind"
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
    disk: ReadOnlyDisk,
    overlay: OverlayDisk,
    place: StreamPlace,
    report: StreamReport,
    whole: bool,
    live: bool,
    progress: Progress | None,
) -> None:
    folder = place.log_folder
    if not disk.exists(folder):
        return
    try:
        reader = LogReader(disk, folder, quick=not whole, progress=progress)
        log = Log(folder, overlay, create=False)
    except OSError as error:
        problem = Problem(kind=LOST, file=folder, reason=str(error), repair="none")
        report.add(problem)
        report.state = UNREADABLE
        return
    report.messages, report.bytes = log.msgs, log.bytes
    report.first_seq, report.last_seq = log.first_seq, log.last_seq
    report.first_time = format_time(log.first_ts_ns) if log.first_ts_ns else ""
    last = log.get(reader.segments[-1].last_live) if reader.segments else None
    newest = last.ts_ns if last is not None else log.last_ts_ns
    report.last_time = format_time(newest) if newest else ""
    report.segments = len(reader.segments)
    report.compressed = sum(segment.packed for segment in reader.segments)
    for segment in reader.segments:
        report.checked_bytes += segment.stored if segment.whole else 0
        _look_at_segment(disk, segment, report)
    if reader.segments:
        _look_at_end(reader.segments[-1], report, live)
    _look_at_indexes(disk, folder, reader, report, whole)
    for name in disk.list_dir(folder):
        if ".torn-" in name:
            report.add(
                Problem(
                    kind=NOTE,
                    file=f"{folder}/{name}",
                    length=disk.facts(f"{folder}/{name}")[1],
                    reason="an end that an earlier start has cut off and kept",
                    repair="none needed; it may be removed when nobody wants to look at it",
                )
            )


def _look_at_segment(disk: ReadOnlyDisk, segment: SegmentScan, report: StreamReport) -> None:
    if segment.mended:
        report.add(
            Problem(
                kind=WORN,
                file=segment.path,
                length=32,
                reason="one bit of the segment's head is flipped",
                repair="put right; a start does without",
            )
        )
    for offset, end, parts in segment.faults:
        where = Problem(
            kind=WORN,
            file=segment.path,
            offset=offset,
            length=end - offset,
            reason="damaged bytes between messages; no message is missing",
            repair="stays where it is",
        )
        if not parts or all(count == 0 for _, count, _ in parts):
            report.add(where)
            continue
        for first, count, reason in parts:
            repair = "put right if one flipped bit explains it; else it stays where it is"
            if segment.headless:
                repair = "none: without its head no record of the segment can be believed"
            report.add(
                replace(
                    where, kind=LOST, first_seq=first, count=count, reason=reason, repair=repair
                )
            )
    if segment.whole and segment.packed:
        reason = bad_table(disk.read_file(segment.path))
        if reason:
            problem = Problem(kind=WORN, file=segment.path, reason=reason, repair="written anew")
            report.add(problem)


def _look_at_end(last: SegmentScan, report: StreamReport, live: bool) -> None:
    # what a start cuts off; what it costs was told with the segment's damage
    if last.headless or last.good_end >= last.size or not last.whole:
        return
    reason = "a group of messages that was not finished" if last.cut else "an unfinished end"
    if live:
        reason = f"{reason}; a server is writing here"
    report.add(
        Problem(
            kind=NOTE,
            file=last.path,
            offset=last.good_end,
            length=last.size - last.good_end,
            reason=reason,
            repair="cut off and kept beside the segment, by the next start too",
        )
    )


def _look_at_indexes(
    disk: ReadOnlyDisk, folder: str, reader: LogReader, report: StreamReport, whole: bool
) -> None:
    quick = LogReader(disk, folder, quick=True) if whole else reader
    for told, read in zip(quick.segments[:-1], reader.segments[:-1], strict=True):
        path = f"{told.path.removesuffix('.seg')}.idx"
        if read.damaged:
            continue  # has none, so that each start tells of the damage
        if told.whole:
            there = disk.exists(path)
            reason = "the index file does not hold" if there else "the index file is missing"
        elif whole and (told.live, told.live_sum) != (read.live, read.live_sum):
            reason = "the index file contradicts the records"
        elif whole and bad_entries(disk.read_file(path)):
            reason = "the entries of the index file are damaged"
        else:
            continue
        report.add(Problem(kind=WORN, file=path, reason=reason, repair=REBUILT))


def _leftovers(disk: ReadOnlyDisk, root: str, report: StoreReport) -> None:
    for account in disk.list_dir(f"{root}/jetstream"):
        for kind, reason in (
            ("deleted", "a stream whose deletion was cut short"),
            ("restoring", "a restore that was cut short"),
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
