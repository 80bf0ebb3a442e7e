"""What accounts share: the border of each, service imports, and the replies that find their way back."""

from collections.abc import Callable

from penstock.core.broker.reactor import Connection, Reactor
from penstock.core.broker.router import Border, Router, Sink

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
    """What all accounts of a server have in common: callbacks, and who is being asked for whom right now."""

    def __init__(self, reactor: Reactor) -> None: ...
    reactor: Reactor
    describe: (
        Callable[[Connection, bool, bool, str], bytes] | None
    )  # (who, all about it, with the server, service account) -> JSON
    sample: (
        Callable[[Service, Connection | None, bytes], object] | None
    )  # None: this request is not measured
    measured: Callable[[Response, Connection | None, int], object] | None
    on_due: (
        Callable[[int], object] | None
    )  # tick() is needed at this time (ns), earlier than it said
    def importers(self) -> list[str]:
        """Of the request that is being handled, the accounts that it came through, the requester's own first."""
    def shared(self) -> bool:
        """Whether the request that is being handled may tell who asks."""
    def tick(self) -> int:
        """End what has been waited for too long; when to call again (ns), 0: not needed."""

class AccountBorder(Border):
    """One account's side."""

    def __init__(self, sharing: Sharing, router: Router, name: str) -> None: ...
    router: Router
    sharing: Sharing
    name: str
    system: bool  # the system account: services are told the server's name
    def pending(self) -> int:
        """Requests to services of this account that wait for answers."""
    def awaited(self) -> int:
        """Reply subjects of this account that other accounts may answer on."""
    def interest_lost(self, subject: bytes) -> None: ...
    def close(self) -> None:
        """The account is gone: nothing is waited for."""

class Inflow(Sink):
    """A stream import, for the importer's border."""

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
    allow_trace: bool  # traces of requests go on in the exporter's account
    threshold_ns: int
    most: int  # requests that are waited for; then the oldest one is given up
    most_bytes: int  # of their reply subjects in all; likewise
    @property
    def reply_bytes(self) -> int: ...
    latency: object
    responses: dict[bytes, Response]
    def close(self) -> None: ...

class Response:
    """A request on its way: where its answers go."""

    service: Service
    key: bytes
    reply: bytes
    since_ns: int
    delivered: bool
    closed: bool
    shared: bool  # the import says that the service may know who asks
    requester: Connection | None  # of one that is measured
    headers: object
    requester_account: str
    service_account: str

class ReplySink(Sink): ...
class BoundReply(Sink): ...

class ServiceImport(Sink):
    """A service as an account sees it. `transform` makes the exporter's subject of the importer's; without one it is `target`, or
    the same when that is "".
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
