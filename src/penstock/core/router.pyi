from collections.abc import Callable

from penstock.core.hub import Connection, Hub, Task

class Sink:
    as_client: bool  # of a consumer's deliveries: sees the message's own subject, as a client does

class CallbackSink(Sink):
    """A Sink in Python: callback(connection | None, subject, reply, headers, payload) -> bool (taken). For rare messages."""

    def __init__(
        self, callback: Callable[[Connection | None, str, str, bytes, bytes], bool]
    ) -> None: ...

class CallbackTask(Task):
    """A Task in Python, to be given to ``Router.watch``: callback() when interest comes or goes."""

    def __init__(self, callback: Callable[[], None]) -> None: ...

class Subscription:
    sid: bytes
    subject: bytes
    queue: bytes
    delivered: int
    closed: bool

class Router:
    """One account's subjects."""

    def __init__(self, hub: Hub) -> None: ...
    def attach(self, pattern: str, sink: Sink) -> None:
        """The sink takes every message whose subject matches the pattern."""
    def detach(self, pattern: str, sink: Sink) -> bool: ...
    def attach_prefix(self, prefix: str, sink: Sink) -> None:
        """The sink is asked first for every subject that starts with the prefix (`$JS.ACK.`, `$JS.API.`)."""
    def watch(self, subject: str, task: Task) -> None:
        """Wake the task when a subscription that matches this literal subject comes."""
    def unwatch(self, subject: str, task: Task) -> None: ...
    def has_interest(self, subject: str, queue: str = "") -> bool:
        """Whether somebody is subscribed (in that queue group)."""
    def publish_message(
        self, subject: str, payload: bytes, reply: str = "", headers: bytes = b""
    ) -> int:
        """A message from inside, to subscribers and sinks; how many took it."""
    announcers: list[Callable[[], list[bytes]]]
    """Lists of patterns that prefix sinks stand for, for other servers."""
    def announce(self, pattern: bytes, delta: int) -> None:
        """What a prefix sink takes has become more or less by this pattern."""
    def subscription_count(self) -> int: ...
