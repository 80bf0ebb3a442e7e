"""A stream: its parts, and its methods for the engine."""

from collections.abc import Callable, Iterator
from typing import Any

from pelton.core.broker.router import Router, Sink
from pelton.core.consumer.consumer import Consumer
from pelton.core.log.log import Log
from pelton.core.stream.publish import PublishPath
from pelton.core.stream.publish import StreamRefused as StreamRefused

SYNC_ALWAYS: int  # acks and deliveries wait for the fsync (group commit)
SYNC_INTERVAL: int  # acks wait for the write only; the engine calls sync_soon() at intervals

class Stream(Sink):
    """One stream. The engine makes it and attaches it to its subjects with ``router.attach``."""

    def __init__(
        self, router: Router, name: str, log: Log, *, sync: int = ..., domain: str = ""
    ) -> None: ...
    router: Router
    name: str
    log: Log
    sync: int
    visible: int  # acks and deliveries exist for messages up to this sequence
    all_durable: bool  # whether all messages so far are as durable as the stream promises
    closed: bool
    failure: str  # why the log can't write; "" while it can
    unread: str  # why the disk could not read a message; "": no read failed since read_again()
    path: PublishPath  # takes publishes; rules and batches are set there
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
        dialect: str = "",
    ) -> None:
        """Set or change the configuration; limits that became lower are enforced at once. Called at create, recovery and update.
        `dialect`: of the answers to publishes, "" today's, or "2019", "2020".
        """
    def review(self, start: int = 0, orphans: bool = False) -> None:
        """Remove the messages from a sequence on that no consumer needs any more; `orphans`: also those that no consumer's filters match.

        The engine calls it when a consumer is removed or its filters have changed, and when all consumers are recovered. Does nothing under
        limits retention. In a large stream the work continues in the next turns.
        """
    def takers(self, subject: str) -> list[Consumer]:
        """The consumers that take messages of a literal subject."""
    def rebuild_dedupe(self) -> int:
        """After the log is opened: rebuild the message ids inside the duplicate window; returns how many."""
    def rebuilding(self) -> Iterator[None]:
        """As rebuild_dedupe, in steps: each item is one step."""
    def publish(self, subject: str, payload: bytes, headers: bytes = b"") -> int:
        """Publish a message of the server; returns its sequence. Raises StreamRefused(code, err_code, description) as in the error PubAck."""
    def settle(self) -> None:
        """Commit removals that were made outside of a publish, at the end of the turn."""
    def purge(self, *, subject: str = "", below: int = 0, keep: int = 0) -> int:
        """Remove messages and move the consumers along; returns how many were removed."""
    def told(self) -> None:
        """Messages were removed from the log directly: let the consumers look at the log again."""
    def delete_message(self, seq: int, erase: bool) -> bool: ...
    def when_removed(self, then: Callable[[], None]) -> None:
        """Call then() when all removals so far are as durable as the stream promises for messages."""
    def expire(self) -> int:
        """Remove the messages older than max_age at the reactor's time, forget old message ids; when to call again (ns, 0 = not needed)."""
    def mend(self) -> bool | None:
        """Try to take messages again after a failure, one piece per call. To be called while `failure` is set.

        True: the stream takes messages again; False: there is more to do; None: the disk fails still. After that, waiting PubAcks are
        sent; the publisher of a lost message gets an error.
        """
    def defer(self, error: OSError, call: Callable[[], None] | None) -> None:
        """For the engine, at an opening: take no message before `call` has done a write that the disk has refused. `call` raises OSError."""
    def read_again(self) -> None:
        """For the engine, some time after `unread` was set: let the readers try again."""
    def sync_soon(self) -> None:
        """For SYNC_INTERVAL: start an fsync of everything accepted, unless one is running. No ack waits for it."""
    def consumers(self) -> list[Consumer]: ...
    def close(self) -> None:
        """Stop taking messages. The engine closes the consumers first."""
