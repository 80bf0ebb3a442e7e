"""Many threads use one blocking client: random programs, kills of the server, close, the keeper thread."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import random
import socket
import subprocess
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from pelton import ConsumerConfig, KeyValueConfig, StreamConfig
from pelton.errors import (
    ConnectionClosedError,
    ConnectionLostError,
    NoRespondersError,
    PeltonError,
    PeltonTimeoutError,
    WrongLastSequenceError,
)
from pelton.sync import connect
from tests.proxies import running_proxy
from tests.ways import SEED, length

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pelton.sync import Client
    from tests.peers import ServerProcess

PATIENCE_S = 120.0
THREADS = 8


class Crew:
    """Threads whose errors fail the test, and which may not hang."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def start(self, function: Callable[..., object], *arguments: object) -> None:
        def work() -> None:
            try:
                function(*arguments)
            except BaseException as error:
                self.errors.append(error)

        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def join(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        for each in self._threads:
            each.join(max(0.0, deadline - time.monotonic()))
        if any(each.is_alive() for each in self._threads):
            faulthandler.dump_traceback()
            raise AssertionError(f"threads hang; errors: {self.errors}")
        if self.errors:
            raise self.errors[0]


@pytest.fixture
def crew() -> Iterator[Crew]:
    each = Crew()
    yield each
    each.join()


def waits(client: Client, count: int) -> None:
    """Wait until so many calls of the client wait: one that reads, and others that sleep."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with client._guard:
            if client._calls_waiting >= count:
                return
        if time.monotonic() > deadline:
            faulthandler.dump_traceback()
            raise AssertionError(f"{client._calls_waiting} of {count} calls wait")
        time.sleep(0.001)


class Program:
    """What one thread does: operations drawn from a seed, each with a check of its own."""

    def __init__(self, client: Client, unique: str, number: int) -> None:
        self.client = client
        self.rng = random.Random(SEED * 100 + number)
        self.js = client.jetstream()
        self.unique = unique
        self.number = number
        self.own = f"{unique}.core.{number}"
        self.subscription = client.subscribe(self.own)
        self.bucket = self.js.key_value(unique)
        self.acked: list[int] = []
        self.fetched: list[bytes] = []
        self.added = 0
        self.rounds = 0

    def run(self, rounds: int) -> None:
        verbs = [self.core, self.ask, self.store, self.fetch, self.add, self.key, self.flush]
        for self.rounds in range(rounds):
            self.rng.choice(verbs)()

    def core(self) -> None:
        sent = [b"%d" % n for n in range(self.rng.randrange(1, 20))]
        for each in sent:
            self.client.publish(self.own, each)
        assert [self.subscription.next(timeout=PATIENCE_S).data for _ in sent] == sent

    def ask(self) -> None:
        body = self.rng.randbytes(self.rng.choice([3, 3000]))
        answer = self.client.request(f"{self.unique}.echo", body, timeout=PATIENCE_S)
        assert answer.data == body

    def store(self) -> None:
        subject = f"{self.unique}.stored.{self.number}"
        if self.rng.random() < 0.5:
            self.acked.append(self.js.publish(subject, b"s%d" % self.rounds).seq)
            return
        with self.js.publisher(window=4) as publisher:
            for _ in range(10):
                publisher.publish(subject, b"p")
        assert publisher.acked == 10
        assert publisher.last_ack is not None
        self.acked.append(publisher.last_ack.seq)

    def fetch(self) -> None:
        for message in self.js.consumer(self.unique, "c").fetch(5, no_wait=True):
            self.fetched.append(message.reply.encode())
            message.ack_sync()

    def add(self) -> None:
        while True:
            entry = self.bucket.get("sum")
            assert entry is not None
            with contextlib.suppress(WrongLastSequenceError):
                self.bucket.update("sum", b"%d" % (int(entry.value) + 1), entry.revision)
                self.added += 1
                return

    def key(self) -> None:
        name = f"key.{self.number}"
        revision = self.bucket.put(name, b"%d" % self.rounds)
        entry = self.bucket.get(name)
        assert entry is not None
        assert (entry.value, entry.revision) == (b"%d" % self.rounds, revision)

    def flush(self) -> None:
        self.client.flush(PATIENCE_S)
        assert self.client.rtt() < PATIENCE_S


@contextlib.contextmanager
def echoing(url: str, subject: str) -> Iterator[None]:
    """A client of its own that answers requests."""
    over = threading.Event()
    with connect(url, reconnect_wait=0.05) as client:
        subscription = client.subscribe(subject)

        def serve() -> None:
            while not over.is_set():
                with contextlib.suppress(ConnectionLostError):
                    message = subscription.next(timeout=0.1)
                    if message is not None:
                        message.respond(message.data)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(PATIENCE_S)


def prepare(client: Client, unique: str) -> None:
    js = client.jetstream()
    js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.stored.>"], max_age=0))
    js.create_consumer(unique, ConsumerConfig(durable_name="c", ack_wait=60))
    js.create_key_value(KeyValueConfig(bucket=unique, history=1)).put("sum", b"0")


@pytest.mark.timeout(300)
def test_threads_share_a_client(server: ServerProcess, unique: str) -> None:
    with echoing(server.url, f"{unique}.echo"), connect(server.url, timeout=60) as client:
        prepare(client, unique)
        crew = Crew()
        programs = [Program(client, unique, number) for number in range(THREADS)]
        for each in programs:
            crew.start(each.run, length(60, 600))
        crew.join()
        js = client.jetstream()
        entry = js.key_value(unique).get("sum")
        assert entry is not None
        assert int(entry.value) == sum(each.added for each in programs)
        acked = [seq for each in programs for seq in each.acked]
        assert len(acked) == len(set(acked))
        fetched = [reply for each in programs for reply in each.fetched]
        assert len(fetched) == len(set(fetched))
        assert client.reconnects == 0
        assert len(client._sleepers) == 0
        info = js.consumer_info(unique, "c")
        assert info.num_ack_pending == 0
        assert info.delivered.consumer_seq == len(fetched)
        js.delete_stream(unique)
        js.delete_key_value(unique)


@pytest.mark.timeout(300)
def test_threads_go_on_when_the_server_is_killed(own_server: ServerProcess) -> None:
    with connect(
        own_server.url, timeout=20, reconnect_wait=0.02, reconnect_attempts_max=-1
    ) as client:
        prepare(client, "T")
        crew, over = Crew(), threading.Event()
        acked: list[set[bytes]] = [set() for _ in range(THREADS)]

        def publish(number: int) -> None:
            js, n = client.jetstream(), 0
            while not over.is_set():
                n += 1
                body = b"%d.%d" % (number, n)
                with contextlib.suppress(
                    ConnectionLostError, NoRespondersError, PeltonTimeoutError
                ):
                    js.publish(f"T.stored.{number}", body, msg_id=body.decode())
                    acked[number].add(body)

        def consume() -> None:
            with client.jetstream().consumer("T", "c").consume(heartbeat=0.5, expires=5) as each:
                for message in each:
                    message.ack()
                    if over.is_set():
                        return

        for number in range(THREADS):
            crew.start(publish, number)
        crew.start(consume)
        for _ in range(length(3, 20)):
            before = sum(map(len, acked))
            deadline = time.monotonic() + PATIENCE_S
            while sum(map(len, acked)) < before + 200:
                assert time.monotonic() < deadline, acked
                time.sleep(0.005)
            own_server.stop(kill=True)
            own_server.start()
        over.set()
        client.jetstream().publish("T.stored.last", b"the last")
        crew.join()
        assert client.reconnects >= 3
        held = {
            each.data
            for each in client.jetstream().ordered_consumer("T").fetch(1_000_000, timeout=5)
        }
        assert set.union(*acked) <= held


@pytest.mark.timeout(300)
@pytest.mark.parametrize("reads", ["next", "iterate", "messages", "status"])
def test_close_wakes_every_call(server: ServerProcess, unique: str, crew: Crew, reads: str) -> None:
    """Whoever waits, and for what: it ends with ConnectionClosedError, or as an iteration does."""
    client = connect(server.url, timeout=PATIENCE_S)
    js = client.jetstream()
    prepare(client, unique)
    consumer, bucket = js.consumer(unique, "c"), js.key_value(unique)
    silent = client.subscribe(f"{unique}.silent")
    client.subscribe(f"{unique}.deaf")
    messages = consumer.consume()
    watch = bucket.watch("nothing")
    watch.initial()
    events = client.status()
    ended: list[str] = []
    calls: dict[str, Callable[[], object]] = {
        "next": lambda: silent.next(timeout=PATIENCE_S),
        "request": lambda: client.request(f"{unique}.deaf", timeout=PATIENCE_S),
        "fetch": lambda: consumer.fetch(1, timeout=PATIENCE_S),
        "unverified": lambda: js.consumer(unique, "c", verify=False).next(timeout=PATIENCE_S),
        "messages": lambda: list(messages),
        "iterate": lambda: list(silent),
        "watch": lambda: watch.next(),
        "status": lambda: list(events),
        "ordered": lambda: next(iter(js.ordered_consumer(unique).consume())),
        "wait_until": lambda: client.wait_until(lambda: False, PATIENCE_S),
    }

    def call(name: str) -> None:
        try:
            calls[name]()
        except ConnectionClosedError:
            ended.append(f"{name} closed")
        except StopIteration:
            ended.append(f"{name} stopped")
        else:
            ended.append(name)

    crew.start(call, reads)
    waits(client, 1)
    for name in set(calls) - {reads}:
        crew.start(call, name)
    waits(client, len(calls))
    closer = threading.Thread(target=client.close)
    closer.start()
    closer.join(PATIENCE_S)
    crew.join()
    assert {each.partition(" ")[0] for each in ended} == set(calls)
    for name in ("next", "request", "fetch", "unverified", "watch", "wait_until"):
        assert f"{name} closed" in ended
    assert {"iterate", "status", "messages"} <= set(ended)
    with pytest.raises(ConnectionClosedError):
        client.publish("a")
    with connect(server.url) as other:
        other.jetstream().delete_stream(unique)
        other.jetstream().delete_key_value(unique)


def test_whoever_gives_up_hands_over(server: ServerProcess, unique: str, crew: Crew) -> None:
    """Calls time out at random, in any order; those that go on miss nothing."""
    rng = random.Random(SEED)
    rounds = length(40, 400)
    with connect(server.url) as client, connect(server.url) as sender:

        def take(number: int, pauses: list[float]) -> None:
            subscription = client.subscribe(f"{unique}.{number}")
            expected = 0
            deadline = time.monotonic() + PATIENCE_S
            for pause in [*pauses] * 1000:
                assert time.monotonic() < deadline
                message = subscription.next(timeout=pause)
                if message is not None:
                    assert message.data == b"%d" % expected
                    expected += 1
                    if expected == rounds:
                        return
                if not expected:
                    sender.publish(f"{unique}.ready.{number}")

        ready = sender.subscribe(f"{unique}.ready.*")
        sender.flush()
        for number in range(THREADS):
            crew.start(take, number, [rng.choice([0.0, 1e-4, 1e-3, 0.02, 0.1]) for _ in range(50)])
        there: set[str] = set()
        while len(there) < THREADS:
            there.add(ready.next(timeout=PATIENCE_S).subject)
        for n in range(rounds):
            for number in rng.sample(range(THREADS), THREADS):
                sender.publish(f"{unique}.{number}", b"%d" % n)
            time.sleep(rng.choice([0.0, 1e-4, 5e-3]))
        crew.join()


@pytest.mark.parametrize("attempt", range(length(4, 40)))
def test_writes_wait_for_a_slow_server_in_order(
    server: ServerProcess, unique: str, attempt: int
) -> None:
    """More is published than the way takes: whole messages come, each thread's in order."""
    crew = Crew()
    count, size = 30, 200_000
    with (
        running_proxy(int(server.url.rpartition(":")[2])) as proxy,
        connect(proxy.url, timeout=PATIENCE_S) as client,
        connect(server.url, timeout=PATIENCE_S) as other,
    ):
        heard = other.subscribe(f"{unique}.*")
        other.flush()
        waiting = client.subscribe(f"{unique}.never")
        crew.start(lambda: list(waiting))  # somebody reads meanwhile
        crew.start(lambda: [client.flush(PATIENCE_S) for _ in range(100 * attempt)])

        def publish(number: int) -> None:
            for n in range(count):
                client.publish(f"{unique}.{number}", b"%04d" % n + bytes([number]) * size)

        waits(client, 1)
        for number in range(4):
            crew.start(publish, number)
        expected = [0] * 4
        for _ in range(4 * count):
            message = heard.next(timeout=PATIENCE_S)
            number = int(message.subject.rpartition(".")[2])
            assert message.data == b"%04d" % expected[number] + bytes([number]) * size
            expected[number] += 1
        waiting.unsubscribe()
        crew.join()


# -- the keeper -----------------------------------------------------------------------------------


class Peer:
    """A server that a test plays itself."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(PATIENCE_S)
        self.url = f"nats://127.0.0.1:{self.listener.getsockname()[1]}"
        self.lines: Any = None
        self.socket: socket.socket

    def accept(self) -> None:
        self.socket, _ = self.listener.accept()
        self.socket.settimeout(PATIENCE_S)
        self.socket.sendall(b'INFO {"server_id":"X","max_payload":1024,"headers":true}\r\n')
        self.lines = self.socket.makefile("rb")
        assert self.lines.readline().startswith(b"CONNECT")
        while self.lines.readline() != b"PING\r\n":
            pass
        self.socket.sendall(b"PONG\r\n")


def connected_to(peer: Peer, **options: Any) -> Client:
    accepting = threading.Thread(target=peer.accept)
    accepting.start()
    client = connect(peer.url, **options)
    accepting.join(PATIENCE_S)
    return client


def keepers() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "pelton-keeper"]


def test_an_idle_client_answers_pings_and_pings_itself() -> None:
    peer = Peer()
    with connected_to(peer, ping_interval=0.2, pings_outstanding_max=5) as client:
        heard = {b"PING\r\n": 0, b"PONG\r\n": 0}
        peer.socket.sendall(b"PING\r\n")
        while min(heard.values()) < 3:
            line = peer.lines.readline()
            heard[line] += 1
            peer.socket.sendall(b"PONG\r\n" if line == b"PING\r\n" else b"PING\r\n")
        assert client.reconnects == 0


def test_an_idle_client_keeps_messages_and_connects_again() -> None:
    peer = Peer()
    events: list[str] = []
    told = threading.Event()

    def on_status(status: Any) -> None:
        events.append(status.type)
        if status.type == "reconnected":
            told.set()

    with connected_to(peer, on_status=on_status, reconnect_wait=0.01) as client:
        subscription = client.subscribe("a")
        assert peer.lines.readline() == b"SUB a 1\r\n"
        peer.socket.sendall(b"MSG a 1 2\r\nhi\r\n")
        deadline = time.monotonic() + PATIENCE_S
        while not subscription.pending:  # no call reads
            assert time.monotonic() < deadline
            time.sleep(0.005)
        accepting = threading.Thread(target=peer.accept)
        accepting.start()
        peer.socket.shutdown(socket.SHUT_RDWR)
        accepting.join(PATIENCE_S)
        assert told.wait(PATIENCE_S)
        assert peer.lines.readline() == b"SUB a 1\r\n"
        peer.socket.sendall(b"MSG a 1 5\r\nagain\r\n")
        assert [subscription.next(PATIENCE_S).data for _ in range(2)] == [b"hi", b"again"]
        assert events == ["connected", "disconnected", "reconnecting", "reconnected"]


def test_the_keeper_ends_with_its_client(server: ServerProcess) -> None:
    before = set(keepers())
    client = connect(server.url)
    (keeper,) = set(keepers()) - before
    client.close()
    keeper.join(PATIENCE_S)
    assert not keeper.is_alive()

    forgotten = connect(server.url)
    (keeper,) = set(keepers()) - before
    gone = weakref.ref(forgotten)
    del forgotten
    deadline = time.monotonic() + PATIENCE_S
    while gone() is not None and time.monotonic() < deadline:
        gc.collect()
    assert gone() is None
    keeper.join(PATIENCE_S)
    assert not keeper.is_alive()


@pytest.mark.parametrize(
    "busy", ["", "threading.Thread(target=list, args=(sub,), daemon=True).start()"]
)
def test_a_client_never_keeps_the_process_alive(server: ServerProcess, busy: str) -> None:
    program = f"""
import threading
from pelton.sync import connect
client = connect({server.url!r})
sub = client.subscribe("a")
client.flush()
{busy}
print("the end")
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "the end\n", "")


