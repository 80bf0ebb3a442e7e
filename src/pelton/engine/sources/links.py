"""Links to the JetStream API of an origin: requests, subscriptions, publishes.

    RouterLink    the subjects of the account: a consumer of this server, or another service under the
                  API prefix
    OriginLink    another NATS server, under the API prefix of its domain: server/origin_servers

A link does not block and keeps the order of one direction only. It knows no streams.
"""

from collections.abc import Callable
from typing import Protocol

from pelton.api.subjects import API_PREFIX
from pelton.core.broker.reactor import CallbackTask, Connection
from pelton.core.broker.router import CallbackSink, Router
from pelton.nuid import Nuid

Receive = Callable[[str, str, bytes, bytes], None]
"""Called with subject, reply, headers and payload of a message."""


class Subscribed(Protocol):
    """A subscription of a link."""

    def close(self) -> None:
        """End the subscription: no more messages are delivered."""


class Link(Protocol):
    """The connection of an upstream to its origin's server."""

    prefix: str
    """The prefix of API subjects here, instead of `$JS.API`."""

    @property
    def up(self) -> bool:
        """Whether a message that is sent now may arrive."""

    def publish(self, subject: str, reply: str, headers: bytes, payload: bytes) -> None:
        """Send a message; `subject` is a subject of the origin's server."""

    def subscribe(self, subject: str, receive: Receive) -> Subscribed:
        """Subscribe to a subject of the origin's server."""

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` whenever the link goes up or down. The returned function ends that."""


class RouterLink:
    """A link over the subjects of the account, with `$JS.API` under another prefix."""

    up = True

    def __init__(self, router: Router, prefix: str = API_PREFIX) -> None:
        """`api` is the prefix."""
        self.prefix = prefix
        self._router = router

    def publish(self, subject: str, reply: str, headers: bytes, payload: bytes) -> None:
        """Publish to the account."""
        if subject.startswith(f"{API_PREFIX}.") and self.prefix != API_PREFIX:
            subject = self.prefix + subject.removeprefix(API_PREFIX)
        self._router.publish_message(subject, payload, reply, headers)

    def subscribe(self, subject: str, receive: Receive) -> Subscribed:
        """Subscribe on the account's router."""
        return _RouterSubscription(self._router, subject, receive)

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Do nothing: the link never goes down. The service behind the prefix may come and go, for
        example on a leaf node.
        """
        if self.prefix == API_PREFIX:
            return lambda: None
        subject = f"{self.prefix}.CONSUMER.CREATE.any"
        there = self._router.has_interest(subject)

        def look() -> None:
            nonlocal there
            before, there = there, self._router.has_interest(subject)
            if there and not before:
                changed()

        task = CallbackTask(look)
        self._router.watch(subject, task)
        return lambda: self._router.unwatch(subject, task)


class _RouterSubscription:
    def __init__(self, router: Router, subject: str, receive: Receive) -> None:
        self._router = router
        self._subject = subject
        self._receive = receive
        self._sink = CallbackSink(self._take)
        self._sink.as_client = True
        router.attach(subject, self._sink)

    def _take(
        self, _: Connection | None, subject: str, reply: str, headers: bytes, payload: bytes
    ) -> bool:
        self._receive(subject, reply, headers, payload)
        return True

    def close(self) -> None:
        self._router.detach(self._subject, self._sink)


def inbox(ids: Nuid, kind: str) -> str:
    """Return a new subject for answers (`R`), or for the messages of a mirror (`M`) or source
    (`S`).
    """
    return f"$JS.{kind}.{ids.next()}"
