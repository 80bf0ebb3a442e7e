"""The spans of `pelton.opentelemetry`, in both shells, beside every server there is."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import entry_points
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nats
import pytest
from opentelemetry import trace
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, format_span_id, format_trace_id

from pelton import ConsumerConfig, Headers, ServiceConfig, StreamConfig, connect, sync
from pelton.errors import (
    InvalidSubjectError,
    NoRespondersError,
    PayloadTooLargeError,
    ServiceError,
    StreamNotFoundError,
    WrongLastSequenceError,
)
from pelton.opentelemetry import _WRAPPED, PeltonInstrumentor, context_of
from tests.client.shells import connected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.sdk.trace import ReadableSpan

    from tests.peers import ServerProcess


class Spans:
    """The spans that have ended, and a tracer for spans of the test's own."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")

    def take(self) -> list[ReadableSpan]:
        """All of the client since the last call, in the order of their ends."""
        found = self.exporter.get_finished_spans()
        self.exporter.clear()
        return [each for each in found if each.instrumentation_scope.name == "pelton.opentelemetry"]

    def one(self, name: str) -> ReadableSpan:
        """The only one since the last call."""
        found = self.take()
        assert [each.name for each in found] == [name]
        return found[0]

    @contextmanager
    def recorded(self, **options: Any) -> Iterator[Spans]:
        PeltonInstrumentor().instrument(tracer_provider=self.provider, **options)
        try:
            yield self
        finally:
            PeltonInstrumentor().uninstrument()


@pytest.fixture
def spans() -> Iterator[Spans]:
    with Spans().recorded() as spans:
        yield spans


def traceparent(span: ReadableSpan) -> str:
    """What a message carries that was published in the span."""
    at = span.context
    return f"00-{format_trace_id(at.trace_id)}-{format_span_id(at.span_id)}-{at.trace_flags:02x}"


def attributes(span: ReadableSpan, server: ServerProcess | None = None) -> dict[str, Any]:
    """The attributes without those that every span has, which are checked here."""
    found = {name.removeprefix("messaging."): value for name, value in span.attributes.items()}
    assert found.pop("system") == "nats"
    host, port = found.pop("server.address"), found.pop("server.port")
    assert server is None or server.url == f"nats://{host}:{port}"
    return found


def links(span: ReadableSpan) -> list[int]:
    return [each.context.span_id for each in span.links]


def ids(*spans: ReadableSpan) -> list[int]:
    return [each.context.span_id for each in spans]


# -- publishes -----------------------------------------------------------------------------------------------------


def test_a_publish_writes_its_context_into_the_message(
    spans: Spans, shell: str, server: ServerProcess, unique: str
) -> None:
    with connected(shell, server.url, name="packer") as client:
        subscription = client.subscribe(unique)
        with spans.tracer.start_as_current_span("outer") as outer:
            client.publish(unique, b"hello", headers={"Kind": ["a", "b"], "traceparent": "mine"})
        published = spans.one(f"publish {unique}")
        message = subscription.next(5)
    assert published.kind is SpanKind.PRODUCER
    assert published.parent.span_id == outer.get_span_context().span_id
    assert published.status.status_code is StatusCode.UNSET
    assert attributes(published, server) == {
        "operation.name": "publish",
        "operation.type": "send",
        "destination.name": unique,
        "message.body.size": 5,
        "client.id": "packer",
    }
    assert message.headers.lists() == {
        "Kind": ["a", "b"],
        "traceparent": [traceparent(published)],
    }


def test_nats_py_sees_the_context(spans: Spans, server: ServerProcess, unique: str) -> None:
    async def body() -> None:
        theirs = await nats.connect(server.url)
        subscription = await theirs.subscribe(unique)
        await theirs.flush()
        async with connect(server.url) as client:
            await client.publish(unique, b"hello")
        message = await subscription.next_msg(5)
        assert message.headers == {"traceparent": traceparent(spans.one(f"publish {unique}"))}
        await theirs.close()

    asyncio.run(body())


