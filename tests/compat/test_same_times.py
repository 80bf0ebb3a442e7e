"""Times that stand for none, and times before and after what counts nanoseconds, as a nats-server takes them."""

from __future__ import annotations

import pytest

from tests.compat.scene import NEEDS_BOTH, Scene

pytestmark = NEEDS_BOTH

ZERO = "0001-01-01T00:00:00Z"
TIMES = [ZERO, "0001-01-01T00:00:01Z", "1969-12-31T23:59:59Z", "1970-01-01T00:00:00Z"]


@pytest.mark.parametrize("time", TIMES)
def test_a_start_time_comes_back(client, time):
    client.say("UNSUB 3\r\n")  # how a follower reads its origin differs
    scene = Scene(client)
    scene.fill(2)
    answer = scene.consumer(deliver_policy="by_start_time", opt_start_time=time)
    assert answer["config"]["opt_start_time"] == time
    scene.info()
    scene.consumer("d", check=False, opt_start_time=time)  # of a consumer that has none
    for field, origins in (
        ("mirror", {"name": scene.name, "opt_start_time": time}),
        ("sources", [{"name": scene.name, "opt_start_time": time}]),
    ):
        name = f"{scene.name}-{field}"
        client.made.append(name)
        made = scene.ok(f"STREAM.CREATE.{name}", {"name": name, field: origins})
        assert made["config"][field] == origins
    for body in ({"start_time": time}, {"start_time": time, "seq": 1}):
        client.ask(f"STREAM.MSG.GET.{scene.name}", body)


@pytest.mark.parametrize("time", TIMES)
def test_a_pause_that_is_over_or_none(client, time):
    scene = Scene(client)
    made = scene.consumer(pause_until=time)
    assert made["config"]["pause_until"] == time
    scene.info()
    if time != TIMES[-1]:
        scene.ok(f"CONSUMER.PAUSE.{scene.name}.c", {"pause_until": time})
        scene.info()
