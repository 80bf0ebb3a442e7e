"""A server that hangs: each call ends in time, and missed heartbeats are counted, whatever is looked up."""

from __future__ import annotations

import io
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton import ObjectStoreConfig, PeltonTimeoutError
from pelton.client.aio.jetstream import JetStream
from pelton.client.aio.upkeep import Upkeep
from pelton.client.base.message import BaseMessage
from pelton.client.base.models import ConsumerConfig, ConsumerInfo
from pelton.client.consume.arrivals import PullIntake
from pelton.client.consume.events import ConsumerEvent
from pelton.client.consume.intake import Heartbeats
from pelton.client.consume.pull import Asking, Sizes
from pelton.sync import connect
from tests.client.by_hand import House, Until
from tests.client.everything import calling
from tests.client.shells import connected, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.peers import ServerProcess

INTERVAL_S = 2.0
SHORT_S = 0.3
LONG_S = 60.0
SOON_S = LONG_S / 2
PIECE = bytes(128 * 1024)
PIECES = 96  # more than a transfer and the buffers of a connection take at once


def begun(timeout_s: float) -> tuple[House, Upkeep, list[tuple[float, ConsumerEvent]]]:
    """A client, an operation of its own, and what this one tells, with its times."""
    client = House()
    js = JetStream(client, domain=None, prefix=None, timeout=timeout_s)
    sizes = Sizes(heartbeat=INTERVAL_S, expires=30)
    config = ConsumerConfig(durable_name="c")
    info = ConsumerInfo(stream_name="S", name="c", config=config)
    subject = js.subjects.next_message("S", "c")
    intake = PullIntake(client, subject, info, Asking(config, {}), sizes, "wait")
    told: list[tuple[float, ConsumerEvent]] = []
    intake.events.callback = lambda event: told.append((client.now, event))
    intake.kept = True
    intake.begin()
    return client, Upkeep(js, intake), told


@pytest.mark.parametrize("timeout_s", [0.3, 5.0, 60.0])
@pytest.mark.parametrize("offset", [0.0, 0.4, 0.9, 1.3, 1.9])
def test_the_third_missed_heartbeat_comes_after_three_intervals(
    timeout_s: float, offset: float
) -> None:
    """However long each look-up waits for its answer."""
    client, upkeep, told = begun(timeout_s)
    intake: Any = upkeep.intake
    heard_at = 10 * INTERVAL_S + offset
    beat = BaseMessage(
        intake._replies.subject(1),
        "",
        b"NATS/1.0 100 Idle Heartbeat\r\n\r\n",
        b"",
        intake._interest,
    )
    work = upkeep._keep()
    answer: Any = None
    next_beat = offset
    while not any(each.count == 3 for _, each in told if each.type == "heartbeats_missed"):
        step = work.send(answer)
        answer = None
        assert isinstance(step, Until)
        end = client.now + step.seconds
        while next_beat <= min(end, heard_at):
            client.now = max(client.now, next_beat)
            intake._on_message(beat)
            next_beat += INTERVAL_S
        client.now = end
        answer = step.done()
        assert client.now < heard_at + 100
    work.close()
    missed = [(at - heard_at, each.count) for at, each in told if each.type == "heartbeats_missed"]
    assert [count for _, count in missed] == [1, 2, 3]
    for at, count in missed:
        assert count * INTERVAL_S < at <= (count + 1) * INTERVAL_S + 1e-6


@given(st.lists(st.floats(0.01, 3), min_size=1, max_size=40), st.floats(0.2, 5))
def test_the_count_is_that_of_the_clock(arrivals: list[float], interval_s: float) -> None:
    """Missed heartbeats since the last arrival, each half an interval late, or up to half an interval more."""
    heartbeats = Heartbeats()
    heartbeats.interval_s = interval_s
    heartbeats.restart(0.0)
    heard_at, count = 0.0, 0
    for gap in [*arrivals, 20 * interval_s]:
        arrives = heard_at + gap
        while heartbeats.due < arrives:
            now = heartbeats.due
            if missed := heartbeats.missed(now, watched=True):
                assert missed == count + 1
                count = missed
            silence = (now - heard_at) / interval_s
            assert count <= silence
            assert count >= silence - 1.5 - 1e-9
        heartbeats.heard = True
        heard_at, count = arrives, 0


def test_nothing_is_missed_while_nothing_is_owed() -> None:
    heartbeats = Heartbeats()
    heartbeats.interval_s = 1.0
    heartbeats.restart(0.0)
    for _ in range(20):
        assert not heartbeats.missed(heartbeats.due, watched=False)
    assert not heartbeats.silent


# -- object stores: the timeout of a call, or that of the client ------------------------------------


class Hanging:
    """A server that can be made to hang."""

    def __init__(self, server: ServerProcess) -> None:
        self.url, self.kind = server.url, server.kind
        assert server.process is not None
        self._process = server.process

    def hang(self, *_: object) -> None:
        self._process.send_signal(signal.SIGSTOP)
        wait_for(lambda: "\nState:\tT" in Path(f"/proc/{self._process.pid}/status").read_text())

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)


