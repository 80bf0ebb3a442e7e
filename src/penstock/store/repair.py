"""Repairs a store that no server uses. Nothing is deleted.

The repair first runs on a disk that keeps changes in memory (core/base/readonly_disk): checksum repair
corrects flipped bits, and the log is opened as at a start of the server. The result is the plan. Then
the store is changed, file by file, each as a whole; the original of each replaced or removed file is on
the disk in `<stream>/aside/<number>/` before.
"""

import contextlib
from collections.abc import Callable

from msgspec import Struct, field

from penstock.core.base.disk import Disk
from penstock.core.base.readonly_disk import OverlayDisk, ReadOnlyDisk
from penstock.core.log import maintenance
from penstock.core.log.checksum_repair import mend_record
from penstock.core.log.recovery import open_log
from penstock.core.log.segment_reader import (
    HEAD_BYTES,
    INDEX_HEAD_BYTES,
    LogReader,
    SegmentReader,
    doubted,
    pack_segment,
    segment_head,
)
from penstock.engine.checksummed_files import mended
from penstock.engine.files import BadFileError, StreamFiles
from penstock.store.checks import look, look_held
from penstock.store.consumer_checks import repaired_states
from penstock.store.file_checks import bad_table
from penstock.store.layout import StreamFolder
from penstock.store.reports import LOST, WORN, StreamReport


class Change(Struct, kw_only=True):
    """One file that a repair changes."""

    file: str
    what: str  # made, replaced, taken away
    why: str
    bytes: int = 0
    kept: str = ""  # where what was there before is; "": nothing was


class RepairReport(Struct, kw_only=True):
    """What a repair did with a stream, or would do."""

    domain: str
    account: str
    stream: str
    before: StreamReport
    after: StreamReport
    mended: int = 0  # flipped bits
    changes: list[Change] = field(default_factory=list)


class Plan:
    """What a repair of one stream comes to."""

    def __init__(
        self, disk: ReadOnlyDisk, place: StreamFolder, progress: Callable[[int], object]
    ) -> None:
        """Works it out; OSError when the files can't be read. Nothing is changed."""
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
        """Every file that will be another one."""
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
        """Change the store, whose lock this process has; OSError: what is not done yet stays as it
        was, and another repair goes on.
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
        """How the stream will look."""
        return look_held(self._overlay, self.place, whole=True)

    def _aside(self) -> str:
        number = 1
        while self.disk.exists(f"{self.place.folder}/aside/{number}"):
            number += 1
        return f"{self.place.folder}/aside/{number}"

    def _mend_configurations(self) -> None:
        # reading them puts them right, in memory: from their copies, or where one bit is flipped
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
        reader = LogReader(self.disk, self.place.log_folder, cipher=cipher)
        for segment in reader.segments:
            source = SegmentReader(self.disk, segment.path, segment.first, cipher)
            if source.sealed and (source.packed or segment.mended):
                continue  # it would have to be encrypted anew: a start reads it as it is
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
                continue  # what is made anew of it would not have the bytes that can't be read
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
        # an index file that is believed would hide from a start what can't be read
        if self.disk.exists(path):
            data = self.disk.read_file(path)
            self._overlay.write_file_atomic(
                path, doubted(data[:INDEX_HEAD_BYTES]) + data[INDEX_HEAD_BYTES:]
            )
            self._why[path] = "marked, so that each start reports the lost messages"

    def _drop_indexes(self) -> None:
        # a start believes an index file that holds by itself: those that don't match go before
        for problem in self.before.of_kind(WORN):
            if problem.file.endswith(".idx") and self.disk.exists(problem.file):
                self._overlay.unlink(problem.file)

    def _open(self) -> None:
        if not self.disk.exists(self.place.log_folder):
            return
        cipher = self.place.cipher(self.disk)
        log = open_log(self.place.log_folder, self._overlay, create=False, cipher=cipher)
        maintenance.close(log)


def repair(
    disk: ReadOnlyDisk,
    place: StreamFolder,
    target: Disk | None,
    progress: Callable[[int], object] = lambda done: None,
) -> RepairReport:
    """Repair one stream; without a `target` only tell. OSError."""
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
    """What is put right is told by the look before."""


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
