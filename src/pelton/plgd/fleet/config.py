"""The settings of a fleet, and the faults that happen to its events."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property

from ..subjects import Era, LeadType

SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class Faults:
    """Faults between the hub's store and the bus; each is off unless it is set.

    ``drop``, ``reorder``, ``duplicate``, ``corrupt``, ``wrong_envelope``, ``unknown_type`` and ``hidden`` are
    probabilities for one event; a damaged event is lost, and a message that is no event comes instead.
    ``tail_drop`` is the share of aggregates whose last event is lost. ``outages`` are times, in seconds from the
    start, in which the store takes events and the bus gets none. At ``restore_at_s`` the store goes back to
    where it was ``restore_back_s`` before, so versions are used again.
    """

    drop: float = 0.0
    tail_drop: float = 0.0
    reorder: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0
    wrong_envelope: float = 0.0
    unknown_type: float = 0.0
    hidden: float = 0.0
    outages: tuple[tuple[float, float], ...] = ()
    restore_at_s: float | None = None
    restore_back_s: float = 60.0


@dataclass(frozen=True)
class FleetConfig:
    """A fleet: how many devices, for how long, behind which hub.

    ``hub`` is the hub's version, from which follow its subjects, its fields, and whether snapshots are on the
    bus (before v2.16, after every ``snapshot_threshold`` versions of an aggregate). Intervals are means in
    seconds. ``gateway_crash_s`` are times at which one of three gateways dies, ``flood_s`` times at which one
    device changes a thousand times within a minute. ``ValueError`` for a config that is not possible.
    """

    devices: int = 100
    duration_s: float = 3600.0
    seed: int = 0
    start_ns: int = 1_721_815_740 * SECOND_NS
    hub: str = "v2.25"
    hubs: int = 1
    lead: LeadType | None = None
    sensor_interval_s: float = 10.0
    clock_interval_s: float = 3600.0
    command_interval_s: float = 1800.0
    session_s: float = 6 * 3600.0
    offline_s: float = 30.0
    flappers: float = 0.02
    large: float = 0.01
    cellular: float = 0.3
    onboarding_s: float = 60.0
    unpublish_interval_s: float = 24 * 3600.0
    delete_interval_s: float = 7 * 24 * 3600.0
    command_ttl_s: float = 10.0
    snapshot_threshold: int = 16
    otel: float = 0.1
    skew_s: float = 0.05
    gateway_crash_s: tuple[float, ...] = ()
    flood_s: tuple[float, ...] = ()
    faults: Faults = field(default_factory=Faults)

    def __post_init__(self) -> None:
        """Check for values that have no meaning."""
        if self.devices < 0 or self.duration_s < 0 or self.hubs < 1:
            raise ValueError("devices and duration_s must not be negative, hubs at least 1")
        if re.fullmatch(r"v?2\.\d+(\.\d+)?", self.hub) is None:
            raise ValueError(f"hub is a version such as 'v2.25', not {self.hub!r}")
        if self.lead is not None and not self.since(22):
            raise ValueError(f"hub {self.hub} has no lead resource types; v2.22 is the first")

    @cached_property
    def minor(self) -> int:
        """The hub's version behind ``v2.``."""
        return int(self.hub.lstrip("v").split(".")[1])

    def since(self, minor: int) -> bool:
        """Whether the hub is of version 2.``minor`` or newer."""
        return self.minor >= minor

    @property
    def era(self) -> Era:
        """How the hub names its subjects."""
        return Era.HREF if self.since(8) else Era.RESOURCE