@pytest.mark.needs("allow_atomic", "allow_batched")
def test_every_publish_into_a_stream_has_a_span(
    spans: Spans, shell: str, server: ServerProcess, unique: str
) -> None:
    with connected(shell, server.url) as client:
        js = client.jetstream()
        allowed = {"allow_atomic": True, "allow_batched": True}
        js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"], **allowed))
        spans.take()
        js.publish(f"{unique}.plain", b"1", msg_id="one")
        with js.publisher() as publisher:
            publisher.publish(subject=f"{unique}.window", data=b"22", msg_id="two")
        with js.atomic_batch() as batch:
            batch.add(f"{unique}.atomic", data=b"333")
            batch.add(f"{unique}.atomic", b"333", headers={"Kind": "x"})
        with js.fast_batch() as batch:
            batch.publish(f"{unique}.fast", b"4444")
        found = spans.take()
        stored = [js.get_message(unique, seq) for seq in range(1, 6)]
    kinds = ["plain", "window", "atomic", "atomic", "fast"]
    assert [each.name for each in found] == [f"publish {unique}.{kind}" for kind in kinds]
    assert {each.kind for each in found} == {SpanKind.PRODUCER}
    assert [each.headers["traceparent"] for each in stored] == [traceparent(s) for s in found]
    assert stored[3].headers["Kind"] == "x"
    assert attributes(found[0], server) == {
        "operation.name": "publish",
        "operation.type": "send",
        "destination.name": f"{unique}.plain",
        "message.body.size": 1,
        "message.id": "one",
    }
    assert attributes(found[1])["message.id"] == "two"
    assert [attributes(each)["message.body.size"] for each in found] == [1, 2, 3, 3, 4]


def test_a_publish_that_fails_is_an_error(
    spans: Spans, shell: str, server: ServerProcess, unique: str
) -> None:
    with connected(shell, server.url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name=unique, subjects=[unique]))
        with pytest.raises(WrongLastSequenceError) as problem:
            js.publish(unique, expected_last_seq=7)
        with pytest.raises(InvalidSubjectError):
            client.publish("two words")
        with pytest.raises(TypeError, match="headers"):
            client.publish(unique, b"", headers=[("a", "b")])
        with pytest.raises(TypeError):
            client.publish()
        found = spans.take()[-4:]
    assert {each.status.status_code for each in found} == {StatusCode.ERROR}
    kinds = [each.attributes["error.type"] for each in found]
    assert kinds == ["WrongLastSequenceError", "InvalidSubjectError", "TypeError", "TypeError"]
    assert str(problem.value) in found[0].status.description
    assert found[0].events[0].attributes["exception.message"] == str(problem.value)


def test_answers_have_no_subject_in_their_name(
    spans: Spans, shell: str, server: ServerProcess
) -> None:
    with connected(shell, server.url) as client:
        inbox = client.new_inbox()
        subscription = client.subscribe(inbox)
        client.publish(inbox, b"x")
        subscription.next(5)
        published, received = spans.take()
    assert (published.name, received.name) == ("publish", "receive")
    for each in (published, received):
        assert attributes(each)["destination.name"] == inbox
        assert attributes(each)["destination.temporary"] is True


