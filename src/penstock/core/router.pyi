from collections.abc import Callable

from penstock.core.hub import Connection, Hub, Task
from penstock.core.subjects import SubjectTrie

class Sink:
    as_client: bool  # of a consumer's deliveries: sees the message's own subject, as a client does

class Border:
    """What an account shares with others (core/exchange)."""

class CallbackSink(Sink):
    """A Sink in Python: callback(connection | None, subject, reply, headers, payload) -> bool (taken). For rare messages."""

    def __init__(
        self, callback: Callable[[Connection | None, str, str, bytes, bytes], bool]
    ) -> None: ...

class Subscription:
    sid: bytes
    subject: bytes
    queue: bytes
    delivered: int
    closed: bool
    @property
    def max(self) -> int:
        """Ends after that many deliveries; 0: never."""
    def client(self) -> Connection:
        """The connection it belongs to."""

class Router:
    """One account's subjects."""

    traces: (
        bool  # the account has a destination for traces: each message with headers is asked about
    )
    trie: SubjectTrie
    def __init__(self, hub: Hub) -> None: ...
    def attach(self, pattern: str, sink: Sink) -> None:
        """The sink takes every message whose subject matches the pattern."""
    def detach(self, pattern: str, sink: Sink) -> bool: ...
    border: Border | None  # what it shares with other accounts
    mapping: (
        Callable[[str], str | None] | None
    )  # of subjects that clients publish to; None as the answer: nowhere
    def share(self, pattern: str, sink: Sink) -> None:
        """As attach(), of what stands for subscribers elsewhere."""
    def unshare(self, pattern: str, sink: Sink) -> None: ...
    def attach_prefix(self, prefix: str, sink: Sink) -> None:
        """The sink is asked first for every subject that starts with the prefix (`$JS.ACK.`, `$JS.API.`)."""
    def detach_prefix(self, sink: Sink) -> None:
        """Undo attach_prefix(), all of this sink's."""
    def watch(self, subject: str, task: Task) -> None:
        """Wake the task when a subscription that matches this literal subject comes."""
    def unwatch(self, subject: str, task: Task) -> None: ...
    def has_interest(self, subject: str, queue: str = "") -> bool:
        """Whether somebody is subscribed (in that queue group)."""
    def publish_message(
        self, subject: str, payload: bytes, reply: str = "", headers: bytes = b""
    ) -> int:
        """A message from inside, to subscribers and sinks; how many took it."""
    def matching(self, subject: str) -> list[Subscription]:
        """The subscriptions of clients that match a literal subject, members of queue groups too."""
    def subscription_count(self) -> int: ...
