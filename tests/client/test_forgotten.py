"""A forgotten ``async`` or ``await``, or one too many: the error says what to write instead."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import pelton.testing
from pelton.client import KeyValueConfig, ServiceConfig, StreamConfig, connect, connect_blocking

if TYPE_CHECKING:
    from collections.abc import Callable

MADE: list[Callable[[Any], Any]] = [
    lambda nc: nc,
    lambda nc: nc.jetstream().publisher(),
    lambda nc: nc.jetstream().ordered_consumer("S"),
    lambda nc: nc.jetstream().fast_batch(),
]


async def plainly(entered: Any) -> None:
    async with entered:
        raise AssertionError("it was entered")


def test_a_with_that_lacks_its_async_is_told() -> None:
    async def program() -> None:
        async with pelton.testing.server() as nc:
            things = [make(nc) for make in MADE]
            things += [
                await nc.subscribe("a"),
                await nc.add_service(ServiceConfig(name="s", version="1.0.0")),
            ]
            for each in things:
                with pytest.raises(TypeError, match=r"is for asyncio: write `async with`"), each:
                    pass
            await things[-1].stop()
            await nc.jetstream().create_stream(StreamConfig(name="S"))
            operation = nc.jetstream().ordered_consumer("S").consume()
            for each in (things[-2], operation, nc.status()):
                with pytest.raises(TypeError, match=r"is for asyncio: write `async for`"):
                    list(each)
            operation.stop()

    asyncio.run(program())


def test_a_with_that_has_an_async_too_many_is_told() -> None:
    async def each_of(items: Any) -> None:
        async for _ in items:
            pass

    with pelton.testing.server_blocking() as nc:
        things = [make(nc) for make in MADE[1:]]
        things += [nc.subscribe("a"), nc.add_service(ServiceConfig(name="s", version="1.0.0"))]
        for each in things:
            with pytest.raises(TypeError, match="is for blocking code: write `with`"):
                asyncio.run(plainly(each))
        nc.jetstream().create_stream(StreamConfig(name="S"))
        operation = nc.jetstream().ordered_consumer("S").consume()
        for each in (things[-2], operation, nc.status()):
            with pytest.raises(TypeError, match="is for blocking code: write `for`"):
                asyncio.run(each_of(each))
        things[-1].stop()
        operation.stop()


def test_the_wrong_one_of_the_two_clients_is_told() -> None:
    with pytest.raises(TypeError, match=r"async with connect.*with connect_blocking"), connect():
        pass
    with pytest.raises(AttributeError, match=r"no 'publish' before.*nc = await connect"):
        connect().publish("a", b"")  # type: ignore[attr-defined]  # checkers say it themselves
    with pelton.testing.broker(port=0) as broker:
        client = connect_blocking(broker.url)
        with pytest.raises(TypeError, match=r"with connect_blocking.*async with connect"):
            asyncio.run(plainly(client))
        assert client.closed


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
