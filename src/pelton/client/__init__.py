"""The client for NATS and JetStream. Programs import it from ``pelton``, or from ``pelton.sync`` for blocking code.

::

    aio/   sync/                               the two halves; sync is made of aio: see tools/gen_sync.py
    keyvalue/   objects/   groups   services   values, and the state of what waits for them
    consume/   publishing   batches   stored   buffers of consumers; windows of acks; stored messages
    session/                                   requests, subscriptions, the status of a connection
    protocol/                                  one connection: bytes in, events and bytes out
    base/                                      addresses, durations, messages, models

A package imports only packages below it. Below the halves is no I/O and no clock.
"""

from typing import TYPE_CHECKING

if not TYPE_CHECKING:  # or checkers would take any name for one of this package

    def __getattr__(name: str) -> object:
        """Say where the name is."""
        from pelton.exports import refuse

        refuse(__name__, name)
