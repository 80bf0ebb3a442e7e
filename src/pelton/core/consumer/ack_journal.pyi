"""The ack journal of one stream: an append-only file with its consumers' states and the acks that ask for a confirmation."""

from collections.abc import Callable

from pelton.core.base.disk import Disk
from pelton.core.broker.reactor import Reactor
from pelton.core.consumer.consumer import Consumer

class AckJournal:
    """Confirms acks when they are written, or (durable) synced: the acks of one turn share one write and one fsync."""

    def __init__(
        self, reactor: Reactor, disk: Disk, folder: str, *, durable: bool, cipher: object = None
    ) -> None:
        """Creates no file before the first write. `cipher`: the stream's data keys, if it is encrypted."""
    number: int  # of the file that is written, or was last written
    since_bytes: int  # bytes of the records since the base
    keep_bytes: int  # a journal below this size gets no new base: 1 MiB by default
    broken: bool  # acks can't be confirmed until rebase() has succeeded
    on_failure: Callable[[OSError], None] | None
    """Called when acks can't be confirmed: they wait until rebase() has succeeded, see wants_base()."""
    def begin(
        self,
        *,
        oldest: int,
        number: int,
        size_bytes: int,
        base_bytes: int,
        base_slot: int,
        base_upto: int,
    ) -> None:
        """Continue after the files that recovery has read: the oldest, the newest, bytes of the journal since the base, bytes of the base,
        which of the two base files it is, the newest journal file that it includes.
        """
    def watch(self, consumer: Consumer, created_ns: int) -> None:
        """Confirm the acks of a consumer from now on, and keep its state."""
    def forget(self, consumer: Consumer) -> None:
        """The consumer is removed: its waiting acks get no answer."""
    def save(self, consumers: list[Consumer]) -> list[bytes]:
        """Write the present states of these consumers, and return them. Does not wait for the sync. Raises OSError when the write fails."""
    def wants_base(self) -> bool:
        """Whether to call rebase(): the journal is long, or a failure made it doubtful."""
    def rebase(self, data: bytes, *, now: bool = False) -> None:
        """Replace the base by the present states of all consumers. `now`: return after the base is synced.

        Raises OSError when that fails; the former base and the journal stay.
        """
    def close(self) -> None:
        """Write nothing more, and close the files when no sync uses them."""
