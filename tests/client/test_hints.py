"""What a refusal of the server does not say, the error says beside it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import pelton.testing
from pelton import ConsumerConfig, KeyValueConfig, ServiceConfig, StreamConfig
from pelton.errors import ApiError, NoRespondersError, NotJetStreamMessageError
from tests.client.shells import connected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.peers import ServerProcess


@pytest.fixture
def client(shell: str, server: ServerProcess) -> Iterator[Any]:
    with connected(shell, server.url) as each:
        yield each


@pytest.fixture
def js(client: Any, unique: str) -> Iterator[Any]:
    made = client.jetstream()
    made.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.*"], storage="memory"))
    yield made
    made.delete_stream(unique)


def notes_of(call: Callable[[], Any]) -> list[str]:
    with pytest.raises(ApiError) as caught:
        call()
    return list(getattr(caught.value, "__notes__", ()))


def test_an_unknown_word_is_told_with_those_that_are_known(js: Any, unique: str) -> None:
    stream: Any = {"name": f"{unique}x", "retention": "work_queue", "storage": "disk"}
    told = notes_of(lambda: js.create_stream(StreamConfig(**stream)))
    assert (
        "retention is one of limits, interest, workqueue, not work_queue; did you mean workqueue?"
        in told
    )
    assert "storage is one of file, memory, not disk" in told
    consumer: Any = {"durable_name": "c", "ack_policy": "explict"}
    told = notes_of(lambda: js.create_consumer(unique, ConsumerConfig(**consumer)))
    known = "none, all, explicit, flow_control"
    assert f"ack_policy is one of {known}, not explict; did you mean explicit?" in told
    told = notes_of(lambda: js.create_consumer(f"{unique}x", ConsumerConfig(durable_name="c")))
    assert not any("is one of" in each for each in told)  # it is about something else


@pytest.mark.parametrize(
    ("field", "value", "bound"),
    [
        ("max_msgs", 10**20, "maximum 9223372036854775807"),
        ("max_msgs", -(10**20), "minimum -9223372036854775808"),
        ("max_msg_size", 1 << 31, "maximum 2147483647"),
        ("first_seq", -1, "minimum 0"),
    ],
)
def test_a_number_out_of_range_is_told_with_its_bound(
    js: Any, unique: str, field: str, value: int, bound: str
) -> None:
    config: Any = {"name": f"{unique}x", field: value}
    with pytest.raises(ValueError, match=f"{field} is out of range: {value} .{bound}."):
        js.create_stream(StreamConfig(**config))


@pytest.mark.parametrize(
    ("field", "call"),
    [
        pytest.param(
            "allow_msg_ttl",
            lambda js, subject: js.publish(subject, ttl="5s"),
            marks=pytest.mark.needs("allow_msg_ttl"),
        ),
        pytest.param(
            "allow_msg_counter",
            lambda js, subject: js.counter(subject.partition(".")[0]).increment(subject, 1),
            marks=pytest.mark.needs("allow_msg_counter"),
        ),
    ],
)
def test_what_a_stream_does_not_allow_is_told_with_the_field_that_does(
    js: Any, unique: str, field: str, call: Callable[[Any, str], Any]
) -> None:
    told = notes_of(lambda: call(js, f"{unique}.a"))
    assert f"the stream's configuration allows it with {field}=True" in told


def test_an_ack_that_nobody_wants_is_told(client: Any, js: Any, unique: str) -> None:
    js.publish(f"{unique}.a", b"1")
    message = js.ordered_consumer(unique).next(timeout=10)
    with pytest.raises(NoRespondersError, match="takes no acks, as an ordered one"):
        message.ack_sync()
    with client.subscribe(f"{unique}x") as subscription:
        client.publish(f"{unique}x", b"1")
        plain = subscription.next(10)
        with pytest.raises(NotJetStreamMessageError, match="so it needs no ack"):
            plain.ack()


def test_an_endpoint_without_a_name_is_told(client: Any) -> None:
    service = client.add_service(ServiceConfig(name="s", version="1.0.0"))
    with pytest.raises(TypeError, match=r"write `@service.endpoint\(\"name\"\)`"):
        service.endpoint(print)
    service.stop()


async def plainly(entered: Any) -> None:
    async with entered:
        raise AssertionError("it was entered")


def test_a_server_of_a_test_in_the_wrong_block_is_told() -> None:
    both = r"async with pelton.testing.server\(\).*with pelton.testing.server_blocking\(\)"
    with pytest.raises(TypeError, match=both), pelton.testing.server():
        pass
    with pytest.raises(TypeError, match=r"server_blocking\(\) as nc`, or `async with"):
        asyncio.run(plainly(pelton.testing.server_blocking()))
    for make in (pelton.testing.server, pelton.testing.server_blocking):
        with pytest.raises(AttributeError, match="is no client, but gives one: write `"):
            getattr(make(), "publish")  # noqa: B009  # checkers say it themselves


def test_an_argument_that_nobody_awaited_is_told() -> None:
    async def text() -> str:
        return "a"

    async def program() -> None:
        async with pelton.testing.server() as nc:
            with pytest.raises(TypeError, match=r"subject is text, not coroutine .*: await it$"):
                await nc.publish(text(), b"")  # type: ignore[arg-type]  # that is the mistake
            with pytest.raises(TypeError, match=r"callback is a function, .*: give it without"):
                await nc.subscribe("a", callback=text())  # type: ignore[arg-type]  # that is the mistake
            bucket = await nc.jetstream().create_key_value(KeyValueConfig(bucket="b"))
            with pytest.raises(TypeError, match="a value is bytes, not a coroutine: await it"):
                await bucket.put("k", text())  # type: ignore[arg-type]  # that is the mistake

    asyncio.run(program())
