"""``pelton bench service serve``: a service that answers requests at full speed, and is found like any other."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product
from typing import TYPE_CHECKING, Any

from pelton.client.services import (
    QUEUE_GROUP,
    EndpointInfo,
    EndpointStats,
    ServiceInfo,
    ServicePing,
    ServiceStats,
    encode,
)
from pelton.core.load import roles as core
from pelton.core.protocol.wire import pub

if TYPE_CHECKING:
    from .links import Link

NAME, VERSION, ENDPOINT = "nats-bench-service", "1.0.0", "bench"
"""As the `nats` command names its own."""
_VERBS = ("PING", "INFO", "STATS")


class Serve(core.Serve):
    """One instance of the service."""

    def __init__(self, link: Link, subject: str, payload: bytes, sleep_ns: int) -> None:
        """Subscribes. ``sleep_ns``: the time that each answer takes."""
        super().__init__(link, subject, payload, sleep_ns)
        self._endpoint = EndpointInfo(name=ENDPOINT, subject=subject, queue_group=QUEUE_GROUP)
        self._sleep_ns = sleep_ns
        self._started = datetime.now(UTC)
        self.id = link.inbox.rpartition(".")[2]
        below = ("", f".{NAME}", f".{NAME}.{self.id}")
        for sid, (verb, rest) in enumerate(product(_VERBS, below), core.SID + 1):
            link.subscribe(f"$SRV.{verb}{rest}", sid)

    def message(self, operation: tuple[Any, ...]) -> None:
        """A request about the service itself."""
        subject, reply = operation[1], operation[3]
        if reply:
            self.link.write(pub(reply, "", b"", self._about(subject.split(".")[1])))

    def _about(self, verb: str) -> bytes:
        who: dict[str, Any] = {"name": NAME, "id": self.id, "version": VERSION}
        if verb == "PING":
            return encode(ServicePing(**who))
        if verb == "INFO":
            info = ServiceInfo(**who, description="answers the requests of a benchmark")
            info.endpoints = [self._endpoint]
            return encode(info)
        stats = EndpointStats(name=ENDPOINT, subject=self._endpoint.subject)
        stats.queue_group = QUEUE_GROUP
        stats.num_requests = self.done
        stats.average_processing_time_ns = self._sleep_ns
        stats.processing_time_ns = self._sleep_ns * self.done
        return encode(ServiceStats(**who, started=self._started, endpoints=[stats]))
