"""Clients of a gateway, Pelton's or a hub's: for asyncio, and for blocking code."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
import grpc.aio

from pelton.errors import PeltonError

from ..wire import events_pb2 as events
from ..wire import gateway_pb2 as pb
from .methods import MESSAGE_BYTES_MAX, METHODS

if TYPE_CHECKING:
    from types import TracebackType

TIMEOUT_S = 600.0
# gRPC says this in place of the gateway's refusal when that comes while the request is written: ask again.
STATUS_LOST = "Internal error from Core"
REFUSALS_LOST_MAX = 10
OPTIONS = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", 30_000),  # a peer that is gone is noticed in the middle of an answer
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.use_local_subchannel_pool", 1),  # a new client does not share the wait of another one
]
Token: TypeAlias = str | Callable[[], str]
ResourceName: TypeAlias = tuple[str, str]
"""A device id and an href."""


class GatewayError(PeltonError):
    """A call failed: ``code`` is the name of gRPC's status, such as UNAVAILABLE or UNAUTHENTICATED."""

    def __init__(self, code: str, details: str) -> None:
        """``details`` is the gateway's text."""
        super().__init__(f"gateway: {code}: {details}")
        self.code = code
        self.details = details


@dataclass(frozen=True)
class ClientTls:
    """The authorities to trust and the client's own certificate, as PEM; without ``ca`` the system's authorities."""

    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None

    def credentials(self) -> Any:
        """As gRPC takes them."""
        return grpc.ssl_channel_credentials(self.ca, self.key, self.certificate)


def events_request(
    device_ids: Iterable[str], resources: Iterable[ResourceName], after_ns: int
) -> Any:
    """A request for events."""
    return pb.GetEventsRequest(
        device_id_filter=device_ids, resource_id_filter=named(resources), timestamp_filter=after_ns
    )


def named(resources: Iterable[ResourceName]) -> list[Any]:
    """Filters of resources."""
    return [
        pb.ResourceIdFilter(resource_id=events.ResourceId(device_id=device, href=href))
        for device, href in resources
    ]


def event_of(answer: Any) -> Any:
    """The event in an answer to GetEvents, or the command in one to GetPendingCommands."""
    [oneof] = answer.DESCRIPTOR.oneofs
    field = answer.WhichOneof(oneof.name)
    if field is None:
        raise GatewayError(
            "DATA_LOSS", "an answer without an event: the gateway is newer than this client"
        )
    return getattr(answer, field)


def error_of(error: Any) -> GatewayError:
    """The error of a call."""
    return GatewayError(error.code().name, error.details() or "")


