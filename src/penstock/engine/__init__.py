"""The control plane: accounts, streams, consumers and the JetStream API, over the compiled core.

Plain Python, synchronous, run to completion. Time comes from the reactor, disk from a `Disk`,
randomness from a seeded source. A server has one `Engine`; `Settings` holds the identity and the
policies of the server.
"""

from penstock.engine.engine import Engine
from penstock.engine.settings import Settings

__all__ = ["Engine", "Settings"]