def test_a_server_without_headers_gets_none(spans: Spans) -> None:
    lines: list[bytes] = []
    info = {"server_id": "S", "version": "2.10.0", "headers": False, "max_payload": 1024}

    def serve(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            connection.sendall(b"INFO " + json.dumps(info).encode() + b"\r\n")
            for line in connection.makefile("rb"):
                lines.append(line)
                if line == b"PING\r\n":
                    connection.sendall(b"PONG\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=[listening])
        thread.start()
        with sync.connect(f"nats://127.0.0.1:{listening.getsockname()[1]}") as client:
            client.publish("news", b"sunny")
            client.flush()
        thread.join()
    assert b"PUB news 5\r\n" in lines
    spans.one("publish news")


# -- requests and services -----------------------------------------------------------------------------------------


def test_a_request_and_the_handler_of_a_service_are_one_trace(
    spans: Spans, shell: str, server: ServerProcess, unique: str
) -> None:
    current: list[int] = []

    def add(request: Any) -> bytes:
        current.append(trace.get_current_span().get_span_context().span_id)
        if request.data == b"bad":
            raise ServiceError("400", "a bad request")
        return b"answer"

    with connected(shell, server.url) as client, sync.connect(server.url) as asking:
        service = client.add_service(ServiceConfig(name=unique, version="1.0.0"))
        service.add_endpoint("add", add, subject=f"{unique}.*")
        client.flush()
        running = threading.Thread(target=service.run)
        running.start()
        try:
            with spans.tracer.start_as_current_span("outer") as outer:
                assert asking.request(f"{unique}.add", b"two").data == b"answer"
            with pytest.raises(ServiceError):
                asking.service_client().request(f"{unique}.add", b"bad")
        finally:
            if shell == "blocking":
                service.stop()
            else:
                asyncio.run_coroutine_threadsafe(service._inner.stop(), service._loop)
            running.join()
    found = spans.take()
    (good, bad) = (each for each in found if each.name.startswith("process"))
    asked, refused = (each for each in found if each.name.startswith("request"))
    assert len(found) == 4
    assert (asked.name, asked.kind) == (f"request {unique}.add", SpanKind.CLIENT)
    assert asked.parent.span_id == outer.get_span_context().span_id
    assert attributes(asked, server) == {
        "operation.name": "request",
        "operation.type": "send",
        "destination.name": f"{unique}.add",
        "message.body.size": 3,
    }
    assert (good.name, good.kind) == (f"process {unique}.*", SpanKind.CONSUMER)
    assert good.parent.span_id == asked.context.span_id
    assert good.context.trace_id == asked.context.trace_id
    assert current == ids(good, bad)
    assert attributes(good, server) == {
        "operation.name": "process",
        "operation.type": "process",
        "destination.name": f"{unique}.add",
        "destination.template": f"{unique}.*",
        "consumer.group.name": "q",
        "message.body.size": 3,
    }
    assert bad.parent.span_id == refused.context.span_id
    assert bad.status.status_code is StatusCode.ERROR
    assert bad.events[0].attributes["exception.type"].endswith("ServiceError")
    assert refused.status.status_code is StatusCode.UNSET  # there is an answer


def test_a_request_that_nobody_answers_is_an_error(
    spans: Spans, shell: str, server: ServerProcess, unique: str
) -> None:
    with connected(shell, server.url) as client:
        with pytest.raises(NoRespondersError):
            client.request(unique, b"")
        span = spans.one(f"request {unique}")
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["error.type"] == "NoRespondersError"


def test_a_request_for_many_answers_has_one_span(
    spans: Spans, shell: str, server: ServerProcess, unique: str
) -> None:
    with connected(shell, server.url) as client, sync.connect(server.url) as other:
        subscription = other.subscribe(unique)

        def answer() -> None:
            message = subscription.next(10)
            headers.append(message.header("traceparent"))
            for number in range(3):
                message.respond(b"%d" % number)

        headers: list[str] = []
        other.flush()
        thread = threading.Thread(target=answer)
        thread.start()
        found = list(client.request_many(unique, b"?", max_messages=3))
        thread.join()
        assert [each.data for each in found] == [b"0", b"1", b"2"]
    asked = next(each for each in spans.take() if each.name.startswith("request"))
    assert headers == [traceparent(asked)]
    assert asked.kind is SpanKind.CLIENT


# -- receives ------------------------------------------------------------------------------------------------------


def test_a_subscription_links_to_the_publishes(
    spans: Spans, shell: str, server: ServerProcess, unique: str
) -> None:
    with connected(shell, server.url) as client:
        subscription = client.subscribe(f"{unique}.*", queue="readers")
        assert subscription.next(0.01) is None
        assert spans.take() == []
        for data in (b"1", b"22", b"333"):
            client.publish(f"{unique}.a", data)
        published = spans.take()
        with spans.tracer.start_as_current_span("outer") as outer:
            assert subscription.next(5).data == b"1"
        messages = iter(subscription)
        assert [next(messages).data for _ in range(2)] == [b"22", b"333"]
        received = spans.take()
        subscription.unsubscribe()
        assert list(messages) == []
    assert [each.name for each in received] == [f"receive {unique}.*"] * 3
    assert {each.kind for each in received} == {SpanKind.CLIENT}
    assert [links(each) for each in received] == [[each] for each in ids(*published)]
    assert received[0].parent.span_id == outer.get_span_context().span_id
    assert received[1].parent is None
    assert attributes(received[2], server) == {
        "operation.name": "receive",
        "operation.type": "receive",
        "destination.name": f"{unique}.a",
        "destination.template": f"{unique}.*",
        "consumer.group.name": "readers",
        "message.body.size": 3,
    }
    assert spans.take() == []  # the end of an iteration is no receive


def consumer_of(js: Any, kind: str, stream: str) -> Any:
    if kind == "ordered":
        return js.ordered_consumer(stream)
    deliver = {"deliver_subject": f"{stream}-deliver"} if kind == "push" else {}
    js.create_consumer(stream, ConsumerConfig(name="billing", ack_policy="explicit", **deliver))
    return js.push_consumer(stream, "billing") if deliver else js.consumer(stream, "billing")


@pytest.mark.parametrize("kind", ["pull", "ordered", "push"])
def test_consumers_link_to_the_publishes(
    spans: Spans, shell: str, server: ServerProcess, unique: str, kind: str
) -> None:
    with connected(shell, server.url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.*"]))
        for number in range(6):
            js.publish(f"{unique}.a", b"%d" % number, msg_id=f"id-{number}")
        published = spans.take()[-6:]
        with consumer_of(js, kind, unique) as consumer:
            spans.take()
            assert consumer.next(5).data == b"0"
            assert len(consumer.fetch(3, timeout=5)) == 3
            if kind == "ordered":
                consumer.close()
            else:
                assert consumer.fetch(1, timeout=5)[0].data == b"4"
            name = f"receive {unique}"
            received = [each for each in spans.take() if each.name == name]
        if kind == "pull":
            with consumer.consume() as messages:
                assert next(iter(messages)).data == b"5"
            received.append(spans.one(name))
        elif kind == "ordered":
            with consumer.consume() as messages:
                assert [next(iter(messages)).data for _ in range(2)] == [b"4", b"5"]
            received += spans.take()
    expected = [[0], [1, 2, 3], [4]] + ([[5]] if kind != "push" else [])
    assert [links(each) for each in received] == [[ids(*published)[n] for n in e] for e in expected]
    assert {each.kind for each in received} == {SpanKind.CLIENT}
    common = {
        "operation.name": "receive",
        "operation.type": "receive",
        "destination.name": unique,
        "nats.message.subject": f"{unique}.a",
    }
    one, several = (attributes(each, server) for each in received[:2])
    names = {one.pop("consumer.group.name"), several.pop("consumer.group.name")}
    assert len(names) == 1
    assert kind == "ordered" or names == {"billing"}
    assert one == common | {"message.body.size": 1, "message.id": "id-0"}
    assert several == common | {"batch.message_count": 3}


def test_a_receive_that_fails_is_an_error(
    spans: Spans, shell: str, server: ServerProcess, unique: str
) -> None:
    with connected(shell, server.url) as client:
        with pytest.raises(StreamNotFoundError):
            client.jetstream().ordered_consumer(unique).fetch(1, timeout=5)
        span = spans.one(f"receive {unique}")
    assert span.attributes["error.type"] == "StreamNotFoundError"
    assert span.status.status_code is StatusCode.ERROR


def test_a_program_goes_on_with_the_context_of_a_message(
    spans: Spans, shell: str, server: ServerProcess, unique: str
) -> None:
    with connected(shell, server.url) as client:
        subscription = client.subscribe(unique)
        client.publish(unique)
        published = spans.one(f"publish {unique}")
        message = subscription.next(5)
        message = getattr(message, "_inner", message)
        for name in ("traceparent", "Traceparent"):  # the second as Go programs write it
            message._decoded = Headers({name: [traceparent(published)]})
            with spans.tracer.start_as_current_span("own", context=context_of(message)) as own:
                assert own.parent.span_id == published.context.span_id
        message._decoded, message.raw_headers = None, b"NATS/1.0\r\nno colon\r\n\r\n"
        assert context_of(message) == {}


# -- handlers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("concurrency", [None, 2])
def test_handlers_of_consumers_are_children_of_the_publishes(
    spans: Spans, shell: str, server: ServerProcess, unique: str, concurrency: int | None
) -> None:
    seen: list[bytes] = []

    def handle(message: Any) -> None:
        seen.append(message.data)
        with spans.tracer.start_as_current_span("own") as own:
            assert own.parent.span_id == trace.get_current_span().parent.span_id
        if message.data == b"bad":
            raise ValueError("a bad message")

    async def handle_async(message: Any) -> None:
        await asyncio.sleep(0)
        handle(message)

    with connected(shell, server.url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name=unique, subjects=[unique]))
        spans.take()
        js.publish(unique, b"good", msg_id="one")
        js.publish(unique, b"bad")
        published = spans.take()
        js.create_consumer(unique, ConsumerConfig(name="billing", max_deliver=1))
        consumer = js.consumer(unique, "billing")
        handler = handle if shell == "blocking" or concurrency is None else handle_async
        consuming = functools.partial(consumer.consume, concurrency=concurrency, auto_ack=True)
        with spans.tracer.start_as_current_span("outer"), consuming(handler) as messages:
            while len(seen) < 2:
                messages.run(timeout=0.05)
        found = [each for each in spans.take() if each.name == f"process {unique}"]
    found.sort(key=lambda each: each.status.is_ok, reverse=True)
    good, bad = found
    assert [each.parent.span_id for each in found] == ids(*published)
    assert [each.kind for each in found] == [SpanKind.CONSUMER] * 2
    assert attributes(good, server) == {
        "operation.name": "process",
        "operation.type": "process",
        "destination.name": unique,
        "nats.message.subject": unique,
        "consumer.group.name": "billing",
        "message.body.size": 4,
        "message.id": "one",
    }
    assert attributes(bad)["error.type"] == "ValueError"
    assert bad.status.description == "ValueError: a bad message"
    assert bad.events[0].attributes["exception.message"] == "a bad message"


@pytest.mark.parametrize("waits", [False, True])
def test_callbacks_of_subscriptions_are_children_of_the_publishes(
    spans: Spans, server: ServerProcess, unique: str, waits: bool
) -> None:
    async def body() -> None:
        done = asyncio.Event()

        def handle(message: Any) -> None:
            done.set() if message.header("last") else None

        async def handle_async(message: Any) -> None:
            await client.publish(f"{unique}-next")
            handle(message)

        with spans.tracer.start_as_current_span("outer"):
            client = await connect(server.url)
            await client.subscribe(unique, callback=handle_async if waits else handle)
        await client.publish(unique)
        with suppress_instrumentation():  # a publisher without spans
            await client.publish(unique, headers={"last": "yes"})
        await asyncio.wait_for(done.wait(), 10)
        await client.drain()
        found = spans.take()
        published = next(each for each in found if each.name == f"publish {unique}")
        first, last = (each for each in found if each.name == f"process {unique}")
        assert first.parent.span_id == published.context.span_id
        assert last.parent is None
        inner = [each.parent.span_id for each in found if each.name.endswith("-next")]
        assert inner == (ids(first, last) if waits else [])

    asyncio.run(body())


def test_a_handler_may_have_a_link_in_place_of_a_parent(server: ServerProcess, unique: str) -> None:
    with Spans().recorded(producer="link") as spans, sync.connect(server.url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name=unique, subjects=[unique]))
        spans.take()
        js.publish(unique, b"x")
        published = spans.one(f"publish {unique}")
        consumer = js.ordered_consumer(unique)
        with consumer.consume(lambda _: messages.stop()) as messages:
            messages.run()
        processed = spans.one(f"process {unique}")
    assert processed.parent is None
    assert links(processed) == ids(published)
    assert processed.context.trace_id != published.context.trace_id
    with pytest.raises(ValueError, match='"parent" or "link"'):
        PeltonInstrumentor().instrument(producer="child")
    assert not PeltonInstrumentor().is_instrumented_by_opentelemetry


# -- on and off ----------------------------------------------------------------------------------------------------


def places() -> dict[tuple[type, str], Any]:
    """What is wrapped, by class and name."""
    found = {}
    for halves, module, owner, names, _ in _WRAPPED:
        for half, name in product(halves.split(), names.split()):
            kind = getattr(import_module(f"pelton.client.{half}.{module}"), owner)
            found[kind, name] = vars(kind).get(name)
    return found


def test_everything_is_put_back() -> None:
    before = places()
    missing = {(kind.__name__, name) for (kind, name), value in before.items() if value is None}
    assert missing == {("Pool", "_callback")}  # an attribute of objects
    spans = Spans()
    with spans.recorded():
        wrapped = places()
        assert not {id(each) for each in before.values()} & {id(each) for each in wrapped.values()}
        for at, original in before.items():
            if original is not None:
                assert inspect.signature(wrapped[at]) == inspect.signature(original)
                assert wrapped[at].__doc__ == original.__doc__
        PeltonInstrumentor().instrument(tracer_provider=spans.provider)  # harmless
        assert places() == wrapped
    assert places() == before
    PeltonInstrumentor().uninstrument()  # harmless, too
    assert places() == before


def test_clients_that_are_open_get_spans_and_lose_them(
    shell: str, server: ServerProcess, unique: str
) -> None:
    seen: list[str] = []
    with connected(shell, server.url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name=unique, subjects=[unique]))
        js.create_consumer(unique, ConsumerConfig(name="billing", ack_policy="explicit"))
        subscription = client.subscribe(unique)
        consuming = js.consumer(unique, "billing").consume(
            lambda message: seen.append(message.header("traceparent"))
        )

        def exchange() -> None:
            before = len(seen)
            js.publish(unique)
            subscription.next(5)
            while len(seen) == before:
                consuming.run(timeout=0.01)

        with consuming:
            exchange()
            spans = Spans()
            with spans.recorded():
                exchange()
            found = sorted(spans.take(), key=lambda each: each.name)
            processed, published, received = found
            exchange()
            assert spans.take() == []
    assert seen == [None, traceparent(published), None]
    assert links(received) == ids(published)
    assert processed.parent.span_id == published.context.span_id


