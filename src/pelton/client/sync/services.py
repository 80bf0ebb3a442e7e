# Made of client/aio/services.py by tools/gen_sync.py: change that file, and run it again.
"""Services: endpoints whose handlers answer requests, and the client that finds services."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

import msgspec

from pelton.errors import (
    CallbackFailedError,
    ConnectionLostError,
    InvalidSubjectError,
    NoRespondersError,
    PeltonError,
    ProtocolError,
    ServiceError,
)

from ..base.arguments import refuse
from ..base.mailbox import Interest, Mailbox
from ..base.message import BaseMessage, Headers, HeadersLike, encode_header_map, merged_headers
from ..services import (
    BAD_REQUEST,
    ERROR,
    ERROR_CODE,
    INFO_TYPE,
    INTERNAL,
    PING_TYPE,
    STALL_S,
    STATS_TYPE,
    VERBS,
    EndpointInfo,
    EndpointStats,
    ServiceConfig,
    ServiceInfo,
    ServicePing,
    ServiceStats,
    check_concurrency,
    check_name,
    check_queue,
    check_subject,
    check_texts,
    decode,
    encode,
    subjects_of,
)
from ..session.session import PENDING_BYTES_MAX, PENDING_MESSAGES_MAX
from ..session.subscribing import Subscribed
from .locks import locked
from .workers import Answer, Sent, Workers, sent

if TYPE_CHECKING:
    from ..base.durations import Duration
    from .connection import Client
    from .messages import Message

Handler: TypeAlias = Callable[["Request"], Answer]
"""A handler of requests: a function, in asyncio also a coroutine function."""
H = TypeVar("H", bound=Handler)
T = TypeVar("T")
A = TypeVar("A", ServicePing, ServiceInfo, ServiceStats)


class Request:
    """A request to an endpoint, given to its handler.

    Example::

        def add(request: Request) -> None:
            request.respond(str(sum(request.json(list[int]))).encode())
    """

    def __init__(self, client: Client, message: Message) -> None:
        """Made by the service."""
        self.client = client
        """The client that received it."""
        self.message = message
        """The message as it was received."""
        self.answered = False
        """Whether an answer or an error was sent."""
        self.failure = ""
        """The error that was sent, "" for none."""
        self._begun = client._clock()  # when its handler began

    @property
    def subject(self) -> str:
        """The subject of the request."""
        return self.message.subject

    @property
    def data(self) -> bytes:
        """The payload."""
        return self.message.data

    @property
    def headers(self) -> Headers:
        """The headers; ``headers["Kind"]`` is the first value."""
        return self.message.headers

    def header(self, name: str) -> str | None:
        """The first value of a header, or None."""
        return self.message.header(name)

    def json(self, kind: type[T] = object) -> T:  # type: ignore[assignment]  # any JSON by default
        """The payload as JSON, checked to be of this type: a dataclass, a msgspec.Struct, ``dict[str, int]`` ...

        Raises ServiceError with code 400, which a handler lets pass to answer with it.
        """
        try:
            found: Any = msgspec.json.decode(self.data, type=Any if kind is object else kind)
        except msgspec.MsgspecError as error:
            raise ServiceError(BAD_REQUEST, f"the request is not as expected: {error}") from None
        result: T = found
        return result

    @locked
    def respond(self, data: bytes = b"", headers: HeadersLike | None = None) -> Sent:
        """Answer; a handler may also return the bytes.

        The answer is queued at once. In asyncio the result may be awaited, which waits while the connection is
        full. ValueError when the message asks for no answer.
        """
        self._answer(data, headers)
        return sent(self.client)

    @locked
    def error(
        self, code: str, description: str, data: bytes = b"", headers: HeadersLike | None = None
    ) -> Sent:
        """Answer with an error; a handler may also raise ServiceError. Otherwise as ``respond``."""
        self._fail(code, description, data, headers)
        return sent(self.client)

    def _answer(self, data: bytes, headers: HeadersLike | None) -> None:
        if not self.message.reply:
            raise ValueError("the message has no reply subject")
        self.client._connection.publish(self.message.reply, data, "", encode_header_map(headers))
        self.client._plan_flush()
        self.answered = True

    def _fail(self, code: str, description: str, data: bytes, headers: HeadersLike | None) -> None:
        if not code or not description:
            raise ValueError("an error of a service needs a code and a description")
        description = " ".join(description.split())  # a header has one line
        extra = {ERROR: description, ERROR_CODE: code}
        # ADR-32: an error is an answer with these headers.
        self._answer(data, merged_headers(headers, extra))
        self.failure = f"{code}:{description}"


class Endpoint:
    """An endpoint of a service: its subscription, the pool of its handler, and its figures."""

    def __init__(
        self,
        service: Service,
        info: EndpointInfo,
        handler: Handler,
        concurrency: int | None,
        limits: tuple[int, int],
    ) -> None:
        """Not subscribed yet; ``limits``: of messages and bytes that wait."""
        self.info = info
        self.subscription: Subscribed = Subscribed(service.client, *limits)
        self._service = service
        self.reset()
        self.subscription._pool = service._workers.pool(
            handler,
            self.subscription._queue,
            begin=self._begin,
            settle=self._settle,
            limit=concurrency,
            what=f"the handler of endpoint {info.name!r}",
        )

    def reset(self) -> None:
        """Count from zero."""
        info = self.info
        self.stats = EndpointStats(
            name=info.name, subject=info.subject, queue_group=info.queue_group
        )

    def _begin(self, message: Message) -> Request:
        self.subscription._handed_over(message)
        return Request(self._service.client, message)

    def _settle(self, request: Request, result: object, error: Exception | None) -> None:
        """The handler has ended: answer, and count the request."""
        if error is None:
            error = _answer_with(request, result)
        if error is not None:
            self._on_failure(request, error)
        stats = self.stats
        stats.num_requests += 1
        stats.processing_time_ns += int((self._service.client._clock() - request._begun) * 1e9)
        stats.average_processing_time_ns = stats.processing_time_ns // stats.num_requests
        if request.failure:
            stats.num_errors += 1
            stats.last_error = request.failure

    def _on_failure(self, request: Request, error: Exception) -> None:
        """The handler raised: answer with an error."""
        service = self._service
        if isinstance(error, ServiceError):
            code, description, data = error.code, error.description, error.data
        else:
            code, description, data = INTERNAL, "internal error", b""
            service._report(f"endpoint {self.info.name!r}", error, request.message)
        if not request.answered and request.message.reply:
            try:
                request._fail(code, description, data, None)
            except (PeltonError, ValueError) as reason:
                service.client._report(reason)
        if not isinstance(error, ServiceError):
            request.failure = f"{code}:{type(error).__name__}: {error}"
        request.failure = request.failure or f"{code}:{description}"


def _answer_with(request: Request, result: object) -> Exception | None:
    """Answer with what a handler returned; returns why that is not possible."""
    if result is None or request.answered or not request.message.reply:
        return None
    if not isinstance(result, bytes | bytearray | memoryview):
        return TypeError(f"a handler returns bytes or None, not {type(result).__name__}")
    try:
        request._answer(bytes(result), None)
    except Exception as error:
        return error
    return None


class Control(Mailbox):
    """The owner of a subscription to requests about the service, which are answered as they arrive."""

    def __init__(self, service: Service) -> None:
        """Not subscribed yet."""
        self.client = service.client
        self._interest: Interest
        self._service = service

    def _on_message(self, message: BaseMessage) -> None:
        """Answer."""
        if not message.reply:
            return
        verb = message.subject.split(".")[1]
        self.client._connection.publish(message.reply, self._service._describe(verb))
        self.client._plan_flush()

    def _on_end(self) -> None:
        """The client is closed."""
        self._service._end()


class ServiceGroup:
    """Endpoints below a prefix; made by ``Service.group``.

    ::

        with nc.add_service(ServiceConfig(name="sums", version="1.0.0")) as service:
            service.group("v1").add_endpoint("add", handle)
    """

    def __init__(self, service: Service, prefix: str, queue_group: str | None) -> None:
        """Made by ``group``."""
        self.client: Client = service.client
        """The client that it belongs to."""
        self._service = service
        self._prefix = prefix
        self._queue_group = queue_group

    def group(self, prefix: str, *, queue_group: str | None = "") -> ServiceGroup:
        """Endpoints below a prefix.

        ``queue_group``: that of its endpoints; "" for that of the group or service above, None for none.
        """
        whole = check_subject(self._below(prefix))
        if ">" in prefix:
            raise InvalidSubjectError(f"no endpoint can be below the prefix {prefix!r}")
        return ServiceGroup(self._service, whole, self._queue(queue_group))

    @locked
    def add_endpoint(
        self,
        name: str,
        handler: Handler,
        *,
        subject: str | None = None,
        metadata: Mapping[str, str] | None = None,
        queue_group: str | None = "",
        concurrency: int | None = None,
        pending_messages_max: int = PENDING_MESSAGES_MAX,
        pending_bytes_max: int = PENDING_BYTES_MAX,
    ) -> None:
        """Answer requests with a handler: a function of a request, in asyncio also a coroutine function.

        ``subject``: the name by default; below the prefix of the group. ``queue_group``: "" for that of the
        group or service, None for none. ``concurrency``: how many requests are handled at a time; by default
        one after the other, in the order of their arrival. Other requests wait up to the pending limits, and
        more are dropped. Raises ValueError and InvalidSubjectError for bad arguments, or for a subject that the
        service has already.
        """
        limits = pending_messages_max, pending_bytes_max
        self._add(name, handler, subject, metadata, queue_group, concurrency, limits)

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
        if not isinstance(name, str):
            raise TypeError(
                f'an endpoint has a name: write `@service.endpoint("name")`, not {name!r}'
            )

        def add(handler: H) -> H:
            self._add(name, handler, subject, metadata, queue_group, concurrency)
            return handler

        return add

    @locked
    def _add(
        self,
        name: str,
        handler: Handler,
        subject: str | None = None,
        metadata: Mapping[str, str] | None = None,
        queue_group: str | None = "",
        concurrency: int | None = None,
        limits: tuple[int, int] = (PENDING_MESSAGES_MAX, PENDING_BYTES_MAX),
    ) -> None:
        service = self._service
        check_name(name, "endpoint name")
        if not callable(handler):
            raise TypeError(f"the handler of endpoint {name!r} is not callable")
        check_concurrency(concurrency)
        whole = check_subject(self._below(name if subject is None else subject))
        if any(each.info.subject == whole for each in service._endpoints):
            raise ValueError(f"the service has an endpoint for the subject {whole!r} already")
        info = EndpointInfo(
            name=name,
            subject=whole,
            queue_group=self._queue(queue_group) or "",
            metadata=check_texts(metadata or {}),
        )
        if service.stopped:
            raise RuntimeError(f"the service {service.config.name!r} is stopped")
        endpoint = Endpoint(service, info, handler, concurrency, limits)
        self.client._attach(whole, endpoint.subscription, info.queue_group)
        service._endpoints.append(endpoint)

    def _below(self, subject: str) -> str:
        check_subject(subject)
        return f"{self._prefix}.{subject}" if self._prefix else subject

    def _queue(self, queue_group: str | None) -> str | None:
        """The queue group: the given one, or for "" that of the group."""
        return self._queue_group if queue_group == "" else check_queue(queue_group)


class Service(ServiceGroup):
    """A service; made by ``Client.add_service``. It answers until ``stop``, or the end of its block.

    In asyncio handlers run in the loop of the client: functions as requests arrive, coroutine functions one
    request after the other for each endpoint, or as many at a time as its ``concurrency`` says. In blocking code
    they run while a thread calls ``run``: in that thread, one at a time (several threads may call it), or those
    of an endpoint with ``concurrency`` in as many threads of their own; ``ping`` and its siblings are answered
    also while nobody calls it.

    What a handler returns is the answer. When it raises ServiceError, that is the answer; any other exception is
    answered with code 500, kept in ``last_error`` of the client and passed to ``on_error``.

    Example::

        with nc.add_service(ServiceConfig(name="sums", version="1.0.0")) as service:

            @service.endpoint("add")
            def add(request) -> bytes:
                return str(sum(request.json(list[int]))).encode()

            service.run()
    """

    def __init__(self, client: Client, config: ServiceConfig) -> None:
        """Made by ``add_service``."""
        if not isinstance(config, ServiceConfig):
            refuse("config", "a ServiceConfig", config)
        self.client = client
        super().__init__(self, "", config.queue_group)
        self.config = config
        """What it was made with."""
        self.id = client.new_id()
        """The instance."""
        self.stopped = False
        """Whether it takes no more requests."""
        self._ended = False  # whether all that arrived are answered, too
        self._started = self._now()
        self._endpoints: list[Endpoint] = []
        self._controls: list[Control] = []
        self._changes = Mailbox()
        self._workers = Workers(client, self._changes)

    def _begin(self) -> None:
        """Subscribe to the requests about the service."""
        for verb in VERBS:
            for subject in subjects_of(verb, self.config.name, self.id):
                control = Control(self)
                self.client._attach(subject, control)
                self._controls.append(control)

    # -- what it answers about itself --------------------------------------------------------------

    def info(self) -> ServiceInfo:
        """The service and its endpoints, as it answers to ``$SRV.INFO``."""
        endpoints = [each.info for each in self._endpoints]
        return ServiceInfo(
            **self._identity(), description=self.config.description, endpoints=endpoints
        )

    @locked
    def stats(self) -> ServiceStats:
        """The figures of the service, as it answers to ``$SRV.STATS``."""
        handler = self.config.stats_handler
        endpoints: list[EndpointStats] = []
        for each in self._endpoints:
            stats = msgspec.structs.replace(each.stats)
            if handler is not None:
                stats.data = handler(stats)
            endpoints.append(stats)
        return ServiceStats(**self._identity(), started=self._started, endpoints=endpoints)

    @locked
    def reset(self) -> None:
        """Count from zero."""
        for each in self._endpoints:
            each.reset()
        self._started = self._now()

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.client._now_ns() / 1e9, UTC)

    def _identity(self) -> dict[str, Any]:
        config = self.config
        metadata = dict(config.metadata)
        return {
            "name": config.name,
            "id": self.id,
            "version": config.version,
            "metadata": metadata,
        }

    def _describe(self, verb: str) -> bytes:
        if verb == "PING":
            return encode(ServicePing(**self._identity()))
        if verb == "INFO":
            return encode(self.info())
        try:
            return encode(self.stats())
        except Exception as error:  # of the user's stats handler, or of encoding what it returned
            self._report("the stats handler", error)
            endpoints = [each.stats for each in self._endpoints]
            stats = ServiceStats(**self._identity(), started=self._started, endpoints=endpoints)
            return encode(stats)

    def _report(self, what: str, error: Exception, message: object = None) -> None:
        text = f"{what} of service {self.config.name!r} failed: {type(error).__name__}: {error}"
        failed = CallbackFailedError(text, getattr(message, "subject", ""), message)
        failed.__cause__ = error
        self.client._report(failed)

    # -- running and ending ------------------------------------------------------------------------

    @locked
    def run(self, timeout: Duration | None = None) -> None:
        """Let handlers answer requests until the service is stopped, or ``timeout`` seconds are over.

        Handlers that run in tasks or threads of their own may continue after ``timeout``; ``stop`` waits for
        them. Raises ConnectionClosedError when the client is lost.
        """
        seconds = math.inf if timeout is None else self.client._timeout_of(timeout)
        if self._workers.run(lambda: self.stopped, seconds):
            self._wait_for_end()
            # Raises why the client was lost; after ``stop`` there is no such reason.
            for control in self._controls[:1]:
                control._interest.check()

    @locked
    def stop(self) -> None:
        """Take no more requests, answer those that have arrived, and stop.

        A second call waits for the end of the first; that of a handler returns at once.
        """
        again, self.stopped = self.stopped, True
        self._changes._stir()
        if again:
            self._wait_for_end()
            return
        try:
            self._answer_all()
        except (
            PeltonError
        ):  # the client is closed, or no server can be reached: nobody gets an answer
            for each in self._endpoints:
                each.subscription._queue.clear()
        for control in self._controls:
            self.client._release(control._interest)
        self._end()

    @locked
    def __enter__(self) -> Self:
        """The service itself."""
        return self

    @locked
    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def _answer_all(self) -> None:
        """Unsubscribe, and answer what was sent before."""
        connection = self.client._connection
        try:
            for each in self._endpoints:
                connection.drain(each.subscription._interest)
            if not connection.connected:
                # Requests came over the lost connection, so an answer has no way back: closing does not wait.
                raise ConnectionLostError("not connected")
            self.client.flush()
        finally:
            for each in self._endpoints:
                connection.forget(each.subscription._interest)
                each.subscription._on_end()
        self._workers.finish()
        self.client._send_queued()

    def _wait_for_end(self) -> None:
        """Wait until the service has stopped, unless a handler makes this call, which has to end before."""
        if self._workers.inside():
            return
        with contextlib.suppress(PeltonError):
            self.client._until(self._changes, lambda: self._ended, math.inf)
            if not self.client.closed:
                self._workers.finish()

    def _end(self) -> None:
        """No request follows."""
        self.stopped = self._ended = True
        self._workers.close()
        self._changes._stir()


class ServiceClient:
    """Finds services and calls them; made by ``Client.service_client``.

    Example::

        for each in nc.service_client().ping():
            print(each.name, each.version, each.id)
    """

    def __init__(self, client: Client) -> None:
        """Sends no request."""
        self.client = client
        """The client that it belongs to."""

    @locked
    def ping(
        self,
        name: str = "",
        service_id: str = "",
        *,
        max_wait: Duration | None = None,
        stall: Duration = STALL_S,
    ) -> list[ServicePing]:
        """Who is there: all instances, those of the service ``name``, or the one with ``service_id``.

        Waits at most ``max_wait`` seconds (the timeout of the options), and ``stall`` seconds for each next
        answer. An empty list when nobody answers; ValueError for a ``service_id`` without a name.
        """
        return self._ask("PING", name, service_id, max_wait, stall, ServicePing, PING_TYPE)

    @locked
    def info(
        self,
        name: str = "",
        service_id: str = "",
        *,
        max_wait: Duration | None = None,
        stall: Duration = STALL_S,
    ) -> list[ServiceInfo]:
        """The endpoints of services; arguments as ``ping``."""
        return self._ask("INFO", name, service_id, max_wait, stall, ServiceInfo, INFO_TYPE)

    @locked
    def stats(
        self,
        name: str = "",
        service_id: str = "",
        *,
        max_wait: Duration | None = None,
        stall: Duration = STALL_S,
    ) -> list[ServiceStats]:
        """The statistics of services; arguments as ``ping``."""
        return self._ask("STATS", name, service_id, max_wait, stall, ServiceStats, STATS_TYPE)

    @locked
    def request(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: HeadersLike | None = None,
        timeout: Duration | None = None,
    ) -> Message:
        """Call an endpoint; returns its answer.

        Raises ServiceError when the answer is an error of the service, and otherwise as
        ``Client.request``.
        """
        answer = self.client.request(subject, data, headers=headers, timeout=timeout)
        code = answer.header(ERROR_CODE)
        if code is not None:
            raise ServiceError(code, answer.header(ERROR) or "", answer.data)
        return answer

    def _ask(
        self,
        verb: str,
        name: str,
        service_id: str,
        max_wait: Duration | None,
        stall: Duration,
        kind: type[A],
        type_name: str,
    ) -> list[A]:
        for argument, value in (("name", name), ("service_id", service_id)):
            if not isinstance(value, str):
                refuse(argument, "text", value)
        if service_id and not name:
            raise ValueError("give the name of the service, too, to ask for one instance")
        if name:
            check_name(name, "service name")
        if service_id:
            check_name(service_id, "service id")
        # The place in the tuple is the number of names that are given.
        subject = subjects_of(verb, name, service_id)[bool(name) + bool(service_id)]
        most = 1 if service_id else None
        answers = self.client.request_many(
            subject, max_messages=most, max_wait=max_wait, stall=stall
        )
        found: list[A] = []
        with contextlib.suppress(NoRespondersError):
            for message in answers:
                try:
                    each = decode(message.data, kind)
                except ProtocolError as error:
                    self.client._report(error)
                    continue
                if each.type == type_name:
                    found.append(each)
        return found
