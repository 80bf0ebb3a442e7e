"""The results of checks as plain values, which are the JSON output of the command line.

The kind of a problem is its severity:

    lost      messages or a configuration that should exist cannot be read
    worn      damaged, missing or old, and restorable without loss
    note      for information; nothing is wrong
"""

from msgspec import Struct, field

LOST, WORN, NOTE = "lost", "worn", "note"
SOUND, DAMAGED, UNREADABLE = "sound", "damaged", "not recoverable"
LOCKED = "encrypted"  # the report needs the key to say more


class Problem(Struct, kw_only=True):
    """One finding. `first_seq` and `count` name the affected messages: 0 and 0 for none."""

    kind: str
    file: str
    offset: int = 0  # offset in the file; of a compressed one, in its decompressed content
    length: int = 0  # bytes; 0: the whole file
    first_seq: int = 0
    count: int = 0
    reason: str
    repair: str  # the effect of a repair on the problem


class ConsumerReport(Struct, kw_only=True):
    """One consumer as it was last saved."""

    name: str
    delivered: int = 0  # consumer sequence
    delivered_seq: int = 0  # stream sequence
    ack_floor: int = 0
    ack_floor_seq: int = 0
    unacknowledged: int = 0


class StreamReport(Struct, kw_only=True):
    """One stream."""

    domain: str = ""
    account: str
    stream: str
    folder: str
    state: str = SOUND
    messages: int = 0
    bytes: int = 0  # as the stream's state counts them
    first_seq: int = 0
    last_seq: int = 0
    first_time: str = ""
    last_time: str = ""
    segments: int = 0
    compressed: int = 0  # number of compressed segments
    encrypted: bool = False
    disk_bytes: int = 0
    lost: int = 0  # number of lost messages
    consumers: list[ConsumerReport] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    cut: tuple[str, int] | None = None  # file and offset of a torn end that a start would cut off
    checked_bytes: int = 0  # bytes that were read and verified

    def add(self, problem: Problem) -> None:
        """Add a problem; lost messages make the stream damaged."""
        self.problems.append(problem)
        if problem.kind == LOST and self.state in (SOUND, LOCKED):
            self.state = DAMAGED
        if problem.kind == LOST:
            self.lost += problem.count

    def of_kind(self, kind: str) -> list[Problem]:
        """Return the problems of one kind."""
        return [problem for problem in self.problems if problem.kind == kind]


class StoreReport(Struct, kw_only=True):
    """A store folder."""

    store: str
    used_by: int | None = None  # process id of the server that has locked the store; 0: unknown
    streams: list[StreamReport] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)  # problems outside of streams
    seconds: float = 0.0

    @property
    def sound(self) -> bool:
        """Whether nothing is lost."""
        return all(stream.state == SOUND for stream in self.streams) and not any(
            problem.kind == LOST for problem in self.problems
        )
