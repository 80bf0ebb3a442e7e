"""A connection through a SOCKS proxy, for the asyncio client."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from pelton.errors import ConnectError

from ..protocol.socks import parse_proxy, talk

if TYPE_CHECKING:
    import asyncio

    from ..base.addresses import Server


async def open_through(loop: asyncio.AbstractEventLoop, url: str, server: Server) -> socket.socket:
    """A socket that is connected to the server; ConnectError when the proxy refuses or is not there."""
    proxy = parse_proxy(url)
    try:
        opened = await _connected(loop, proxy.host, proxy.port)
    except OSError as error:
        raise ConnectError(f"the proxy {proxy}: {error}") from None
    try:
        conversation = talk(proxy, server.host, server.port)
        data, wanted = next(conversation)
        while True:
            await loop.sock_sendall(opened, data)
            data, wanted = conversation.send(await loop.sock_recv(opened, wanted))
    except StopIteration:
        return opened
    except BaseException:
        opened.close()
        raise


async def _connected(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    error: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(
        host, port, type=socket.SOCK_STREAM
    ):
        opened = socket.socket(family, kind, protocol)
        opened.setblocking(False)
        try:
            await loop.sock_connect(opened, address)
        except OSError as reason:
            opened.close()
            error = reason
        except BaseException:
            opened.close()
            raise
        else:
            return opened
    raise error
