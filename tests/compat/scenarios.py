"""A scenario is a coroutine that becomes one test per server; helpers that scenarios share.

Only real time passes where a scenario is about time (an ack wait); nothing sleeps.
"""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext
from nats.js.api import (
    StreamConfig,
)

from tests.peers import ServerProcess

Scenario = Callable[[Client, str], Awaitable[None]]
numbers = itertools.count(1)  # makes names that no other test uses


@contextlib.asynccontextmanager
async def connected(server: ServerProcess) -> AsyncIterator[Client]:
    client = await nats.connect(server.url, connect_timeout=5, reconnect_time_wait=0.05)
    try:
        yield client
    finally:
        await client.close()


def scenario(body: Scenario) -> Callable[[ServerProcess], None]:
    """A test out of a coroutine that gets a connection and a name that no other test uses."""

    def test(server: ServerProcess) -> None:
        async def run() -> None:
            async with connected(server) as client:
                await asyncio.wait_for(body(client, f"T{next(numbers)}"), 30)

        asyncio.run(run())

    test.__name__ = body.__name__
    test.__doc__ = body.__doc__
    return test


async def take(subscription: Subscription, count: int) -> list[Msg]:
    return [await subscription.next_msg(timeout=5) for _ in range(count)]


async def store(client: Client, name: str, count: int, **config: object) -> JetStreamContext:
    """A stream on `name.>` with `count` messages m1, m2, … on name.0, name.1, name.2, name.0 …"""
    js = client.jetstream()
    await js.add_stream(StreamConfig(name=name, subjects=[f"{name}.>"], **config))
    for i in range(1, count + 1):
        await js.publish(f"{name}.{(i - 1) % 3}", b"m%d" % i)
    return js


def bodies(messages: list[Msg]) -> list[bytes]:
    return [m.data for m in messages]
