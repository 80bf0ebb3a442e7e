"""Opens the WebSocket of a connection to a remote: TLS when it is configured, the request and the
response.
"""

import asyncio
import os
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pelton.server.errors import StartError
from pelton.server.settings.leafnodes import LeafRemote
from pelton.server.settings.tls import Tls
from pelton.server.transports.handshake import HandshakeFailed, receive_head, shake_hands
from pelton.server.transports.pipe import Pipe, PipeClosed
from pelton.server.transports.websocket.acceptor import MESSAGE_BYTES_MAX
from pelton.server.transports.websocket.client_upgrade import UpgradeFailed, agreed, ask
from pelton.server.transports.websocket.frames import Frames
from pelton.server.units import SECOND_NS

if TYPE_CHECKING:
    from pelton.server.transports.tls import TlsInfo

KEY_BYTES = 16


async def open_websocket(
    connected: socket.socket, url: str, remote: LeafRemote, tls_name: str
) -> "tuple[Pipe, Frames, TlsInfo | None]":
    """The pipe, its frames, and the facts of the TLS handshake. Takes over the socket. Raises
    OSError.
    """
    pipe = Pipe(connected)
    try:
        parts = urlsplit(url)
        tls_info = None
        if parts.scheme == "wss" or remote.tls is not None:
            tls_info = await _encrypt(pipe, remote, tls_name)
        async with asyncio.timeout(remote.first_info_timeout_ns / SECOND_NS):
            frames = await _upgrade(pipe, url, remote)
    except (HandshakeFailed, UpgradeFailed, PipeClosed, StartError, TimeoutError) as problem:
        pipe.close()
        why = str(problem) or "no answer in time"
        raise OSError(f"Error soliciting websocket connection: {why}") from None
    except BaseException:
        pipe.close()
        raise
    return pipe, frames, tls_info


async def _encrypt(pipe: Pipe, remote: LeafRemote, tls_name: str) -> "TlsInfo":
    from pelton.server.transports.tls import client_context, tls_info_of

    context = client_context(remote.tls, "leafnodes.remotes.tls")
    timeout_ns = (remote.tls or Tls()).timeout_ns
    await shake_hands(pipe, context, timeout_ns, server_side=False, hostname=tls_name)
    assert pipe.tls is not None
    return tls_info_of(pipe.tls, first=False)


async def _upgrade(pipe: Pipe, url: str, remote: LeafRemote) -> Frames:
    key = os.urandom(KEY_BYTES)
    wanted = {"compress": remote.ws_compression, "no_masking": remote.ws_no_masking}
    pipe.send(ask(urlsplit(url), key, **wanted))
    received = await receive_head(pipe)
    if received is None:
        raise UpgradeFailed("the response of the server is too long")
    head, rest = received
    terms = agreed(head, key, **wanted)
    if rest:
        pipe.unread(rest)
    return Frames(
        MESSAGE_BYTES_MAX, compress=terms.compress, masked_in=False, mask_out=terms.masked
    )