@pytest.fixture
def hanging(own_server: ServerProcess) -> Iterator[Hanging]:
    with connect(own_server.url, timeout=LONG_S) as admin:
        store = admin.jetstream().create_object_store(ObjectStoreConfig(bucket="b"))
        store.put("o", PIECE * PIECES)
    server = Hanging(own_server)
    yield server
    server.go_on()


def put_from_the_beginning(store: Any, server: Hanging, **timeout: float) -> None:
    server.hang()
    store.put("new", b"data", **timeout)


def put_in_the_middle(store: Any, server: Hanging, **timeout: float) -> None:
    def pieces() -> Iterator[bytes]:
        for number in range(PIECES):
            yield PIECE
            if number == 10:
                server.hang()

    store.put("new", pieces(), **timeout)


def put_to_the_end(store: Any, server: Hanging, **timeout: float) -> None:
    def hang(done: int, _: int | None) -> None:
        if done == len(PIECE):
            server.hang()

    store.put("new", PIECE, progress=hang, **timeout)


def get_from_the_beginning(store: Any, server: Hanging, **timeout: float) -> None:
    server.hang()
    store.get("o", **timeout)


def get_in_the_middle(store: Any, server: Hanging, **timeout: float) -> None:
    for number, _ in enumerate(store.chunks("o", **timeout)):
        if not number:
            server.hang()


def get_file_in_the_middle(store: Any, server: Hanging, **timeout: float) -> None:
    store.get_file("o", io.BytesIO(), progress=server.hang, **timeout)


def delete(store: Any, server: Hanging, **timeout: float) -> None:
    server.hang()
    store.delete("o", **timeout)


def list_all(store: Any, server: Hanging, **timeout: float) -> None:
    server.hang()
    store.list(**timeout)


CALLS = [
    put_from_the_beginning,
    put_in_the_middle,
    put_to_the_end,
    get_from_the_beginning,
    get_in_the_middle,
    get_file_in_the_middle,
    delete,
    list_all,
]


@pytest.mark.parametrize("given", [True, False], ids=["given", "of the client"])
@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_a_call_of_an_object_store_ends_when_the_server_hangs(
    shell: str, hanging: Hanging, call: Callable[..., None], given: bool
) -> None:
    with connected(shell, hanging.url, timeout=LONG_S if given else SHORT_S) as client:
        stores: list[Any] = []
        calling(lambda: stores.append(client.jetstream().object_store("b")))
        began = time.monotonic()
        with pytest.raises(PeltonTimeoutError):
            call(stores[0], hanging, **({"timeout": SHORT_S} if given else {}))
        assert time.monotonic() - began < SOON_S


def test_the_next_change_of_a_watch_is_none_in_time_when_the_server_hangs(
    shell: str, hanging: Hanging
) -> None:
    with connected(shell, hanging.url, timeout=LONG_S) as client:
        stores: list[Any] = []
        calling(lambda: stores.append(client.jetstream().object_store("b")))
        watch = stores[0].watch(updates_only=True)
        hanging.hang()
        began = time.monotonic()
        assert watch.next(timeout=SHORT_S) is None
        assert time.monotonic() - began < SOON_S
        hanging.go_on()
        watch.stop()


@pytest.mark.parametrize("call", ["status", "watch", "seal", "info"])
def test_a_call_without_a_timeout_has_that_of_the_client(
    shell: str, hanging: Hanging, call: str
) -> None:
    with connected(shell, hanging.url, timeout=SHORT_S) as client:
        stores: list[Any] = []
        calling(lambda: stores.append(client.jetstream().object_store("b")))
        hanging.hang()
        began = time.monotonic()
        with pytest.raises(PeltonTimeoutError):
            getattr(stores[0], call)(*(["o"] if call == "info" else []))
        assert time.monotonic() - began < SOON_S


def test_a_put_that_a_hung_server_ended_leaves_no_chunk_once_it_goes_on(
    shell: str, hanging: Hanging
) -> None:
    with (
        connect(hanging.url, timeout=LONG_S) as admin,
        connected(shell, hanging.url, timeout=LONG_S) as client,
    ):
        store = client.jetstream().object_store("b")
        with pytest.raises(PeltonTimeoutError) as failed:
            put_in_the_middle(store, hanging, timeout=SHORT_S)
        (note,) = failed.value.__notes__
        assert "chunks of it may have stayed, purge '$O.b.C." in note
        hanging.go_on()
        js = admin.jetstream()
        theirs = js.object_store("b")

        def is_clean() -> bool:
            if hanging.kind == "nats-server":
                # nats-server may purge before it stores what came with the request: as the note says
                js.purge_stream("OBJ_b", filter_subject=note.split("'")[1])
            return theirs.status().stream_info.state.messages == PIECES + 1

        wait_for(is_clean)
        assert [each.name for each in theirs.list()] == ["o"]