class Calls:
    """The common part of both clients: the channel, the token, and the requests."""

    def __init__(
        self,
        target: str,
        token: Token,
        *,
        tls: ClientTls | None = None,
        timeout_s: float | None = TIMEOUT_S,
    ) -> None:
        """``target`` is ``host:port``. For a token that expires give a function; each call calls
        it.

        Without ``tls`` the token is sent in plain text. ``timeout_s`` limits each call except
        `subscribe`.
        """
        self.target = target
        self.token = token
        self.timeout_s = timeout_s
        self.channel = self._channel(tls)
        self.stubs = {name: self._stub(name) for name in METHODS}

    def _channel(self, tls: ClientTls | None) -> Any:
        raise AssertionError("a client says how it connects")

    def _stub(self, name: str) -> Any:
        method = METHODS[name]
        kind = self.channel.stream_stream if method.many_requests else self.channel.unary_stream
        return kind(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )

    def call(self, name: str, request: Any) -> Any:
        """Begin a call."""
        return self.stubs[name](request, timeout=self.timeout_s, metadata=self.metadata())

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata of a call."""
        token = self.token if isinstance(self.token, str) else self.token()
        return (("authorization", f"bearer {token}"),)


class GatewayClient(Calls):
    """A gateway's answers for asyncio; every call is an iteration, and raises GatewayError."""

    def _channel(self, tls: ClientTls | None) -> Any:
        if tls is None:
            return grpc.aio.insecure_channel(self.target, options=OPTIONS)
        return grpc.aio.secure_channel(self.target, tls.credentials(), options=OPTIONS)

    async def __aenter__(self) -> GatewayClient:
        """The client."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connection."""
        await self.channel.close()

    async def answers(self, name: str, request: Any) -> AsyncIterator[Any]:
        """The answers to a request, for calls and filters that have no method here."""
        try:
            async for answer in self.call(name, request):
                yield answer
        except grpc.RpcError as error:
            raise error_of(error) from error

    async def events(
        self,
        *,
        device_ids: Iterable[str] = (),
        resources: Iterable[ResourceName] = (),
        after_ns: int = 0,
    ) -> AsyncIterator[Any]:
        """Events that the store keeps: of devices and resources (none: all), after a time."""
        request = events_request(device_ids, resources, after_ns)
        async for answer in self.answers("GetEvents", request):
            yield event_of(answer)

    async def resources(
        self,
        *,
        device_ids: Iterable[str] = (),
        resources: Iterable[ResourceName] = (),
        types: Iterable[str] = (),
    ) -> AsyncIterator[Any]:
        """Published resources: ``types``, and ``data`` with the last change."""
        request = pb.GetResourcesRequest(
            device_id_filter=device_ids, resource_id_filter=named(resources), type_filter=types
        )
        async for answer in self.answers("GetResources", request):
            yield answer

    async def pending_commands(
        self, *, device_ids: Iterable[str] = (), hidden: bool = False
    ) -> AsyncIterator[Any]:
        """Commands that wait; with ``hidden`` also those to resources that are not published."""
        request = pb.GetPendingCommandsRequest(
            device_id_filter=device_ids, include_hidden_resources=hidden
        )
        async for answer in self.answers("GetPendingCommands", request):
            yield event_of(answer)

    async def devices_metadata(self, *, device_ids: Iterable[str] = ()) -> AsyncIterator[Any]:
        """The last metadata of devices."""
        request = pb.GetDevicesMetadataRequest(device_id_filter=device_ids)
        async for answer in self.answers("GetDevicesMetadata", request):
            yield answer

    async def resource_links(self, *, device_ids: Iterable[str] = ()) -> AsyncIterator[Any]:
        """The links of devices."""
        request = pb.GetResourceLinksRequest(device_id_filter=device_ids)
        async for answer in self.answers("GetResourceLinks", request):
            yield answer

    async def devices(self, *, device_ids: Iterable[str] = ()) -> AsyncIterator[Any]:
        """Devices with names, models and metadata."""
        request = pb.GetDevicesRequest(device_id_filter=device_ids)
        async for answer in self.answers("GetDevices", request):
            yield answer

    async def subscribe(self, create: Any = None) -> AsyncIterator[Any]:
        """Events of the bus from now on, first the answer that the subscription is there.

        ``create`` is a ``CreateSubscription`` with filters; none means all. Events may be lost while the gateway
        or its bus is away: nothing here is kept.
        """
        request = pb.SubscribeToEvents(create_subscription=create or {}, correlation_id="1")
        for left in reversed(range(REFUSALS_LOST_MAX)):
            call = self.stubs["SubscribeToEvents"](metadata=self.metadata())
            answered = False
            try:
                await call.write(request)
                async for answer in call:
                    answered = True
                    status = answer.operation_processed.error_status
                    if answer.WhichOneof("type") == "operation_processed" and status.code:
                        raise GatewayError("INVALID_ARGUMENT", status.message)
                    yield answer
            except grpc.RpcError as error:
                if answered or not left or error.details() != STATUS_LOST:
                    raise error_of(error) from error
            else:
                return
            finally:
                call.cancel()


class BlockingGatewayClient(Calls):
    """The same for blocking code; the reconciliation uses it."""

    def _channel(self, tls: ClientTls | None) -> Any:
        if tls is None:
            return grpc.insecure_channel(self.target, options=OPTIONS)
        return grpc.secure_channel(self.target, tls.credentials(), options=OPTIONS)

    def __enter__(self) -> BlockingGatewayClient:
        """The client."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.channel.close()

    def answers(self, name: str, request: Any) -> Iterator[Any]:
        """The answers to a request; raises GatewayError."""
        try:
            yield from self.call(name, request)
        except grpc.RpcError as error:
            raise error_of(error) from error

    def events(
        self,
        *,
        device_ids: Iterable[str] = (),
        resources: Iterable[ResourceName] = (),
        after_ns: int = 0,
    ) -> Iterator[Any]:
        """Events that the store keeps: of devices and resources (none: all), after a time."""
        request = events_request(device_ids, resources, after_ns)
        return map(event_of, self.answers("GetEvents", request))

    def resource_links(self, *, device_ids: Iterable[str] = ()) -> Iterator[Any]:
        """The links of devices."""
        return self.answers(
            "GetResourceLinks", pb.GetResourceLinksRequest(device_id_filter=device_ids)
        )

    def devices(self, *, device_ids: Iterable[str] = ()) -> Iterator[Any]:
        """Devices with names, models and metadata."""
        return self.answers("GetDevices", pb.GetDevicesRequest(device_id_filter=device_ids))
