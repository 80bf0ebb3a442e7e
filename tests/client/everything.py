"""A program that does everything at once, for tests beside a cluster whose leaders change.

Each part has a thread and a client of its own: one publishes with acks, one consumes, one fetches, one reads
in order, one writes keys, one watches them, one puts and gets objects.
"""

from __future__ import annotations

import faulthandler
import os
import random
import threading
import time
from typing import TYPE_CHECKING, Any

from pelton.errors import PeltonError
from tests.client.shells import connected, wait_for
from tests.ways import SEED

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S = 180
UNUSED_S = 20  # a consumer whose creation was answered by nobody is removed then


def sockets() -> int:
    """How many sockets this process has open."""
    count = 0
    for each in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{each}").startswith("socket:")
        except OSError:
            continue
    return count


def calling(call: Callable[[], object]) -> None:
    """Until the cluster does it."""

    def done() -> bool:
        try:
            call()
        except PeltonError:
            return False
        return True

    wait_for(done)


class Program:
    """The parts of a program, each a thread with a client of its own, and what they have seen."""

    def __init__(self, shell: str, urls: str) -> None:
        self.shell = shell
        self.urls = urls
        self.over = threading.Event()  # nothing more is written
        self.acked: set[int] = set()
        self.consumed: set[int] = set()
        self.fetched: set[int] = set()
        self.ordered: list[int] = []  # sequences
        self.written: dict[str, tuple[int, bytes]] = {}  # the last known revision and value of keys
        self.watched: dict[str, tuple[int, bytes]] = {}
        self.revisions: list[int] = []
        self.objects = 0
        self.retries = 0
        self.errors: list[BaseException] = []
        self.told: set[str] = set()
        writers = (self.publish, self.put, self.store)
        readers = (self.consume, self.fetch, self.read, self.watch)
        parts = writers + readers
        self.threads = [
            threading.Thread(target=self.run, args=(part,), daemon=True) for part in parts
        ]

    def run(self, part: Callable[[Any], None]) -> None:
        try:
            with connected(self.shell, self.urls, timeout=2, reconnect_wait=0.05) as client:
                part(client.jetstream())
        except BaseException as error:
            self.errors.append(error)

    def join(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        for each in self.threads:
            each.join(max(0.0, deadline - time.monotonic()))
        if any(each.is_alive() for each in self.threads):
            faulthandler.dump_traceback()
            raise AssertionError(f"parts hang: {self.state()}")
        if self.errors:
            raise self.errors[0]

    def state(self) -> str:
        """For a failure's message."""
        counts = {
            name: len(value) for name, value in vars(self).items() if hasattr(value, "__len__")
        }
        return f"{counts} {self.errors} {self.told}"

    def again(self, call: Callable[[], Any]) -> Any:
        """The result of a call that may be made twice, however long the cluster has no leader."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return call()
            except PeltonError as error:
                self.retries += 1
                if time.monotonic() > deadline:
                    raise AssertionError("no leader in time") from error

    def all_seen(self, seen: set[int]) -> bool:
        """Whether nothing more is published, and all of it was seen."""
        return not self.threads[0].is_alive() and self.acked <= seen

    # -- writers -----------------------------------------------------------------------------------

    def publish(self, js: Any) -> None:
        number = 0
        while not self.over.is_set():
            some = range(number, number + 20)
            number += 20
            with js.publisher(attempts_max=60) as publisher:  # sends messages with ids again
                for each in some[:-1]:
                    publisher.publish("all.a", b"%d" % each, msg_id=f"{self.shell}{each}")
            last = some[-1]
            self.again(
                lambda last=last: js.publish("all.a", b"%d" % last, msg_id=f"{self.shell}{last}")
            )
            self.acked.update(some)
            time.sleep(0.005)

    def put(self, js: Any) -> None:
        bucket = self.again(lambda: js.key_value("b"))
        number = 0
        while not self.over.is_set():
            key, value = f"k{number % 5}", b"%d" % number
            number += 1
            revision = self.again(lambda key=key, value=value: bucket.put(key, value))
            self.written[key] = revision, value
            time.sleep(0.005)

    def store(self, js: Any) -> None:
        store = self.again(lambda: js.object_store("o"))
        dice = random.Random(SEED)
        while not self.over.is_set() or not self.objects:
            data = dice.randbytes(600_000)
            self.again(lambda data=data: store.put("thing", data))
            # a follower that answers may still have the object before
            wait_for(lambda data=data: self.again(lambda: store.get("thing")) == data)
            self.objects += 1

    # -- readers -----------------------------------------------------------------------------------

    def consume(self, js: Any) -> None:
        consumer = self.again(lambda: js.consumer("ALL", "consume"))
        with consumer.consume(
            lambda message: self.consumed.add(int(message.data)),
            auto_ack=True,
            on_status=lambda event: self.told.add(event.type),
            heartbeat=0.5,
            expires=5,
        ) as messages:
            while not self.all_seen(self.consumed):
                messages.run(timeout=0.1)

    def fetch(self, js: Any) -> None:
        consumer = self.again(lambda: js.consumer("ALL", "fetch"))
        while not self.all_seen(self.fetched):
            for message in self.again(lambda: consumer.fetch(50, timeout=0.5)):
                message.ack()
                self.fetched.add(int(message.data))

    def read(self, js: Any) -> None:
        ordered = self.again(lambda: js.ordered_consumer("ALL", inactive_threshold=UNUSED_S))
        numbers: set[int] = set()

        def take(message: Any) -> None:
            self.ordered.append(message.metadata.stream_seq)
            numbers.add(int(message.data))

        with ordered.consume(take, heartbeat=0.5, expires=5) as messages:
            while not self.all_seen(numbers):
                messages.run(timeout=0.1)

    def watch(self, js: Any) -> None:
        bucket = self.again(lambda: js.key_value("b"))
        with self.again(bucket.watch) as watch:
            while not (self.watched == self.written and not self.threads[1].is_alive()):
                entry = watch.next(timeout=0.5)
                if entry is not None:
                    self.revisions.append(entry.revision)
                    self.watched[entry.key] = entry.revision, entry.value
