"""The server inside a Python program: no process, and no port unless one is asked for.

::

    async with pelton.embedded.Server(store="data") as server:   # in the running asyncio loop
        async with server.connect() as nc:
            await nc.publish("greetings", b"hello")

    with pelton.embedded.Server(store="data", port=4222) as server:   # in a thread of its own
        with server.connect_sync() as nc:
            nc.publish("greetings", b"hello")

It is the server of ``pelton-server``: the same store, options, log lines and answers. Signals, limits
and the event loop stay the program's own; log lines go to the logger ``pelton.server``.
"""

from .hash_seed import SEEDED  # first: before other modules make maps

# isort: split
from pelton.server.errors import StartError

from .options import ServerOptions
from .server import Server

__all__ = ["SEEDED", "Server", "ServerOptions", "StartError"]