def test_threads_have_spans_of_their_own(spans: Spans, server: ServerProcess, unique: str) -> None:
    with sync.connect(server.url) as client:

        def work(number: int) -> None:
            with spans.tracer.start_as_current_span("outer") as outer:
                for _ in range(20):
                    client.publish(f"{unique}.{number}")
            parents[f"publish {unique}.{number}"] = outer.get_span_context().span_id

        parents: dict[str, int] = {}
        threads = [threading.Thread(target=functools.partial(work, number)) for number in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    found = spans.take()
    assert len(found) == 80
    assert all(each.parent.span_id == parents[each.name] for each in found)


def test_nothing_is_recorded_where_instrumentation_is_suppressed(
    spans: Spans, shell: str, server: ServerProcess, unique: str
) -> None:
    with connected(shell, server.url) as client, suppress_instrumentation():
        subscription = client.subscribe(unique)
        client.publish(unique, b"x")
        assert subscription.next(5).headers == {}
    assert spans.take() == []


def test_a_tracer_without_sdk_changes_no_message(server: ServerProcess, unique: str) -> None:
    PeltonInstrumentor().instrument(tracer_provider=trace.NoOpTracerProvider())
    try:
        with sync.connect(server.url) as client:
            subscription = client.subscribe(unique)
            client.publish(unique, b"x")
            assert subscription.next(5).headers == {}
            size = client.server_info.max_payload
            client.publish(unique, bytes(size))
            with pytest.raises(PayloadTooLargeError):
                client.publish(unique, bytes(size + 1))
    finally:
        PeltonInstrumentor().uninstrument()


PROGRAM = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from pelton.sync import connect

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter()))
trace.set_tracer_provider(provider)
with connect(sys.argv[1]) as client:
    client.publish(sys.argv[2], b"hello")
"""


def test_the_command_of_opentelemetry_finds_it(
    server: ServerProcess, unique: str, tmp_path: Path
) -> None:
    (found,) = entry_points(group="opentelemetry_instrumentor", name="pelton")
    assert found.load() is PeltonInstrumentor
    (tmp_path / "app.py").write_text(PROGRAM)
    command = Path(sys.executable).with_name("opentelemetry-instrument")
    run = subprocess.run(
        [command, sys.executable, "app.py", server.url, unique],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert f'"name": "publish {unique}"' in run.stdout, run.stderr


def test_the_client_does_not_load_it() -> None:
    code = (
        "import sys, pelton.client.aio.jetstream, pelton.client.sync.jetstream\n"
        "print([name for name in sys.modules if 'telemetry' in name])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
