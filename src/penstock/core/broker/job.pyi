"""Work of the control plane that is done in slices, one a turn."""

from collections.abc import Callable

from penstock.core.broker.reactor import Reactor, Task

class Job(Task):
    """Calls step() once a turn while it returns True; ``Router.watch`` makes woken() be called."""

    def __init__(
        self, reactor: Reactor, step: Callable[[], bool], woken: Callable[[], object] | None = None
    ) -> None: ...
    def soon(self) -> None:
        """Do a slice in this turn, or in the next one."""
    def end(self) -> None:
        """No slice any more."""
