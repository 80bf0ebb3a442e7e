"""Odd requests, redelivery, pace, starts, updates, compared with a real nats-server step by step."""

import time

import pytest

from tests.compat.scene import NEEDS_BOTH, Scene, second

pytestmark = NEEDS_BOTH


# -- requests


def test_no_wait_with_acks_missing(client):
    scene = Scene(client)
    scene.fill(6)
    scene.consumer(max_ack_pending=2)
    scene.pull({"batch": 1})
    scene.pull({"batch": 5, "no_wait": True, "expires": second(0.5)}, "in.b")
    scene.info()
    client.wait(0.6)
    scene.info()
    scene.pull({"batch": 2, "no_wait": True}, "in.c")
    scene.info()
    client.answer(0, "")
    scene.info()
    client.answer(1, "")
    scene.info()


def test_batch_of_none(client):
    scene = Scene(client)
    scene.consumer()
    for n, body in enumerate(
        (
            {"expires": second(0.3)},
            {"batch": 0, "expires": second(0.3), "max_bytes": 1000},
            {"batch": -4, "expires": second(0.3), "max_bytes": 1000},
        )
    ):
        scene.pull(body, f"in.{n}")
    client.wait(0.5)
    for n, body in enumerate(({"batch": 0, "max_bytes": 1000}, {"batch": -4, "max_bytes": 1000})):
        scene.pull(body, f"in.{n}")
    scene.fill(4)
    scene.info()


@pytest.mark.parametrize(
    "body",
    [
        "{",
        '{"batch":"5"}',
        '{"batch":1.5}',
        '{"batch":99999999999999999999}',
        '{"expires":"1s"}',
        '{"no_wait":1}',
        '{"batch":1}}',
        '{"batch":1,}',
        "{batch:1}",
        '{"group":1}',
        '{"min_pending":"x"}',
        '{"priority":"x"}',
        '{"id":{}}',
        '{"max_bytes":true}',
    ],
)
def test_texts_of_bad_requests(client, body):
    scene = Scene(client)
    scene.consumer()
    scene.pull(body)


# -- redelivery


def without_pending(scene):
    """The info once no ack is awaited; beside load, timers of servers are late."""
    deadline = time.monotonic() + 15
    while (info := scene.info())["num_ack_pending"]:
        assert time.monotonic() < deadline, info
        scene.client.wait(0.1)
    return info


def test_spent_messages(client):
    scene = Scene(client)
    scene.fill(2)
    scene.consumer(max_deliver=2, ack_wait=second(0.6))
    scene.pull(2)
    # nats-server lets go of those with several deliveries only when somebody asks for messages
    scene.pull({"batch": 9, "expires": second(3)})
    client.wait(0.9)
    scene.info()
    client.wait(0.8)
    assert without_pending(scene)["num_redelivered"] == 2
    client.answer(0, "", "in.z")
    assert scene.info()["num_redelivered"] == 1
    scene.fill(3)
    client.answer(5, "", "in.z")
    scene.info()
    client.answer(4, "", "in.z")
    scene.info()
    client.answer(6, "", "in.z")
    scene.info()


def test_a_nak_of_the_last_delivery(client):
    scene = Scene(client)
    scene.fill(2)
    scene.consumer(max_deliver=1)
    scene.pull(1)
    client.answer(0, "-NAK")
    scene.info()
    scene.pull(1)
    scene.info()


def test_messages_that_leave_while_they_are_out(client):
    scene = Scene(client, max_msgs=3)
    scene.fill(3)
    scene.consumer()
    scene.pull(3)
    scene.fill(1)
    scene.info()
    scene.ok(f"STREAM.MSG.DELETE.{scene.name}", {"seq": 3})
    scene.info()
    scene.ok(f"STREAM.PURGE.{scene.name}")
    scene.info()


def test_ack_all_of_a_message_that_left(client):
    scene = Scene(client)
    scene.fill(5)
    scene.consumer(ack_policy="all")
    scene.pull(5)
    for seq in (2, 3):
        scene.ok(f"STREAM.MSG.DELETE.{scene.name}", {"seq": seq})
    client.answer(0, "", "in.z")
    # no info here: to nats-server the deletion was an ack of the first message too
    client.answer(2, "", "in.z")
    scene.info()


def test_messages_that_age_while_they_are_out(client):
    scene = Scene(client, max_age=second(0.6), duplicate_window=second(0.5))
    scene.fill(1)
    scene.consumer()
    scene.pull(1)
    client.wait(1.6)
    without_pending(scene)


