"""Atomic and fast-ingest batches, compared with a real nats-server step by step: same bytes to both,
same bytes back, and the same messages in the stream afterwards.
"""

import itertools
import re

import pytest

from tests.compat.scene import NEEDS_BOTH

pytestmark = NEEDS_BOTH
NUMBERS = itertools.count(1)
ABANDONED = "SUB $JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.> 4\r\n"


class Batches:
    """A stream that takes both kinds of batches, and a publisher."""

    def __init__(self, client, **config):
        self.client = client
        self.name = f"BATCH{next(NUMBERS)}"
        self.config = {
            "name": self.name,
            "subjects": [f"{self.name}.>"],
            "storage": "memory",
            "allow_atomic": True,
            "allow_batched": True,
        } | config
        client.say(ABANDONED + "SUB last 7\r\n")
        client.made.append(self.name)
        answer = client.ask(f"STREAM.CREATE.{self.name}", self.config)
        assert "error" not in answer, answer

    def put(self, batch, seq, *more, body="x", subject="a", reply="in.r"):
        """One message of an atomic batch; `more`: further header lines."""
        lines = []
        if batch is not None:
            lines.append(f"Nats-Batch-Id: {batch}")
        if seq is not None:
            lines.append(f"Nats-Batch-Sequence: {seq}")
        return self.client.publish(
            f"{self.name}.{subject}", body, "\n".join([*lines, *more]), reply
        )

    def fast(self, batch, seq, op, *, flow=10, gap="ok", body="x", subject="a", headers=None):
        """One message of a fast-ingest batch."""
        return self.client.publish(
            f"{self.name}.{subject}", body, headers, f"in.{batch}.{flow}.{gap}.{seq}.{op}.$FI"
        )

    def plain(self, subject="a", body="x", headers=None):
        return self.client.publish(f"{self.name}.{subject}", body, headers, "in.p")

    def look(self):
        """Every message; how many are there."""
        found = 0
        for seq in range(1, self.last() + 1):
            found += "message" in self.client.ask(f"STREAM.MSG.GET.{self.name}", {"seq": seq})
        return found

    def last(self):
        """The highest sequence, of a sealed stream any that is higher; the same on both."""
        seen = self.client.publish(
            f"{self.name}.a", "x", "Nats-Expected-Last-Sequence: 99999", "last"
        )
        found = re.search(rb"wrong last sequence: (\d+)", seen["7"][0][3])
        return int(found[1]) if found else 12


COMMIT = "Nats-Batch-Commit: 1"
EOB = "Nats-Batch-Commit: eob"


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


# --- fast ingest -----------------------------------------------------------------------------------


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


# --- with other features -----------------------------------------------------------------------------


def test_rollups(client, storage):
    scene = Batches(client, allow_rollup_hdrs=True, storage=storage)
    roll = "Nats-Rollup: {}".format
    for batch, messages in (
        ("a", [("x", None), ("y", None), ("x", None)]),
        ("b", [("x", "sub"), ("x", None), ("z", None)]),
        ("c", [("x", None), ("x", "sub")]),
        ("d", [("y", None), ("x", "all")]),
        ("e", [("x", "nonsense"), ("y", None)]),
        ("f", [("y", "sub"), ("x", "sub"), ("z", None)]),
        ("g", [("y", "all"), ("x", None)]),
        ("h", [("y", "ALL")]),
        ("i", [("x", None), ("y", "Sub")]),
    ):
        for seq, (subject, rollup) in enumerate(messages, 1):
            more = ([COMMIT] if seq == len(messages) else []) + ([roll(rollup)] if rollup else [])
            scene.put(batch, seq, *more, subject=subject)
        scene.look()
    client.say("SUB in.> 6\r\n")
    scene.fast("j", 1, 0, headers=roll("sub"))
    scene.fast("j", 2, 1, subject="y", headers=roll("x"))
    scene.fast("j", 3, 2, subject="y", headers=roll("all"))
    scene.look()


def test_ends_of_messages(client, storage):
    scene = Batches(client, allow_msg_ttl=True, storage=storage)
    for batch, ttl in enumerate(("1", "10s", "never", "0", "x", "-1", "100ms", "1h")):
        scene.put(f"t{batch}", 1, f"Nats-TTL: {ttl}")
        scene.put(f"t{batch}", 2, COMMIT)
        scene.fast(f"f{batch}", 1, 2, headers=f"Nats-TTL: {ttl}")
    scene.look()


def test_async_persistence(client):
    scene = Batches(client, storage="file", persist_mode="async", allow_atomic=False)
    scene.plain()
    scene.fast("p", 1, 2)
    for change in ({"persist_mode": "default"}, {"persist_mode": ""}, {"allow_atomic": True}):
        client.ask(f"STREAM.UPDATE.{scene.name}", scene.config | change)
    for config in (
        {"persist_mode": "async", "storage": "memory"},
        {"persist_mode": "async", "allow_atomic": True},
        {"persist_mode": "async", "num_replicas": 3},
        {"persist_mode": "sometimes"},
    ):
        name = f"{scene.name}x"
        client.ask(f"STREAM.CREATE.{name}", {"name": name, "subjects": ["p.q"]} | config)
    plain = Batches(client, storage="file", allow_atomic=False)
    client.ask(f"STREAM.UPDATE.{plain.name}", plain.config | {"persist_mode": "async"})
    scene.look()
