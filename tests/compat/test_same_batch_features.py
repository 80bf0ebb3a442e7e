"""Batches in streams with other features, compared with a real nats-server step by step."""

import pytest

from tests.compat.batches import COMMIT, EOB, Batches
from tests.compat.scene import NEEDS_BOTH

pytestmark = NEEDS_BOTH


@pytest.fixture(params=["file", "memory"])
def storage(request):
    return request.param


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


def test_counters(client, storage):
    scene = Batches(client, allow_msg_counter=True, allow_direct=True, storage=storage)
    client.say("SUB in.> 6\r\n")

    def add(text):
        return f"Nats-Incr: {text}"

    scene.plain(body="", headers=add(5))
    scene.put("a", 1, add(3), body="")
    scene.put("a", 2, add("+10"), body="")
    scene.put("a", 3, add(-1), body="", subject="b")
    scene.put("a", 4, COMMIT, add(1), body="")
    scene.look()
    for batch, more in (
        ("b", [add(1), "Nats-Rollup: sub"]),
        ("c", [add("x")]),
        ("d", []),
        ("e", [add(1), "Nats-Expected-Last-Sequence: 5"]),
    ):
        scene.put(batch, 1, add(1), body="")
        scene.put(batch, 2, COMMIT, *more, body="")
    scene.put("f", 1, add(1), body="")
    scene.put("f", 2, COMMIT, add(1), body="full")
    scene.put("g", 1, add(1), body="")
    scene.put("g", 2, EOB, body="")
    scene.fast("h", 1, 0, body="", headers=add(2), flow=2)
    scene.fast("h", 2, 1, body="", headers=add(2), flow=2)
    scene.fast("h", 3, 1, body="x", headers=add(2), flow=2)
    scene.fast("h", 4, 2, body="", headers=add(2), flow=2)
    scene.plain(body="", headers=add(0))
    scene.look()


def test_transformed_subjects(client, storage):
    scene = Batches(
        client,
        storage=storage,
        subject_transform={"src": f"BATCH{0}x.*", "dest": "never.$1"},
    )
    change = {"subject_transform": {"src": f"{scene.name}.x.*", "dest": f"{scene.name}.y.$1"}}
    client.ask(f"STREAM.UPDATE.{scene.name}", scene.config | change)
    of_subject = "Nats-Expected-Last-Subject-Sequence: {}".format
    scene.put("a", 1, subject="x.1")
    scene.put("a", 2, of_subject(0), subject="y.2")
    scene.put("a", 3, COMMIT, subject="x.2")
    scene.put("b", 1, subject="x.1")
    scene.put("b", 2, COMMIT, of_subject(1), subject="y.1")
    scene.put("c", 1, of_subject(1), subject="x.1")
    scene.put("c", 2, COMMIT, of_subject(3), subject="y.2")
    scene.fast("d", 1, 0, subject="x.1")
    scene.fast("d", 2, 2, subject="x.3", headers=of_subject(0))
    scene.look()


@pytest.mark.parametrize("retention", ["interest", "workqueue"])
def test_retention(client, storage, retention):
    scene = Batches(client, retention=retention, storage=storage)
    scene.put("a", 1)
    scene.put("a", 2, COMMIT, "Nats-Msg-Id: m")
    scene.fast("b", 1, 0)
    scene.fast("b", 2, 2)
    config = {
        "durable_name": "c",
        "ack_policy": "explicit",
        "filter_subject": f"{scene.name}.a",
        "deliver_policy": "all",
    }
    client.ask(
        f"CONSUMER.CREATE.{scene.name}.c.{scene.name}.a",
        {"stream_name": scene.name, "config": config},
    )
    for batch, subjects in (("c", "abab"), ("d", "baab"), ("e", "bb")):
        for seq, subject in enumerate(subjects, 1):
            more = [COMMIT] if seq == len(subjects) else []
            scene.put(batch, seq, *more, subject=subject)
    scene.put("f", 1, subject="b")
    scene.put("f", 2, COMMIT, "Nats-Msg-Id: m")
    scene.fast("g", 1, 0, subject="b")
    scene.fast("g", 2, 1, subject="a")
    scene.fast("g", 3, 2, subject="b")
    scene.look()


def test_republished(client):
    scene = Batches(client, republish={"src": ">", "dest": "again.>"})
    client.say("SUB again.> 8\r\n")
    scene.put("a", 1)
    scene.put("a", 2, subject="b")
    scene.put("a", 3, COMMIT)
    scene.fast("b", 1, 0)
    scene.fast("b", 2, 2)
    scene.look()


def test_schedules(client, storage):
    scene = Batches(client, allow_msg_schedules=True, allow_msg_ttl=True, storage=storage)
    client.say("SUB in.> 6\r\n")
    at = "Nats-Schedule: @at 2100-01-01T00:00:00Z"

    def target(name):
        return f"Nats-Schedule-Target: {scene.name}.{name}"

    def cancel(name):
        return ("Nats-Schedule-Next: purge", f"Nats-Scheduler: {scene.name}.{name}")

    for batch, messages in (
        ("a", [("s1", [at, target("t")]), ("s2", [at, target("t")])]),
        ("b", [("s1", [at, target("t")]), ("s1", [at, target("t")])]),
        ("c", [("s1", [at, target("s1")]), ("s2", [])]),
        ("d", [("s3", [at, target("t"), "Nats-Rollup: all"]), ("s2", [])]),
        ("e", [("s3", ["Nats-Schedule: sometimes", target("t")]), ("s2", [])]),
        ("f", [("s3", [at, target("t")]), ("t", cancel("s3"))]),
        ("g", [("s4", []), ("t", cancel("s4"))]),
        ("h", [("t", cancel("s1")), ("t", [])]),
        ("i", [("t", cancel("unknown")), ("t", [])]),
    ):
        for seq, (subject, more) in enumerate(messages, 1):
            commit = [COMMIT] if seq == len(messages) else []
            scene.put(batch, seq, *commit, *more, subject=subject)
        scene.look()
    scene.fast("j", 1, 0, subject="s5", headers=f"{at}\n{target('t')}")
    scene.fast("j", 2, 2, subject="t", headers="\n".join(cancel("s5")))
    scene.look()
