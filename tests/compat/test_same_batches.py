"""Atomic batches, compared with a real nats-server step by step: same bytes to both, same bytes back,
and the same messages in the stream afterwards.
"""

import pytest

from tests.compat.batches import COMMIT, EOB, Batches
from tests.compat.scene import NEEDS_BOTH

pytestmark = NEEDS_BOTH


@pytest.fixture(params=["file", "memory"])
def storage(request):
    return request.param


def test_commit_and_end_of_batch(client, storage):
    scene = Batches(client, storage=storage)
    scene.put("one", 1)
    scene.look()
    scene.put("one", 2, subject="b", reply="")
    scene.put("one", 3, COMMIT, body="last")
    assert scene.look() == 3
    scene.put("two", 1)
    scene.put("two", 2)
    scene.put("two", 3, EOB, body="not stored")
    assert scene.look() == 5
    scene.put("alone", 1, COMMIT)
    scene.put("alone", 1, EOB)
    scene.put("again", 1)
    scene.put("again", 2, COMMIT)
    scene.put("again", 1)
    scene.put("again", 2, COMMIT, reply="")
    scene.look()


def test_what_is_refused(client):
    scene = Batches(client)
    for batch, seq, *more in (
        ("x" * 65, 1),
        ("x" * 64, 1),
        ("q", None),
        ("q", "abc"),
        ("q", "0"),
        ("q", "-1"),
        ("q", "007"),
        ("q", 2),
        ("q", 1000),
        ("q", 1001),
        ("q", 1001, EOB),
        ("q", 1002, EOB),
        ("q", 1, "Nats-Batch-Commit: yes"),
        ("q", 2, COMMIT),
        ("q", 1, "Nats-Batch-Commit: "),
        ("q", 1, EOB),
        ("q", 2, EOB),
        (None, 1),
        ("", 1),
        (None, None, COMMIT),
    ):
        scene.put(batch, seq, *more)
    scene.look()


def test_gaps_end_a_batch(client):
    scene = Batches(client)
    scene.put("g", 1)
    scene.put("g", 3)
    scene.put("g", 2)
    scene.put("h", 1)
    scene.put("h", 1)
    scene.put("h", 2)
    scene.put("i", 1)
    scene.put("i", 2, "Nats-Batch-Commit: maybe")
    scene.put("i", 3, COMMIT)
    scene.put("j", 1)
    scene.put("j", 3, COMMIT)
    assert scene.look() == 0


def test_several_at_a_time(client):
    scene = Batches(client)
    for n in range(1, 4):
        for batch in ("a", "b", "c"):
            scene.put(batch, n, body=f"{batch}{n}")
    scene.plain()
    scene.put("b", 4, COMMIT)
    scene.plain()
    scene.put("c", 4, EOB)
    scene.put("a", 4, COMMIT)
    assert scene.look() == 13


def test_api_levels(client):
    scene = Batches(client)
    scene.put("v", 1, "Nats-Required-Api-Level: 2")
    scene.put("v", 2, COMMIT, "Nats-Required-Api-Level: 0")
    scene.look()
    for level in ("99", "x", "-1"):
        scene.put("w", 1)
        scene.put("w", 2, f"Nats-Required-Api-Level: {level}")
        scene.put("w", 3, COMMIT)
    scene.fast("w", 1, 0, headers="Nats-Required-Api-Level: 1")
    scene.fast("w", 2, 1, headers="Nats-Required-Api-Level: 99")
    scene.fast("w", 3, 1)
    scene.look()


def test_expectations(client):
    scene = Batches(client)
    scene.plain()
    scene.plain("b")
    last = "Nats-Expected-Last-Sequence: {}".format
    of_subject = "Nats-Expected-Last-Subject-Sequence: {}".format
    subject = f"Nats-Expected-Last-Subject-Sequence-Subject: {scene.name}.{{}}".format
    for first, second in (
        ([last(1)], []),
        ([last(2)], []),
        ([], [last(5)]),
        ([], [last(4)]),
        ([of_subject(0)], []),
        ([of_subject(3)], []),
        ([of_subject(7)], [of_subject(7)]),
        ([], [of_subject(0), subject("new")]),
        ([], [of_subject(9), subject("a")]),
        ([subject("b")], []),
        ([of_subject(2), subject("b")], []),
        ([of_subject(2), subject("b")], [of_subject(2), subject("b")]),
        ([of_subject(2), subject("b")], [of_subject(3), subject("b")]),
        ([of_subject("x"), subject("b")], []),
        ([last("x")], []),
        (["Nats-Expected-Stream: other"], []),
        ([f"Nats-Expected-Stream: {scene.name}"], []),
        (["Nats-Expected-Last-Msg-Id: x"], []),
        ([], ["Nats-Expected-Last-Msg-Id: x"]),
    ):
        scene.put("e", 1, *first)
        scene.put("e", 2, COMMIT, *second, subject="b" if first == [] else "c")
    scene.look()


