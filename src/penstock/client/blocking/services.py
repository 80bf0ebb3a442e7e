"""Services, for blocking code."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self, TypeAlias, TypeVar

from penstock.errors import PenstockError

from ..arguments import waits
from ..services.discovery import Finding
from ..services.serving import BaseRequest, Endpoint, Grouping, Serving
from .messages import BlockingMessage
from .running import Blocking, exclusive, run
from .subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..durations import Duration
    from ..jetstream import Headers
    from .connection import BlockingClient

Handler: TypeAlias = Callable[["Request"], "bytes | None"]
"""A handler of requests."""
H = TypeVar("H", bound=Handler)


class Request(BaseRequest):
    """A request to an endpoint, given to its handler.

    Example::

        def add(request: BlockingRequest) -> None:
            request.respond(str(sum(request.json(list[int]))).encode())
    """

    client: BlockingClient

    @exclusive
    def respond(self, data: bytes = b"", headers: Headers | None = None) -> None:
        """Answer; a handler may also return the bytes. ValueError when the message asks for no answer."""
        self._answer(data, headers)

    @exclusive
    def error(
        self, code: str, description: str, data: bytes = b"", headers: Headers | None = None
    ) -> None:
        """Answer with an error; a handler may also raise ServiceError. Otherwise as ``respond``."""
        self._fail(code, description, data, headers)


class ServiceGroup(Blocking, Grouping[Request, Handler, "ServiceGroup"]):
    """Endpoints below a prefix; made by ``Service.group``.

    ::

        with nc.add_service(ServiceConfig(name="sums", version="1.0.0")) as service:
            service.group("v1").add_endpoint("add", handle)
    """

    client: BlockingClient

    def _new_group(self) -> ServiceGroup:
        return ServiceGroup()

    def endpoint(
        self,
        name: str,
        *,
        subject: str | None = None,
        metadata: Mapping[str, str] | None = None,
        queue_group: str | None = "",
    ) -> Callable[[H], H]:
        """Decorate the handler of an endpoint; arguments and errors as ``add_endpoint``."""
        return self._decorator(name, subject, metadata, queue_group)


class Service(ServiceGroup, Serving[Request, Handler, ServiceGroup]):
    """A service; made by ``BlockingClient.add_service``.

    Handlers run in the thread that calls ``run``, one request at a time; several threads may call it.
    ``ping`` and its siblings are answered also while nobody does. What a handler returns is the answer. When
    it raises ServiceError, that is the answer; any other exception is answered with code 500 and kept in
    ``last_error``.

    Example::

        with client.add_service(ServiceConfig(name="sums", version="1.0.0")) as service:

            @service.endpoint("add")
            def add(request: BlockingRequest) -> bytes:
                return str(sum(request.json(list[int]))).encode()

            service.run()
    """

    client: BlockingClient

    def _subscription(
        self, endpoint: Endpoint[Request], messages_max: int, bytes_max: int
    ) -> Subscription:
        if waits(endpoint.handler):
            raise TypeError(
                f"the handler of endpoint {endpoint.info.name!r} is a coroutine function: "
                "give a function, or use connect()"
            )
        return Subscription(self.client, messages_max, bytes_max)

    def _busy(self) -> bool:
        return self.stopped or any(each.subscription.pending for each in self._endpoints)

    def run(self, timeout: Duration | None = None) -> None:
        """Handle requests until a handler calls ``stop``, or ``timeout`` seconds are over.

        Raises ConnectionClosed when the client is lost.
        """
        seconds = math.inf if timeout is None else self.client.timeout_of(timeout)
        deadline = time.monotonic() + seconds
        while not self.stopped:
            if self.client.connection.bytes_waiting:
                self.client.flush_output()
            left = deadline - time.monotonic()
            if left <= 0 or not self.client.wait_until(self._busy, left, self._changes):
                return
            self._handle_arrived()
        self._check_lost()

    def _handle_arrived(self) -> None:
        """Handle one request of each endpoint that has one."""
        for endpoint in list(self._endpoints):
            subscription: Subscription = endpoint.subscription
            with self.client.guard:
                if not subscription.pending:
                    continue
                message = subscription._take(tell=False)
            self._handle(endpoint, message)

    def _handle(self, endpoint: Endpoint[Request], message: BlockingMessage) -> None:
        request = Request(self.client, message)
        start = self.client.clock()
        try:
            result = endpoint.handler(request)
            with self.client.guard:
                self._succeeded(endpoint, request, result)
        except Exception as error:
            with self.client.guard:
                self._failed(endpoint, request, error)
        with self.client.guard:
            endpoint.count(self.client.clock() - start, request.failure)

    def stop(self) -> None:
        """Take no more requests, answer those that have arrived, and stop; a second call does nothing."""
        with self.client.guard:
            if self.stopped:
                return
            self.stopped = True
            self._changes.stir()
        if not self.client.connection.connected:
            self._close()  # nothing can be answered, and nothing arrives
            return
        try:
            for endpoint in self._endpoints:
                run(self.client, endpoint.subscription.draining())
            while any(each.subscription.pending for each in self._endpoints):
                self._handle_arrived()
            self._close()
            self.client.flush_output()
        except PenstockError:  # the client is closed, or no server can be reached
            self._end()

    def __enter__(self) -> Self:
        """The service itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()


class ServiceClient(Blocking, Finding[BlockingMessage]):
    """Finds services and calls them; made by ``BlockingClient.service_client``.

    Example::

        for each in client.service_client().ping():
            print(each.name, each.version, each.id)
    """

    client: BlockingClient
