"""Pull requests, compared with a real nats-server step by step: same bytes to both, same bytes back."""

import pytest

from tests.compat.scene import NEEDS_BOTH, Scene, second

pytestmark = NEEDS_BOTH


def test_requests_of_every_form(client):
    scene = Scene(client)
    scene.consumer()
    for body in (
        {"no_wait": True},
        {"no_wait": True, "batch": 5},
        {"batch": 5, "expires": second(0.2)},
        {"batch": 5, "expires": second(0.3), "idle_heartbeat": second(0.2)},
        {"batch": 5, "idle_heartbeat": second(1)},
        {"batch": -1, "no_wait": True},
        {"batch": 0, "no_wait": True},
        {"expires": -5, "batch": 2},
        "[]",
        '{"Batch":2,"NO_WAIT":true}',
        '{"unknown":5,"no_wait":true}',
        '{"no_wait":true} ',
        ' {"no_wait":true}',
        '{"expires":-1,"no_wait":true,"batch":1}',
        '{"max_bytes":-1,"no_wait":true}',
        '{"idle_heartbeat":-1,"no_wait":true}',
        '{"group":"x","no_wait":true}',
    ):
        scene.pull(body)
    scene.client.wait(0.4)
    scene.info()
    scene.fill(12)
    scene.info()


@pytest.mark.parametrize(
    "body",
    ["", "5", "0", "-1", "007", "x", "5x", " 3 ", "+2", "99999999999999999999", "1e1", "2.0"],
)
def test_plain_requests(client, body):
    scene = Scene(client)
    scene.fill(12)
    scene.consumer()
    scene.pull(body)
    scene.info()
    scene.fill(2)
    scene.info()


def test_no_wait_and_expiry(client):
    scene = Scene(client)
    scene.fill(3)
    scene.consumer()
    scene.pull({"batch": 2, "no_wait": True})
    scene.pull({"batch": 2, "no_wait": True})
    scene.pull({"batch": 2, "no_wait": True})
    scene.pull({"batch": 2, "no_wait": True, "expires": second(0.3)})
    scene.client.wait(0.4)
    scene.pull({"batch": 2, "no_wait": True, "expires": second(2)})
    scene.fill(1)
    scene.info()
    scene.fill(2)
    scene.info()
    scene.pull({"batch": 3})
    scene.fill(1)
    scene.pull({"batch": 1, "no_wait": True}, "in.b")
    scene.info()
    scene.fill(4)
    scene.info()


def test_bytes_and_sizes(client):
    scene = Scene(client)
    scene.consumer()
    for size in (10, 100, 1000, 10, 10, 10, 10, 10, 10):
        scene.client.publish(f"{scene.name}.a", "x" * size)
    for size in (50, 100, 200, 400, 1200, 200):
        scene.pull({"batch": 10, "max_bytes": size, "expires": second(0.2)})
        scene.client.wait(0.25)
        scene.info()
    scene.pull({"batch": 1, "max_bytes": 1000})
    scene.pull({"batch": 2, "max_bytes": 1000, "no_wait": True})
    scene.pull({"batch": 5, "max_bytes": 1000, "no_wait": True})
    scene.info()


def test_heartbeats_of_requests(client):
    scene = Scene(client)
    scene.fill(1)
    scene.consumer()
    scene.pull({"batch": 2, "expires": second(1), "idle_heartbeat": second(0.3)})
    scene.client.wait(1.2)
    scene.info()


def test_two_pullers_take_turns(client):
    scene = Scene(client)
    scene.consumer()
    scene.pull({"batch": 3}, "in.a")
    scene.pull({"batch": 5}, "in.b")
    scene.pull("", "in.c")
    scene.info()
    scene.fill(7)
    scene.info()
    scene.fill(4)
    scene.info()


def test_more_requests_than_may_wait(client):
    scene = Scene(client)
    scene.consumer(max_waiting=2)
    for index in range(4):
        scene.pull({"batch": 1, "expires": second(5)}, f"in.{index}")
    scene.pull({"batch": 1, "expires": second(5), "idle_heartbeat": second(1)}, "in.z")
    scene.pull({"no_wait": True}, "in.y")
    scene.info()
    scene.fill(4)
    scene.info()


def test_limits_of_requests(client):
    scene = Scene(client)
    scene.fill(5)
    scene.consumer(max_batch=3, max_expires=second(90.5), max_bytes=500)
    scene.pull({"batch": 4})
    scene.pull("4")
    scene.pull({"batch": 3, "expires": second(91)})
    scene.pull({"batch": 3, "max_bytes": 501})
    scene.pull({"batch": 3, "max_bytes": 500})
    scene.info()
    scene.consumer("long", max_expires=second(3600))
    scene.pull({"expires": second(7200)}, name="long")
    scene.consumer("short", max_expires=1500000)
    scene.pull({"expires": second(7200)}, name="short")


def test_gone_pullers_are_forgotten(client):
    scene = Scene(client)
    scene.consumer()
    client.say("SUB away.* 9\r\n")
    scene.pull({"batch": 3}, "away.1")
    scene.pull({"batch": 3}, "away.2")
    scene.pull({"batch": 1}, "in.a")
    scene.info()
    client.say("UNSUB 9\r\n")
    scene.fill(3)
    scene.info()
    scene.pull({"batch": 3}, "nobody.listens")
    scene.info()
    scene.pull({"batch": 2, "no_wait": True}, "nobody.listens")
    scene.info()


def test_delete_with_waiting_requests(client):
    scene = Scene(client)
    scene.consumer()
    scene.pull({"batch": 3}, "in.a")
    scene.pull({"batch": 3, "expires": second(9)}, "in.b")
    scene.ok(f"CONSUMER.DELETE.{scene.name}.c")
    scene.pull({"batch": 3}, "in.a")
    scene.info()
    scene.consumer()
    scene.pull({"batch": 3}, "in.a")
    scene.ok(f"STREAM.DELETE.{scene.name}")
    scene.pull({"batch": 3}, "in.a")
    scene.info()
