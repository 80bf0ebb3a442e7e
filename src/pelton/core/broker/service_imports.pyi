"""Imports and exports: the border of each account, service imports, and the way of replies back to the requester."""

from collections.abc import Callable

from pelton.core.broker.reactor import Connection, Reactor
from pelton.core.broker.router import Border, Router, Sink

SINGLETON: int
STREAMED: int
CHUNKED: int
STATUS_OK: int
STATUS_NO_REPLY: int
STATUS_INTEREST_LOST: int
STATUS_NO_DELIVERY: int
STATUS_TIMEOUT: int

Transform = Callable[[str], str | None]

class Sharing:
    """The state that all accounts of a server share: callbacks, and the chain of service imports being handled now."""

    def __init__(self, reactor: Reactor) -> None: ...
    reactor: Reactor
    describe: (
        Callable[[Connection, bool, bool, str], bytes] | None
    )  # (requester, detailed, with the server, service account) -> ClientInfo as JSON, or b""
    sample: (
        Callable[[Service, Connection | None, bytes], object] | None
    )  # None: this request is not measured
    measured: Callable[[Response, Connection | None, int], object] | None
    on_due: (
        Callable[[int], object] | None
    )  # tick() is needed at this time (ns), earlier than its last answer
    def importers(self) -> list[str]:
        """The accounts that the request being handled came through, the requester's own first."""
    def shared(self) -> bool:
        """Whether the service may learn the requester of the request being handled."""
    def tick(self) -> int:
        """End the requests that have waited too long; when to call again (ns), 0: not needed."""

class AccountBorder(Border):
    """The imports and exports of one account at its router."""

    def __init__(self, sharing: Sharing, router: Router, name: str) -> None: ...
    router: Router
    sharing: Sharing
    name: str
    system: bool  # the system account: services get the server's name
    def pending(self) -> int:
        """Number of requests to services of this account that wait for answers."""
    def awaited(self) -> int:
        """Number of reply subjects of this account that other accounts may answer on."""
    def interest_lost(self, subject: bytes) -> None: ...
    def close(self) -> None:
        """The account is removed: forget all requests."""

class Inflow(Sink):
    """A stream import, as the importer's border holds it."""

class Service:
    """An exported service. `response_type`: SINGLETON, STREAMED or CHUNKED."""

    def __init__(
        self,
        border: AccountBorder,
        subject: str,
        *,
        response_type: int,
        threshold_ns: int,
        latency: object = None,
    ) -> None: ...
    border: AccountBorder
    subject: str
    response_type: int
    allow_trace: bool  # traces of requests continue in the exporter's account
    threshold_ns: int
    most: int  # the most requests that wait for an answer; above it the one that was silent longest ends
    most_bytes: int  # the most bytes of their reply subjects; likewise
    @property
    def reply_bytes(self) -> int: ...
    latency: object
    responses: dict[bytes, Response]
    def close(self) -> None: ...

class Response:
    """A request that waits for answers, and where the answers go."""

    service: Service
    key: bytes
    reply: bytes
    since_ns: int
    delivered: bool
    closed: bool
    shared: bool  # the import permits the service to learn the requester
    requester: Connection | None  # None: the request is not measured
    headers: object
    requester_account: str
    service_account: str

class ReplySink(Sink): ...
class BoundReply(Sink): ...

class ServiceImport(Sink):
    """A service in the importer's account. `transform` maps the importer's subject to the exporter's; without it the exporter's subject is
    `target`, or the same when that is "".
    """

    def __init__(
        self,
        border: AccountBorder,
        service: Service,
        subject: str,
        *,
        target: str = "",
        transform: Transform | None = None,
        share: bool = False,
    ) -> None: ...
    border: AccountBorder
    service: Service
    subject: str
    share: bool
    closed: bool
    def close(self) -> None: ...
