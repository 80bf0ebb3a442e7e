"""Fast-ingest batches, compared with a real nats-server step by step."""

import pytest

from tests.compat.batches import COMMIT, Batches
from tests.compat.scene import NEEDS_BOTH

pytestmark = NEEDS_BOTH


def test_reply_subjects(client):
    scene = Batches(client)
    long = "x" * 65
    for reply in (
        "in.f.10.ok.1.0.$FI",
        "in.g.0.ok.1.0.$FI",
        "in.h.x.ok.1.0.$FI",
        "in.i.-5.ok.1.0.$FI",
        "in.j.99999999.ok.1.0.$FI",
        "in.k..ok.1.0.$FI",
        "in.l.10.maybe.1.0.$FI",
        "in.m.10.ok.2.0.$FI",
        "in.m.10.ok.1.1.$FI",
        "in.m.10.ok.0.0.$FI",
        "in.m.10.ok.1.3.$FI",
        "in.m.10.ok.2.3.$FI",
        "in.m.10.ok.1.5.$FI",
        "in.m.10.ok.1.x.$FI",
        "in.m.10.ok.1.-1.$FI",
        "in.m.10.ok.-1.0.$FI",
        "in.m.10.ok.x.0.$FI",
        "in.m.10.fail.2.2.$FI",
        "in.m.10.fail.2.4.$FI",
        "in.m.10.fail.1.2.$FI",
        "in.m.10.ok.1.2.$FI",
        "in.m.10.FAIL.1.2.$FI",
        "in.ok.1.0.$FI",
        "in.1.0.$FI",
        "in.0.$FI",
        "in.$FI",
        f"in.{long}.10.ok.1.0.$FI",
        f"in.{long[1:]}.10.ok.1.0.$FI",
    ):
        client.say(f"UNSUB 5\r\nSUB {reply} 5\r\n")
        client.publish(f"{scene.name}.a", "x", None, reply)
    scene.look()


@pytest.mark.parametrize("flow", [1, 3, 10, 600])
@pytest.mark.parametrize("gap", ["ok", "fail"])
def test_flow(client, flow, gap):
    scene = Batches(client)
    client.say("SUB in.> 6\r\n")
    scene.fast("f", 1, 0, flow=flow, gap=gap)
    for seq in range(2, 30):
        scene.fast("f", seq, 1, flow=flow, gap=gap)
    scene.fast("f", 29, 4, flow=flow, gap=gap)
    scene.fast("f", 30, 3, flow=flow, gap=gap)
    scene.fast("f", 31, 1, flow=flow, gap=gap)
    scene.look()


def test_flow_is_shared(client):
    scene = Batches(client)
    client.say("SUB in.> 6\r\n")
    scene.fast("one", 1, 0, flow=8)
    scene.fast("two", 1, 0, flow=8)
    scene.fast("three", 1, 0, flow=400)
    for seq in range(2, 40):
        for batch, flow in (("one", 8), ("two", 8), ("three", 400)):
            scene.fast(batch, seq, 1, flow=flow)
    for batch in ("one", "two", "three"):
        scene.fast(batch, 40, 2, flow=8)


def test_flow_comes_down(client):
    scene = Batches(client)
    client.say("SUB in.> 6\r\n")
    scene.fast("big", 1, 0, flow=500)
    scene.fast("other", 1, 0, flow=500)
    scene.fast("third", 1, 0, flow=500)
    put = "".join(
        f"PUB {scene.name}.a in.big.500.ok.{seq}.1.$FI 1\r\nx\r\n" for seq in range(2, 2000)
    )
    client.say(put, 0.2)
    put = "".join(
        f"PUB {scene.name}.a in.other.500.ok.{seq}.1.$FI 1\r\nx\r\n" for seq in range(2, 1000)
    )
    client.say(put, 0.2)
    scene.fast("big", 2000, 3, flow=500)
    scene.fast("other", 1000, 3, flow=500)


