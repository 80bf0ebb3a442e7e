"""A service as state, without transport: its endpoints and groups, its answers, its figures.

The shells subscribe for the endpoints and call their handlers; this module answers requests about the
service itself as they arrive.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from pelton.errors import CallbackFailedError, InvalidSubjectError, PeltonError, ServiceError

from ..base.steps import Attach, Mailbox, call
from ..plans.jetstream import encode_header_map
from ..session.session import PENDING_BYTES_MAX, PENDING_MESSAGES_MAX
from . import models
from .models import (
    EndpointInfo,
    EndpointStats,
    ServiceConfig,
    ServiceInfo,
    ServicePing,
    ServiceStats,
    check_name,
    check_queue,
    check_subject,
    check_texts,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..base.interest import Interest
    from ..base.message import BaseMessage
    from ..base.steps import Steps
    from ..plans.jetstream import Headers
    from ..session.session import Session
    from ..session.subscribing import Subscribed

T = TypeVar("T")
PREFIX = "$SRV"
VERBS = ("PING", "INFO", "STATS")
BAD_REQUEST = "400"
INTERNAL = "500"


class BaseRequest:
    """A request to an endpoint."""

    def __init__(self, client: Session[Any], message: Any) -> None:
        """Made by the service."""
        self.client = client
        """The client that received it."""
        self.message = message
        """The message as it was received."""
        self.answered = False
        """Whether an answer or an error was sent."""
        self.failure = ""
        """The error that was sent, "" for none."""

    @property
    def subject(self) -> str:
        """The subject of the request."""
        subject: str = self.message.subject
        return subject

    @property
    def data(self) -> bytes:
        """The payload."""
        data: bytes = self.message.data
        return data

    @property
    def headers(self) -> dict[str, list[str]]:
        """The headers: every name with its values in order."""
        headers: dict[str, list[str]] = self.message.headers
        return headers

    def header(self, name: str) -> str | None:
        """The first value of a header, or None."""
        value: str | None = self.message.header(name)
        return value

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

    def _answer(self, data: bytes, headers: Headers | None) -> None:
        self.message._check_answerable()
        self.client._connection.publish(self.message.reply, data, "", encode_header_map(headers))
        self.client._plan_flush()
        self.answered = True

    def _fail(self, code: str, description: str, data: bytes, headers: Headers | None) -> None:
        if not code or not description:
            raise ValueError("an error of a service needs a code and a description")
        description = " ".join(description.split())  # a header has one line
        extra = {models.ERROR: description, models.ERROR_CODE: code}
        self._answer(data, {**(headers or {}), **extra})
        self.failure = f"{code}:{description}"


R = TypeVar("R", bound=BaseRequest)


class Endpoint(Generic[R]):
    """An endpoint of a service, and its figures."""

    def __init__(
        self, info: EndpointInfo, handler: Callable[[R], Any], concurrency: int | None
    ) -> None:
        """Not subscribed yet."""
        self.info = info
        self.handler = handler
        self.concurrency = concurrency
        self.subscription: Any
        self.stats = EndpointStats()
        self.reset()

    def reset(self) -> None:
        """Count from zero."""
        info = self.info
        self.stats = EndpointStats(
            name=info.name, subject=info.subject, queue_group=info.queue_group
        )

    def count(self, seconds: float, failure: str) -> None:
        """A request was handled."""
        stats = self.stats
        stats.num_requests += 1
        stats.processing_time_ns += int(seconds * 1e9)
        stats.average_processing_time_ns = stats.processing_time_ns // stats.num_requests
        if failure:
            stats.num_errors += 1
            stats.last_error = failure


K = TypeVar("K", bound=Callable[..., Any])
G = TypeVar("G", bound="Grouping[Any, Any, Any]")


class Control(Mailbox):
    """The owner of the subscriptions to requests about the service."""

    def __init__(self, service: Serving[Any, Any, Any]) -> None:
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


class Grouping(ABC, Generic[R, K, G]):
    """Endpoints below a prefix: the common part of a service and its groups.

    K: the type of handlers; G: the shell's groups.
    """

    client: Session[Any]
    """The client that it belongs to."""
    _service: Serving[R, K, G]
    _prefix: str
    _queue_group: str | None

    def _below(self, subject: str) -> str:
        return f"{self._prefix}.{subject}" if self._prefix else subject

    def _queue(self, queue_group: str | None) -> str | None:
        """The queue group: the given one, or for "" that of the group."""
        return self._queue_group if queue_group == "" else check_queue(queue_group)

    @abstractmethod
    def _new_group(self) -> G:
        """A group of the shell, which ``group`` places."""

    def group(self, prefix: str, *, queue_group: str | None = "") -> G:
        """Endpoints below a prefix.

        ``queue_group``: that of its endpoints; "" for that of the group or service above, None for none.
        """
        group = self._new_group()
        group.client = self.client
        group._service = self._service
        group._prefix = check_subject(self._below(prefix))
        if ">" in prefix:
            raise InvalidSubjectError(f"no endpoint can be below the prefix {prefix!r}")
        group._queue_group = self._queue(queue_group)
        return group

    def _add(
        self,
        name: str,
        handler: K,
        subject: str | None = None,
        metadata: Mapping[str, str] | None = None,
        queue_group: str | None = "",
        concurrency: int | None = None,
        pending_messages_max: int = PENDING_MESSAGES_MAX,
        pending_bytes_max: int = PENDING_BYTES_MAX,
    ) -> None:
        service = self._service
        check_name(name, "endpoint name")
        if not callable(handler):
            raise TypeError(f"the handler of endpoint {name!r} is not callable")
        if concurrency is not None and concurrency < 1:
            raise ValueError(f"at least one handler runs at a time, got {concurrency}")
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
        endpoint: Endpoint[R] = Endpoint(info, handler, concurrency)
        endpoint.subscription = subscription = service._subscription(
            endpoint, pending_messages_max, pending_bytes_max
        )
        self.client._attach(whole, subscription, info.queue_group)
        service._endpoints.append(endpoint)

    def _adding(
        self,
        name: str,
        handler: K,
        *,
        subject: str | None = None,
        metadata: Mapping[str, str] | None = None,
        queue_group: str | None = "",
        concurrency: int | None = None,
        pending_messages_max: int = PENDING_MESSAGES_MAX,
        pending_bytes_max: int = PENDING_BYTES_MAX,
    ) -> Steps[None]:
        """Answer requests with a handler: a function of a request, in asyncio also a coroutine function.

        ``subject``: the name by default; below the prefix of the group. ``queue_group``: "" for that of the
        group or service, None for none. ``concurrency``: how many requests are handled at a time; by default
        one after the other, in the order of their arrival. Other requests wait up to the pending limits, and
        more are dropped. Raises ValueError and InvalidSubjectError for bad arguments, or for a subject that the
        service has already.
        """
        self._add(
            name,
            handler,
            subject,
            metadata,
            queue_group,
            concurrency,
            pending_messages_max,
            pending_bytes_max,
        )
        yield from ()

    add_endpoint = call(_adding)

    def _decorator(
        self,
        name: str,
        subject: str | None,
        metadata: Mapping[str, str] | None,
        queue_group: str | None,
        concurrency: int | None,
    ) -> Callable[[Any], Any]:
        if not isinstance(name, str):
            raise TypeError(
                f'an endpoint has a name: write `@service.endpoint("name")`, not {name!r}'
            )

        def add(handler: Any) -> Any:
            self._add(name, handler, subject, metadata, queue_group, concurrency)
            return handler

        return add


class Serving(Grouping[R, K, G]):
    """A service: the part of both shells."""

    def __init__(self, client: Session[Any], config: ServiceConfig) -> None:
        """Made by ``add_service``."""
        if not isinstance(config, ServiceConfig):
            raise TypeError(f"give a ServiceConfig, not {type(config).__name__}")
        self.client = client
        """The client that it belongs to."""
        self._service = self
        self._prefix = ""
        self._queue_group = config.queue_group
        self.config = config
        """What it was made with."""
        self.id = client.new_id()
        """The instance."""
        self.stopped = False
        """Whether it takes no more requests."""
        self._ended = False  # whether all that arrived are answered, too
        self._started = self._time()
        self._endpoints: list[Endpoint[R]] = []
        self._controls: list[Control] = []
        self._changes = Mailbox()

    def _begin(self) -> Steps[None]:
        """Subscribe to the requests about the service."""
        for verb in VERBS:
            all_of = f"{PREFIX}.{verb}"
            named = f"{all_of}.{self.config.name}"
            for subject in (all_of, named, f"{named}.{self.id}"):
                control = Control(self)
                yield Attach(subject, control)
                self._controls.append(control)

    def _subscription(
        self, endpoint: Endpoint[R], messages_max: int, bytes_max: int
    ) -> Subscribed[Any]:
        """The subscription of an endpoint, which the client attaches; implemented by the shells."""
        raise TypeError("a service belongs to a shell")

    def _time(self) -> datetime:
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

    def info(self) -> ServiceInfo:
        """The service and its endpoints, as it answers to ``$SRV.INFO``."""
        endpoints = [each.info for each in self._endpoints]
        return ServiceInfo(
            **self._identity(), description=self.config.description, endpoints=endpoints
        )

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

    def reset(self) -> None:
        """Count from zero."""
        for each in self._endpoints:
            each.reset()
        self._started = self._time()

    def _describe(self, verb: str) -> bytes:
        if verb == "PING":
            return models.encode(ServicePing(**self._identity()))
        if verb == "INFO":
            return models.encode(self.info())
        try:
            return models.encode(self.stats())
        except Exception as error:  # of the user's stats handler, or of encoding what it returned
            self._report("the stats handler", error)
            endpoints = [each.stats for each in self._endpoints]
            stats = ServiceStats(**self._identity(), started=self._started, endpoints=endpoints)
            return models.encode(stats)

    def _report(self, what: str, error: Exception, message: object = None) -> None:
        text = f"{what} of service {self.config.name!r} failed: {type(error).__name__}: {error}"
        failed = CallbackFailedError(text, getattr(message, "subject", ""), message)
        failed.__cause__ = error
        self.client._report(failed)

    # -- requests ----------------------------------------------------------------------------------

    def _succeeded(self, endpoint: Endpoint[R], request: R, result: object) -> None:
        """The handler returned: bytes are the answer."""
        if result is None or request.answered or not request.message.reply:
            return
        if not isinstance(result, bytes | bytearray | memoryview):
            raise TypeError(f"a handler returns bytes or None, not {type(result).__name__}")
        request._answer(bytes(result), None)

    def _failed(self, endpoint: Endpoint[R], request: R, error: Exception) -> None:
        """The handler raised: answer with an error."""
        if isinstance(error, ServiceError):
            code, description, data = error.code, error.description, error.data
        else:
            code, description, data = INTERNAL, "internal error", b""
            self._report(f"endpoint {endpoint.info.name!r}", error, request.message)
        if not request.answered and request.message.reply:
            try:
                request._fail(code, description, data, None)
            except (PeltonError, ValueError) as reason:
                self.client._report(reason)
        if not isinstance(error, ServiceError):
            request.failure = f"{code}:{type(error).__name__}: {error}"
        request.failure = request.failure or f"{code}:{description}"

    # -- ending ------------------------------------------------------------------------------------

    def _end(self) -> None:
        """No request follows."""
        self.stopped = self._ended = True
        self._changes._stir()

    def _close(self) -> None:
        for control in self._controls:
            self.client._release(control._interest)
        self._end()

    def _check_lost(self) -> None:
        """Raise ConnectionClosedError when the client was lost."""
        for control in self._controls[:1]:
            control._interest.check()