def test_message_ids(client):
    scene = Batches(client)
    scene.plain(headers="Nats-Msg-Id: there")
    name = "Nats-Msg-Id: {}".format
    for ids in (["a", "a"], ["there", "b"], ["b", "there"], ["c", "d"], ["d", "e"], ["e", "f"]):
        scene.put("m", 1, name(ids[0]))
        scene.put("m", 2, COMMIT, name(ids[1]))
    scene.plain(headers=name("c"))
    scene.plain(headers=name("f"))
    scene.plain(headers="Nats-Expected-Last-Msg-Id: f")
    scene.look()


@pytest.mark.parametrize(
    "config", [{"max_msgs": 4}, {"max_msgs_per_subject": 1}, {"max_bytes": 300}]
)
@pytest.mark.parametrize("discard", ["old", "new"])
def test_limits(client, storage, config, discard):
    scene = Batches(client, storage=storage, discard=discard, **config)
    for n, count in enumerate((2, 3, 5)):
        for seq in range(1, count):
            scene.put(f"l{n}", seq, body="y" * 20, subject=f"s{seq}")
        scene.put(f"l{n}", count, COMMIT, body="z" * 20, subject="s1")
        scene.look()


def test_limits_per_subject(client):
    scene = Batches(client, discard="new", discard_new_per_subject=True, max_msgs_per_subject=2)
    for batch, subjects in (("a", "xyx"), ("b", "zx"), ("c", "zyz"), ("d", "zyy")):
        for seq, subject in enumerate(subjects, 1):
            scene.put(batch, seq, *([COMMIT] if seq == len(subjects) else []), subject=subject)
    scene.look()


def test_sizes(client):
    scene = Batches(client, max_msg_size=200)
    scene.put("s", 1, body="x" * 300)
    scene.put("s", 1, body="x")
    scene.put("s", 2, body="x" * 300)
    scene.put("s", 2, COMMIT, body="x")
    scene.fast("s", 1, 0, body="x" * 300)
    scene.fast("s", 1, 0)
    scene.fast("s", 2, 1, body="x" * 300)
    scene.fast("s", 2, 2)
    scene.look()


def test_features_that_are_off(client):
    for allow in ({"allow_atomic": False}, {"allow_batched": False}, {"sealed": True}):
        scene = Batches(client)
        scene.put("o", 1)
        scene.fast("o", 1, 0)
        client.ask(f"STREAM.UPDATE.{scene.name}", scene.config | allow)
        scene.put("o", 2, COMMIT)
        scene.put("p", 1)
        scene.put("p", 2, COMMIT)
        scene.fast("o", 2, 1)
        scene.fast("p", 1, 0)
        scene.fast("p", 2, 2)
        scene.look()
    scene = Batches(client)
    for headers in (
        "Nats-Incr: 1",
        "Nats-TTL: 10",
        "Nats-TTL: x",
        "Nats-Rollup: sub",
        "Nats-Schedule: @every 10s",
        "Nats-Incr: x",
        "Nats-Schedule: x",
    ):
        scene.put("o", 1, headers)
        scene.put("o", 2, COMMIT)
        scene.fast("f", 1, 0, headers=headers)
        scene.fast("f", 2, 1)
        scene.fast("f", 3, 1, headers=headers)
        scene.fast("f", 4, 2)
    scene.look()


def test_updates_keep_open_batches(client):
    scene = Batches(client)
    scene.put("u", 1)
    scene.fast("u", 1, 0)
    client.ask(f"STREAM.UPDATE.{scene.name}", scene.config | {"description": "new"})
    scene.put("u", 2, COMMIT)
    scene.fast("u", 2, 2)
    scene.look()


def test_no_ack(client):
    scene = Batches(client, no_ack=True)
    scene.put("n", 1)
    scene.put("n", 2, COMMIT)
    scene.put("n", 2, COMMIT)
    scene.fast("n", 1, 0, flow=2)
    for seq in range(2, 6):
        scene.fast("n", seq, 1, flow=2)
    scene.fast("n", 9, 1, flow=2)
    scene.fast("n", 10, 2, flow=2)
    scene.fast("n", 10, 2, flow=2)
    for seq in range(1, 10):
        client.ask(f"STREAM.MSG.GET.{scene.name}", {"seq": seq})


def test_too_large(client):
    scene = Batches(client)
    put = f"HPUB {scene.name}.a {{}} {{}}\r\n{{}}".format

    def burst(batch, first, last):
        data = ""
        for seq in range(first, last + 1):
            block = f"NATS/1.0\r\nNats-Batch-Id: {batch}\r\nNats-Batch-Sequence: {seq}\r\n\r\n"
            data += put(len(block), len(block), block + "\r\n")
        client.say(data, 0.2)

    burst("l", 1, 1000)
    scene.put("l", 1001)
    scene.put("l", 1002, COMMIT)
    burst("m", 1, 999)
    scene.put("m", 1000, COMMIT)
    burst("n", 1, 1000)
    scene.put("n", 1001, EOB)
    assert scene.last() == 2000


def test_too_many(client):
    scene = Batches(client)
    for n in range(51):
        scene.put(f"t{n}", 1)
    scene.put("t0", 2, COMMIT)
    scene.put("t50", 1)
    scene.put("t51", 1)
    client.ask(f"STREAM.PURGE.{scene.name}")
    scene.look()
