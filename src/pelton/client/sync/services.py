"""Services, for blocking code."""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Self, TypeAlias, TypeVar

from pelton.errors import PeltonError

from ..base.arguments import waits
from ..base.forgotten import BlockingOnly
from ..services.discovery import Finding
from ..services.serving import BaseRequest, Endpoint, Grouping, Serving
from .messages import Message
from .running import Blocking, exclusive, run
from .subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..base.durations import Duration
    from ..plans.jetstream import Headers
    from ..services.models import ServiceConfig
    from .connection import Client

Handler: TypeAlias = Callable[["Request"], "bytes | None"]
"""A handler of requests."""
H = TypeVar("H", bound=Handler)


class Request(BaseRequest):
    """A request to an endpoint, given to its handler.

    Example::

        def add(request: BlockingRequest) -> None:
            request.respond(str(sum(request.json(list[int]))).encode())
    """

    client: Client

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


class Threads:
    """The threads in which the handlers of one endpoint run: as many as are needed, up to a limit."""

    def __init__(self, most: int, handle: Callable[[Message], None]) -> None:
        """``handle`` handles one request, and raises nothing."""
        self._most = most
        self._handle = handle
        self._jobs: SimpleQueue[Message | None] = SimpleQueue()
        self._started = 0
        self.busy = 0

    @property
    def free(self) -> bool:
        """Whether another request may begin."""
        return self.busy < self._most

    def begin(self, message: Message) -> None:
        """Let a thread handle the request; for callers that have the client's guard."""
        self.busy += 1
        if self.busy > self._started:
            self._started += 1
            threading.Thread(target=self._work, daemon=True).start()
        self._jobs.put(message)

    def end(self) -> None:
        """No request follows."""
        for _ in range(self._started):
            self._jobs.put(None)

    def _work(self) -> None:
        while (message := self._jobs.get()) is not None:
            self._handle(message)


