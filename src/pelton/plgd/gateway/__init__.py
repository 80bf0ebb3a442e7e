"""The hub's gRPC gateway: a server over an event store and the bus, and clients, which also work
with a hub's gateway.

::

    GatewayServer ── tokens        the owner of the caller, and so its devices
                  ├─ answers       the answers of the store, without gRPC
                  └─ subscribing   a call of SubscribeToEvents;  filters: which events it wants
                     └─ feeds      the bus, read once for all subscribers of an owner
    GatewayClient (asyncio), BlockingGatewayClient

The messages are those of hub v2.25 (``wire/gateway.proto``). All answers are about the devices of
the owner that the token names, as if other devices did not exist.
"""

from .calling import BlockingGatewayClient, ClientTls, GatewayClient, GatewayError, Token
from .server import GatewayServer, ServerTls
from .tokens import InvalidTokenError, TokenVerifier, claimed_owner

__all__ = [
    "BlockingGatewayClient",
    "ClientTls",
    "GatewayClient",
    "GatewayError",
    "GatewayServer",
    "InvalidTokenError",
    "ServerTls",
    "Token",
    "TokenVerifier",
    "claimed_owner",
]
