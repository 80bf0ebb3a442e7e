"""Service latency: measures a share of the requests, or those whose trace headers ask for it, and
publishes the result in the account of the service. core/broker/service_imports reports the times.
"""

import os
import re
from random import Random
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct

from pelton.api.calls import ClientInfo
from pelton.api.codec import encode
from pelton.api.fields import OMIT, Duration, Int, Time
from pelton.core.broker.reactor import Connection
from pelton.core.broker.service_imports import (
    STATUS_INTEREST_LOST,
    STATUS_NO_DELIVERY,
    STATUS_NO_REPLY,
    STATUS_OK,
    STATUS_TIMEOUT,
    Response,
    Service,
)
from pelton.nuid import Nuid
from pelton.server.accounts.client_info import client_info, shown_jwt
from pelton.server.settings.accounts import Latency

if TYPE_CHECKING:
    from pelton.server.accounts.registry import Accounts

Headers = dict[str, list[str]]

_TYPE = "io.nats.server.metric.v1.service_latency"
_WORDS = {
    STATUS_OK: "",
    STATUS_NO_REPLY: "Bad Request",
    STATUS_INTEREST_LOST: "Request Timeout",
    STATUS_NO_DELIVERY: "Service Unavailable",
    STATUS_TIMEOUT: "Service Timeout",
}
_UBER, _UBER_CONTEXT = "Uber-Trace-Id", "Uberctx-"
_B3, _B3_SAMPLED, _B3_ID = "B3", "X-B3-Sampled", "X-B3-Traceid"
_B3_ALL = (_B3_SAMPLED, _B3_ID, "X-B3-Parentspanid", "X-B3-Spanid")
_CONTEXT, _CONTEXT_STATE = "Traceparent", "Tracestate"


class ServiceLatency(Struct, kw_only=True):
    """One measurement; field order is the order on the wire."""

    type: str = _TYPE
    id: str = ""
    timestamp: Time = 0
    status: Int = 0
    description: Annotated[str, OMIT] = ""
    requestor: Annotated[ClientInfo | None, OMIT] = None
    responder: Annotated[ClientInfo | None, OMIT] = None
    header: Annotated[Headers | None, OMIT] = None  # the headers that asked for the measurement
    start: Time = 0
    service: Duration = 0
    system: Duration = 0
    total: Duration = 0


class Measurements:
    """Selects the measured requests and publishes the measurements."""

    def __init__(self, accounts: "Accounts") -> None:
        """One object measures the services of all accounts."""
        self._accounts = accounts
        self._ids = Nuid(Random(os.urandom(16)))

    def sample(self, service: Service, source: Connection | None, block: bytes) -> Headers | None:
        """Whether a request is measured: the headers that asked for it, {} when it was drawn at
        random, else None.
        """
        latency = service.latency
        if not isinstance(latency, Latency) or source is None:
            return None
        if latency.sampling >= 100 or (
            latency.sampling > 0 and self._accounts.draw(100) <= latency.sampling
        ):
            return {}
        return traced(headers_of(block)) if block else None

    def measured(self, response: Response, responder: Connection | None, status: int) -> None:
        """Publish the measurement of a finished request."""
        latency = response.service.latency
        if not isinstance(latency, Latency):
            return
        now_ns = self._accounts.reactor.clock.now()
        name = self._accounts.server_name
        event = ServiceLatency(id=self._ids.next(), timestamp=now_ns, status=status)
        event.description = _WORDS[status]
        asked_ns = 0
        if response.requester is not None:
            shared = response.shared
            event.requestor = client_info(
                response.requester, detailed=shared, server=name if shared else ""
            )
            if shared:
                event.requestor.jwt = shown_jwt(response.requester)
            asked_ns = event.requestor.rtt
        if isinstance(response.headers, dict) and response.headers:
            event.header = response.headers
        event.start = response.since_ns - asked_ns
        if status == STATUS_OK:
            took_ns, answered_ns = now_ns - response.since_ns, 0
            if responder is not None:
                event.responder = client_info(responder, detailed=True, server=name)
                event.responder.jwt = shown_jwt(responder)
                answered_ns = event.responder.rtt
            event.service = max(took_ns - answered_ns, 0)
            event.total = asked_ns + took_ns
        response.service.border.router.publish_message(latency.subject, encode(event))


def headers_of(block: bytes) -> Headers:
    """A header block as name -> values; names have Go's canonical form."""
    found: Headers = {}
    for line in block.decode("utf-8", "replace").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(_canonical(name.strip()), []).append(value.strip())
    return found


def traced(headers: Headers) -> Headers | None:
    """The headers that ask for a measurement; None when there are none."""
    if _UBER in headers:
        return _uber(headers)
    sampled = headers.get(_B3_SAMPLED)
    if sampled is not None and sampled[0] in ("0", "1"):
        return _some(headers, _B3_ALL) if sampled[0] == "1" else None
    if _B3_ID in headers:
        return _some(headers, _B3_ALL)
    if _B3 in headers:
        parts = headers[_B3][0].split("-")
        denied = parts[2] == "0" if len(parts) > 2 else parts == ["0"]
        return None if denied else {_B3: headers[_B3]}
    if _CONTEXT in headers:
        parts = headers[_CONTEXT][0].split("-")
        flags = parts[3] if len(parts) == 4 else ""
        if re.fullmatch(r"[0-7][0-9a-fA-F]", flags) and int(flags, 16) & 1:
            return _some(headers, (_CONTEXT, _CONTEXT_STATE))
    return None


def _uber(headers: Headers) -> Headers | None:
    parts = headers[_UBER][0].split(":")
    flags = parts[3] if len(parts) == 4 else ""
    if not re.fullmatch(r"[0-9a-fA-F]{1,2}", flags) or not int(flags, 16) & 1:
        return None
    context = {name: each for name, each in headers.items() if name.startswith(_UBER_CONTEXT)}
    return {_UBER: headers[_UBER], **context}


def _some(headers: Headers, names: tuple[str, ...]) -> Headers:
    return {name: headers[name] for name in names if name in headers}


def _canonical(name: str) -> str:
    return "-".join(part[:1].upper() + part[1:].lower() for part in name.split("-"))