def test_backoff(client):
    scene = Scene(client)
    scene.fill(1)
    scene.consumer(max_deliver=4, backoff=[second(0.3), second(0.6)])
    scene.pull({"batch": 9, "expires": second(9)})
    client.wait(0.45)
    client.wait(0.7)
    scene.info()
    client.wait(1.4)
    scene.info()


# -- starts


def test_last_per_subject_without_a_match(client):
    scene = Scene(client)
    scene.fill(3)
    scene.consumer(deliver_policy="last_per_subject", filter_subject=f"{scene.name}.none")
    scene.info()
    scene.pull(1)
    scene.fill(1, "none")
    scene.info()


@pytest.mark.parametrize("policy", ["all", "last", "new", "last_per_subject"])
def test_starts_on_nothing(client, policy):
    scene = Scene(client)
    scene.consumer("before", deliver_policy=policy, filter_subject=">")
    scene.fill(2)
    scene.ok(f"STREAM.PURGE.{scene.name}")
    scene.consumer("after", deliver_policy=policy, filter_subject=">")
    scene.info("before")
    scene.fill(1)
    for name in ("before", "after"):
        scene.pull({"batch": 3, "no_wait": True}, name=name)
        scene.info(name)


# -- pace


def test_replay_at_the_original_pace(client):
    scene = Scene(client)
    for _ in range(3):
        scene.fill(1)
        time.sleep(0.4)
    scene.consumer(replay_policy="original")
    scene.pull(3)
    client.wait(1)
    scene.info()


def test_a_rate_limit(client):
    scene = Scene(client, max_msg_size=1000)
    client.say("SUB push.r 7\r\n")
    for _ in range(4):
        client.publish(f"{scene.name}.a", "x" * 900)
    scene.consumer(deliver_subject="push.r", rate_limit_bps=16000)
    client.wait(2.2)
    scene.info()


# -- acks


def test_words_of_acks(client):
    scene = Scene(client)
    scene.fill(3)
    scene.consumer()
    scene.pull(3)
    for word in (
        *("-NAK 50ms", '-NAK {"delay":50000000}', "-NAK {", "-NAK  ", "-NAKx"),
        *("+TERM  spaced ", "+WPIx", "+ACKx", "+NXT x", "+NXT {"),
    ):
        client.answer(0, word, "in.z")
        scene.info()
    client.wait(0.2)
    scene.pull(2)
    scene.info()


# -- updates and limits


def test_what_an_update_may_change(client):
    scene = Scene(client)
    scene.fill(3)
    scene.consumer()
    for config in (
        {"max_waiting": 5},
        {"deliver_subject": "x"},
        {"ack_policy": "none"},
        {"mem_storage": True},
        {"direct": True},
        {"sourcing": True},
        {"replay_policy": "original"},
        {"sample_freq": "10"},
        {"priority_policy": "overflow", "priority_groups": ["g"]},
        {"backoff": [second(1), second(2)], "max_deliver": 1},
        {"max_deliver": 7},
        {"inactive_threshold": second(50)},
        {"opt_start_seq": 4, "deliver_policy": "by_start_sequence"},
    ):
        scene.consumer(check=False, **config)
        scene.info()


@pytest.mark.parametrize("pedantic", [False, True])
def test_limits_of_the_stream(client, pedantic):
    limits = {"inactive_threshold": second(90.5), "max_ack_pending": 7}
    scene = Scene(client, consumer_limits=limits)
    for n, config in enumerate(
        (
            {},
            {"max_ack_pending": 8},
            {"max_ack_pending": -1},
            {"inactive_threshold": second(91)},
            {"inactive_threshold": second(20)},
            {"ack_policy": "none"},
        )
    ):
        settings = {"name": f"c{n}", "ack_policy": "explicit", **config}
        body = {"stream_name": scene.name, "config": settings, "pedantic": pedantic}
        client.ask(f"CONSUMER.CREATE.{scene.name}.c{n}", body)


def test_unused_consumers_go(client):
    scene = Scene(client)
    scene.fill(1)
    config = {"ack_policy": "none", "inactive_threshold": second(0.3), "name": "e"}
    client.ask(f"CONSUMER.CREATE.{scene.name}", {"stream_name": scene.name, "config": config})
    client.wait(1.9)
    scene.info("e")
