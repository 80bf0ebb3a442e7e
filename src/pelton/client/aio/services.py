"""Services, for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

from pelton.errors import PeltonError

from ..base.arguments import waits
from ..base.forgotten import AsyncOnly
from ..services.discovery import Finding
from ..services.serving import BaseRequest, Endpoint, Grouping, Serving
from .messages import Message
from .running import Awaited
from .subscription import Subscription, cancelled
from .waiting import until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..plans.jetstream import Headers
    from .connection import Client

Handler: TypeAlias = Callable[["Request"], "bytes | Awaitable[bytes | None] | None"]
"""A handler of requests: a function or a coroutine function."""
H = TypeVar("H", bound=Handler)


class Sent:
    """An answer on its way: it may be awaited, until the connection takes more."""

    __slots__ = ("_client",)

    def __init__(self, client: Client) -> None:
        """The answer is queued already."""
        self._client = client

    def __await__(self) -> Generator[Any, None, None]:
        """Wait while the connection has more than enough to write."""
        return self._client._wait_writable().__await__()


class Request(BaseRequest):
    """A request to an endpoint, given to its handler.

    Example::

        async def add(request: Request) -> None:
            await request.respond(str(sum(request.json(list[int]))).encode())
    """

    client: Client

    def respond(self, data: bytes = b"", headers: Headers | None = None) -> Sent:
        """Answer; a handler may also return the bytes.

        The answer is queued at once. Awaiting the result waits while the connection is full. ValueError when
        the message asks for no answer.
        """
        self._answer(data, headers)
        return Sent(self.client)

    def error(
        self, code: str, description: str, data: bytes = b"", headers: Headers | None = None
    ) -> Sent:
        """Answer with an error; a handler may also raise ServiceError. Otherwise as ``respond``."""
        self._fail(code, description, data, headers)
        return Sent(self.client)


class ServiceGroup(Awaited, Grouping[Request, Handler, "ServiceGroup"]):
    """Endpoints below a prefix; made by ``Service.group``.

    ::

        async with await nc.add_service(ServiceConfig(name="sums", version="1.0.0")) as service:
            await service.group("v1").add_endpoint("add", handle)
    """

    client: Client

    def _new_group(self) -> ServiceGroup:
        return ServiceGroup()

    def endpoint(
        self,
        name: str,
        *,
        subject: str | None = None,
        metadata: Mapping[str, str] | None = None,
        queue_group: str | None = "",
        concurrency: int | None = None,
    ) -> Callable[[H], H]:
        """Decorate the handler of an endpoint; arguments and errors as ``add_endpoint``."""
        return self._decorator(name, subject, metadata, queue_group, concurrency)


class Service(ServiceGroup, AsyncOnly, Serving[Request, Handler, ServiceGroup]):
    """A service; made by ``Client.add_service``. It answers until ``stop``, or the end of ``async with``.

    Handlers run in the loop of the client: functions as requests arrive, coroutine functions one request
    after the other for each endpoint, or as many at a time as its ``concurrency`` says. What a handler
    returns is the answer. When it raises ServiceError, that is the answer; any other exception is answered
    with code 500 and passed to ``on_error``.

    Example::

        service = await client.add_service(ServiceConfig(name="sums", version="1.0.0"))

        @service.endpoint("add")
        async def add(request: Request) -> bytes:
            return str(sum(request.json(list[int]))).encode()

        await service.run()
    """

    client: Client

    def _subscription(
        self, endpoint: Endpoint[Request], messages_max: int, bytes_max: int
    ) -> Subscription:
        async def waiting(message: Message) -> None:
            await self._wait_for(endpoint, message)

        def at_once(message: Message) -> None:
            self._handle(endpoint, message)

        concurrency = endpoint.concurrency or 1
        awaited = waits(endpoint.handler)
        if concurrency > 1 and not awaited:
            raise ValueError("only coroutine functions run concurrently: give one as the handler")
        return Subscription(
            self.client, waiting if awaited else at_once, messages_max, bytes_max, concurrency
        )

    def _handle(self, endpoint: Endpoint[Request], message: Message) -> None:
        request = Request(self.client, message)
        start = self.client._clock()
        try:
            self._succeeded(endpoint, request, endpoint.handler(request))
        except Exception as error:
            self._failed(endpoint, request, error)
        endpoint.count(self.client._clock() - start, request.failure)

    async def _wait_for(self, endpoint: Endpoint[Request], message: Message) -> None:
        request = Request(self.client, message)
        start = self.client._clock()
        try:
            result: Any = endpoint.handler(request)
            self._succeeded(endpoint, request, await result)
            await self.client._wait_writable()
        except Exception as error:
            self._failed(endpoint, request, error)
        except asyncio.CancelledError as error:
            if cancelled():
                raise
            self._failed(endpoint, request, RuntimeError(f"the handler was cancelled: {error!r}"))
        endpoint.count(self.client._clock() - start, request.failure)

    async def run(self) -> None:
        """Wait until the service is stopped; ConnectionClosedError when the client is lost."""
        await self._wait_for_end()
        self._check_lost()

    async def _wait_for_end(self) -> None:
        await until(self.client, self._changes, lambda: self._ended, math.inf)
        if not self.client.closed:  # a handler that has stopped the service goes on
            for endpoint in self._endpoints:
                await endpoint.subscription._all_handled()

    async def stop(self) -> None:
        """Take no more requests, answer those that have arrived, and stop.

        A second call waits for the end of the first; that of a handler returns at once.
        """
        if self.stopped:
            if not any(each.subscription._handles() for each in self._endpoints):
                await self._wait_for_end()
            return
        self.stopped = True
        for endpoint in self._endpoints:
            subscription: Subscription = endpoint.subscription
            with contextlib.suppress(PeltonError):  # the client is closed, or has no connection
                await subscription.drain()
        self._close()

    async def __aenter__(self) -> Self:
        """The service itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        await self.stop()


class ServiceClient(Awaited, Finding[Message]):
    """Finds services and calls them; made by ``Client.service_client``.

    Example::

        for each in await client.service_client().ping():
            print(each.name, each.version, each.id)
    """

    client: Client
