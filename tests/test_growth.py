"""What comes and goes leaves nothing behind: memory follows what there is, not what there was.

Each life is lived so many times, and so many times again; between the two the number of Python objects of each
type and the bytes that the C allocator has handed out may grow by a small bound only. GROWTH_LIVES=10000 for a
longer look.
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from bench.bench_subjects import in_use_bytes
from pelton.core.log.recovery import open_log
from pelton.engine.base.timers import STALE
from tests.core.streams import Site
from tests.core.wires import Server
from tests.engine.house import SECOND, House

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Deadlines that hold no longer stay, with what they are of, until they are STALE: lives are counted in whole rounds
# of that, so that both looks come at the same point of one.
ROUND = STALE + 1
LIVES = int(os.environ.get("GROWTH_LIVES", "650")) // ROUND * ROUND
OBJECTS = 60  # more of one type than that are a leak, at 650 lives and more
BYTES = 60_000
MEMORY_SEGMENTS_BYTES = 2_500_000  # a memory log's messages go with their segment


def objects() -> Counter[str]:
    gc.collect()
    return Counter(type(each).__qualname__ for each in gc.get_objects())


def growth(live: Callable[[int], object]) -> tuple[dict[str, int], int]:
    """Types of which there are more after as many lives again, and bytes."""
    for k in range(LIVES):
        live(k)
    before = objects()
    gc.collect()
    bytes_before = in_use_bytes()
    for k in range(LIVES, 2 * LIVES):
        live(k)
    gc.collect()
    grown_bytes = in_use_bytes() - bytes_before
    after = objects()
    return {name: n - before[name] for name, n in after.items() if n - before[name] > OBJECTS}, (
        grown_bytes
    )


def settled(live: Callable[[int], object], most_bytes: int = BYTES) -> None:
    more, grown_bytes = growth(live)
    if more:
        # A leak grows each time; what another thread of this process makes once does not.
        again, grown_bytes = growth(lambda k: live(k + 2 * LIVES))
        more = {name: again[name] for name in more.keys() & again.keys()}
    assert more == {}
    assert grown_bytes < most_bytes


def test_connections() -> None:
    server = Server()
    listener = server.client().send("SUB > 1\r\n")

    def live(k: int) -> None:
        client = server.client()
        client.send(f"SUB a.{k} 1\r\nSUB b.*.{k} q 2\r\nPUB a.{k} r.{k} 2\r\nhi\r\n")
        client.events()
        listener.events()
        server.reactor.disconnect(client.connection, "Client Closed")
        server.reactor.settle()

    settled(live)


def test_subscriptions_and_subjects() -> None:
    server = Server()
    client = server.client()
    client.send("SUB fixed.* 1\r\nSUB fixed.> 2\r\n")

    def live(k: int) -> None:
        client.send(f"SUB in.{k} {k + 10}\r\nSUB in.{k}.* q {k + 1000000}\r\n")
        client.send(f"PUB in.{k} 0\r\n\r\nPUB in.{k}.x 0\r\n\r\n")
        client.send(f"UNSUB {k + 10}\r\nUNSUB {k + 1000000}\r\n")
        client.events()

    settled(live)


@pytest.mark.parametrize("storage", ["memory", "file"])
def test_streams(storage: str, tmp_path: Path) -> None:
    house = House(tmp_path)

    def live(k: int) -> None:
        house.stream(f"S{k}", subjects=[f"s.{k}.>"], storage=storage)
        house.publish(f"s.{k}.x")
        house.ok(f"STREAM.INFO.S{k}")
        house.ok(f"STREAM.DELETE.S{k}")

    settled(live)
    house.engine.close()


def test_consumers(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream(subjects=["s.*"], storage="memory")
    house.publish("s.a")

    def live(k: int) -> None:
        house.consumer(f"c{k}", filter_subject="s.*", ack_policy="explicit")
        assert house.pull(consumer=f"c{k}")
        house.ok(f"CONSUMER.INFO.S.c{k}")
        house.ok(f"CONSUMER.DELETE.S.c{k}")

    settled(live)
    house.engine.close()


def test_consumers_that_go_by_themselves(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream(subjects=["s.*"], storage="memory")
    house.publish("s.a")

    def live(k: int) -> None:
        config = {"name": f"c{k}", "filter_subject": f"s.{k}", "inactive_threshold": SECOND}
        house.ok(f"CONSUMER.CREATE.S.c{k}", {"stream_name": "S", "config": config})
        if k % ROUND == ROUND - 1:
            house.pass_time(3 * SECOND, SECOND)

    settled(live)
    house.engine.close()


def test_message_ids_of_the_past(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream(
        subjects=["s.*"], storage="memory", max_msgs=5, duplicate_window=SECOND, discard="old"
    )

    def live(k: int) -> None:
        answer = house.publish("s.a", headers=b"NATS/1.0\r\nNats-Msg-Id: id-%d\r\n\r\n" % k)
        assert "duplicate" not in answer
        if k % ROUND == ROUND - 1:
            house.pass_time(2 * SECOND, SECOND)

    settled(live, MEMORY_SEGMENTS_BYTES)
    house.engine.close()


def test_calls_that_are_refused(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream(subjects=["s.*"], storage="memory")

    def live(k: int) -> None:
        house.error(f"STREAM.INFO.NONE{k}")
        house.error(f"CONSUMER.INFO.S.none{k}")
        house.error(f"STREAM.CREATE.X{k}", {"name": f"X{k}", "subjects": [f"s.{k}"]})
        house.request(f"nobody.{k}")

    settled(live)
    house.engine.close()


def test_direct_gets_and_purges(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream(subjects=["s.*"], storage="file", allow_direct=True, max_msgs=20)

    def live(k: int) -> None:
        house.publish(f"s.{k}")
        house.request("$JS.API.DIRECT.GET.S", {"last_by_subj": f"s.{k}"})
        house.ok("STREAM.PURGE.S", {"filter": f"s.{k}"})

    more, _ = growth(live)  # names are forgotten with the segment, which is large
    assert more == {}
    house.engine.close()


def test_ever_new_subjects_and_their_consumers() -> None:
    site = Site(log=open_log(None, segment_bytes=4096))
    site.stream.configure(max_msgs=10)
    for n in range(3):
        site.consumer(f"C{n}", filters=(f"s.*.{n}",))

    def live(k: int) -> None:
        site.publish(f"s.{k}.{k % 4}", bytes(200))
        site.heard()

    settled(live)


def test_the_measure_sees_a_leak() -> None:
    kept: list[object] = []
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p

    def live(k: int) -> None:
        kept.append([k])
        libc.malloc(1000)

    more, grown_bytes = growth(live)
    assert more == {"list": LIVES}
    assert grown_bytes > BYTES
