"""Celery's own worker over both servers: results, retries, delays, death of workers and of the server."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kombu import pools

from tests.kombu.shop import add, app, flaky, slow
from tests.peers import ServerProcess, available_servers, running_server
from tests.ways import EVERY_WAY

pytestmark = [pytest.mark.peer, pytest.mark.slow]

PATIENCE_S = 120
HERE = Path(__file__).parents[2]


KINDS = available_servers()


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    with running_server(request.param) as process:
        yield process


def ways(kind: str) -> list[Any]:
    """All servers, of which this one is for each run."""
    return [each if each == kind else pytest.param(each, marks=EVERY_WAY) for each in KINDS]


class Shop:
    """The application with its broker, and workers in processes of their own."""

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        self.server = server
        self.journal = folder / "journal"
        self.journal.touch()
        self.log = folder / "worker.log"
        self.broker = f"pelton://127.0.0.1:{server.port}"
        self.workers: list[subprocess.Popen[bytes]] = []
        app.conf.update(broker_url=self.broker, result_backend="rpc://")

    def work(self, *options: str) -> subprocess.Popen[bytes]:
        """Start a worker and wait until it answers."""
        name = f"w{len(self.workers)}@test"
        command = [sys.executable, "-m", "celery", "-A", "tests.kombu.shop", "worker", "-n", name]
        with self.log.open("ab") as log:
            worker = subprocess.Popen(
                [*command, "-c", "1", "--without-gossip", "--without-mingle", *options],
                stdout=log,
                stderr=log,
                cwd=HERE,
                env={
                    **os.environ,
                    "SHOP_BROKER": self.broker,
                    "SHOP_RESULTS": "rpc://",
                    "SHOP_JOURNAL": str(self.journal),
                },
                start_new_session=True,
            )
        self.workers.append(worker)
        deadline = time.monotonic() + PATIENCE_S
        while not app.control.ping(destination=[name], timeout=0.5):
            assert worker.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
        return worker

    def lines(self) -> list[str]:
        return self.journal.read_text().splitlines()

    def until(self, line: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not any(each.startswith(line) for each in self.lines()):
            assert time.monotonic() < deadline, (self.lines(), self.log.read_text())
            time.sleep(0.02)

    def close(self) -> None:
        for worker in self.workers:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
        pools.reset()
        app._pool = app.amqp._producer_pool = None


@pytest.fixture
def shop(server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    made = Shop(server, tmp_path)
    try:
        yield made
    finally:
        made.close()


# A worker works for a second before it does anything: each test has one of the servers.
@pytest.mark.parametrize("server", ways(KINDS[0]), indirect=True)
def test_tasks_with_results_retries_and_delays_and_a_server_that_is_killed(shop: Shop) -> None:
    shop.work()
    assert add.delay(1, 2).get(timeout=PATIENCE_S) == 3
    results = [add.delay(number, 1) for number in range(30)]
    assert [each.get(timeout=PATIENCE_S) for each in results] == list(range(1, 31))
    begun = time.time()
    assert add.apply_async((5, 5), countdown=2).get(timeout=PATIENCE_S) == 10
    assert time.time() - begun >= 2
    assert flaky.delay("a").get(timeout=PATIENCE_S) == 2
    assert [line for line in shop.lines() if line.startswith("try")] == [
        "try a 0",
        "try a 1",
        "try a 2",
    ]
    for number in range(5):
        add.delay(number, 0)
    shop.until("add 4 0")
    shop.server.stop(kill=True)
    shop.server.start()
    for number in range(5, 10):
        add.apply_async((number, 0), retry=True)
    shop.until("add 9 0")
    assert {f"add {number} 0" for number in range(10)} <= set(shop.lines())


@pytest.mark.parametrize("server", ways(KINDS[-1]), indirect=True)
def test_a_long_task_runs_once_and_that_of_a_killed_worker_runs_again(shop: Shop) -> None:
    """Longer than the ack wait, beside a second worker; it is the second one's when the first is killed."""
    workers = {worker.pid: worker for worker in (shop.work(), shop.work())}
    assert slow.delay("long", 5).get(timeout=PATIENCE_S) == "long"
    assert len([line for line in shop.lines() if line.startswith("begin long")]) == 1
    slow.delay("kept", 3)
    shop.until("begin kept")
    (begun,) = (line.split() for line in shop.lines() if line.startswith("begin kept"))
    busy = workers.pop(int(begun[-1]))
    os.killpg(busy.pid, signal.SIGKILL)
    busy.wait()
    shop.until("end kept")
    first, second = (line.split() for line in shop.lines() if line.startswith("begin kept"))
    assert first == begun
    assert int(second[-1]) in workers
