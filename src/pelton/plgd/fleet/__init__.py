"""A simulated fleet of devices of a hub: its events, the faults between store and bus, and a
record of both.

::

    FleetConfig ──► simulate ──► StoredEvent ──► deliver ──► Delivery     subject, payload: to a bus
    (seed)          devices, clock     │          faults        │
                                       └────────► Truth ◄───────┘         what was stored, what was lost

The same config makes the same bytes. Nothing here reads a clock, and only `write_truth` opens a file::

    run = FleetRun(FleetConfig(devices=1000, duration_s=3600, seed=1))
    for delivery in run.deliveries():             # in the order of the bus
        ...
    write_truth(run.truth, path)                  # JSON lines, once the deliveries are at their end
"""

from .config import Faults, FleetConfig
from .delivery import Delivery, FleetRun
from .simulation import StoredEvent, simulate
from .truth import Loss, Truth
from .writing import write_truth

__all__ = [
    "Delivery",
    "Faults",
    "FleetConfig",
    "FleetRun",
    "Loss",
    "StoredEvent",
    "Truth",
    "simulate",
    "write_truth",
]
