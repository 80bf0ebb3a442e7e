"""The positions of a stream's sources: the sequence in each origin up to which the stream has its messages.

The header `Nats-Stream-Source` of each message has its position, and these headers count; but reading
all of them takes long, and the newest message of a source may be removed. So a file has the positions
at one sequence of the stream, and opening reads only later messages. Before the log writes the removal
of a message that the file does not cover, it has the file written (`holds` and `save`).

    <stream>/sources.json    {"format":1,"seq":812,"positions":[{"name":"ORDERS > >","seq":17,...}]}

Without a valid file (after a restore) opening reads the whole stream. It does so too when the file is
ahead of the stream: a power cut took the later messages, and others will get their sequences. The file
is rewritten then. Positions of sources that are no longer in the configuration stay, so that a source
that comes back continues.
"""

from typing import Annotated

from msgspec import Struct, field

from penstock.api.fields import OMIT, Uint64
from penstock.core.log.log import Log
from penstock.core.stream.source_copy import SourceWriter, last_positions
from penstock.engine.files import FORMAT, BadFileError, Dated, StreamFiles
from penstock.engine.settings import SECOND

SAVE_INTERVAL_NS = 5 * SECOND


class Position(Struct, kw_only=True):
    """How far one source is; `origin` tells its origin from a later one of the same name."""

    name: str = ""
    seq: Uint64 = 0
    origin: Annotated[str, OMIT] = ""


class PositionsFile(Dated, kw_only=True):
    """sources.json; `seq`: where the stream was."""

    seq: Uint64 = 0
    positions: list[Position] = field(default_factory=list)


class Positions:
    """The positions of one stream's sources, by index name."""

    def __init__(self, files: StreamFiles | None, log: Log) -> None:
        """Without files (a stream in memory) nothing is kept for later."""
        self._files = files
        self._log = log
        self._known: dict[str, Position] = {}
        self._writers: dict[str, SourceWriter] = {}
        self._anchors: dict[str, int] = {}  # where the newest message of each was when it was read
        self._saved_seq = 0
        self._saved: list[Position] = []
        self._waiting: PositionsFile | None = None  # to be written once the log is as far
        self._save_at_ns = 0

    def load(self, names: set[str], report_to: list[str]) -> None:
        """Find out where the named sources stand. What is wrong with the file goes to `report_to`;
        then the stream itself says it.
        """
        above = 0
        found: PositionsFile | None = None
        if self._files is not None:
            try:
                found = self._files.read_positions(PositionsFile)
            except (BadFileError, OSError) as error:
                report_to.append(str(error))
        if found is not None and found.seq <= self._log.last_seq:
            self._known = {position.name: position for position in found.positions}
            above = found.seq
        read = last_positions(self._log, above, set(self._known) | names, found is not None)
        for name, (seq, here) in read.items():
            self._anchors[name] = here
            before = self._known.get(name)
            if before is None or seq > before.seq:
                origin = before.origin if before is not None else ""
                self._known[name] = Position(name=name, seq=seq, origin=origin)
        self._saved_seq = above
        if self._files is not None:
            self._log.guard = self
            self._log.guard_above = above
        if found is not None and found.seq > self._log.last_seq:
            try:
                self._write(self._file())
            except OSError as error:
                report_to.append(f"cannot write the positions of the sources yet: {error}")

    def of(self, name: str) -> Position:
        """Where a source stands; from then on `follow` what lands."""
        return self._known.get(name, Position(name=name))

    def anchor_of(self, name: str) -> int:
        """The sequence of the stream's message that says so; 0: the file does."""
        return self._anchors.get(name, 0)

    def follow(self, name: str, writer: SourceWriter, origin: str) -> None:
        """The position of this source is its writer's."""
        self._writers[name] = writer
        self._known[name] = Position(name=name, seq=writer.position, origin=origin)

    def leave(self, name: str) -> None:
        """Nothing lands any more: what is known stays."""
        self._collect()
        writer = self._writers.pop(name, None)
        if writer is not None and writer.anchor:
            self._anchors[name] = writer.anchor

    def tick(self, now_ns: int) -> int:
        """Write the file when it is worth it; when to call again."""
        if self._files is None or now_ns < self._save_at_ns:
            return self._save_at_ns
        self._save_at_ns = now_ns + SAVE_INTERVAL_NS
        if self._waiting is not None and self._log.synced_seq >= self._waiting.seq:
            self._write(self._waiting)
            self._waiting = None
        if self._waiting is None:
            self._collect()
            if list(self._known.values()) != self._saved:
                self._waiting = self._file()
                self._save_at_ns = now_ns + SECOND
        return self._save_at_ns

    def holds(self, top: int) -> bool:
        """For the log: whether the file has to be written before messages up to a sequence go."""
        anchors = [writer.anchor for writer in self._writers.values()]
        anchors += self._anchors.values()
        return any(self._saved_seq < anchor <= top for anchor in anchors)

    def save(self) -> None:
        """Write down how it is now; all of the stream is in its file already. OSError."""
        if self._files is not None:
            self._collect()
            self._write(self._file())
            self._waiting = None

    def close(self) -> None:
        """The stream has been closed, or will not be followed any more."""
        self._log.guard = None

    def _collect(self) -> None:
        for name, writer in self._writers.items():
            if self._known[name].seq != writer.position:
                origin = self._known[name].origin
                self._known[name] = Position(name=name, seq=writer.position, origin=origin)

    def _file(self) -> PositionsFile:
        positions = list(self._known.values())
        return PositionsFile(format=FORMAT, seq=self._log.last_seq, positions=positions)

    def _write(self, file: PositionsFile) -> None:
        assert self._files is not None
        self._files.write_positions(file)
        self._saved_seq = self._log.guard_above = file.seq
        self._saved = file.positions
