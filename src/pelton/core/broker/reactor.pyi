from collections.abc import Callable
from typing import Any

from pelton.core.base.clock import Clock
from pelton.core.broker.turn_budget import TurnBudget
from pelton.core.protocol.permissions import ConnectionPermissions

SLOW_PENDING: str

class Task: ...
class Synced(Task): ...

class HandedSync:
    """A requested fsync that runs until `end` is called; passed to `Reactor.on_sync`."""

    handle: int  # of the file or folder, as the disk gave it
    ended: bool
    def end(self, error: int = 0) -> None:
        """End the fsync with an errno (0: success); the stream goes on. Raises RuntimeError when it had ended already."""

class CallbackTask(Task):
    """A Task in Python for ``Router.watch``: callback() is called when interest comes or goes."""

    def __init__(self, callback: Callable[[], None]) -> None: ...

class Trace:
    """A traced message and its events: tuples, in the order in which they happen.

    ("eg", Subscription, reason: "" when delivered); ("js", stream, subject, no interest, reason:
    "" when stored); ("sm", subject after a mapping); ("si", exporter, from, to); ("se", importer,
    its subject, the exporter's).
    """

    only: bool
    events: list[tuple[Any, ...]]
    def __init__(self, only: bool = False) -> None: ...

class Connection:
    id: int
    transport: object
    session: object
    verbose: bool
    pedantic: bool
    echo: bool
    headers: bool
    no_responders: bool
    ready: bool
    ponged: bool  # a PING after its CONNECT was answered
    closed: bool
    closing: bool
    reason: str
    in_msgs: int
    out_msgs: int
    in_bytes: int
    out_bytes: int
    start_ns: int
    last_ns: int
    pings_out: int
    subscription_bytes: int  # memory that its subscriptions may take
    partial_ns: int  # since when an operation is incomplete; 0: none is
    ping_ns: int
    rtt_ns: int
    stalls: int
    max_subscriptions: int  # of this connection; below 0: no limit
    permissions: (
        ConnectionPermissions | None
    )  # None: everything; after a change call Sessions.recheck for the existing subscriptions
    stalled: bool  # not read from now: adapters stop reading, too
    def pending_bytes(self) -> int: ...
    def buffered(self) -> int:
        """Bytes of memory that its buffers hold now."""
    def subscription_count(self) -> int: ...
    def all_subscriptions(self) -> list[Any]: ...
    def fail(self, text: bytes, reason: str) -> None:
        """Write ``-ERR 'text'``, flush, and close for that reason."""
    def limit(self, max_line: int, max_payload: int) -> None:
        """Limits of this connection alone."""
    def set_blocked(self, blocked: bool) -> None:
        """For adapters: the transport takes no more bytes (True), or takes bytes again (False)."""
    def write(self, data: bytes) -> None:
        """Append protocol bytes to this client's output."""
    def take(self) -> bytes:
        """For adapters and tests: remove the waiting output from the buffer and return it."""

class Reactor:
    """The shared state of a server without sockets: tests and simulations use it as it is."""

    def __init__(self, clock: Clock, seed: int = 1) -> None: ...
    clock: Clock
    now_ns: int
    budget: TurnBudget
    max_pending: int
    max_payload: int
    max_line: int
    max_output_bytes: int  # of all blocked connections together; above it those with the most output are closed; 0: no limit
    max_subscription_bytes: int  # of all connections; one may have half of it; 0: no limit
    subscription_bytes: int
    drop_for_slow: (
        bool  # a congested subscriber misses messages, so that it does not stall the publisher
    )
    in_msgs: int
    in_bytes: int
    out_msgs: int
    out_bytes: int
    slow_consumers: int
    turns: int
    stalls: int
    commit_runs: int
    sync_runs: int
    trace: Trace | None
    on_close: Callable[[Connection], object] | None
    on_error: Callable[[BaseException], object] | None
    on_sync: Callable[[HandedSync], object] | None
    """Without sockets: None: syncs happen in place; else called with each HandedSync, which the test ends."""
    trace_log: Any
    """The trace log, or None: received(connection, operation, body, its header bytes) and
    sent(connection, whole operations).
    """
    def all_connections(self) -> list[Connection]: ...
    def turn(self) -> bool:
        """Take the clock's time and finish a turn: commits, deliveries, output. True when there is more to do at once."""
    def settle(self, limit: int = 1000) -> int:
        """Run turns until nothing is left to do; return how many. Raises RuntimeError when the limit is reached."""
    def rewind(self, now_ns: int) -> None: ...
    def disconnect(self, connection: Connection, reason: str) -> None: ...
