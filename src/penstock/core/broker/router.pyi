from collections.abc import Callable

from penstock.core.broker.reactor import Reactor, Task
from penstock.core.broker.receivers import Border as Border
from penstock.core.broker.receivers import CallbackSink as CallbackSink
from penstock.core.broker.receivers import Sink as Sink
from penstock.core.broker.receivers import Subscription as Subscription
from penstock.core.protocol.subjects import SubjectTrie

class Router:
    """One account's subjects."""

    traces: (
        bool  # the account has a destination for traces: each message with headers is asked about
    )
    trie: SubjectTrie
    def __init__(self, reactor: Reactor) -> None: ...
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
    def attach_prefix(self, prefix: str, sink: Sink, offered: bool = False) -> None:
        """The sink is asked first for every subject that starts with the prefix (`$JS.ACK.`, `$JS.API.`).

        `offered`: to other servers, too.
        """
    def detach_prefix(self, sink: Sink) -> None:
        """Undo attach_prefix(), all of this sink's."""
    def watch(self, subject: str, task: Task) -> None:
        """Wake the task when a subscription that matches this literal subject comes."""
    def unwatch(self, subject: str, task: Task) -> None: ...
    def has_interest(self, subject: str, queue: str = "") -> bool:
        """Whether somebody is subscribed (in that queue group)."""
    def has_listener(self, subject: str) -> bool:
        """Whether a subscription names this very subject, here or on another server; wildcards and queue groups don't count."""
    def publish_message(
        self, subject: str, payload: bytes, reply: str = "", headers: bytes = b""
    ) -> int:
        """A message from inside, to subscribers and sinks; how many took it."""
    announcers: list[Callable[[], list[bytes]]]
    """Lists of patterns that prefix sinks stand for, for other servers."""
    def announce(self, pattern: bytes, delta: int) -> None:
        """What a prefix sink takes has become more or less by this pattern."""
    def matching(self, subject: str) -> list[Subscription]:
        """The subscriptions of clients that match a literal subject, members of queue groups too."""
    def subscription_count(self) -> int: ...
