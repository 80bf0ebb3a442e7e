"""The open files: noticed by name, known by content, and read while they grow, oldest first.

A file is followed by its descriptor, so a rename changes nothing. When another file has taken its
name and it is left alone, its end without a newline is read too, and it is closed. A file that was
truncated is looked at as another one, and what was written to it before may be found in a copy.

Files that cannot be read cost only their own lines; :attr:`OpenFiles.unread` names them.
"""

from __future__ import annotations

import fnmatch
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pelton.pipeline.logs import names
from pelton.pipeline.logs.files import (
    DEFAULT_PATTERN,
    Tail,
    UnreadableFileError,
    find_files,
)
from pelton.pipeline.logs.places import CLOCK_TICK_NS, Candidate, Origin, Verdict
from pelton.pipeline.logs.rotation import is_compressed, is_left_out, originals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pelton.pipeline.logs.chain import Chain
    from pelton.pipeline.logs.files import FileKey, Identity, Line
    from pelton.pipeline.logs.places import Places

GRACE_SECONDS = 2.0
_LOOK_EVERY_SECONDS = 2.0
# A copy is complete long before: programs truncate the original directly after it.
_COPY_SECONDS = 10.0
_COPY_SECONDS_MAX = 60.0


@dataclass
class OpenFile:
    """A file that is read, with the path and subject of its lines."""

    tail: Tail
    path: str
    subject: str


@dataclass
class _Waiting:
    """A file that was found and is not decided on: it has no first line, or may be a copy."""

    tail: Tail
    path: Path
    rotated: bool
    fresh: bool
    since: float
    checked: bool = False
    """Whether it may have lines that were not shipped, by its time."""


@dataclass
class _Seen:
    """The files that were seen before, by device and inode."""

    listed: set[FileKey] | None = None  # at the last look; None before the first
    old: set[FileKey] = field(default_factory=set)  # since the first look
    left_out: set[FileKey] = field(default_factory=set)
    ended: dict[FileKey, tuple[int, int]] = field(default_factory=dict)  # size and time then


