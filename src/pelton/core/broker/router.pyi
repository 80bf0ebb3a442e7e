from collections.abc import Callable

from pelton.core.broker.reactor import Reactor, Task
from pelton.core.broker.receivers import Border as Border
from pelton.core.broker.receivers import CallbackSink as CallbackSink
from pelton.core.broker.receivers import Sink as Sink
from pelton.core.broker.receivers import Subscription as Subscription
from pelton.core.protocol.subjects import SubjectTrie

class Router:
    """One account's subjects."""

    traces: (
        bool  # the account has a trace destination: the router checks each message that has headers
    )
    trie: SubjectTrie
    def __init__(self, reactor: Reactor) -> None: ...
    def attach(self, pattern: str, sink: Sink) -> None:
        """The sink takes every message whose subject matches the pattern."""
    def detach(self, pattern: str, sink: Sink) -> bool: ...
    border: Border | None  # the account's imports and exports
    mapping: (
        Callable[[str], str | None] | None
    )  # maps the subjects that clients publish to; an answer of None: the message goes nowhere
    def share(self, pattern: str, sink: Sink) -> None:
        """As attach(), for a sink that stands for subscribers in another account."""
    def unshare(self, pattern: str, sink: Sink) -> None: ...
    def attach_prefix(self, prefix: str, sink: Sink, offered: bool = False) -> None:
        """The sink is asked first for every subject that starts with the prefix (`$JS.ACK.`, `$JS.API.`).

        `offered`: other servers may use the prefix, too.
        """
    def detach_prefix(self, sink: Sink) -> None:
        """Undo attach_prefix() for all prefixes of this sink."""
    def watch(self, subject: str, task: Task) -> None:
        """Wake the task when a subscription that matches this literal subject comes or goes."""
    def unwatch(self, subject: str, task: Task) -> None: ...
    def has_interest(self, subject: str, queue: str = "") -> bool:
        """Whether there is a subscriber (in that queue group)."""
    def has_listener(self, subject: str) -> bool:
        """Whether a subscription has exactly this subject, here or on another server; wildcards and queue groups don't count."""
    def publish_message(
        self, subject: str, payload: bytes, reply: str = "", headers: bytes = b""
    ) -> int:
        """Publish a message of the server to subscribers and sinks; the number of receivers that took it."""
    announcers: list[Callable[[], list[bytes]]]
    """Lists of patterns of prefix sinks, for other servers."""
    def announce(self, pattern: bytes, delta: int) -> None:
        """The subjects that prefix sinks take have grown or shrunk by this pattern."""
    def matching(self, subject: str) -> list[Subscription]:
        """The clients' subscriptions that match a literal subject, members of queue groups too."""
    def subscription_count(self) -> int: ...
