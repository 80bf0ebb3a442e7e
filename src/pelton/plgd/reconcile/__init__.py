"""Reconciliation: finds the events that an event store has and the stream lacks, finds the cause,
and publishes repairs.

::

    stream ──► scanning ──► Sightings ─┐                      ┌─► findings: which versions, why, what cannot be repaired
    table of versions ────► Sightings ─┼─► judging (pure) ────┤
    store, MongoDB, gateway ─► Kept ───┘                      └─► repairs: events and states with provenance ──► stream

A repair's message id follows from its event, so a run may be killed and repeated: the next run
finds the earlier repairs in the stream. Two runs at once rely on the stream's duplicate window.
"""

from ..tables.settings import REPAIR_HEADER
from .judging import Cause, Finding, Kept, Policy, Repair, judge
from .registrations import LostRegistration
from .running import Reconciler, Report, compare, encoded_repair
from .scanning import scan
from .sightings import Row, Sightings
from .sources import GatewaySource, Source, StoreSource

__all__ = [
    "REPAIR_HEADER",
    "Cause",
    "Finding",
    "GatewaySource",
    "Kept",
    "LostRegistration",
    "Policy",
    "Reconciler",
    "Repair",
    "Report",
    "Row",
    "Sightings",
    "Source",
    "StoreSource",
    "compare",
    "encoded_repair",
    "judge",
    "scan",
]
