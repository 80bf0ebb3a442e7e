"""JWTs are valid by the machine's clock, also while the server's own clock approaches it slowly."""

from types import SimpleNamespace
from typing import Any

from pelton.core.base.clock import SteadyClock
from pelton.server.auth.setup import Setup
from pelton.server.settings import Settings

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND


def test_a_jwt_ends_by_the_machines_clock() -> None:
    """For example after a virtual machine was paused for an hour."""
    clock = SteadyClock()
    clock.read(START, SECOND)
    clock.read(START + 3600 * SECOND, 2 * SECOND)
    clients: Any = SimpleNamespace(reactor=SimpleNamespace(clock=clock))
    nothing: Any = None
    setup = Setup(Settings(), nothing, nothing, clients, nothing, nothing)
    assert setup.date_ns() == START + 3600 * SECOND
    assert START + SECOND <= setup.now_ns() < START + 2 * SECOND
