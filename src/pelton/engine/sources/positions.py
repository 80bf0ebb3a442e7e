"""The positions of a stream's sources: the sequence in each origin up to which the stream has its
messages.

The header `Nats-Stream-Source` of each message has its position and the identity of the origin, and
these headers decide. But
reading all of them takes long, and the newest message of a source may be removed. So a file has the
positions at one sequence of the stream, and opening reads only later messages. Before the log
removes a message that the file does not cover, it calls `save` (see `holds`).

    <stream>/sources.json    {"format":1,"seq":812,"positions":[{"name":"ORDERS > >","seq":17,...}]}

Without a valid file (after a restore), opening reads the whole stream. It also does so, and
rewrites the file, when the file is ahead of the stream: a power cut took the later messages, and
new messages will get their sequences. Positions of sources that are no longer in the configuration
stay, so that a source that returns to the configuration continues.
"""

from typing import Annotated

from msgspec import Struct, field

from pelton.api.fields import OMIT, Uint64
from pelton.core.log.log import Log
from pelton.core.stream.source_copy import SourceWriter, last_positions
from pelton.engine.base.hashes import LENGTH, stream_identity
from pelton.engine.base.settings import SECOND
from pelton.engine.files.files import FORMAT, BadFileError, Dated, StreamFiles

SAVE_INTERVAL_NS = 5 * SECOND


class Position(Struct, kw_only=True):
    """The position of one source; `origin` is the identity of the origin, which a later stream of
    the same name does not share.
    """

    name: str = ""
    seq: Uint64 = 0
    origin: Annotated[str, OMIT] = ""


class PositionsFile(Dated, kw_only=True):
    """The content of sources.json; `seq`: the last sequence of the stream that the file covers."""

    seq: Uint64 = 0
    positions: list[Position] = field(default_factory=list)


class Positions:
    """The positions of one stream's sources, by index name."""

    def __init__(self, files: StreamFiles | None, log: Log) -> None:
        """Without `files` (a stream in memory) nothing is saved."""
        self._files = files
        self._log = log
        self._known: dict[str, Position] = {}
        self._writers: dict[str, SourceWriter] = {}
        self._anchors: dict[str, int] = {}  # the sequence of the message that has each position
        self._saved_seq = 0
        self._saved: list[Position] = []
        # the file to write when the log has synced its sequence
        self._waiting: PositionsFile | None = None
        self._save_at_ns = 0

    def load(self, names: set[str], report_to: list[str]) -> None:
        """Find the positions of the named sources. Errors of the file go to `report_to`; then the
        messages alone have the positions.
        """
        above = 0
        found: PositionsFile | None = None
        if self._files is not None:
            try:
                found = self._files.read_positions(PositionsFile)
            except (BadFileError, OSError) as error:
                report_to.append(str(error))
        if found is not None and found.seq <= self._log.last_seq:
            for position in found.positions:
                _renew(position)
                self._known[position.name] = position
            above = found.seq
        read = last_positions(self._log, above, set(self._known) | names, found is not None)
        for name, (seq, here, origin) in read.items():
            self._anchors[name] = here
            before = self._known.get(name, Position(name=name))
            origin = origin or before.origin
            if seq > before.seq or origin != before.origin:
                self._known[name] = Position(name=name, seq=seq, origin=origin)
        self._saved_seq = above
        if self._files is not None:
            self._log.guard_with(self, above)
        if found is not None and found.seq > self._log.last_seq:
            try:
                self._write(self._file())
            except OSError as error:
                report_to.append(f"cannot write the positions of the sources yet: {error}")

    def of(self, name: str) -> Position:
        """Return the position of a source. The caller then calls `follow`."""
        return self._known.get(name, Position(name=name))

    def anchor_of(self, name: str) -> int:
        """Return the sequence of the message that has the position; 0: the file has it."""
        return self._anchors.get(name, 0)

    def follow(self, name: str, writer: SourceWriter, origin: str) -> None:
        """Take the position of this source from its writer from now on."""
        self._writers[name] = writer
        self._known[name] = Position(name=name, seq=writer.position, origin=origin)

    def leave(self, name: str) -> None:
        """Keep the current position of a source whose writer ends."""
        writer = self._writers.pop(name, None)
        if writer is None:
            return
        self._note(name, writer)
        if writer.anchor:
            self._anchors[name] = writer.anchor

    def tick(self, now_ns: int) -> int:
        """Write the file when positions have changed; return the time of the next call."""
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
        """Return whether the file has to be written before messages up to `top` are removed. The
        log calls this.
        """
        anchors = [writer.anchor for writer in self._writers.values()]
        anchors += self._anchors.values()
        return any(self._saved_seq < anchor <= top for anchor in anchors)

    def save(self) -> None:
        """Write the current positions. The log has all of its messages in the file already.
        OSError.
        """
        if self._files is not None:
            self._collect()
            self._write(self._file())
            self._waiting = None

    def close(self) -> None:
        """Detach from the log: the stream closes, or follows no other stream."""
        self._log.guard_with(None)

    def _collect(self) -> None:
        for name, writer in self._writers.items():
            self._note(name, writer)

    def _note(self, name: str, writer: SourceWriter) -> None:
        known = self._known[name]
        if known.seq != writer.position:
            self._known[name] = Position(name=name, seq=writer.position, origin=known.origin)

    def _file(self) -> PositionsFile:
        positions = list(self._known.values())
        return PositionsFile(format=FORMAT, seq=self._log.last_seq, positions=positions)

    def _write(self, file: PositionsFile) -> None:
        assert self._files is not None
        self._files.write_positions(file)
        self._saved_seq = file.seq
        self._log.guard_with(self._log.guard, file.seq)
        self._saved = file.positions


def _renew(position: Position) -> None:
    """Replace the created time of an origin, which earlier files have, by its identity."""
    if position.origin.isdecimal() and len(position.origin) > LENGTH:
        position.origin = stream_identity(int(position.origin))