def test_a_failed_thread_leaves_the_client_to_others(
    server: ServerProcess, unique: str, crew: Crew
) -> None:
    """An exception in a call that reads, such as KeyboardInterrupt, hands over as its end does."""
    with connect(server.url) as client:
        heard = client.subscribe(unique)

        class Stop(BaseException):
            pass

        stop = threading.Event()

        def interrupted() -> bool:
            if stop.is_set():
                raise Stop
            return False

        def fail() -> None:
            with pytest.raises(Stop):
                client.wait_until(interrupted, PATIENCE_S)

        crew.start(fail)
        waits(client, 1)
        crew.start(lambda: heard.next(timeout=PATIENCE_S))
        waits(client, 2)
        stop.set()
        with connect(server.url) as other:
            other.publish(unique)
        crew.join()


def test_errors_of_a_lost_client_reach_all_threads(own_server: ServerProcess, crew: Crew) -> None:
    with connect(
        own_server.url, reconnect_attempts_max=1, reconnect_wait=0.01, timeout=PATIENCE_S
    ) as client:
        heard = client.subscribe("a")

        def wait() -> None:
            with pytest.raises(ConnectionClosedError, match="gave up reconnecting"):
                heard.next(timeout=PATIENCE_S)

        for _ in range(THREADS):
            crew.start(wait)
        waits(client, THREADS)
        own_server.stop(kill=True)
        crew.join()
        with pytest.raises(PeltonError, match="gave up"):
            client.flush()
