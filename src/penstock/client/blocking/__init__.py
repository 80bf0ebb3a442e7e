"""The client for blocking code.

::

    with connect_blocking("nats://127.0.0.1:4222") as nc:
        nc.publish("greetings.anna", b"hello")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from ..options import DEFAULT_URL, ConnectOptions, Options, TlsOptions, make_options
from ..session import Question
from .connection import BlockingClient

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable

__all__ = ["BlockingClient", "Question", "connect_blocking"]


def connect_blocking(
    servers: str | Iterable[str] | Options = DEFAULT_URL,
    *,
    tls: ssl.SSLContext | TlsOptions | None = None,
    **options: Unpack[ConnectOptions],
) -> BlockingClient:
    """Connect to one of the servers; usable in ``with``.

    ``servers``: a URL, several (also separated by commas), or whole ``Options``; ``options``: single
    options, which ``help(Options)`` explains; ``tls``: file names, or a context. Raises ConnectError,
    AuthenticationError, ValueError for invalid values of options, and TypeError for unknown options and
    for options beside whole ``Options``.
    """
    return BlockingClient(*make_options(servers, tls, options))
