"""Work of the control plane in slices, one slice per turn."""

from collections.abc import Callable

from pelton.core.broker.reactor import Reactor, Task

class Job(Task):
    """Calls step() once per turn as long as it returns True. After ``Router.watch`` a change of interest calls woken()."""

    def __init__(
        self, reactor: Reactor, step: Callable[[], bool], woken: Callable[[], object] | None = None
    ) -> None: ...
    def soon(self) -> None:
        """Run a slice in this turn, or in the next one when the delivery phase is over."""
    def before_deliveries(self) -> None:
        """Run a slice in the commit phase of this turn, or of the next one when that is over."""
    def end(self) -> None:
        """Run no more slices."""
