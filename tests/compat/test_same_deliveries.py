"""Acks, starts, filters and push, compared with a real nats-server step by step."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.compat.scene import NEEDS_BOTH, Scene, second
from tests.compat.seeds import seed_of, walks
from tests.compat.twins import PING
from tests.ways import EVERY_WAY

pytestmark = NEEDS_BOTH


ANSWERS = [
    "",
    "+ACK",
    "+OK",
    "+ACK ",
    "-NAK",
    "-NAK ",
    '-NAK {"delay": 200000000}',
    "-NAK 200ms",
    "-NAK x",
    '-NAK {"delay": -5}',
    '-NAK {"delay": "1s"}',
    "-NAK {}",
    "+WPI",
    "+WPI ",
    "+TERM",
    "+TERM because of this",
    "+TERMx",
    "-NAKx",
    "garbage",
    "+ack",
]


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        *(("explicit", text) for text in ANSWERS),
        *(("all", text) for text in ANSWERS[::2]),
        *(pytest.param("all", text, marks=EVERY_WAY) for text in ANSWERS[1::2]),
    ],
)
def test_every_answer(client, text, policy):
    scene = Scene(client)
    scene.fill(4)
    scene.consumer(ack_policy=policy)
    scene.pull("3")
    client.answer(1, text, "in.r")
    scene.info()
    scene.pull({"batch": 2, "no_wait": True})
    scene.info()
    client.answer(1, text, "in.r")
    client.answer(0, "+ACK", "in.r")
    scene.info()
    client.wait(0.25)
    scene.pull({"batch": 2, "no_wait": True})
    scene.info()
    for at in range(3):
        client.answer(at, "+ACK", "in.r")
        scene.info()


@pytest.mark.parametrize(
    "text",
    [
        "+NXT",
        "+NXT 2",
        "+NXT {}",
        '+NXT {"batch":2,"no_wait":true}',
        "+NXT x",
        "+NXT{}",
        "+NXT 0",
        "+NXT -1",
        "+NXTx",
        '+NXT {"batch":2,"expires":100000000}',
    ],
)
def test_acknowledge_and_ask_for_more(client, text):
    scene = Scene(client)
    scene.fill(6)
    scene.consumer()
    scene.pull("1")
    client.answer(0, text, "in.r")
    scene.info()
    client.wait(0.15)
    client.answer(0, text, "in.s")
    scene.info()
    client.answer(0, text)
    scene.info()


def test_no_acknowledgements(client):
    scene = Scene(client)
    scene.fill(6)
    scene.consumer(ack_policy="none")
    scene.pull("2")
    scene.info()
    client.answer(0, "+ACK", "in.r")
    client.answer(0, "-NAK", "in.r")
    scene.info()
    scene.pull("2")
    scene.info()
    scene.ok(f"STREAM.PURGE.{scene.name}")
    scene.info()


def test_all_clears_what_is_before(client):
    scene = Scene(client)
    scene.fill(8)
    scene.consumer(ack_policy="all")
    scene.pull("6")
    client.answer(3, "+ACK", "in.r")
    scene.info()
    client.answer(1, "+ACK", "in.r")
    scene.info()
    client.answer(4, "-NAK", "in.r")
    scene.info()
    scene.pull("2")
    scene.info()
    client.answer(6, "+ACK", "in.r")
    scene.info()
    client.answer(5, "+TERM", "in.r")
    scene.info()


def test_hand_made_ack_subjects(client):
    scene = Scene(client)
    scene.fill(4)
    scene.consumer()
    scene.pull("2")
    name = scene.name
    for tail in (
        "1.1.1.1.1",
        "1.1.1.1",
        "1.1.1.1.1.1",
        "1.1.1.1.1.1.1.1",
        "1.9.9.1.1",
        "1.3.3.1.1",
        "a",
        "1",
    ):
        for text in ("-NAK", "+ACK"):
            client.say(f"PUB $JS.ACK.{name}.c.{tail} in.r {len(text)}\r\n{text}\r\n")
        scene.info()
        scene.pull({"no_wait": True, "batch": 9})
    for subject in (
        f"$JS.ACK.{name}.other.1.1.1.1.1",
        "$JS.ACK.none.c.1.1.1.1.1",
        "$JS.ACK",
        "$JS.ACK.x",
        "$JS.FC.x",
        f"$JS.FC.{name}.c.abcd",
        f"$JS.FC.{name}.c",
    ):
        client.say(f"PUB {subject} in.r 4\r\n-NAK\r\n")
        scene.info()


def test_deliveries_have_an_end(client):
    scene = Scene(client)
    scene.fill(3)
    scene.consumer(max_deliver=2)
    scene.pull("2")
    client.answer(0, "-NAK")
    scene.info()
    scene.pull("1")
    scene.info()
    client.answer(0, "-NAK")
    scene.info()
    scene.pull({"batch": 4, "no_wait": True})
    client.answer(0, "+ACK", "in.r")
    scene.pull({"batch": 4, "no_wait": True})


def test_ack_wait_passes(client):
    scene = Scene(client)
    scene.fill(4)
    scene.consumer(ack_wait=second(0.4), max_deliver=2)
    scene.pull({"batch": 3})
    scene.pull({"batch": 5})
    client.answer(1, "+ACK")
    scene.info()
    client.wait(0.7)
    client.wait(0.7)


def test_waits_that_grow(client):
    scene = Scene(client)
    scene.fill(2)
    scene.consumer(backoff=[second(0.3), second(0.7)], max_deliver=4)
    scene.pull({"batch": 9})
    client.wait(0.5)
    scene.info()
    client.wait(0.8)
    scene.info()


def test_at_most_so_many_unacknowledged(client):
    scene = Scene(client)
    scene.fill(8)
    scene.consumer(max_ack_pending=3)
    scene.pull("5")
    scene.info()
    client.answer(0, "-NAK")
    scene.info()
    client.answer(1, "+ACK")
    scene.info()
    client.answer(2, "+TERM")
    scene.info()
    client.answer(0, "+ACK", "in.r")
    scene.info()


@pytest.mark.parametrize(
    "filters",
    [
        {"filter_subject": "{}.a"},
        {"filter_subject": "{}.>"},
        {"filter_subject": "{}.*"},
        {"filter_subjects": ["{}.a", "{}.b.x"]},
        {"filter_subjects": ["{}.*", "{}.b.>"]},
        {"filter_subjects": ["{}.a"]},
    ],
)
@pytest.mark.parametrize("policy", ["all", "last", "new", "last_per_subject"])
def test_filters(client, filters, policy):
    scene = Scene(client)
    filled = json.loads(json.dumps(filters).replace("{}", scene.name))
    scene.fill(9, "a", "b.x", "c", "b.y")
    scene.consumer(deliver_policy=policy, **filled)
    scene.info()
    scene.pull("2")
    scene.info()
    scene.fill(9, "a", "b.x", "c", "b.y")
    scene.info()
    scene.pull({"batch": 5, "no_wait": True})
    scene.info()
    client.answer(0, "+ACK")
    scene.info()


@pytest.mark.parametrize("start", [1, 3, 6, 9, 100])
@pytest.mark.parametrize("purged", [0, 4])
def test_start_at_a_sequence(client, start, purged):
    scene = Scene(client)
    scene.fill(6, "a", "b")
    if purged:
        scene.ok(f"STREAM.PURGE.{scene.name}", {"seq": purged})
    policy = {"deliver_policy": "by_start_sequence", "opt_start_seq": start}
    scene.consumer(**policy)
    scene.consumer("f", filter_subject=f"{scene.name}.b", **policy)
    client.say("SUB aside 4\r\n")
    for name, inbox in (("c", "in.a"), ("f", "aside")):
        scene.info(name)
        scene.pull({"batch": 20}, inbox, name)
        scene.info(name)
    if start > 6:
        return  # what is ahead of it is counted differently until it starts
    scene.fill(6, "a", "b")
    for name in ("c", "f"):
        scene.info(name)


@pytest.mark.parametrize("when", ["2001-01-01T00:00:00Z", "2199-01-01T00:00:00Z"])
def test_start_at_a_time(client, when):
    scene = Scene(client)
    scene.fill(3)
    scene.consumer(deliver_policy="by_start_time", opt_start_time=when)
    scene.info()
    scene.pull("5")
    scene.info()
    scene.fill(2)
    scene.info()


@pytest.mark.parametrize("policy", ["all", "last", "new", "last_per_subject"])
def test_start_on_an_empty_stream(client, policy):
    scene = Scene(client)
    extra = {"filter_subject": f"{scene.name}.>"} if policy == "last_per_subject" else {}
    scene.consumer(deliver_policy=policy, **extra)
    scene.fill(3)
    scene.ok(f"STREAM.PURGE.{scene.name}")
    scene.consumer("d", deliver_policy=policy, **extra)
    client.say("SUB aside 4\r\n")
    for name, inbox in (("c", "in.a"), ("d", "aside")):
        scene.info(name)
        scene.pull("2", inbox, name)
        scene.info(name)
    scene.fill(3)
    for name in ("c", "d"):
        scene.info(name)


@pytest.mark.parametrize("policy", ["explicit", "all", "none"])
@pytest.mark.parametrize("group", ["", "workers"])
def test_push(client, policy, group):
    scene = Scene(client)
    scene.fill(3)
    extra = {"deliver_group": group} if group else {}
    scene.consumer(ack_policy=policy, deliver_subject=f"to.{scene.name}", **extra)
    scene.info()
    client.say(f"SUB to.{scene.name} {group} 8\r\n")
    scene.info()
    scene.fill(2)
    scene.info()
    if policy != "none":
        client.answer(0, "-NAK", "in.r")
        scene.info()
        client.answer(2, "+ACK", "in.r")
        scene.info()
    client.say("UNSUB 8\r\n")
    scene.info()
    scene.fill(2)
    scene.info()
    client.say(f"SUB to.{scene.name} {group} 8\r\n")
    scene.info()
    scene.pull("1")


def test_headers_only(client):
    scene = Scene(client)
    scene.consumer(headers_only=True)
    client.publish(f"{scene.name}.a", "hello")
    client.publish(f"{scene.name}.a", "hello", "A: b\nC: d")
    client.publish(f"{scene.name}.a", "", "A: b")
    client.publish(f"{scene.name}.a", "x", "Nats-Msg-Size: 99")
    client.publish(f"{scene.name}.a", "")
    scene.pull("5")
    scene.info()
    scene.pull({"batch": 5, "max_bytes": 100, "no_wait": True})


def test_flow_control(client):
    scene = Scene(client)
    for _ in range(4):
        client.publish(f"{scene.name}.a", b"x" * 700_000)
    scene.consumer(
        ack_policy="none",
        deliver_subject=f"to.{scene.name}",
        flow_control=True,
        idle_heartbeat=second(0.5),
    )
    client.say(f"SUB to.{scene.name} 7\r\n", 0.1)
    scene.info()
    client.wait(0.8)
    client.answer(-1, "", of="flow")
    scene.info()
    for _ in range(2):
        client.publish(f"{scene.name}.a", b"x" * 700_000)
    scene.info()
    client.wait(0.8)


def test_heartbeats_of_push(client):
    scene = Scene(client)
    scene.consumer(
        ack_policy="explicit",
        deliver_subject=f"to.{scene.name}",
        idle_heartbeat=second(0.6),
        filter_subject=f"{scene.name}.a",
    )
    client.say(f"SUB to.{scene.name} 7\r\n")
    client.wait(0.9)
    lines = "".join(f"PUB {scene.name}.{subject} 1\r\nx\r\n" for subject in "bba")
    client.say(lines)
    scene.info()
    client.wait(0.9)
    # what the filter leaves out behind a message nats-server may notice with the second heartbeat only
    for twin in (client.ours, client.theirs):
        twin.send(f"PUB {scene.name}.b 1\r\nx\r\n".encode())
        seen = twin.seen.setdefault("7", [])
        twin.read_until(lambda seen=seen: seen and b"Nats-Last-Stream: 4" in seen[-1][2])
        assert b"Nats-Last-Consumer: 1\r\nNats-Last-Stream: 4\r\n" in seen[-1][2]
        twin.pongs = 0
        twin.send(b"UNSUB 7\r\n" + PING)
        twin.read_until(lambda twin=twin: twin.pongs > 0)


@pytest.mark.parametrize("policy", ["explicit", "none"])
def test_messages_go_away_under_a_consumer(client, policy):
    scene = Scene(client)
    scene.fill(12, "a", "b")
    scene.consumer(ack_policy=policy)
    scene.consumer("f", ack_policy=policy, filter_subject=f"{scene.name}.b")
    for name in ("c", "f"):
        scene.pull("4", name=name)
        scene.info(name)

    def both() -> None:
        for name in ("c", "f"):
            scene.info(name)

    for seq in (2, 1, 6, 12):
        scene.ok(f"STREAM.MSG.DELETE.{scene.name}", {"seq": seq})
        client.wait(0.1)
        both()
    client.answer(1, "-NAK", "in.r")
    client.answer(0, "+ACK", "in.r")
    both()
    scene.ok(f"STREAM.PURGE.{scene.name}", {"keep": 3})
    client.wait(0.1)
    both()
    for name in ("c", "f"):
        scene.pull({"batch": 3, "no_wait": True}, name=name)
        scene.info(name)
    scene.fill(2, "a", "b")
    both()
    scene.ok(f"STREAM.PURGE.{scene.name}")
    client.wait(0.1)
    both()
    scene.fill(2, "a", "b")
    both()
    for name in ("c", "f"):
        scene.pull({"batch": 9, "no_wait": True}, name=name)
        scene.info(name)


def test_updates(client):
    scene = Scene(client)
    scene.fill(8, "a", "b")
    scene.consumer(max_ack_pending=2)
    scene.pull({"batch": 6})
    scene.info()
    scene.consumer(max_ack_pending=4)
    scene.info()
    scene.consumer(max_ack_pending=10, filter_subject=f"{scene.name}.b")
    scene.info()
    scene.consumer(max_ack_pending=10)
    scene.info()


@pytest.mark.parametrize("then", ["+ACK", "+TERM", "-NAK"])
def test_all_is_acknowledged_by_an_earlier_delivery(client, then):
    """The floor is the acknowledged delivery, also where a redelivery has a later number."""
    scene = Scene(client)
    scene.fill(2)
    scene.consumer(ack_policy="all")
    scene.pull({"batch": 2, "no_wait": True})
    client.answer(0, "-NAK")
    scene.pull({"batch": 1, "no_wait": True})
    client.answer(1, "+ACK", "in.r")
    scene.info()
    scene.fill(2)
    scene.pull({"batch": 2, "no_wait": True})
    client.answer(3, then, "in.r")
    scene.info()
    client.answer(4, "+ACK", "in.r")
    scene.info()


def test_a_nak_from_before_the_ack_floor(client):
    """An ack of a redelivery settles all deliveries before it, under ack policy "all": their NAKs come late."""
    scene = Scene(client)
    scene.consumer(ack_policy="all")
    scene.fill(2, "a")
    scene.pull({"batch": 2})
    client.answer(0, "-NAK", "")
    scene.pull({"batch": 1, "no_wait": True})
    client.answer(2, "+ACK", "in.r")
    assert scene.info()["ack_floor"]["consumer_seq"] == 3
    client.answer(1, "-NAK", "")
    scene.pull({"batch": 1, "no_wait": True})
    assert scene.info()["num_redelivered"] == 0


@pytest.mark.parametrize("number", walks(6))
def test_random_walk(client, number, seed):
    source = random.Random(f"{seed} {seed_of(number)}")
    client.steps.append(f"seed {seed} {seed_of(number)}")
    scene = Scene(client)
    policy = source.choice(["explicit", "explicit", "all", "none"])
    config: dict[str, Any] = {"ack_policy": policy}
    if source.random() < 0.5:
        config["filter_subjects"] = source.choice(
            [[f"{scene.name}.a"], [f"{scene.name}.a", f"{scene.name}.b.*"], [f"{scene.name}.>"]]
        )
    if source.random() < 0.3:
        config["max_waiting"] = source.choice([1, 2])
    scene.fill(source.randrange(8), "a", "b.x", "c")
    scene.consumer(**config)
    # After a message that did not fit into max_bytes is deleted, nats-server's ack subjects count it
    # as pending (its info does not), so a walk has one of the two.
    deletes = policy != "all" and source.random() < 0.5
    last = 8
    for _ in range(45):
        roll = source.random()
        if roll < 0.25:
            scene.fill(source.randrange(1, 4), *source.sample(["a", "b.x", "b.y", "c"], 2))
        elif roll < 0.55:
            body: dict[str, Any] = {"batch": source.randrange(1, 4)}
            if source.random() < 0.6:
                body["no_wait"] = True
            if source.random() < 0.3 and not deletes:
                body["max_bytes"] = source.choice([60, 100, 200])
            scene.pull(body, f"in.{source.choice('abc')}")
        elif roll < 0.9 and client.ours.acks:
            at = source.randrange(len(client.ours.acks))
            text = source.choice(["+ACK", "+ACK", "", "-NAK", "-NAK", "+TERM", "+WPI", "+NXT"])
            # Without a reply subject, +NXT takes a refused message from nats-server's queue, and
            # nobody gets it before its ack wait is over.
            reply = source.choice(["", "in.r"])
            client.answer(at, text, "in.r" if text == "+NXT" else reply)
        elif roll < 0.95 and deletes:
            body = json.dumps({"seq": source.randrange(1, last)})
            subject = f"$JS.API.STREAM.MSG.DELETE.{scene.name}"
            client.say(f"PUB {subject} {len(body)}\r\n{body}\r\n")
            last += 2
            client.wait(0.05)
        scene.info()


def test_a_walk_that_removes_the_next_message(client):
    """Pelton counted it in `delivered.stream_seq`, though nobody got it."""
    test_random_walk(client, 0, 405556325)


def test_requests_of_those_who_have_gone(client):
    """`num_waiting` counts requests that somebody still waits for."""
    scene = Scene(client)
    scene.consumer()
    for sid, reply in ((71, "gone.a"), (72, "gone.b"), (73, "gone.c")):
        client.say(f"SUB {reply} {sid}\r\n")
        scene.pull({"batch": 1, "expires": second(30)}, reply)
    scene.pull({"batch": 1, "expires": second(30)})
    assert scene.info()["num_waiting"] == 4
    client.say("UNSUB 71\r\n")
    assert scene.info()["num_waiting"] == 3
    client.say("UNSUB 72 1\r\nPUB gone.b 0\r\n\r\nUNSUB 73\r\n")
    assert scene.info()["num_waiting"] == 1
    scene.fill(1)
    assert scene.info()["num_waiting"] == 0
