"""The client for blocking code.

::

    with connect("nats://127.0.0.1:4222") as nc:
        nc.publish("greetings.anna", b"hello")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from ..protocol.options import ConnectOptions, Options, make_options
from ..session.requests import Question
from .connection import Client
from .messages import Message

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable

    from ..base.addresses import TlsOptions
    from ..protocol.events import OnProtocol
    from ..session.status import Status

__all__ = ["Client", "Question", "connect"]


def connect(
    servers: str | Iterable[str] | Options | None = None,
    *,
    tls: ssl.SSLContext | TlsOptions | None = None,
    on_error: Callable[[Exception], object] | None = None,
    on_status: Callable[[Status], object] | None = None,
    on_protocol: OnProtocol | None = None,
    **options: Unpack[ConnectOptions],
) -> Client:
    """Connect to one of the servers; usable in ``with``.

    Example::

        with connect(url, name="packer") as nc:
            nc.publish("news", b"sunny")

    ``servers``: a URL, several (also separated by commas), or whole ``Options``; None for
    nats://127.0.0.1:4222, or for those of the ``context``; ``options``: single options, which
    ``help(Options)`` explains; ``tls``: file names, or a context.

    Handlers are called in whichever thread reads, and must return soon. on_error: gets each error that no
    call can raise: CallbackFailedError, ServerError; ``last_error`` is the last one. on_status: gets every event of
    the connection, as ``Client.status()``. on_protocol: gets each line of the protocol with its
    direction, "in" or "out", without payloads and secrets.

    Raises ConnectError,
    AuthenticationError, ValueError for invalid values of options, and TypeError for unknown options and
    for options beside whole ``Options``; ContextError for a context that can't be used.
    """
    settings, context = make_options(servers, tls, options)
    return Client(
        settings, Message, context, on_status=on_status, on_protocol=on_protocol, on_error=on_error
    )
