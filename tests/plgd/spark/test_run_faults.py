"""``pelton plgd run`` while its streams, bucket and server go away and come back: it says why, and goes on."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from pelton.client.base.models import StreamConfig
from pelton.client.sync import Client, connect
from pelton.plgd.fleet import FleetConfig, FleetRun
from tests.peers import ServerProcess, available_servers, start_server
from tests.plgd.spark.test_run import rows_of, twin_keys
from tests.ways import EVERY_WAY, length

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(900)]
PELTON = [sys.executable, "-m", "pelton.cli"]
EVENTS = StreamConfig(name="EVENTS", subjects=["plgd.>"])
WAIT_SECONDS = 240.0
KINDS = available_servers((2, 14))
BACK = ["--twins", "twins", "--alerts", "ALERTS"]


class Running:
    """A run and what it tells; its errors of connections are left to stderr."""

    def __init__(self, server: ServerProcess, folder: Path, *options: str) -> None:
        words = ["--server", server.url, "--json", "plgd", "run", str(folder), "--buckets", "2"]
        self.child = subprocess.Popen(
            [*PELTON, *words, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.told: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.errors: list[str] = []
        self.threads = [threading.Thread(target=work) for work in (self.read, self.read_errors)]
        for thread in self.threads:
            thread.start()

    def read(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            self.told.put(json.loads(line))
        self.told.put(None)

    def read_errors(self) -> None:
        assert self.child.stderr is not None
        self.errors += self.child.stderr

    def until(self, event: str) -> dict[str, Any]:
        """Wait for something of a kind that it tells, and that concerns messages."""
        while True:
            found = self.told.get(timeout=WAIT_SECONDS)
            assert found is not None, "".join(self.errors)
            if found["event"] == event:
                return found

    def caught_up(self, count: int) -> None:
        """Wait until it has brought so many messages more into the tables."""
        while count > 0:
            count -= self.until("batch")["messages"]
        assert count == 0

    def stopped(self) -> bool:
        """Stop it; whether that is how it ended."""
        self.child.send_signal(signal.SIGINT)
        return self.child.wait(WAIT_SECONDS) == 0

    def failed(self) -> str:
        """Wait until it ends with an error; what it said."""
        assert self.child.wait(WAIT_SECONDS) == 1
        for thread in self.threads:
            thread.join()
        return "".join(self.errors)

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        for thread in self.threads:
            thread.join()


def publish(client: Client, seed: int) -> int:
    """Messages of another small fleet; how many."""
    deliveries = list(FleetRun(FleetConfig(devices=2, duration_s=60, seed=seed)).deliveries())
    with client.jetstream().publisher() as publisher:
        for each in deliveries:
            publisher.publish(each.subject, each.payload)
    return len(deliveries)


@pytest.mark.parametrize("kind", [KINDS[0], *(pytest.param(k, marks=EVERY_WAY) for k in KINDS[1:])])
def test_what_goes_away_comes_back_and_only_what_is_lost_unread_ends_a_run(
    kind: str, tmp_path: Path
) -> None:
    """Each run goes on in the same tables behind what ended the one before."""
    server = start_server(kind)
    try:
        with connect(server.url) as client:
            client.jetstream().create_stream(EVENTS)
            total = until_unread_messages_are_lost(server, client, tmp_path)
            total += while_all_goes_away(server, client, tmp_path)
        assert len(rows_of(tmp_path / "tables", "raw")) == total
        if not length(0, 1):
            return
        # A gone stream, without leave to lose anything: the error says how to make it.
        with (
            connect(server.url) as client,
            Running(server, tmp_path, "--every", "200ms") as run,
        ):
            run.caught_up(publish(client, 8))
            client.jetstream().delete_stream("EVENTS")
            assert "pelton stream add EVENTS --subjects" in run.failed()
    finally:
        server.remove()


def until_unread_messages_are_lost(server: ServerProcess, client: Client, folder: Path) -> int:
    """What was read is not missed, whoever removes it; how many messages came into the tables."""
    js = client.jetstream()
    total = publish(client, 1)
    with Running(server, folder, *BACK, "--every", "10s") as run:
        run.caught_up(total)
        assert js.consumer_names("EVENTS") == []  # the pipeline has no consumer to lose
        js.purge_stream("EVENTS", filter_subject="plgd.owners.*.devices.*.metadata.>")
        js.purge_stream("EVENTS", seq=10)
        js.purge_stream("EVENTS")
        js.delete_key_value("twins")
        total += (count := publish(client, 2))
        run.caught_up(count)
        keys = js.key_value("twins").keys()
        assert sorted(keys) == sorted(twin_keys(folder / "tables"))
        publish(client, 3)  # before the next look at the stream
        js.purge_stream("EVENTS")
        error = run.failed()
    assert f"{total + 1} and later were not read yet" in error
    assert "--allow-data-loss goes on" in error
    return total


def while_all_goes_away(server: ServerProcess, client: Client, folder: Path) -> int:
    """With leave to lose what is lost: the streams and the server; how many messages came into the tables."""
    js = client.jetstream()
    with Running(server, folder, *BACK, "--every", "200ms", "--allow-data-loss") as run:
        total = count = publish(client, 4)
        run.caught_up(count)
        js.delete_stream("EVENTS")
        js.create_stream(EVENTS)
        total += (count := publish(client, 5))
        run.caught_up(count)
        # A stream that takes no alerts is waited for; one that is gone is made.
        js.delete_stream("ALERTS")
        js.create_stream(StreamConfig(name="ALERTS", subjects=["other.>"]))
        total += (count := publish(client, 6))
        assert "does not take alerts.plgd.>" in run.until("waiting")["reason"]
        js.delete_stream("ALERTS")
        run.caught_up(count)
        assert js.stream_info("ALERTS").config.subjects == ["alerts.plgd.>"]
        server.stop(kill=True)
        server.start()
        with connect(server.url) as again:
            total += (count := publish(again, 7))
        run.caught_up(count)
        assert run.stopped(), run.errors
    return total
