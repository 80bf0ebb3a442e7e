from penstock.core.clock import Clock

class Task: ...
class Synced(Task): ...

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
    def pending_bytes(self) -> int: ...
    def subscription_count(self) -> int: ...
    def write(self, data: bytes) -> None:
        """Protocol bytes to this client, in order with everything else it gets."""
    def take(self) -> bytes:
        """Adapters and tests: the waiting output, which leaves the buffer."""

class Hub:
    """The shared state of a server without sockets: tests and simulations use it as it is."""

    def __init__(self, clock: Clock, seed: int = 1) -> None: ...
    clock: Clock
    now_ns: int
    max_pending: int
    max_payload: int
    max_line: int
    in_msgs: int
    in_bytes: int
    out_msgs: int
    out_bytes: int
    slow_consumers: int
    turns: int
    def all_connections(self) -> list[Connection]: ...
    def turn(self) -> bool:
        """Take the clock's time and finish a turn: commits, deliveries, output. True when there is more to do at once."""
    def disconnect(self, connection: Connection, reason: str) -> None: ...
