r"""Errors that users of Penstock see.

::

    PenstockError
    ├── ConnectError                no server could be reached, or none would have us
    │   └── AuthenticationError     a server refused the credentials
    ├── ConnectionClosed            the client was closed; nothing works on it any more
    │   └── ConnectionLost          the connection broke while an answer was outstanding
    ├── Timeout                     nothing came in time (also a builtin TimeoutError)
    ├── NoResponders                nobody listens on the subject of a request
    ├── SlowConsumer                a subscription dropped messages because it was read too slowly
    ├── OutputFull                  too much output waits for a connection that is not there
    ├── ProtocolError               the peer sent bytes that are not the protocol
    ├── ServerError                 the server answered -ERR; ``text`` is what it said
    │   └── PermissionsViolation    ... because the user may not publish or subscribe there
    ├── InvalidSubject              a subject that cannot be sent (also a builtin ValueError)
    ├── PayloadTooLarge             headers and payload exceed the server's limit (also a ValueError)
    ├── NotJetStreamMessage         the message was not delivered by a consumer (also a ValueError)
    ├── PullError                   a pull request ended with a status that is an error
    │   └── ConsumerDeleted         ... because its consumer is gone
    ├── PublishFailed               some messages of a publisher were not acknowledged
    └── ApiError                JetStream answered with an error: ``code``, ``err_code``, ``description``
        ├── StreamNotFoundError     10059 \
        ├── ConsumerNotFoundError   10014  | in ``penstock.api.errors_generated``, with a class
        └── ...                           /  for every other documented error

This module knows nothing of connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class PenstockError(Exception):
    """Base of every error of this package that a caller may want to handle."""


class ConnectError(PenstockError):
    """No server could be reached, or none would have us; the text names each server and its reason."""


class AuthenticationError(ConnectError):
    """A server refused the credentials."""


class ConnectionClosed(PenstockError):
    """The client was closed, by its owner or because no server could be reached again."""


class ConnectionLost(ConnectionClosed):
    """The connection broke while an answer was outstanding; whether the server acted is unknown."""


class Timeout(PenstockError, TimeoutError):
    """Nothing came in time."""


class NoResponders(PenstockError):
    """Nobody listens on the subject of a request."""

    def __init__(self, subject: str) -> None:
        super().__init__(f"no responders on {subject!r}")
        self.subject = subject

    def __reduce__(self) -> tuple[type[NoResponders], tuple[str]]:
        return type(self), (self.subject,)


class SlowConsumer(PenstockError):
    """A subscription dropped ``dropped`` messages because its pending limits were reached."""

    def __init__(self, subject: str, dropped: int) -> None:
        super().__init__(f"slow consumer: {dropped} messages dropped on {subject!r}")
        self.subject = subject
        self.dropped = dropped

    def __reduce__(self) -> tuple[type[SlowConsumer], tuple[str, int]]:
        return type(self), (self.subject, self.dropped)


class OutputFull(PenstockError):
    """Too much output waits for a connection that is not there; the message was not taken."""


class ProtocolError(PenstockError):
    """The peer sent bytes that are not the protocol."""


class ServerError(PenstockError):
    """The server answered ``-ERR``; ``text`` is what it said, without the quotes."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class PermissionsViolation(ServerError):
    """The user may not publish or subscribe there; the connection stays open."""


class InvalidSubject(PenstockError, ValueError):
    """A subject that cannot be sent: empty tokens, blanks, or wildcards where a literal is needed."""


class PayloadTooLarge(PenstockError, ValueError):
    """Headers and payload together exceed what the server accepts."""


class NotJetStreamMessage(PenstockError, ValueError):
    """The message was not delivered by a consumer: its reply subject is no ack subject."""


class PullError(PenstockError):
    """A pull request ended with a status that is an error; ``status`` and ``description`` are the server's."""

    def __init__(self, status: int, description: str) -> None:
        super().__init__(f"pull request ended: {status} {description}")
        self.status = status
        self.description = description

    def __reduce__(self) -> tuple[type[PullError], tuple[int, str]]:
        return type(self), (self.status, self.description)


class ConsumerDeleted(PullError):
    """A pull request ended because its consumer is gone."""


class PublishFailed(PenstockError):
    """Some messages of a publisher were not acknowledged.

    ``failures`` holds (subject, message id or "", error) of each, in the order in which they failed.
    """

    def __init__(self, failures: Sequence[tuple[str, str, Exception]]) -> None:
        first = failures[0]
        super().__init__(
            f"{len(failures)} messages not acknowledged; first: {first[0]!r}: {first[2]}"
        )
        self.failures = list(failures)

    def __reduce__(self) -> tuple[type[PublishFailed], tuple[list[tuple[str, str, Exception]]]]:
        return type(self), (self.failures,)


class ApiError(PenstockError):
    """JetStream answered with an error; ``penstock.api.errors_generated`` has a class for each documented one.

    ``code`` is the HTTP-like class (404, 400, 503 ...), ``err_code`` the exact error (10059 ...; 0 when the
    server gave none), ``description`` its text.
    """

    code: int
    err_code: int
    description: str
