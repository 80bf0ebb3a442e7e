"""Spans for OpenTelemetry: the client's publishes, requests, receives and handlers, in asyncio and in threads.

::

    from pelton.opentelemetry import PeltonInstrumentor

    PeltonInstrumentor().instrument()

or ``opentelemetry-instrument python app.py``. Spans and attributes follow OpenTelemetry's conventions for messaging::

    publish orders.new     PRODUCER   publishes of all kinds; writes its context into the message's headers
    request help           CLIENT     the same, and waits for the answer
    receive ORDERS         CLIENT     next, fetch, iterations; links to the contexts in the messages
    process ORDERS         CONSUMER   a handler; child of the context in the message, or with a link to it

``instrument`` replaces the methods in ``_WRAPPED`` on their classes, so it also reaches clients that are open, and
``uninstrument`` puts the original methods back. Needs the extra ``otel``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from contextlib import AbstractContextManager, aclosing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from time import time_ns
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pelton.api.subjects import parse_ack
from pelton.client.base.arguments import waits
from pelton.client.base.message import BaseMessage, merged_headers
from pelton.errors import not_installed

try:
    from opentelemetry import context as contexts
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.instrumentation import utils
    from opentelemetry.instrumentation.instrumentor import BaseInstrumentor
    from opentelemetry.trace import INVALID_SPAN, Link, SpanKind, Status, StatusCode
except ModuleNotFoundError as problem:
    raise not_installed(problem, "otel") from None

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterator

    from opentelemetry.trace import Span, Tracer

    Wrap: TypeAlias = Callable[["Tracing", Any], Any]

SCHEMA = "https://opentelemetry.io/schemas/1.27.0"
"""The version of the conventions that the spans follow."""
_RECEIVING = contexts.create_key("pelton-receiving")  # in a call that may be made of others
_MISSING: Any = object()


class PeltonInstrumentor(BaseInstrumentor):  # type: ignore[misc]  # mypy sees nothing of it
    """Switches the spans on and off, for all clients of the process.

    Options of ``instrument``: ``tracer_provider``, the global one by default; ``producer``, "parent" or "link":
    whether the span of a handler continues the trace of the publish ("parent", the default), or begins a trace
    with a link to it.
    """

    _replaced: list[tuple[type, str, Any]]

    def instrumentation_dependencies(self) -> Collection[str]:
        """None: this module is part of what it instruments."""
        return ()

    def _instrument(self, **kwargs: Any) -> None:
        from pelton import __version__

        producer: Literal["parent", "link"] = kwargs.get("producer", "parent")
        if producer not in ("parent", "link"):
            raise ValueError(f'producer must be "parent" or "link", got {producer!r}')
        provider = kwargs.get("tracer_provider")
        tracer = trace.get_tracer(__name__, __version__, provider, schema_url=SCHEMA)
        tracing = Tracing(tracer, linked=producer == "link")
        self._replaced = []
        for halves, module, owner, names, wrap in _WRAPPED:
            for half, name in product(halves.split(), names.split()):
                kind = getattr(import_module(f"pelton.client.{half}.{module}"), owner)
                before = vars(kind).get(name, _MISSING)
                self._replaced.append((kind, name, before))
                setattr(kind, name, wrap(tracing, before))

    def _uninstrument(self, **_: Any) -> None:
        for kind, name, before in self._replaced:
            delattr(kind, name) if before is _MISSING else setattr(kind, name, before)


def context_of(message: BaseMessage) -> Context:
    """The context that the publisher wrote into a message, for spans of a program's own.

    For example ``tracer.start_as_current_span("pack", context=context_of(message))``.
    """
    return propagate.extract(_carrier(message), context=Context())


def _carrier(message: BaseMessage) -> dict[str, list[str]]:
    if not message.raw_headers:
        return {}
    try:
        # in lower case, because Go programs write Traceparent
        return {name.lower(): values for name, values in message.headers.lists().items()}
    except ValueError:  # invalid headers
        return {}


# -- spans ---------------------------------------------------------------------------------------------------------


@dataclass
class Result:
    """What a call returned: a message, a list or None."""

    value: Any = None


@dataclass
class Tracing:
    """Makes the spans: a context manager for each kind of operation."""

    tracer: Tracer
    linked: (
        bool  # whether the span of a handler is linked to that of the publish, and not its child
    )

    @contextmanager
    def _sending(
        self, operation: str, kind: SpanKind, sender: Any, args: Any, options: dict[str, Any]
    ) -> Iterator[Result]:
        """The span of a call that publishes; its context is added to the headers in ``options``."""
        if not utils.is_instrumentation_enabled():
            yield Result()
            return
        given = dict(zip(("subject", "data"), args, strict=False)) | options
        data = given.get("data", b"")
        where = _subject(sender.client, str(given.get("subject", "")))
        attributes = _attributes(sender.client, operation, "send") | where
        if isinstance(data, bytes):
            attributes["messaging.message.body.size"] = len(data)
        if msg_id := options.get("msg_id"):
            attributes["messaging.message.id"] = str(msg_id)
        span = self.tracer.start_span(_name(operation, where), kind=kind, attributes=attributes)
        with _ended(span):
            headers = options.get("headers")
            carrier: dict[str, str] = {}
            propagate.inject(carrier, trace.set_span_in_context(span))
            # the call itself refuses other headers than a mapping
            if sender.client.server_info.headers and isinstance(headers, Mapping | None):
                options["headers"] = merged_headers(headers, carrier)
            yield Result()

    publishing = functools.partialmethod(_sending, "publish", SpanKind.PRODUCER)
    requesting = functools.partialmethod(_sending, "request", SpanKind.CLIENT)

    @contextmanager
    def receiving(self, taker: Any, *_: object) -> Iterator[Result]:
        """The span of a call that returns messages: made when it ends, because it links to the messages.

        A call that returns none leaves no span, unless it fails.
        """
        result = Result()
        if not utils.is_instrumentation_enabled() or contexts.get_value(_RECEIVING):
            yield result
            return
        begun_ns = time_ns()
        token = contexts.attach(contexts.set_value(_RECEIVING, True))
        try:
            yield result
        except (StopIteration, StopAsyncIteration):
            raise
        except Exception as error:
            _fail(self._received(taker, None, begun_ns), error).end()
            raise
        finally:
            contexts.detach(token)
        if result.value:
            self._received(taker, result.value, begun_ns).end()

    def _received(self, taker: Any, found: Any, begun_ns: int) -> Span:
        attributes = _attributes(taker.client, "receive", "receive")
        messages: list[BaseMessage] = found if isinstance(found, list) else [found] * bool(found)
        name = getattr(taker, "subject", "") or getattr(taker, "stream", "") or taker._intake.stream
        where = _place(messages[0]) if messages else _subject(taker.client, name)
        if isinstance(found, list):
            attributes["messaging.batch.message_count"] = len(messages)
        elif messages:
            attributes |= _content(found)
        name, links = _name("receive", where), _links(messages)
        return self.tracer.start_span(
            name, None, SpanKind.CLIENT, attributes | where, links, begun_ns
        )

    @contextmanager
    def processing(self, item: Any) -> Iterator[None]:
        """The span of a handler, current while it runs; ``item``: the message, or the request, that it gets."""
        message: BaseMessage = getattr(item, "message", item)
        where = _place(message)
        attributes = _attributes(item.client, "process", "process") | where | _content(message)
        context, links = context_of(message), []
        if self.linked:
            links = _links([message])
            context = trace.set_span_in_context(INVALID_SPAN, context)
        name = _name("process", where)
        span = self.tracer.start_span(name, context, SpanKind.CONSUMER, attributes, links)
        token = contexts.attach(trace.set_span_in_context(span, context))
        try:
            with _ended(span):
                yield
        finally:
            contexts.detach(token)


@contextmanager
def _ended(span: Span) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        _fail(span, error)
        raise
    finally:
        span.end()


def _fail(span: Span, error: Exception) -> Span:
    kind = type(error).__qualname__
    span.record_exception(error)
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, f"{kind}: {error}"))
    return span


def _links(messages: list[BaseMessage]) -> list[Link]:
    spans = (trace.get_current_span(context_of(each)).get_span_context() for each in messages)
    return [Link(each) for each in spans if each.is_valid]


def _attributes(client: Any, operation: str, kind: str) -> dict[str, Any]:
    attributes = {"messaging.system": "nats", "messaging.operation.name": operation}
    attributes["messaging.operation.type"] = kind
    if client.options.name:
        attributes["messaging.client.id"] = client.options.name
    server = client.connected_server
    if server is None:
        return attributes
    port = {} if server.memory else {"server.port": server.port}
    return attributes | {"server.address": server.host} | port


def _place(message: BaseMessage) -> dict[str, Any]:
    """Where a message came from: the stream and the consumer, or the subject and the queue group."""
    found = parse_ack(message.reply)
    if found is not None:
        return {
            "messaging.destination.name": found.stream,
            "messaging.consumer.group.name": found.consumer,
            "messaging.nats.message.subject": message.subject,
        }
    interest = message._interest
    where = _subject(interest.owner.client, message.subject)
    if interest.subject != message.subject:
        where["messaging.destination.template"] = interest.subject
    if interest.queue:
        where["messaging.consumer.group.name"] = interest.queue
    return where


def _subject(client: Any, subject: str) -> dict[str, Any]:
    where: dict[str, Any] = {"messaging.destination.name": subject}
    if subject.startswith(f"{client.options.inbox_prefix}."):
        where["messaging.destination.temporary"] = True
    return where


def _name(operation: str, where: Mapping[str, Any]) -> str:
    """The name of a span, without what differs from one message to the next."""
    if where.get("messaging.destination.temporary"):
        return operation
    template = where.get("messaging.destination.template")
    return f"{operation} {template or where['messaging.destination.name']}"


def _content(message: BaseMessage) -> dict[str, Any]:
    msg_id = _carrier(message).get("nats-msg-id")
    named = {"messaging.message.id": msg_id[0]} if msg_id else {}
    return {"messaging.message.body.size": len(message.data), **named}


# -- what is wrapped -----------------------------------------------------------------------------------------------


def _calls(begin: Callable[..., AbstractContextManager[Result]]) -> Wrap:
    """Wraps methods, with a span for each call."""

    def wrap(tracing: Tracing, original: Any) -> Any:
        @functools.wraps(original)
        async def awaited(self: Any, *args: Any, **options: Any) -> Any:
            with begin(tracing, self, args, options) as result:
                result.value = await original(self, *args, **options)
                return result.value

        @functools.wraps(original)
        def called(self: Any, *args: Any, **options: Any) -> Any:
            with begin(tracing, self, args, options) as result:
                result.value = original(self, *args, **options)
                return result.value

        return awaited if inspect.iscoroutinefunction(original) else called

    return wrap


def _answers(tracing: Tracing, original: Any) -> Any:
    """Wraps ``request_many``, with a span until the iteration over the answers ends."""

    @functools.wraps(original)
    async def awaited(self: Any, *args: Any, **options: Any) -> AsyncIterator[Any]:
        with tracing.requesting(self, args, options):
            async with aclosing(original(self, *args, **options)) as answers:
                async for each in answers:
                    yield each

    @functools.wraps(original)
    def called(self: Any, *args: Any, **options: Any) -> Iterator[Any]:
        with tracing.requesting(self, args, options):
            yield from original(self, *args, **options)

    return awaited if inspect.isasyncgenfunction(original) else called


def _messages(tracing: Tracing, original: Any) -> Any:
    """Wraps a generator of messages, with a span for each."""

    @functools.wraps(original)
    def called(self: Any) -> Iterator[Any]:
        messages = original(self)
        while True:
            with tracing.receiving(self) as result:
                result.value = next(messages, None)
            if result.value is None:
                return
            yield result.value

    return called


@dataclass
class _Handlers:
    """A data descriptor for an attribute with a handler: adds a span, also for objects that have one already."""

    tracing: Tracing
    original: object

    def __set__(self, pool: Any, handler: Callable[[Any], Any]) -> None:
        vars(pool)["_callback"] = handler

    def __get__(self, pool: Any, _: type) -> Callable[[Any], Any]:
        handler = vars(pool)["_callback"]
        return functools.partial(self._awaited if waits(handler) else self._called, handler)

    async def _awaited(self, handler: Callable[[Any], Any], item: Any) -> Any:
        with self.tracing.processing(item):
            return await handler(item)

    def _called(self, handler: Callable[[Any], Any], item: Any) -> Any:
        with self.tracing.processing(item):
            return handler(item)


_publishes = _calls(Tracing.publishing)
_requests = _calls(Tracing.requesting)
_receives = _calls(Tracing.receiving)

# What is wrapped, in both halves of the client or in one: module, class, methods, and what wraps them.
_WRAPPED: tuple[tuple[str, str, str, str, Wrap], ...] = (
    ("aio sync", "backend", "Backend", "publish", _publishes),
    ("aio sync", "jetstream", "JetStream", "publish", _publishes),
    ("aio sync", "sending", "WindowSender", "publish", _publishes),  # Publisher
    ("aio sync", "sending", "FlowSender", "publish", _publishes),  # FastBatch
    ("aio sync", "publishing", "AtomicBatch", "add", _publishes),
    ("aio sync", "connection", "Client", "request", _requests),
    ("aio sync", "connection", "Client", "request_many", _answers),
    ("aio sync", "subscription", "Subscription", "next", _receives),
    ("aio", "subscription", "Subscription", "__anext__", _receives),
    ("sync", "subscription", "Subscription", "__iter__", _messages),
    ("aio sync", "consumers", "Consumer", "next fetch", _receives),
    ("aio sync", "consumers", "OrderedConsumer", "next fetch", _receives),
    ("aio sync", "consumers", "PushConsumer", "next fetch", _receives),
    ("aio", "operations", "Operation", "__anext__", _receives),
    ("sync", "operations", "Operation", "__next__", _receives),
    ("aio sync", "workers", "Pool", "_callback", _Handlers),
)
