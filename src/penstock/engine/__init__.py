"""The control plane: accounts, streams, consumers and the JetStream API, over the compiled core.

Plain Python, synchronous, run to completion. Time comes from the reactor, disk from a `Disk`,
randomness from a seeded source. `Engine` is what a server holds; `Settings` is what it says about
itself.
"""

from penstock.engine.engine import Engine
from penstock.engine.settings import Settings

__all__ = ["Engine", "Settings"]
