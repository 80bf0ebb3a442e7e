"""Errors that users of Penstock see.

::

    PenstockError
    ├── ConnectError                no server could be reached, or none would have us
    │   └── AuthenticationError     a server refused the credentials
    ├── ConnectionClosed            the client was closed; nothing works on it any more
    │   └── ConnectionLost          the connection broke while an answer was outstanding
    ├── Timeout                     nothing came in time (also a builtin TimeoutError)
    ├── NoResponders                nobody listens on the subject of a request
    ├── SlowConsumer                a subscription dropped messages because it was read too slowly
    ├── ClientInUse                 another thread uses the blocking client (also a RuntimeError)
    ├── CallbackFailed              the callback of a subscription raised; ``__cause__`` says what
    ├── OutputFull                  too much output waits for a connection that is not there
    ├── ProtocolError               the peer sent bytes that are not the protocol
    ├── ServerError                 the server answered -ERR; ``text`` is what it said
    │   └── PermissionsViolation    ... because the user may not publish or subscribe there
    ├── InvalidSubject              a subject that cannot be sent (also a builtin ValueError)
    ├── PayloadTooLarge             headers and payload are too much (also a ValueError)
    ├── NotJetStreamMessage         the message was not delivered by a consumer (also a ValueError)
    ├── PullError                   a pull request ended with a status that is an error
    │   └── ConsumerDeleted         ... because its consumer is gone
    ├── PublishFailed               some messages of a publisher were not acknowledged
    ├── BatchEnded                  a fast batch ended before all of its messages were stored
    └── ApiError                    JetStream refused: ``code``, ``err_code``, ``description``
        ├── StreamNotFound              10059
        ├── ConsumerNotFound            10014
        ├── MessageNotFound             10037
        ├── StreamExists                10058
        ├── WrongLastSequence           10071, an expectation of the publisher does not hold
        └── one class for each other error code, in ``penstock.api.errors_generated``

This module knows nothing of connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class PenstockError(Exception):
    """Base of every error of this package that a caller may want to handle."""


class ConnectError(PenstockError):
    """No server could be reached, or none would have us; the text says why for each."""


class AuthenticationError(ConnectError):
    """A server refused the credentials."""


class ConnectionClosed(PenstockError):
    """The client was closed, by its owner or because no server could be reached again.

    ``subject`` is the subscription's where a subscription ended because of it, else "".
    """

    def __init__(self, text: str = "", subject: str = "") -> None:
        """The text says why."""
        super().__init__(text)
        self.subject = subject


class ConnectionLost(ConnectionClosed):
    """The connection broke while an answer was outstanding; whether the server acted is unknown."""


class Timeout(PenstockError, TimeoutError):
    """Nothing came in time."""


class NoResponders(PenstockError):
    """Nobody listens on the subject of a request."""

    def __init__(self, subject: str) -> None:
        """The subject that was asked."""
        super().__init__(f"no responders on {subject!r}")
        self.subject = subject

    def __reduce__(self) -> tuple[type[NoResponders], tuple[str]]:
        """Copies and pickles are made from the same parts."""
        return type(self), (self.subject,)


class SlowConsumer(PenstockError):
    """A subscription dropped ``dropped`` messages because its pending limits were reached."""

    def __init__(self, subject: str, dropped: int) -> None:
        """The subscription, and how many messages it lost."""
        super().__init__(f"slow consumer: {dropped} messages dropped on {subject!r}")
        self.subject = subject
        self.dropped = dropped

    def __reduce__(self) -> tuple[type[SlowConsumer], tuple[str, int]]:
        """Copies and pickles are made from the same parts."""
        return type(self), (self.subject, self.dropped)


class ClientInUse(PenstockError, RuntimeError):
    """A blocking client was called while a call of another thread was under way; nothing was sent."""

    def __init__(
        self,
        text: str = "another thread is using this blocking client, and nothing was sent: "
        "give each thread a client of its own",
    ) -> None:
        """The text says what to do."""
        super().__init__(text)


class CallbackFailed(PenstockError):
    """The callback of a subscription raised: ``subject`` is the subscription's, ``message`` the one
    that it was called with, ``__cause__`` what it raised.
    """

    def __init__(self, text: str, subject: str = "", message: object = None) -> None:
        """The text names all of it."""
        super().__init__(text)
        self.subject = subject
        self.message = message


class OutputFull(PenstockError):
    """Too much output waits for a connection that is not there; the message was not taken."""


class ProtocolError(PenstockError):
    """The peer sent bytes that are not the protocol."""


class ServerError(PenstockError):
    """The server answered ``-ERR``; ``text`` is what it said, without the quotes."""

    def __init__(self, text: str) -> None:
        """The text without quotes."""
        super().__init__(text)
        self.text = text


class PermissionsViolation(ServerError):
    """The user may not publish or subscribe there; the connection stays open."""


class InvalidSubject(PenstockError, ValueError):
    """A subject that cannot be sent: empty tokens, blanks, a wildcard in a literal."""


class PayloadTooLarge(PenstockError, ValueError):
    """Headers and payload together exceed what the server accepts."""


class NotJetStreamMessage(PenstockError, ValueError):
    """The message was not delivered by a consumer: its reply subject is no ack subject."""


class PullError(PenstockError):
    """A pull request ended with a status that is an error; ``status`` and ``description`` are the
    server's.
    """

    def __init__(self, status: int, description: str) -> None:
        """As the server said it."""
        super().__init__(f"pull request ended: {status} {description}")
        self.status = status
        self.description = description

    def __reduce__(self) -> tuple[type[PullError], tuple[int, str]]:
        """Copies and pickles are made from the same parts."""
        return type(self), (self.status, self.description)


class ConsumerDeleted(PullError):
    """A pull request ended because its consumer is gone."""


class PublishFailed(PenstockError):
    """Some messages of a publisher were not acknowledged.

    ``failures`` holds (subject, message id or "", error) of each, in the order in which they
    failed.
    """

    def __init__(self, failures: Sequence[tuple[str, str, Exception]]) -> None:
        """At least one failure."""
        first = failures[0]
        super().__init__(
            f"{len(failures)} messages not acknowledged; first: {first[0]!r}: {first[2]}"
        )
        self.failures = list(failures)

    def __reduce__(self) -> tuple[type[PublishFailed], tuple[list[tuple[str, str, Exception]]]]:
        """Copies and pickles are made from the same parts."""
        return type(self), (self.failures,)


class BatchEnded(PenstockError):
    """A fast batch ended early: of ``sent`` messages the first ``count`` are stored.

    ``failures`` says which message the stream refused, and why; it is empty when messages were lost
    on the way.
    """

    def __init__(
        self, sent: int, count: int, failures: Sequence[tuple[int, PenstockError]] = ()
    ) -> None:
        """Numbers of messages; failures as (number of the message, error)."""
        why = f": message {failures[0][0]}: {failures[0][1]}" if failures else ""
        super().__init__(f"the batch ended after {count} of {sent} messages{why}")
        self.sent = sent
        self.count = count
        self.failures = list(failures)

    def __reduce__(self) -> tuple[type[BatchEnded], tuple[object, ...]]:
        """Copies and pickles are made from the same parts."""
        return type(self), (self.sent, self.count, self.failures)


class ApiError(PenstockError):
    """JetStream answered with an error; ``penstock.api.errors_generated`` has a class for each
    documented one.

    ``code`` is the HTTP-like class (404, 400, 503 ...), ``err_code`` the exact error (10059 ...; 0
    when the server gave none), ``description`` its text.
    """

    code: int
    err_code: int
    description: str


class StreamNotFound(ApiError):
    """There is no stream of that name."""


class ConsumerNotFound(ApiError):
    """There is no consumer of that name on the stream."""


class MessageNotFound(ApiError):
    """The stream holds no message of that sequence or subject."""


class StreamExists(ApiError):
    """A stream of that name exists with another configuration."""


class WrongLastSequence(ApiError):
    """The expected last sequence does not hold: nothing was stored."""
