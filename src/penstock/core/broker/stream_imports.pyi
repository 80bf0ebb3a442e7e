"""Stream imports: what is published in one account reaches those who listen in another."""

from penstock.core.broker.router import Sink
from penstock.core.broker.service_imports import AccountBorder, Inflow, Transform

class StreamImport(Inflow):
    """An exported stream, where it leaves the exporter. `transform` makes the importer's subject of the exporter's; without one it
    is `local` when that is literal, or the same.
    """

    def __init__(
        self,
        home: AccountBorder,
        away: AccountBorder,
        subject: str,
        local: str,
        *,
        transform: Transform | None = None,
    ) -> None: ...
    allow_trace: bool  # traces go on in the importer's account
    home: AccountBorder
    away: AccountBorder
    subject: str
    local: str
    closed: bool
    def wake_watchers(self, pattern: bytes) -> None: ...
    def close(self) -> None: ...

class BoundImport(Sink): ...
