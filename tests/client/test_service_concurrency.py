"""Requests to a service that are handled at a time: how many, which, and what stopping waits for."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from pelton import ServiceConfig, ServiceError, connect, sync
from tests.client.shells import connected, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.peers import ServerProcess

WAIT_S = 60
MOST = 3
REQUESTS = 20


class Crowd:
    """Handlers that stay inside until so many are there at a time, or until they are let out."""

    def __init__(self, enough: int) -> None:
        self.enough = enough
        self.inside = self.most = 0
        self.order: list[bytes] = []
        self.open = False
        self._changed = threading.Condition()

    def stay(self, data: bytes) -> bytes:
        with self._changed:
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.order.append(data)
            self.open = self.open or self.most >= self.enough
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self.open, WAIT_S)
            self.inside -= 1
        return data

    def let_out(self) -> None:
        with self._changed:
            self.open = True
            self._changed.notify_all()


class Host:
    """A service of either shell in a thread of its own; its endpoint is a crowd."""

    def __init__(self, shell: str, url: str, name: str, crowd: Crowd, most: int | None) -> None:
        self.shell, self.url, self.crowd, self.most = shell, url, crowd, most
        self.config = ServiceConfig(name=name, version="1.0.0")
        self.subject = name
        self.service: Any = None
        self.errors: list[Exception] = []
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self.work, daemon=True)

    def work(self) -> None:
        if self.shell == "blocking":
            self.block()
        else:
            asyncio.run(self.wait())

    def block(self) -> None:
        with (
            sync.connect(self.url, on_error=self.errors.append) as client,
            client.add_service(self.config) as service,
        ):
            self.service = service

            @service.endpoint("stay", subject=f"{self.subject}.stay", concurrency=self.most)
            def stay(request: Any) -> bytes:
                if request.data == b"stop":
                    service.stop()
                elif request.data == b"end":
                    raise SystemExit
                return self.crowd.stay(request.data)

            client.flush()
            self.ready.set()
            service.run()

    async def wait(self) -> None:
        self.loop = asyncio.get_running_loop()
        async with (
            connect(self.url, on_error=self.errors.append) as client,
            await client.add_service(self.config) as service,
        ):
            self.service = service

            @service.endpoint("stay", subject=f"{self.subject}.stay", concurrency=self.most)
            async def stay(request: Any) -> bytes:
                if request.data == b"stop":
                    await service.stop()
                elif request.data == b"end":
                    raise asyncio.CancelledError
                return await asyncio.to_thread(self.crowd.stay, request.data)

            await client.flush()
            self.ready.set()
            await service.run()

    def stop(self) -> None:
        """As another part of the program does."""
        if self.shell == "blocking":
            self.service.stop()
        else:
            asyncio.run_coroutine_threadsafe(self.service.stop(), self.loop).result(WAIT_S)

    @property
    def handled(self) -> tuple[int, int]:
        """How many requests were handled, and how many of them failed."""
        (stats,) = self.service.stats().endpoints
        return stats.num_requests, stats.num_errors

    @property
    def arrived(self) -> int:
        """How many requests have come."""
        (endpoint,) = self.service._endpoints
        return int(endpoint.subscription.delivered)


@contextmanager
def hosting(
    shell: str, url: str, name: str, crowd: Crowd, most: int | None
) -> Iterator[tuple[Host, Any]]:
    """A service, and a way to send it requests: ``ask(data)`` returns a future of the answer."""
    host = Host(shell, url, name, crowd, most)
    with ExitStack() as stack:
        client = stack.enter_context(sync.connect(url, timeout=WAIT_S))
        threads = stack.enter_context(ThreadPoolExecutor(REQUESTS))
        stack.callback(crowd.let_out)
        host.thread.start()
        assert host.ready.wait(WAIT_S)
        services = client.service_client()

        def ask(data: bytes) -> Future[bytes]:
            return threads.submit(lambda: services.request(f"{name}.stay", data).data)

        yield host, ask
        crowd.let_out()
        if not host.service.stopped:
            host.stop()
        host.thread.join(WAIT_S)
        assert not host.thread.is_alive()


def test_as_many_as_told_are_handled_at_a_time(
    shell: str, server: ServerProcess, unique: str
) -> None:
    crowd = Crowd(enough=MOST)
    with hosting(shell, server.url, unique, crowd, MOST) as (host, ask):
        asked = [ask(b"%d" % number) for number in range(REQUESTS)]
        assert [each.result(WAIT_S) for each in asked] == [b"%d" % n for n in range(REQUESTS)]
        assert crowd.most == MOST
        wait_for(lambda: host.handled == (REQUESTS, 0))


def test_by_default_one_follows_the_other(shell: str, server: ServerProcess, unique: str) -> None:
    crowd = Crowd(enough=1)
    with (
        hosting(shell, server.url, unique, crowd, None) as (host, _),
        connected(shell, server.url) as client,
    ):
        for number in range(REQUESTS):
            client.publish(f"{unique}.stay", b"%d" % number)
        client.flush()
        wait_for(lambda: host.handled == (REQUESTS, 0))
        assert crowd.most == 1
        assert crowd.order == [b"%d" % number for number in range(REQUESTS)]


def test_stopping_waits_for_all_that_are_handled(
    shell: str, server: ServerProcess, unique: str
) -> None:
    crowd = Crowd(enough=REQUESTS)
    with hosting(shell, server.url, unique, crowd, MOST) as (host, ask):
        asked = [ask(b"%d" % number) for number in range(2 * MOST)]
        wait_for(lambda: host.arrived == 2 * MOST and crowd.inside == MOST)
        with ThreadPoolExecutor(2) as others:
            stops = [others.submit(host.stop) for _ in range(2)]
            wait_for(lambda: host.service.stopped)
            assert not any(each.done() for each in [*stops, *asked])
            crowd.let_out()
            assert [each.result(WAIT_S) for each in stops] == [None, None]
        assert host.handled == (2 * MOST, 0)
        assert [each.result(WAIT_S) for each in asked] == [b"%d" % n for n in range(2 * MOST)]


def test_a_handler_stops_the_service_of_others(
    shell: str, server: ServerProcess, unique: str
) -> None:
    crowd = Crowd(enough=REQUESTS)
    with hosting(shell, server.url, unique, crowd, MOST) as (host, ask):
        others = [ask(b"%d" % number) for number in range(MOST - 1)]
        wait_for(lambda: crowd.inside == MOST - 1)
        last = ask(b"stop")
        wait_for(lambda: host.service.stopped)
        crowd.let_out()
        assert last.result(WAIT_S) == b"stop"
        assert [each.result(WAIT_S) for each in others] == [b"%d" % n for n in range(MOST - 1)]
        host.thread.join(WAIT_S)
        assert host.handled == (MOST, 0)


@pytest.mark.parametrize("most", [None, 1])
def test_a_handler_stops_the_service_before_others_that_wait_for_it(
    shell: str, server: ServerProcess, unique: str, most: int | None
) -> None:
    """Nobody but its task or thread can handle them, and they are answered all the same."""
    crowd = Crowd(enough=REQUESTS)
    with hosting(shell, server.url, unique, crowd, most) as (host, ask):
        first = ask(b"first")
        wait_for(lambda: crowd.inside == 1)
        asked = [first]
        for data in (b"stop", b"1", b"2"):
            asked.append(ask(data))
            wait_for(lambda: host.arrived == len(asked))
        crowd.let_out()
        assert [each.result(WAIT_S) for each in asked] == [b"first", b"stop", b"1", b"2"]
        host.thread.join(WAIT_S)
        assert host.handled == (4, 0)


def test_a_handler_that_ends_its_task_or_thread_ends_no_other(
    shell: str, server: ServerProcess, unique: str
) -> None:
    crowd = Crowd(enough=1)
    with hosting(shell, server.url, unique, crowd, 2) as (host, ask):
        for _ in range(MOST):
            with pytest.raises(ServiceError, match="500: internal error"):
                ask(b"end").result(WAIT_S)
        assert ask(b"x").result(WAIT_S) == b"x"
        wait_for(lambda: host.handled == (MOST + 1, MOST))
        assert len(host.errors) == MOST


def test_a_single_handler_that_is_cancelled_ends_no_other(
    server: ServerProcess, unique: str
) -> None:
    with hosting("asyncio", server.url, unique, Crowd(enough=1), None) as (_, ask):
        with pytest.raises(ServiceError, match="500: internal error"):
            ask(b"end").result(WAIT_S)
        assert ask(b"x").result(WAIT_S) == b"x"


def test_wrong_numbers_are_refused(shell: str, server: ServerProcess, unique: str) -> None:
    with connected(shell, server.url) as client:
        service = client.add_service(ServiceConfig(name=unique, version="1.0.0"))
        for number in (0, -1):
            with pytest.raises(ValueError, match="at least one handler"):
                service.add_endpoint("one", lambda _: b"", concurrency=number)
        assert not service.stats().endpoints
        with pytest.raises(TypeError, match="concurrency is a whole number"):
            service.add_endpoint("one", lambda _: b"", concurrency="2")
        if shell == "asyncio":
            with pytest.raises(ValueError, match="only coroutine functions run concurrently"):
                service.add_endpoint("one", lambda _: b"", concurrency=2)
        service.stop()


def test_running_ends_when_the_time_is_over(shell: str, server: ServerProcess, unique: str) -> None:
    with connected(shell, server.url) as client, sync.connect(server.url) as asking:
        service = client.add_service(ServiceConfig(name=unique, version="1.0.0"))
        service.add_endpoint("one", lambda request: request.data, subject=unique)
        client.flush()
        inbox = asking.subscribe("answers")
        asking.publish(unique, b"x", reply="answers")
        asking.flush()
        while not inbox.pending:
            service.run(timeout=0.05)
            client.flush()
            asking.flush()
        assert not service.stopped
        assert inbox.next().data == b"x"
        service.stop()
        service.run(timeout=WAIT_S)  # it has ended


def test_draining_the_client_answers_all(server: ServerProcess, unique: str) -> None:
    async def run() -> None:
        begun = asyncio.Semaphore(0)
        let_out = asyncio.Event()

        async def handle(request: Any) -> bytes:
            begun.release()
            await let_out.wait()
            return bytes(request.data)

        async with connect(server.url) as asking, connect(server.url) as client:
            service = await client.add_service(ServiceConfig(name=unique, version="1.0.0"))
            await service.add_endpoint("one", handle, subject=unique, concurrency=MOST)
            await client.flush()
            asked = [
                asyncio.create_task(asking.request(unique, b"%d" % number, timeout=WAIT_S))
                for number in range(2 * MOST)
            ]
            for _ in range(MOST):
                await begun.acquire()
            draining = asyncio.create_task(client.drain(WAIT_S))
            await asyncio.sleep(0)
            let_out.set()
            await draining
            assert [each.data for each in await asyncio.gather(*asked)] == [
                b"%d" % number for number in range(2 * MOST)
            ]
            assert service.stopped

    asyncio.run(run())
