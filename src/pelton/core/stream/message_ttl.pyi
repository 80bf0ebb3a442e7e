"""Message TTLs: find the messages with a TTL in a log, and remove them from the stream when the TTL is over."""

from pelton.core.base.deadlines import DeadlineHeap
from pelton.core.log.log import Log
from pelton.core.stream.stream import Stream

def learn(deadlines: DeadlineHeap, log: Log, start: int) -> int:
    """Add the messages with a Nats-TTL from a sequence on to the deadlines; returns how many have `never`."""

def marked(log: Log, start: int, prefix: bytes) -> list[int]:
    """The messages from a sequence on that have a header whose name starts with the prefix."""

def prune(deadlines: DeadlineHeap, log: Log) -> int:
    """Drop the deadlines whose message is removed; returns how many."""

def end_due(
    deadlines: DeadlineHeap, stream: Stream, limit: int, markers: bool
) -> tuple[int, list[int]]:
    """Remove the messages whose TTL is over at the reactor's time, looking at `limit` items at most.

    Returns how many items it looked at and, with `markers`, the messages that it left because each is the
    only one of its subject.
    """

def end_aged(
    stream: Stream, start: int, max_age_ns: int, limit: int, markers: bool
) -> tuple[int, int, list[int]]:
    """Remove the messages from a sequence on that are older than max_age and have no TTL of `never`.

    Looks at `limit` messages at most. Returns (where to continue, when the next one is due: 0 = there is
    none, the messages left as by `end_due`).
    """