class Service(ServiceGroup, BlockingOnly, Serving[Request, Handler, ServiceGroup]):
    """A service; made by ``Client.add_service``.

    Requests are handled while a thread calls ``run``: in that thread, one at a time (several threads may
    call it), or those of an endpoint with ``concurrency`` in as many threads of their own. ``ping`` and its
    siblings are answered also while nobody calls it. What a handler returns is the answer. When it raises
    ServiceError, that is the answer; any other exception is answered with code 500, kept in ``last_error``
    and passed to ``on_error``.

    Example::

        with client.add_service(ServiceConfig(name="sums", version="1.0.0")) as service:

            @service.endpoint("add")
            def add(request: BlockingRequest) -> bytes:
                return str(sum(request.json(list[int]))).encode()

            service.run()
    """

    client: Client

    def __init__(self, client: Client, config: ServiceConfig) -> None:
        """Made by ``add_service``."""
        super().__init__(client, config)
        self._threads: dict[str, Threads] = {}  # of endpoints with concurrency, by subject
        self._running = 0  # requests that are being handled, or that a thread is about to handle
        self._handlers: list[int] = []  # threads that are inside a handler

    def _subscription(
        self, endpoint: Endpoint[Request], messages_max: int, bytes_max: int
    ) -> Subscription:
        if waits(endpoint.handler):
            raise TypeError(
                f"the handler of endpoint {endpoint.info.name!r} is a coroutine function: "
                "give a function, or use connect()"
            )
        if endpoint.concurrency is not None:
            self._threads[endpoint.info.subject] = Threads(
                endpoint.concurrency,
                functools.partial(self._handle, endpoint, caught=BaseException),
            )
        return Subscription(self.client, messages_max, bytes_max)

    def _ready(self, endpoint: Endpoint[Request]) -> bool:
        """Whether an endpoint has a request that may be handled now."""
        threads = self._threads.get(endpoint.info.subject)
        return endpoint.subscription.pending > 0 and (threads is None or threads.free)

    def _has_work(self) -> bool:
        return self.stopped or any(self._ready(each) for each in self._endpoints)

    def run(self, timeout: Duration | None = None) -> None:
        """Handle requests until a handler calls ``stop``, or ``timeout`` seconds are over.

        Handlers that run in threads may continue after ``timeout``; ``stop`` waits for them. Raises
        ConnectionClosedError when the client is lost.
        """
        seconds = math.inf if timeout is None else self.client._timeout_of(timeout)
        deadline = time.monotonic() + seconds
        while not self.stopped:
            if self.client._connection.bytes_waiting:
                self.client._flush_output()
            left = deadline - time.monotonic()
            if left <= 0 or not self.client._wait_until(self._has_work, left, self._changes):
                return
            self._handle_arrived()
        self._wait_for_end()
        self._check_lost()

    def _wait_for_end(self) -> None:
        """Until the service has stopped and no handler runs, unless one makes this call."""
        if threading.get_ident() not in self._handlers:
            with contextlib.suppress(PeltonError):
                self.client._wait_until(self._is_over, math.inf, self._changes)

    def _is_over(self) -> bool:
        return self._ended and (not self._running or self.client.closed)

    def _handle_arrived(self) -> None:
        """Handle one request of each endpoint that has one, or let its threads handle all that they can."""
        for endpoint in list(self._endpoints):
            subscription: Subscription = endpoint.subscription
            threads = self._threads.get(endpoint.info.subject)
            with self.client._guard:
                while threads is not None and self._ready(endpoint):
                    self._running += 1
                    threads.begin(subscription._take(tell=False))
                if threads is not None or not subscription.pending:
                    continue
                self._running += 1
                message = subscription._take(tell=False)
            self._handle(endpoint, message)

    def _handle(
        self,
        endpoint: Endpoint[Request],
        message: Message,
        caught: type[BaseException] = Exception,
    ) -> None:
        client, me = self.client, threading.get_ident()
        request = Request(client, message)
        self._handlers.append(me)
        start = client._clock()
        try:
            result = endpoint.handler(request)
            with client._guard:
                self._succeeded(endpoint, request, result)
        except caught as error:
            ended = RuntimeError(f"the handler ended its thread: {error!r}")
            with client._guard:
                self._failed(endpoint, request, error if isinstance(error, Exception) else ended)
        finally:
            with client._guard:
                endpoint.count(client._clock() - start, request.failure)
                self._handlers.remove(me)
                self._running -= 1
                if threads := self._threads.get(endpoint.info.subject):
                    threads.busy -= 1
                if threads is not None or self.stopped:
                    self._changes._stir()

    def _all_handled(self) -> bool:
        """Whether no request waits, and no handler runs but those that make this call."""
        inside = self._handlers.count(threading.get_ident())
        return self._running == inside and not any(
            each.subscription.pending for each in self._endpoints
        )

    def _may_go_on(self) -> bool:
        return self._all_handled() or any(self._ready(each) for each in self._endpoints)

    def _end(self) -> None:
        super()._end()
        for each in self._threads.values():
            each.end()

    def stop(self) -> None:
        """Take no more requests, answer those that have arrived, and stop.

        A second call waits for the end of the first; that of a handler returns at once.
        """
        with self.client._guard:
            again, self.stopped = self.stopped, True
            self._changes._stir()
        if again:
            self._wait_for_end()
            return
        if not self.client._connection.connected:
            self._close()  # nothing can be answered, and nothing arrives
            return
        try:
            for endpoint in self._endpoints:
                run(self.client, endpoint.subscription._draining())
            while True:
                self._handle_arrived()
                self.client._wait_until(self._may_go_on, math.inf, self._changes)
                if self._all_handled():
                    break
            self._close()
            self.client._flush_output()
        except PeltonError:  # the client is closed, or no server can be reached
            self._end()

    def __enter__(self) -> Self:
        """The service itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()


class ServiceClient(Blocking, Finding[Message]):
    """Finds services and calls them; made by ``Client.service_client``.

    Example::

        for each in client.service_client().ping():
            print(each.name, each.version, each.id)
    """

    client: Client