class OpenFiles:
    """The files of one shipper."""

    def __init__(
        self,
        places: Places,
        chain: Chain,
        where: str | None,
        host: str,
        not_below: Path | None,
        clock: Callable[[], float],
    ) -> None:
        """``where`` and ``not_below`` are as for :func:`find_files`, ``clock`` is the time of day."""
        self._places = places
        self._chain = chain
        self._where = where
        self._host = host
        self._not_below = not_below
        self._clock = clock
        self._open: dict[FileKey, OpenFile] = {}
        self._waiting: dict[FileKey, _Waiting] = {}
        self._seen = _Seen()
        self._loaded = False
        self._checked_ends = False
        self._look_at = 0.0
        self._unreadable: dict[str, str] = {}
        self._unfinished: dict[Identity, tuple[str, str]] = {}
        self._followed: set[Identity] = set()

    @property
    def files(self) -> int:
        """The number of files that are followed."""
        return len(self._open) + len(self._waiting)

    @property
    def unread(self) -> dict[str, str]:
        """Paths of files whose lines are not shipped, or not all of them, with the reason."""
        return {**self._unreadable, **dict(self._unfinished.values())}

    def sizes(self) -> dict[FileKey, int]:
        """The current length of each file, for ``until`` of :meth:`lines`."""
        return {tail.file_key: tail.status().st_size for tail in self._tails()}

    def _tails(self) -> list[Tail]:
        opened = [each.tail for each in self._open.values()]
        return opened + [each.tail for each in self._waiting.values()]

    def reset(self) -> None:
        """Close everything; the next look asks the stream again."""
        self.close()
        self._loaded = False
        self._look_at = 0.0
        self._seen.ended.clear()

    def close(self) -> None:
        """Close the files."""
        for tail in self._tails():
            tail.close()
        self._open.clear()
        self._waiting.clear()

    # -- finding files -----------------------------------------------------------------------------

    def look(self, *, now: bool = False, final: bool = False) -> None:
        """Notice new files, every two seconds or ``now``, and decide on those that are waiting.

        With ``final`` nothing waits for what may still come. All published lines are stored.
        """
        if not self._loaded:
            self._places.load()
            self._loaded = True
        for key, followed in list(self._open.items()):
            if followed.tail.was_cut():
                self._begin_again(key, followed)
        if now or self._clock() >= self._look_at:
            self._look_at = self._clock() + _LOOK_EVERY_SECONDS
            self._notice()
        # First the files that are known, then those that may be copies of them.
        for only_known in (True, False):
            for key, each in list(self._waiting.items()):
                self._decide(key, each, final=final, only_known=only_known)
        if not self._checked_ends:
            self._check_ends()

    def _notice(self) -> None:
        found = find_files(self._where, self._not_below)
        wanted = {str(path) for path in found} | {
            path for path in self._places.paths() if self._is_wanted(path)
        }
        listed: dict[FileKey, tuple[Path, bool, os.stat_result]] = {}
        for path, rotated in [*((path, False) for path in found), *self._rotated(found, wanted)]:
            try:
                status = path.stat()
            except OSError:
                continue  # renamed or removed since it was listed
            listed.setdefault((status.st_dev, status.st_ino), (path, rotated, status))
        seen = self._seen
        seen.old = set(listed) if seen.listed is None else seen.old & set(listed)
        seen.listed = set(listed)
        seen.left_out &= seen.listed
        seen.ended = {key: state for key, state in seen.ended.items() if key in listed}
        for key, (path, rotated, status) in sorted(
            listed.items(), key=lambda each: each[1][2].st_mtime_ns
        ):
            if key in self._open or key in self._waiting or key in seen.left_out:
                continue
            if seen.ended.get(key) != (status.st_size, status.st_mtime_ns):
                self._add(key, path, rotated, status)

    def _add(self, key: FileKey, path: Path, rotated: bool, status: os.stat_result) -> None:
        fresh = key not in self._seen.old
        if not rotated and (reason := names.refusal(self._host, str(path))):
            self._unreadable[str(path)] = reason
            return
        try:
            tail = Tail(path)
        except OSError as error:
            self._unreadable[str(path)] = f"it cannot be opened: {error.strerror}"
            return
        if tail.file_key != key:
            tail.close()  # renamed since it was listed; the next look finds both
            self._look_at = 0.0
            return
        self._unreadable.pop(str(path), None)
        self._waiting[key] = _Waiting(tail, path, rotated, fresh, self._clock())

    def _rotated(self, found: list[Path], wanted: set[str]) -> Iterator[tuple[Path, bool]]:
        """Other files beside wanted ones that a rotation, or the stream, makes of these."""
        asked = set(found)
        for folder in sorted({os.path.dirname(path) for path in wanted}):
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except OSError:
                continue
            for entry in entries:
                path = Path(entry.path)
                try:
                    if path in asked or not entry.is_file(follow_symlinks=False):
                        continue
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                before = {os.path.join(folder, name) for name in originals(entry.name)}
                before.add(self._places.path_of_file((status.st_dev, status.st_ino)) or "")
                if before & wanted:
                    yield path, True

    def _is_wanted(self, path: str) -> bool:
        """Whether a file under this path would be found if it existed."""
        if self._not_below is not None and Path(path).is_relative_to(self._not_below.resolve()):
            return False
        where = self._where or DEFAULT_PATTERN
        if path == os.path.realpath(where):
            return True
        if os.path.isdir(where):
            where = os.path.join(where, "**", "*.log")
        pattern = os.path.realpath(where).replace("**/", "*")
        return fnmatch.fnmatchcase(path, pattern) and not is_left_out(os.path.basename(path))

    # -- deciding what they are --------------------------------------------------------------------

    def _decide(self, key: FileKey, each: _Waiting, *, final: bool, only_known: bool) -> None:
        try:
            if only_known and self._places.path_of_file(key) is None:
                return
            if not only_known and not each.checked and self._has_nothing_new(each):
                del self._waiting[key]
                self._seen.left_out.add(key)
                each.tail.close()
                return
            each.checked |= not only_known
            if each.tail.first_line(final=final) is None:
                self._drop_if_gone(key, each)
                return
            verdict: Origin | Verdict | None
            if only_known:
                verdict = self._places.same_file(each.tail, self._reader_of)
            else:
                candidate = Candidate(each.path, each.rotated, each.fresh, self._is_young(each))
                verdict = self._places.find(each.tail, candidate, self._reader_of, final=final)
            if verdict is None or verdict is Verdict.UNDECIDED:
                return
            del self._waiting[key]
            if isinstance(verdict, Origin):
                self._follow(key, each.tail, verdict, final=final)
            else:
                self._seen.left_out.add(key)
                each.tail.close()
        except (OSError, UnreadableFileError) as error:
            self._waiting.pop(key, None)
            age = self._clock() - each.tail.status().st_mtime
            if each.tail.compressed and age < _COPY_SECONDS and not final:
                each.tail.close()  # still being written; the next look tries again
            else:
                self._refuse(key, each.tail, each.path, error)

    def _has_nothing_new(self, each: _Waiting) -> bool:
        """Whether a compressed copy need not be read, because its log was read to a later time."""
        if not each.rotated or not is_compressed(each.path.name):
            return False
        written_ns = each.tail.status().st_mtime_ns
        return all(
            shipped.time_ns > written_ns + CLOCK_TICK_NS
            and (shipped.mark is None or shipped.mark.identity in self._followed)
            for shipped in self._places.shipped_under(each.path)
        )

    def _drop_if_gone(self, key: FileKey, each: _Waiting) -> None:
        if key in self._waiting and each.tail.status().st_nlink == 0:
            del self._waiting[key]
            each.tail.close()

    def _is_young(self, each: _Waiting) -> bool:
        now = self._clock()
        if now - each.since >= _COPY_SECONDS_MAX:
            return False
        return now - max(each.since, each.tail.status().st_mtime) < _COPY_SECONDS

    def _reader_of(self, identity: Identity) -> Tail | None:
        tails = (each.tail for each in self._open.values())
        return next((tail for tail in tails if tail.identity == identity), None)

    def _follow(self, key: FileKey, tail: Tail, origin: Origin, *, final: bool) -> None:
        if origin.mark is not None:
            tail.go_on(origin.mark)
            self._followed.add(origin.mark.identity)
            self._unfinished.pop(origin.mark.identity, None)
            self._open[key] = OpenFile(tail, origin.path, origin.subject)
            return
        tail.begin(origin.generation, final=final)
        identity = tail.identity
        assert identity is not None
        subject = names.subject_of(self._host, origin.path, str(identity))
        self._chain.last(subject)
        self._followed.add(identity)
        self._places.add(identity, origin.path, subject)
        self._open[key] = OpenFile(tail, origin.path, subject)

    def _check_ends(self) -> None:
        """Notice logs that went on while nothing ran, without the file that was read last."""
        self._checked_ends = True
        for path in self._places.paths():
            if not os.path.exists(path) or not self._is_wanted(path):
                continue
            last = self._places.latest(path)
            if last is not None and last not in self._followed:
                self._unfinished[last] = (
                    path,
                    "the file that was read last is gone or was truncated while nothing ran;"
                    " lines that were written to it since are lost",
                )

    # -- reading -----------------------------------------------------------------------------------

    def lines(
        self, *, final: bool = False, until: dict[FileKey, int] | None = None
    ) -> Iterator[tuple[OpenFile, Identity, Line]]:
        """The lines that are there now.

        ``final`` also gives unfinished ends of all files; ``until`` limits each file to a size.
        """
        for key, each in list(self._open.items()):
            bound = until.get(key, 0) if until is not None and not each.tail.compressed else None
            try:
                yield from self._lines_of(key, each, final=final, until=bound)
            except (OSError, UnreadableFileError) as error:
                del self._open[key]
                self._refuse(key, each.tail, each.tail.path, error)

    def _lines_of(
        self, key: FileKey, each: OpenFile, *, final: bool, until: int | None
    ) -> Iterator[tuple[OpenFile, Identity, Line]]:
        tail = each.tail
        if tail.was_cut():
            self._begin_again(key, each)
            return
        identity = tail.identity
        assert identity is not None
        over = tail.compressed or self._is_over(each)
        for line in tail.lines(final=final or over, until=until):
            yield each, identity, line
        if over:
            self._end(key, tail)
            del self._open[key]

    def _is_over(self, each: OpenFile) -> bool:
        """Whether another file has the name, or none can have it, and this one is left alone."""
        status = each.tail.status()
        if self._clock() - status.st_mtime < GRACE_SECONDS:
            return False
        try:
            now = os.stat(each.path)
        except OSError:
            return status.st_nlink == 0
        return (now.st_dev, now.st_ino) != each.tail.file_key

    def _begin_again(self, key: FileKey, each: OpenFile) -> None:
        tail = each.tail
        assert tail.identity is not None
        self._unfinished[tail.identity] = (
            each.path,
            "it was truncated, and no copy was found; lines that were written directly before are lost",
        )
        tail.forget()
        del self._open[key]
        self._waiting[key] = _Waiting(tail, Path(each.path), False, True, self._clock())
        self._look_at = 0.0

    def _end(self, key: FileKey, tail: Tail) -> None:
        status = tail.status()
        self._seen.ended[key] = (status.st_size, status.st_mtime_ns)
        tail.close()

    def _refuse(self, key: FileKey, tail: Tail, path: Path, error: Exception) -> None:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        self._unreadable[str(path)] = f"it cannot be read: {reason or error}"
        self._end(key, tail)
