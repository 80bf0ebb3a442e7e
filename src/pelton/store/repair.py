"""Repairs a store that no server uses. Nothing is deleted.

The repair first runs on a disk that keeps changes in memory (core/base/readonly_disk): checksum
repair corrects flipped bits, and the log is opened as at a start of the server. The result is the
plan. Then the repair replaces file by file, each as a whole, after it has stored the original of
each replaced or removed file in `<stream>/aside/<number>/`.
"""

import contextlib
from collections.abc import Callable

from msgspec import Struct, field

from pelton.core.base.disk import Disk
from pelton.core.base.readonly_disk import OverlayDisk, ReadOnlyDisk
from pelton.core.log import maintenance
from pelton.core.log.checksum_repair import mend_record
from pelton.core.log.recovery import open_log
from pelton.core.log.segment_reader import (
    HEAD_BYTES,
    INDEX_HEAD_BYTES,
    LogReader,
    SegmentReader,
    doubted,
    pack_segment,
    segment_head,
)
from pelton.engine.files.checksummed_files import mended
from pelton.engine.files.files import BadFileError, StreamFiles
from pelton.store.checks import look, look_held
from pelton.store.consumer_checks import repaired_states
from pelton.store.file_checks import bad_table
from pelton.store.layout import StreamFolder
from pelton.store.reports import LOST, WORN, StreamReport


class Change(Struct, kw_only=True):
    """One file that a repair changes."""

    file: str
    what: str  # "made", "replaced" or "taken away"
    why: str
    bytes: int = 0
    kept: str = ""  # the path of the kept original; "": there was no file


class RepairReport(Struct, kw_only=True):
    """The changes of a repair to one stream, done or planned."""

    domain: str
    account: str
    stream: str
    before: StreamReport
    after: StreamReport
    mended: int = 0  # number of corrected flipped bits
    changes: list[Change] = field(default_factory=list)


