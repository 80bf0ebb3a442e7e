"""Stream imports: messages published in one account reach the subscribers of another."""

from pelton.core.broker.router import Sink
from pelton.core.broker.service_imports import AccountBorder, Inflow, Transform

class StreamImport(Inflow):
    """An imported stream: a sink on the exporter's router. `transform` maps the exporter's subject to the importer's; without it the
    importer's subject is `local` when that is literal, or the same.
    """

    def __init__(
        self,
        exporter: AccountBorder,
        importer: AccountBorder,
        subject: str,
        local: str,
        *,
        transform: Transform | None = None,
    ) -> None: ...
    allow_trace: bool  # traces continue in the importer's account
    exporter: AccountBorder
    importer: AccountBorder
    subject: str
    local: str
    closed: bool
    def wake_watchers(self, pattern: bytes) -> None: ...
    def close(self) -> None: ...

class BoundImport(Sink): ...
