"""Requests to a server while a read is planned.

When a server that has answered once goes away, the request is repeated for up to ``retryTimeout``. A
server that never answered, or that refuses, is an error at once. Every error is a :class:`ReadError`
of one line.

Does not depend on Spark or on the contents of the requests.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from pelton.errors import (
    ApiError,
    AuthenticationError,
    MessageNotFoundError,
    NoRespondersError,
    PeltonError,
    PeltonTimeoutError,
    PermissionsViolationError,
    ServerError,
    StreamNotFoundError,
)
from pelton.spark.connection import ReadError, client_for, forget_client, jetstream_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from pelton.client.sync.jetstream import JetStream
    from pelton.spark.servers import Servers

T = TypeVar("T")

_RETRY_EVERY_SECONDS = 0.2
_UNAVAILABLE = 503


class Asking:
    """The requests of one reader to the servers, over this process's connection."""

    def __init__(self, servers: Servers) -> None:
        """Sends no request."""
        self.servers = servers
        self._answered = False

    def ask(self, what: str, question: Callable[[JetStream], T]) -> T:
        """Send a request about ``what``, and repeat it while the server is away.

        Errors that say that something does not exist are raised as they are, all others as ReadError.
        """
        servers = self.servers
        deadline = time.monotonic() + servers.retry_timeout_seconds
        while True:
            try:
                answer = _once(question, servers)
            except (StreamNotFoundError, MessageNotFoundError):
                self._answered = True
                raise
            except (PeltonError, ReadError) as error:
                over = time.monotonic() > deadline
                if over or not self._answered or _refused(error):
                    raise _told(what, error, str(servers)) from error
                if not isinstance(error, ApiError):
                    forget_client(servers)
                time.sleep(_RETRY_EVERY_SECONDS)
            else:
                self._answered = True
                return answer


def _once(ask: Callable[[JetStream], T], servers: Servers) -> T:
    """Send a request once; PermissionsViolationError when the server sent that instead of an answer."""
    client = client_for(servers)
    before = client.last_error
    try:
        return ask(jetstream_for(servers))
    except PeltonTimeoutError:
        said = client.last_error
        if isinstance(said, PermissionsViolationError) and said is not before:
            raise said from None
        raise


def _refused(error: Exception) -> bool:
    """Whether the server would answer a repeated request in the same way."""
    if isinstance(error, ApiError):
        return error.code != _UNAVAILABLE
    return isinstance(error.__cause__ or error, AuthenticationError | ServerError)


def _told(what: str, error: Exception, servers: str) -> ReadError:
    if isinstance(error, ReadError):
        return error
    if isinstance(error, NoRespondersError):
        return ReadError(f"{servers} has no JetStream")
    return ReadError(f"{what}: {error}")
