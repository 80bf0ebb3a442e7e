"""taskiq's brokers, results and schedules for NATS do on both servers what their documentation shows."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from taskiq import AsyncBroker, ScheduledTask
from taskiq.api import run_receiver_task
from taskiq_nats import (
    NatsBroker,
    NATSKeyValueScheduleSource,
    NATSObjectStoreResultBackend,
    PullBasedJetStreamBroker,
    PushBasedJetStreamBroker,
)

pytestmark = pytest.mark.peer

PATIENCE_S = 60


def within(run: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(run(), PATIENCE_S))


@contextlib.asynccontextmanager
async def working(broker: AsyncBroker) -> AsyncIterator[None]:
    """A worker in this process."""
    broker.is_worker_process = True
    await broker.startup()
    worker = asyncio.create_task(run_receiver_task(broker))
    try:
        yield
    finally:
        worker.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await worker
        await broker.shutdown()


@pytest.mark.parametrize("kind", ["core", "push", "pull"])
def test_tasks_with_results(server, unique, kind):
    async def run():
        broker: AsyncBroker
        if kind == "core":
            broker = NatsBroker([server.url], subject=unique, queue="workers")
        else:
            made = PushBasedJetStreamBroker if kind == "push" else PullBasedJetStreamBroker
            broker = made(
                [server.url], subject=f"{unique}.tasks", stream_name=unique, durable="worker"
            )
        broker = broker.with_result_backend(
            NATSObjectStoreResultBackend([server.url], bucket_name=f"{unique}results")
        )

        @broker.task
        async def add(one: int, other: int) -> int:
            return one + other

        @broker.task
        async def fail() -> None:
            raise ValueError("no bolts")

        async with working(broker):
            while isinstance(broker, NatsBroker) and not broker.client._subs:
                await asyncio.sleep(0)  # a message before the subscription goes to nobody
            await broker.client.flush()
            tasks = [await add.kiq(number, 1) for number in range(10)]
            results = [await task.wait_result(timeout=PATIENCE_S) for task in tasks]
            assert [result.return_value for result in results] == list(range(1, 11))
            failed = await (await fail.kiq()).wait_result(timeout=PATIENCE_S)
            assert failed.is_err
            assert "no bolts" in str(failed.error)

    within(run)


def test_schedules_in_a_bucket(server, unique):
    async def run():
        source = NATSKeyValueScheduleSource([server.url], bucket_name=unique)
        await source.startup()
        task = ScheduledTask(
            task_name="add",
            labels={},
            args=[1, 2],
            kwargs={},
            cron="*/5 * * * *",
            schedule_id="one",
        )
        await source.add_schedule(task)
        (found,) = await source.get_schedules()
        assert (found.task_name, found.cron, found.args) == ("add", "*/5 * * * *", [1, 2])
        await source.delete_schedule("one")
        assert await source.get_schedules() == []
        await source.shutdown()

    within(run)
