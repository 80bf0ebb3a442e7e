"""Messages that end by themselves: found in a log, and removed from a stream when their time has come."""

from penstock.core.base.deadlines import DeadlineHeap
from penstock.core.log.log import Log
from penstock.core.stream.stream import Stream

def learn(agenda: DeadlineHeap, log: Log, start: int) -> int:
    """Put the messages with a Nats-TTL from a sequence on into the agenda; how many have `never`."""

def marked(log: Log, start: int, prefix: bytes) -> list[int]:
    """The messages from a sequence on with a header whose name starts so."""

def prune(agenda: DeadlineHeap, log: Log) -> int:
    """Let go of the items whose message is gone; how many went."""

def end_due(
    agenda: DeadlineHeap, stream: Stream, limit: int, markers: bool
) -> tuple[int, list[int]]:
    """Remove the messages whose TTL is over at the reactor's time, at most so many items.

    How many items were looked at; and, with `markers`, those that were left because they are the only
    message of their subject.
    """

def end_aged(
    stream: Stream, start: int, max_age_ns: int, limit: int, markers: bool
) -> tuple[int, int, list[int]]:
    """Remove the messages from a sequence on that are older than max_age and not `never` to end.

    At most so many are looked at. (Where to go on, when the next one is due: 0 = none is there, those
    left as with `end_due`.)
    """
