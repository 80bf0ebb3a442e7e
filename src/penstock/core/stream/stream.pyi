"""The stream's data path: publish -> header scan -> expectations -> dedupe -> limits -> append -> PubAck -> wake consumers."""

from collections.abc import Callable, Iterator
from typing import Any

from penstock.core.broker.router import Router, Sink
from penstock.core.consumer.consumer import Consumer
from penstock.core.log.log import Log
from penstock.core.stream.refusals import Rules

SYNC_ALWAYS: int  # acks and deliveries wait for the fsync (group commit)
SYNC_INTERVAL: int  # acks wait for the write only; somebody calls sync_soon() now and then

class FastBatchHandler: ...
class AtomicBatchHandler: ...

class Stream(Sink):
    """One stream. Created by the engine, which attaches it to its subjects with ``router.attach``."""

    def __init__(
        self, router: Router, name: str, log: Log, *, sync: int = ..., domain: str = ""
    ) -> None: ...
    router: Router
    name: str
    log: Log
    sync: int
    visible: int  # acks and deliveries exist for messages up to this sequence
    closed: bool
    failure: str  # why the log can't write; "" while it can
    unread: str  # why the disk last refused to give a message back; "": nothing was refused since read_again()
    rules: Rules | None
    """The rules of the stream's rarer features. None: messages that need one are refused as by a stream without it."""
    batched: (
        FastBatchHandler | None
    )  # takes the messages of fast-ingest batches; None: they are refused
    gathered: (
        AtomicBatchHandler | None
    )  # takes the messages of atomic batches; None: they are refused
    every: bool  # rules are asked for each message (STAGE_ARRIVED, STAGE_COUNT), not only for those with rare headers
    def store(
        self,
        subject: str,
        payload: bytes,
        headers: bytes = b"",
        *,
        seq: int = 0,
        ts_ns: int = 0,
        flags: int = 0,
    ) -> int:
        """Store a message as it is, after the limits of discard new only; its sequence.

        For messages whose checks were made elsewhere or that are the server's own: committed batches, markers, sourced messages.
        Rules are asked at STAGE_STORED only. Nats-Msg-Id is remembered. `seq`: the sequence it must have (a mirror; what is between is skipped); `ts_ns`: 0 = now.
        Raises StreamRefused (discard new, disk); ValueError when the sequence is taken.
        """
    def answer(self, reply: str, text: bytes, *, after_seq: int = 0) -> None:
        """Send a publisher its answer in the order of the stream's acks, once the stream is durable up to a sequence."""
    def announce(self, subject: str, payload: bytes, headers: bytes, *, after_seq: int) -> None:
        """Publish a message in the order of the stream's acks, once the stream is durable up to a sequence."""
    def duplicate_of(self, message_id: bytes) -> int:
        """The sequence of the message with this id inside the duplicate window, or 0."""
    def ack_text(self, seq: int, extra: bytes = b"") -> bytes:
        """The PubAck of a stored message; `extra`: further members, b',"batch":"x","count":2'."""
    def error_text(self, code: int, err_code: int, description: str) -> bytes:
        """The PubAck that says why not."""
    def configure(
        self,
        *,
        max_msgs: int = -1,
        max_bytes: int = -1,
        max_age_ns: int = 0,
        max_msgs_per_subject: int = -1,
        max_msg_size: int = -1,
        discard_new: bool = False,
        discard_new_per_subject: bool = False,
        duplicate_window_ns: int = 120_000_000_000,
        no_ack: bool = False,
        sealed: bool = False,
        retention: Callable[[Stream], Any] | None = None,
        selective: bool = False,
    ) -> None:
        """Set or change the rules; limits that became lower are enforced at once. Called for create, recovery and update."""
    def review(self, start: int = 0, orphans: bool = False) -> None:
        """Remove what no consumer needs any more, from a sequence on; `orphans`: also what no consumer's filters take.

        The engine calls it when a consumer is gone or has other filters, and when all are recovered. Does nothing when messages
        are kept by limits. A large stream is looked through in the turns to come.
        """
    def takers(self, subject: str) -> list[Consumer]:
        """The consumers that take messages of a literal subject."""
    def rebuild_dedupe(self) -> int:
        """After opening a log: read back the message ids inside the duplicate window; how many."""
    def rebuilding(self) -> Iterator[None]:
        """As rebuild_dedupe, a step for each item."""
    def publish(self, subject: str, payload: bytes, headers: bytes = b"") -> int:
        """A message from inside; its sequence. Raises StreamRefused(code, err_code, description) as the PubAck error would say."""
    def settle(self) -> None:
        """Commit at the end of the turn what was removed outside of a publish."""
    def purge(self, *, subject: str = "", below: int = 0, keep: int = 0) -> int:
        """Remove messages, move consumers along; how many were removed."""
    def told(self) -> None:
        """Messages were removed from the log behind the stream's back: consumers look for themselves."""
    def delete_message(self, seq: int, erase: bool) -> bool: ...
    def when_removed(self, then: Callable[[], None]) -> None:
        """Call then() when all removals so far are as durable as the stream promises of messages."""
    def expire(self) -> int:
        """Remove what is older than max_age at the reactor's time, forget old message ids; when to call again (ns, 0 = not needed)."""
    def mend(self) -> bool | None:
        """Try to take messages again after a failure, a piece per call; True: they are taken, False: there is more to do, None: the
        disk can't yet. To be called while `failure` is set. What waited for the disk is acknowledged then; who waits for a message
        that was lost gets an error.
        """
    def owe(self, error: OSError, call: Callable[[], None] | None) -> None:
        """For the engine, at an opening: no message is taken before `call` has done what the disk has refused. It raises OSError."""
    def read_again(self) -> None:
        """For the engine, some time after `unread` was set: who could not read tries again."""
    def sync_soon(self) -> None:
        """For SYNC_INTERVAL: start an fsync of everything accepted, unless one is running. Nobody waits for it."""
    def consumers(self) -> list[Consumer]: ...
    def close(self) -> None:
        """Stop taking messages; consumers are closed by the engine first."""

class StreamRefused(Exception):
    code: int
    err_code: int
    description: str
