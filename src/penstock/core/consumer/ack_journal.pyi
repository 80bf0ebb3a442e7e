"""The journal of one stream's consumers: their states, and the acks that were to be confirmed, appended to a file."""

from collections.abc import Callable

from penstock.core.base.disk import Disk
from penstock.core.broker.reactor import Reactor
from penstock.core.consumer.consumer import Consumer

class AckJournal:
    """Acks that ask for an answer get it when they are written, or (durable) on the disk: one write and one fsync for those of a turn."""

    def __init__(
        self, reactor: Reactor, disk: Disk, folder: str, *, durable: bool, cipher: object = None
    ) -> None:
        """Nothing is touched before something is written. `cipher`: the stream's data keys, if it is encrypted."""
    number: int  # of the file that is written, or was last
    since_bytes: int  # in the files since the base
    keep_bytes: int  # a journal below this is not worth a new base: 1 MiB unless set
    broken: bool  # acks can't be confirmed until rebase() has worked
    on_failure: Callable[[OSError], None] | None
    """Called when acks can't be confirmed: they wait until rebase() has worked, see wants_base()."""
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
        """The files that are there were read: the oldest, the newest, bytes of those behind the base, bytes of the base, which of
        the two it is, the file that it includes. New ones go on behind them.
        """
    def watch(self, consumer: Consumer, created_ns: int) -> None:
        """Confirm the acks of a consumer from now on."""
    def forget(self, consumer: Consumer) -> None:
        """A consumer is gone; nobody is answered who waits."""
    def save(self, consumers: list[Consumer]) -> list[bytes]:
        """Write the states of these consumers as they are now, and return them; nobody waits for their sync. OSError: it could
        not be done.
        """
    def wants_base(self) -> bool:
        """It is time for rebase(): the journal is long, or a failure made it doubtful."""
    def rebase(self, data: bytes, *, now: bool = False) -> None:
        """Replace the base by the states of all consumers as they are now. `now`: it is on the disk when this returns.

        OSError: it could not be done; the former base and the journal stay.
        """
    def close(self) -> None:
        """Nothing is written any more."""
