"""Where each file goes on: which file it is, by the stream and not by its name.

The stream has a subject for each file that was ever shipped, with the file's identity, so the last
message of the subject says how far that file is shipped. A file on the disk is one of these:

=========  =====================================================================================
known      its device, inode and first bytes are those of a subject, and its last shipped line is
           in place, whatever the file is called now: it goes on there
a copy     the same is true but for device and inode, and the name is one that a rotation makes of
           the known one (``copytruncate``, ``gzip``): it goes on there, if the original was cut
           or is gone
undecided  it looks like a copy, but is still growing or its original is not cut yet
new        anything else that was asked for; a rotated copy (``app.log.1``) is new only if it was
           made after the last line of ``app.log`` was shipped
left out   a rotated copy from before
=========  =====================================================================================

Does not keep files open, nor publish.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from pelton.pipeline.logs import names
from pelton.pipeline.logs.files import Identity, Mark
from pelton.pipeline.logs.rotation import originals

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pelton.pipeline.logs.chain import Chain, Shipped
    from pelton.pipeline.logs.files import FileKey, Tail

# Times of files are those of the last tick of the system's clock.
CLOCK_TICK_NS = 50_000_000
# The open file of an identity.
ReaderOf: TypeAlias = "Callable[[Identity], Tail | None]"


class Verdict(Enum):
    """Why a file is not read, or not yet."""

    UNDECIDED = "undecided"
    LEFT_OUT = "left out"


@dataclass(frozen=True)
class Origin:
    """A file to read: the path and subject of its lines, and the mark to go on after, if known."""

    path: str
    subject: str
    mark: Mark | None = None
    generation: int = 0


@dataclass(frozen=True)
class Candidate:
    """A file that was found. ``rotated`` was not asked for and is read only as what it was before;
    ``fresh`` appeared while the shipper ran, ``young`` may still be growing as a copy.
    """

    path: Path
    rotated: bool
    fresh: bool
    young: bool


@dataclass(frozen=True)
class _Known:
    identity: Identity
    path: str
    subject: str


class Places:
    """The files that the stream knows."""

    def __init__(self, chain: Chain, host: str) -> None:
        """Nothing is known before :meth:`load`."""
        self._chain = chain
        self._host = host
        self._known: dict[Identity, _Known] = {}
        self._by_path: dict[str, list[_Known]] = {}
        self._paths: dict[FileKey, str] = {}

    def load(self) -> None:
        """Ask the stream which files it knows."""
        self._known.clear()
        self._by_path.clear()
        self._paths.clear()
        everything = names.subjects_of(self._host).removesuffix("*.*") + ">"
        for subject in self._chain.subjects(everything):
            tokens = subject.split(".")
            try:
                if len(tokens) == 4:
                    identity = Identity.parse(tokens[3])
                elif (shipped := self._chain.last(subject)) and shipped.mark:
                    identity = shipped.mark.identity
                else:
                    continue
            except ValueError:
                continue
            self.add(identity, names.path_of(subject), subject)

    def add(self, identity: Identity, path: str, subject: str) -> None:
        """Record a file whose lines are shipped from now on."""
        known = _Known(identity, path, subject)
        self._known[identity] = known
        self._by_path.setdefault(path, []).append(known)
        self._paths[identity.device, identity.inode] = path

    def path_of_file(self, file_key: FileKey) -> str | None:
        """The path under which a file with this device and inode was shipped, if one was."""
        return self._paths.get(file_key)

    def paths(self) -> set[str]:
        """The paths of all files that are known."""
        return set(self._by_path)

    def latest(self, path: str) -> Identity | None:
        """The file under a path of which the last line was shipped."""
        shipped = self._last_under(path)
        return shipped.mark.identity if shipped and shipped.mark else None

    def same_file(self, tail: Tail, reader_of: ReaderOf) -> Origin | None:
        """Where a known file goes on; None for one that has another device, inode or beginning.

        Ask for all files before :meth:`find`, so that no copy is taken for a file that is there.
        """
        found: list[tuple[int, Mark, _Known]] = []
        for known in self._known.values():
            identity = known.identity
            if (identity.device, identity.inode) != tail.file_key or reader_of(identity):
                continue
            shipped = self._chain.last(known.subject) if tail.begins_as(identity) else None
            if shipped is not None and shipped.mark is not None:
                found.append((shipped.sequence, shipped.mark, known))
        if not found:
            return None
        _, mark, known = max(found, key=lambda each: each[0])
        return Origin(known.path, known.subject, mark) if tail.holds(mark) else None

    def find(
        self, tail: Tail, candidate: Candidate, reader_of: ReaderOf, *, final: bool
    ) -> Origin | Verdict:
        """Decide on a file that has a first line and is not a known one."""
        wait = candidate.young and not final
        verdict = self._copy(tail, candidate, reader_of, wait=wait)
        if verdict is not None:
            return verdict
        path = str(candidate.path)
        if candidate.rotated:
            found = [self._sibling(candidate, each) for each in originals(candidate.path.name)]
            after = {each: shipped for each in found if (shipped := self._shipped_at(each))}
            if not after:
                return Verdict.LEFT_OUT
            path = max(after, key=lambda each: after[each])
            if not candidate.fresh and tail.status().st_mtime_ns < after[path] - CLOCK_TICK_NS:
                return Verdict.LEFT_OUT
        return Origin(path, "", None, self._next_generation(tail.file_key))

    def shipped_under(self, path: Path) -> list[Shipped]:
        """The last line of each log of which the file may be a copy, by its name."""
        found = [str(path.with_name(name)) for name in originals(path.name)]
        lines = [self._last_under(each) for each in found if each in self._by_path]
        return [line for line in lines if line is not None]

    def _copy(
        self, tail: Tail, candidate: Candidate, reader_of: ReaderOf, *, wait: bool
    ) -> Origin | Verdict | None:
        """Where a copy goes on: the longest beginning that was shipped of another file."""
        held: list[Origin] = []
        undecided = False
        shorter: list[_Known] = []
        for known in self._related(candidate):
            if not tail.begins_as(known.identity):
                continue
            reader = reader_of(known.identity)
            if reader is not None:
                same = (candidate.rotated or wait) and reader.is_begun_by(tail)
                undecided = undecided or same
                continue
            shipped = self._chain.last(known.subject)
            if shipped is None or shipped.mark is None:
                continue
            if tail.holds(shipped.mark):
                held.append(Origin(known.path, known.subject, shipped.mark))
            elif not tail.compressed and tail.status().st_size < shipped.mark.next_offset:
                undecided |= wait
                shorter.append(known)
        if held:
            return max(held, key=lambda each: each.mark.next_offset if each.mark else 0)
        if undecided:
            return Verdict.UNDECIDED
        if any(self._is_shorter_copy(tail, known) for known in shorter):
            return Verdict.LEFT_OUT
        return None

    def _related(self, candidate: Candidate) -> list[_Known]:
        """The known files of which the candidate may be a copy, by its name."""
        paths = [self._sibling(candidate, each) for each in originals(candidate.path.name)]
        return [known for path in paths for known in self._by_path.get(path, ())]

    def _is_shorter_copy(self, tail: Tail, known: _Known) -> bool:
        """Whether the last line of a file is the one that was shipped from this place."""
        end, text = tail.last_line()
        line = self._chain.line_before(known.subject, end)
        if not text or not line:
            return False
        length = min(len(text), len(line))
        return line[-length:] == text[-length:]

    def _shipped_at(self, path: str) -> int | None:
        shipped = self._last_under(path) if path in self._by_path else None
        return shipped.time_ns if shipped else None

    def _last_under(self, path: str) -> Shipped | None:
        pattern = names.subjects_of(self._host, path)
        found = [self._chain.last(pattern), self._chain.last(pattern.removesuffix(".*"))]
        return max((each for each in found if each), key=lambda each: each.sequence, default=None)

    def _next_generation(self, file_key: FileKey) -> int:
        used = [each.generation for each in self._known if (each.device, each.inode) == file_key]
        return max(used, default=-1) + 1

    @staticmethod
    def _sibling(candidate: Candidate, name: str) -> str:
        return str(candidate.path.with_name(name))