@pytest.mark.parametrize("gap", ["ok", "fail"])
def test_fast_gaps(client, gap):
    scene = Batches(client)
    client.say("SUB in.> 6\r\n")
    for steps in (
        [(1, 0), (3, 1), (4, 1), (5, 2)],
        [(1, 0), (5, 4), (6, 1), (7, 2)],
        [(1, 0), (2, 1), (2, 1), (3, 1), (4, 2)],
        [(1, 0), (2, 1), (4, 2), (5, 1)],
        [(1, 0), (2, 1), (9, 3), (10, 1)],
        [(1, 0), (1, 0), (2, 1)],
        [(1, 0), (2, 4), (3, 3)],
        [(1, 0), (1, 4), (2, 3)],
        [(1, 2), (2, 1)],
        [(1, 4), (2, 1), (3, 3)],
        [(2, 1)],
        [(2, 3)],
        [(2, 4)],
    ):
        for seq, op in steps:
            scene.fast("g", seq, op, flow=2, gap=gap)
        scene.look()


@pytest.mark.parametrize("gap", ["ok", "fail"])
def test_fast_errors_and_duplicates(client, gap):
    scene = Batches(client)
    client.say("SUB in.> 6\r\n")
    scene.plain(headers="Nats-Msg-Id: a")
    bad = "Nats-Expected-Stream: other"
    same = "Nats-Msg-Id: a"
    for n, steps in enumerate(
        (
            [(1, 0, bad), (2, 1, None), (3, 3, None)],
            [(1, 0, None), (2, 1, bad), (3, 1, None), (4, 3, None)],
            [(1, 0, None), (2, 1, None), (3, 2, bad), (4, 1, None)],
            [(1, 2, bad), (2, 1, None)],
            [(1, 0, same), (2, 1, None), (3, 3, None)],
            [(1, 0, None), (2, 1, same), (3, 1, same), (4, 1, same), (5, 2, None)],
            [(1, 0, None), (2, 1, None), (3, 2, same), (4, 1, None)],
            [(1, 2, same), (2, 1, None)],
            [(1, 0, None), (2, 1, None), (3, 1, None), (4, 1, same), (5, 3, None)],
            [(1, 0, None), (2, 1, bad), (3, 3, None)],
            [(1, 0, None), (2, 1, bad), (3, 4, None), (4, 1, None), (5, 3, None)],
        )
    ):
        for seq, op, headers in steps:
            scene.fast(f"e{n}", seq, op, flow=2, gap=gap, headers=headers)
    scene.look()


def test_expectations_in_fast_batches(client):
    scene = Batches(client)
    client.say("SUB in.> 6\r\n")
    scene.fast("x", 1, 0, headers="Nats-Expected-Last-Sequence: 0")
    scene.fast("x", 2, 1, headers="Nats-Expected-Last-Sequence: 1")
    scene.fast("x", 3, 1, headers="Nats-Expected-Last-Sequence: 1")
    scene.fast("x", 4, 1, headers="Nats-Expected-Last-Subject-Sequence: 2")
    scene.fast("x", 5, 1, headers="Nats-Expected-Last-Subject-Sequence: 2")
    scene.fast("x", 6, 1, headers="Nats-Batch-Id: y\nNats-Batch-Sequence: 1")
    scene.fast("x", 7, 2)
    scene.look()


@pytest.mark.parametrize("config", [{"max_msgs": 4}, {"max_bytes": 300}])
def test_fast_and_full(client, config):
    scene = Batches(client, discard="new", **config)
    client.say("SUB in.> 6\r\n")
    for gap in ("ok", "fail"):
        scene.fast("d", 1, 0, gap=gap, body="x" * 30)
        for seq in range(2, 12):
            scene.fast("d", seq, 1, gap=gap, body="x" * 30)
        scene.fast("d", 12, 2, gap=gap)
    scene.look()


def test_fast_without_a_stream_that_takes_them(client):
    scene = Batches(client, allow_batched=False, allow_atomic=False)
    scene.fast("z", 1, 0)
    scene.fast("z", "bad", 0)
    scene.put("z", 1)
    scene.look()


def test_timeouts(client):
    scene = Batches(client)
    client.say("SUB in.> 6\r\n")
    scene.put("t", 1)
    scene.fast("t", 1, 0)
    client.say("PING\r\n", 10.8)
    scene.put("t", 2, COMMIT)
    scene.fast("t", 2, 2)
    scene.look()