class Plan:
    """The planned repair of one stream."""

    def __init__(
        self, disk: ReadOnlyDisk, place: StreamFolder, progress: Callable[[int], object]
    ) -> None:
        """Make the plan; the store does not change. OSError: files cannot be read."""
        self.disk = disk
        self.place = place
        self.mended = 0
        self._overlay = OverlayDisk(disk)
        self._why: dict[str, str] = {}
        self.before = look(disk, place, whole=True, progress=progress)
        if self.before.encrypted or not _wanting(self.before):
            return
        self._mend_configurations()
        self._mend_segments()
        self._drop_indexes()
        if self.before.cut is not None or self.before.of_kind(WORN) or self.mended:
            self._open()

    def changes(self) -> list[Change]:
        """Return every file that the repair changes."""
        found = []
        for path, data in sorted(self._overlay.changes().items()):
            there = self.disk.exists(path)
            if data is not None and there and self.disk.read_file(path) == data:
                continue
            if data is None and not there:
                continue
            what = "taken away" if data is None else "replaced" if there else "made"
            why = self._why.get(path) or _why(path, what)
            found.append(Change(file=path, what=what, why=why, bytes=len(data or b"")))
        return found

    def carry_out(self, target: Disk) -> list[Change]:
        """Change the store, which this process has locked.

        OSError: the remaining files are unchanged, and another repair continues.
        """
        changes = self.changes()
        if not changes:
            return []
        contents = self._overlay.changes()
        aside = self._aside()
        for change in changes:
            if change.what != "made":
                change.kept = f"{aside}/{change.file.removeprefix(f'{self.place.folder}/')}"
                _keep(target, self.disk.read_file(change.file), change.kept, self.place.folder)
        for change in changes:
            data = contents[change.file]
            if data is None:
                target.unlink(change.file)
                target.sync_dir(change.file.rpartition("/")[0])
            else:
                target.write_file_atomic(change.file, data)
        return changes

    def after(self) -> StreamReport:
        """Return the report of the stream after the planned repair."""
        return look_held(self._overlay, self.place, whole=True)

    def _aside(self) -> str:
        number = 1
        while self.disk.exists(f"{self.place.folder}/aside/{number}"):
            number += 1
        return f"{self.place.folder}/aside/{number}"

    def _mend_configurations(self) -> None:
        # a read repairs them, in memory: from the copies, or by checksum repair
        files = StreamFiles(self._overlay, self.place.folder, self.place.vault)
        with contextlib.suppress(BadFileError):
            files.read(_unheard)
        files.consumers(_unheard)
        consumers = self.place.consumers_folder
        for path in (
            f"{self.place.folder}/sources.json",
            *(f"{consumers}/states.{n}" for n in (0, 1)),
        ):
            if path not in {problem.file for problem in self.before.problems}:
                continue
            data = self.disk.read_file(path)
            sources = path.endswith("/sources.json")
            fixed = mended(data) if sources else repaired_states(data)
            if fixed is not None:
                self._overlay.write_file_atomic(path, fixed)
                self._why[path] = "one flipped bit corrected"
                self.mended += 1
            elif sources:
                self._overlay.unlink(path)
                self._why[path] = (
                    "damaged; the next start reads the positions from the newest messages"
                )

    def _mend_segments(self) -> None:
        if not self.disk.exists(self.place.log_folder):
            return
        cipher = self.place.cipher(self.disk)
        numbered = self.place.numbered(self.disk)
        reader = LogReader(self.disk, self.place.log_folder, cipher=cipher, numbered=numbered)
        for segment in reader.segments:
            source = SegmentReader(self.disk, segment.path, segment.first, cipher)
            if source.sealed and (source.packed or segment.mended):
                # the repaired segment would need new encryption, and a start reads the damaged one
                # too
                continue
            data = bytearray(source.piece(0, source.size))
            bits = source.mended_blocks
            for at, end, _, mendable in segment.faults:
                fixed = mend_record(bytes(data[at:end]), segment.salt) if mendable else None
                if fixed is not None:
                    data[at:end] = fixed
                    bits += 1
            if any(parts and not mendable for _, _, parts, mendable in segment.faults):
                self._doubt(f"{segment.path.removesuffix('.seg')}.idx")
            if source.packed and not all(mendable for *_, mendable in segment.faults):
                continue  # a rebuilt segment would not have the unreadable bytes
            if segment.mended:
                data[:HEAD_BYTES] = segment_head(segment.first, segment.salt)
                bits += 1
            table = source.packed and bool(bad_table(self.disk.read_file(segment.path)))
            if not bits and not table:
                continue
            written = pack_segment(bytes(data)) if source.packed else bytes(data)
            self._overlay.write_file_atomic(segment.path, written)
            plural = "s" if bits > 1 else ""
            right = f"{bits} flipped bit{plural} corrected"
            self._why[segment.path] = right if bits else "its table rebuilt"
            self.mended += bits

    def _doubt(self, path: str) -> None:
        # a trusted index file would hide the unreadable records from a start
        if self.disk.exists(path):
            data = self.disk.read_file(path)
            self._overlay.write_file_atomic(
                path, doubted(data[:INDEX_HEAD_BYTES]) + data[INDEX_HEAD_BYTES:]
            )
            self._why[path] = "marked, so that each start reports the lost messages"

    def _drop_indexes(self) -> None:
        # a start trusts an index file that is sound in itself: remove those that contradict the
        # records
        for problem in self.before.of_kind(WORN):
            if problem.file.endswith(".idx") and self.disk.exists(problem.file):
                self._overlay.unlink(problem.file)

    def _open(self) -> None:
        if not self.disk.exists(self.place.log_folder):
            return
        cipher = self.place.cipher(self.disk)
        numbered = self.place.numbered(self._overlay)
        log = open_log(
            self.place.log_folder, self._overlay, create=False, cipher=cipher, numbered=numbered
        )
        maintenance.close(log)


def repair(
    disk: ReadOnlyDisk,
    place: StreamFolder,
    target: Disk | None,
    progress: Callable[[int], object] = lambda done: None,
) -> RepairReport:
    """Repair one stream; without a `target`, return the plan. OSError."""
    plan = Plan(disk, place, progress)
    report = RepairReport(
        domain=place.domain,
        account=place.account,
        stream=plan.before.stream,
        before=plan.before,
        after=plan.before,
        mended=plan.mended,
        changes=plan.changes() if target is None else plan.carry_out(target),
    )
    if report.changes:
        report.after = plan.after() if target is None else look(disk, place, whole=True)
    return report


def _unheard(text: str) -> None:
    """Ignore the line: the check before the repair reports the same."""


def _wanting(report: StreamReport) -> bool:
    return report.cut is not None or bool(report.of_kind(LOST) or report.of_kind(WORN))


def _why(path: str, what: str) -> str:
    if path.endswith(".idx"):
        return "index file rebuilt from the records"
    if path.endswith((".json", ".json.copy")):
        return "restored from its copy, or by checksum repair of one flipped bit"
    if ".bad-" in path:
        return "the damaged file, kept"
    if ".torn-" in path:
        return "the torn end, kept"
    if what == "made":
        return "created, as at the start of an encrypted stream"
    return "the torn end cut off"


def _keep(target: Disk, data: bytes, path: str, top: str) -> None:
    folder = path.rpartition("/")[0]
    target.make_dir(folder)
    target.write_file_atomic(path, data)
    while folder != top:
        folder = folder.rpartition("/")[0]
        target.sync_dir(folder)
