"""Asking a server while a read is planned.

A server that has answered once and goes away is waited for, up to ``retryTimeout``; one that never
answered, or refuses, is an error at once. Every error is a :class:`ReadError` of one line.

Knows nothing of Spark, and not what is asked.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from penstock.errors import (
    ApiError,
    AuthenticationError,
    MessageNotFound,
    NoResponders,
    PenstockError,
    PermissionsViolation,
    ServerError,
    StreamNotFound,
    Timeout,
)
from penstock.spark.connection import ReadError, client_for, forget_client, jetstream_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.client.blocking.jetstream import JetStream
    from penstock.spark.servers import Servers

T = TypeVar("T")

_RETRY_EVERY_SECONDS = 0.2
_UNAVAILABLE = 503


class Asking:
    """The questions of one reader to the servers, over this process's connection."""

    def __init__(self, servers: Servers) -> None:
        """Nothing is asked yet."""
        self.servers = servers
        self._answered = False

    def ask(self, what: str, question: Callable[[JetStream], T]) -> T:
        """Ask about ``what``, and ask again where the server has gone for a while. Raises what says
        that something is not there as it comes, all else as ReadError.
        """
        servers = self.servers
        deadline = time.monotonic() + servers.retry_timeout_seconds
        while True:
            try:
                answer = _once(question, servers)
            except (StreamNotFound, MessageNotFound):
                self._answered = True
                raise
            except (PenstockError, ReadError) as error:
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
    """Ask; PermissionsViolation where the server said that instead of an answer."""
    client = client_for(servers)
    before = client.last_error
    try:
        return ask(jetstream_for(servers))
    except Timeout:
        said = client.last_error
        if isinstance(said, PermissionsViolation) and said is not before:
            raise said from None
        raise


def _refused(error: Exception) -> bool:
    """Whether asking again would be answered the same."""
    if isinstance(error, ApiError):
        return error.code != _UNAVAILABLE
    return isinstance(error.__cause__ or error, AuthenticationError | ServerError)


def _told(what: str, error: Exception, servers: str) -> ReadError:
    if isinstance(error, ReadError):
        return error
    if isinstance(error, NoResponders):
        return ReadError(f"{servers} has no JetStream")
    return ReadError(f"{what}: {error}")
