"""Rarer rules of consumers, compared with a real nats-server step by step."""

import time
from typing import Any

import pytest

from pelton.engine.base.hashes import short_hash
from tests.compat.scene import NEEDS_BOTH, NEXT, Scene, second

pytestmark = NEEDS_BOTH


def soon(seconds):
    """A time as the API writes it."""
    at = time.time() + seconds
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1e6):06d}Z"


# -- pause


def test_a_pause(client):
    scene = Scene(client)
    scene.fill(3)
    scene.consumer()
    pause = f"CONSUMER.PAUSE.{scene.name}.c"
    answer = scene.ok(pause, {"pause_until": "2099-01-01T00:00:00Z"})
    assert answer["paused"]
    scene.info()
    scene.pull({"batch": 2, "expires": second(5)})
    scene.pull({"batch": 2, "no_wait": True}, "in.b")
    scene.pull({"batch": 2, "no_wait": True, "expires": second(5)}, "in.c")
    scene.info()

    def go_on(twin):
        # nats-server notices with the next request
        twin.send(f"PUB $JS.API.{pause} answer 0\r\n\r\n".encode())
        time.sleep(0.2)
        twin.send(f"PUB {NEXT}.{scene.name}.c in.d 1\r\n1\r\n".encode())

    client.both(go_on, "go on")
    scene.info()
    scene.ok(pause, {"pause_until": "2001-01-01T00:00:00Z"})
    scene.info()
    scene.ok(pause, {})
    scene.info()
    for body in ("{", '{"pause_until":"soon"}', '{"x":1}', "[]", "garbage"):
        client.ask(pause, body)
    client.ask(f"CONSUMER.PAUSE.{scene.name}.none", {"pause_until": "2099-01-01T00:00:00Z"})
    client.ask("CONSUMER.PAUSE.none.c", {"pause_until": "2099-01-01T00:00:00Z"})


def test_a_pause_ends_by_itself(client):
    scene = Scene(client)
    scene.fill(3)
    scene.consumer()
    scene.pull({"batch": 2})
    scene.info()
    scene.ok(f"CONSUMER.PAUSE.{scene.name}.c", {"pause_until": soon(0.6)})
    scene.pull({"batch": 2})
    scene.client.answer(0, "-NAK")
    scene.client.answer(1, "", "in.z")
    scene.info()
    client.wait(0.8)
    scene.info()


def test_paused_from_the_start(client):
    scene = Scene(client)
    scene.fill(2)
    scene.consumer(pause_until=soon(0.8))
    scene.pull({"batch": 2})
    # a create of what is there does not touch the pause
    scene.consumer(pause_until="2099-01-01T00:00:00Z")
    scene.consumer(pause_until="2099-01-01T00:00:00Z", description="another")
    client.wait(1)
    scene.info()


def test_paused_push_consumers_beat(client):
    scene = Scene(client)
    scene.fill(2)
    client.say("SUB push.p 7\r\n")
    scene.consumer(
        deliver_subject="push.p", idle_heartbeat=second(0.3), pause_until="2099-01-01T00:00:00Z"
    )
    client.wait(0.7)


# -- reset


def test_resets(client):
    scene = Scene(client)
    scene.fill(6)
    scene.consumer()
    scene.pull(4)
    client.answer(0, "")
    client.answer(2, "")
    scene.info()
    scene.reset()
    scene.info()
    scene.pull(2)
    scene.info()
    scene.reset({"seq": 5})
    scene.pull(2)
    scene.info()
    scene.reset({"seq": 1})
    scene.reset({"seq": 50})
    scene.info()
    scene.reset({})
    scene.info()
    for body in ("{", '{"seq":-1}', '{"seq":"x"}', '{"x":1,"seq":2}', "garbage", "[1]"):
        scene.reset(body)
        scene.info()


@pytest.mark.parametrize(
    "config",
    [
        {"deliver_policy": "last"},
        {"deliver_policy": "new"},
        {"deliver_policy": "last_per_subject", "filter_subject": ">"},
        {"deliver_policy": "by_start_sequence", "opt_start_seq": 3},
        {"deliver_policy": "by_start_time", "opt_start_time": "2020-01-01T00:00:00Z"},
        {"deliver_policy": "by_start_time", "opt_start_time": "2050-01-01T00:00:00Z"},
        {"ack_policy": "none"},
        {"ack_policy": "all"},
        {"filter_subject": "*.b"},
    ],
    ids=str,
)
def test_what_a_reset_may_do(client, config):
    scene = Scene(client)
    scene.fill(6, "a", "b")
    if "filter_subject" in config and config["filter_subject"] != ">":
        config = {"filter_subject": f"{scene.name}.b"}
    scene.consumer(**config)
    scene.pull({"batch": 2, "no_wait": True})
    for body in (b"", {"seq": 2}, {"seq": 3}, {"seq": 7}):
        scene.reset(body)
        scene.info()
        scene.pull({"batch": 2, "no_wait": True})
        scene.info()


@pytest.mark.parametrize("filtered", [False, True])
def test_what_is_counted_of_a_start_that_is_still_to_come(client, filtered):
    scene = Scene(client)
    scene.fill(2, "a")
    config = {"filter_subject": f"{scene.name}.a"} if filtered else {}
    scene.consumer(**config)
    scene.reset({"seq": 5})
    for _ in range(4):
        scene.fill(1, "a")
        client.wait(0.2)  # nats-server counts a moment later
        scene.info()
    scene.pull({"batch": 1, "no_wait": True})
    scene.info()
    scene.reset({"seq": 2**40})
    scene.info()


def test_reset_of_nothing(client):
    scene = Scene(client)
    assert client.ask(f"CONSUMER.RESET.{scene.name}.none") is None
    assert client.ask("CONSUMER.RESET.none.none") is None


# -- priority groups


def test_overflow(client):
    scene = Scene(client)
    scene.consumer(priority_policy="overflow", priority_groups=["g"], ack_wait=second(30))
    scene.info()
    scene.pull({"batch": 3, "group": "g", "min_pending": 4}, "in.a")
    scene.fill(3)
    scene.info()
    scene.pull({"batch": 2, "group": "g"}, "in.b")
    scene.fill(3)
    scene.info()
    scene.fill(3)
    scene.info()
    scene.pull({"batch": 9, "group": "g", "min_ack_pending": 5}, "in.c")
    scene.info()
    scene.pull({"batch": 2, "group": "g", "min_ack_pending": 50, "no_wait": True}, "in.d")
    scene.pull("3", "in.e")
    scene.fill(2)
    scene.info()


def test_overflow_turns(client):
    scene = Scene(client)
    scene.consumer(priority_policy="overflow", priority_groups=["g"], max_ack_pending=100)
    scene.pull({"batch": 4, "group": "g", "min_pending": 3}, "in.a")
    scene.pull({"batch": 4, "group": "g"}, "in.b")
    scene.pull({"batch": 4, "group": "g", "min_pending": 5}, "in.c")
    client.say(
        "".join(f"PUB {scene.name}.a 2\r\nm{n}\r\n" for n in range(1)),
    )
    scene.fill(4)
    scene.info()


@pytest.mark.parametrize("policy", ["overflow", "pinned_client", "prioritized", "none"])
def test_requests_and_groups(client, policy):
    scene = Scene(client)
    config = {} if policy == "none" else {"priority_policy": policy, "priority_groups": ["g", "h"]}
    scene.consumer(**config)
    bodies = (
        {"batch": 1},
        {"batch": 1, "group": ""},
        {"batch": 1, "group": "x"},
        {"batch": 1, "group": 5},
        {"batch": 1, "group": "g", "min_pending": 1},
        {"batch": 1, "group": "g", "min_pending": -1},
        {"batch": 1, "group": "g", "min_ack_pending": 1},
        {"batch": 1, "group": "g", "id": "x"},
        {"batch": 1, "group": "g", "priority": 10},
        {"batch": 1, "group": "g", "priority": -1},
        {"batch": 1, "group": "g", "priority": 1},
        {"batch": 1, "group": "h", "id": "y\n", "min_pending": 1},
        {"batch": 1, "group": "h", "no_wait": True},
        {"batch": 1, "group": "x", "no_wait": True},
    )
    # an inbox each: one may end before the next one is refused
    client.say("".join(f"SUB own.{n} own{n}\r\n" for n in range(len(bodies))))
    for n, body in enumerate(bodies):
        pull = body if "no_wait" in body else {**body, "expires": second(0.2)}
        scene.pull(pull, f"own.{n}")
    client.wait(0.3)
    scene.info()


def test_priorities(client):
    scene = Scene(client)
    scene.consumer(priority_policy="prioritized", priority_groups=["g"])
    for n, priority in enumerate((5, 0, 9, 5, 0)):
        scene.pull({"batch": 2, "group": "g", "priority": priority}, f"in.{n}")
    scene.pull("2", "in.plain")
    scene.info()
    scene.fill(3)
    scene.info()
    scene.fill(9)
    scene.info()


def test_a_pinned_client(client):
    scene = Scene(client)
    scene.consumer(
        priority_policy="pinned_client", priority_groups=["g"], priority_timeout=second(1)
    )
    scene.info()
    scene.pull({"batch": 2, "group": "g"}, "in.a")
    scene.pull({"batch": 2, "group": "g"}, "in.b")
    scene.pull({"batch": 2, "group": "g", "id": "wrong"}, "in.c")
    scene.fill(1)
    scene.pull({"batch": 2, "group": "g", "id": "wrong"}, "in.c")
    scene.info()
    scene.fill(2)
    scene.info()

    def again(twin):
        body = b'{"batch":2,"group":"g","id":"%s"}' % twin.pins[-1]
        head = f"PUB {NEXT}.{scene.name}.c in.p {len(body)}\r\n".encode()
        twin.send(head + body + b"\r\n")

    client.both(again, "pull of the pinned client")
    scene.info()
    scene.fill(1)
    client.wait(1.3)
    scene.info()
    scene.ok(f"CONSUMER.UNPIN.{scene.name}.c", {"group": "g"})
    scene.info()
    client.both(again, "pull with an old pin")
    scene.fill(2)
    scene.info()


def test_unpinning(client):
    scene = Scene(client)
    scene.consumer(priority_policy="pinned_client", priority_groups=["g"])
    scene.consumer("plain")
    unpin = f"CONSUMER.UNPIN.{scene.name}"
    for body in (b"", "{}", "{", '{"group":""}', '{"group":"bad name"}', '{"group":"h"}', "[]"):
        client.ask(f"{unpin}.c", body)
    client.ask(f"{unpin}.c", '{"group":"g","unknown":1}')
    client.ask(f"{unpin}.plain", '{"group":"g"}')
    client.ask(f"{unpin}.none", '{"group":"g"}')
    client.ask("CONSUMER.UNPIN.none.none", '{"group":"g"}')
    client.ask("CONSUMER.UNPIN.none.none", '{"group":""}')


def test_pinned_and_plain_requests(client):
    scene = Scene(client)
    scene.fill(4)
    scene.consumer(priority_policy="pinned_client", priority_groups=["g"], headers_only=True)
    scene.pull("1", "in.a")
    scene.pull({"batch": 1, "group": "g", "max_bytes": 3}, "in.b")
    scene.info()
    scene.pull({"batch": 2, "group": "g"}, "in.c")
    scene.info()
    scene.pull("", "in.d")
    scene.info()


# -- sampling


@pytest.mark.parametrize("policy", ["explicit", "all"])
def test_ack_metrics(client, policy):
    client.say("SUB $JS.EVENT.METRIC.> 8\r\n")
    scene = Scene(client)
    scene.fill(5)
    scene.consumer(sample_freq="100%", ack_policy=policy)
    scene.pull(4)
    client.answer(0, "")
    client.answer(0, "")
    client.answer(1, "+NXT")
    client.answer(2, "+TERM why")
    client.answer(3, "-NAK")
    scene.info()


# -- create


def test_creating_what_is_there(client):
    scene = Scene(client)
    path = f"CONSUMER.CREATE.{scene.name}.e"
    for action in ("create", "create", "", "update", ""):
        body = {"stream_name": scene.name, "config": {"name": "e"}, "action": action}
        client.ask(path, body)
    body = {"stream_name": scene.name, "config": {"name": "e", "inactive_threshold": second(5)}}
    client.ask(path, {**body, "action": "create"})
    body["config"]["durable_name"] = "e"
    client.ask(path, {**body, "action": "create"})


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("length", [255, 256, 300])
def test_long_names(client, durable, length):
    scene = Scene(client)
    name = "n" * length
    config = {"name": name, "inactive_threshold": second(20)}
    if durable:
        config["durable_name"] = name
    client.ask(
        f"CONSUMER.CREATE.{scene.name}.{name}", {"stream_name": scene.name, "config": config}
    )


PUSH = {"deliver_subject": "push.f", "ack_policy": "flow_control"}


CONFIGURATIONS: list[dict[str, Any]] = [
    {"ack_policy": "flow_control"},
    PUSH,
    {**PUSH, "flow_control": True, "idle_heartbeat": second(1)},
    {**PUSH, "idle_heartbeat": second(5)},
    {**PUSH, "max_ack_pending": -1},
    {**PUSH, "ack_wait": second(5)},
    {**PUSH, "backoff": [second(5)]},
    {**PUSH, "max_deliver": 5},
    {**PUSH, "max_deliver": -1},
    {"direct": True},
    {"direct": True, "deliver_subject": "push.f"},
    {"direct": True, "deliver_subject": "push.f", "durable_name": "c"},
    {"sourcing": True},
    {"priority_policy": "overflow", "priority_groups": ["g"], "deliver_subject": "push.f"},
    {"priority_policy": "overflow", "priority_groups": ["g"], "priority_timeout": second(1)},
    {"priority_policy": "prioritized", "priority_groups": []},
    {"priority_policy": "prioritized", "priority_groups": [""]},
    {"priority_policy": "prioritized", "priority_groups": ["a b"]},
    {"priority_policy": "prioritized", "priority_groups": ["x" * 17]},
    {"priority_policy": "none", "priority_groups": ["g"]},
    {"priority_policy": "none", "priority_timeout": 5},
    {"priority_policy": "odd"},
    {"priority_groups": ["g"]},
    {"priority_timeout": 5},
    {"sample_freq": "x"},
    {"sample_freq": "-1"},
    {"sample_freq": "200"},
    {"sample_freq": "30%"},
    {"sample_freq": "30%%"},
    {"pause_until": "2001-01-01T00:00:00Z"},
    {"ack_policy": "all", "ack_wait": -1, "backoff": [-1]},
    {"rate_limit_bps": 5, "direct": True},
    {"filter_subject": "a..b", "direct": True},
    {"filter_subjects": ["a", ""], "deliver_policy": "last", "opt_start_seq": 5},
]


@pytest.mark.parametrize("pedantic", [False, True])
def test_configurations(client, pedantic):
    scene = Scene(client)
    scene.fill(2)
    for config in CONFIGURATIONS:
        scene.client.ask(
            f"CONSUMER.CREATE.{scene.name}.c",
            {"stream_name": scene.name, "config": {"name": "c", **config}, "pedantic": pedantic},
        )
        scene.client.ask(f"CONSUMER.DELETE.{scene.name}.c")


@pytest.mark.parametrize("retention", ["limits"])
def test_the_origin_of_a_mirror(client, retention):
    """What nats-server asks for when it mirrors a stream."""
    scene = Scene(client, retention=retention)
    scene.fill(3)
    client.say("SUB mirror.in 7\r\n")
    config = {
        "name": "JS_MIRROR_abc",
        "deliver_policy": "all",
        "deliver_subject": "mirror.in",
        "ack_policy": "none",
        "ack_wait": 79200000000000,
        "max_deliver": 1,
        "flow_control": True,
        "idle_heartbeat": second(1),
        "inactive_threshold": second(10),
        "direct": True,
        "replay_policy": "instant",
        "num_replicas": 0,
    }
    call = f"CONSUMER.CREATE.{scene.name}.JS_MIRROR_abc"
    answer = scene.ok(call, {"stream_name": scene.name, "config": config})
    assert answer["config"]["direct"]
    client.ask(f"CONSUMER.NAMES.{scene.name}")
    client.ask(f"CONSUMER.LIST.{scene.name}")
    scene.info("JS_MIRROR_abc")
    scene.client.ask(f"STREAM.INFO.{scene.name}")
    scene.fill(2)
    client.wait(1.2)


# -- push


def test_deliver_groups(client):
    scene = Scene(client)
    client.say("SUB push.g 7\r\n")
    scene.consumer(deliver_subject="push.g", deliver_group="q")
    scene.fill(1)
    scene.info()
    client.say("SUB push.g other 8\r\n")
    scene.fill(1)
    scene.info()
    client.say("SUB push.g q 9\r\n")
    scene.info()
    scene.fill(1)
    client.say("UNSUB 9\r\n")
    scene.fill(1)
    scene.info()


def test_a_queue_subscriber_without_a_group(client):
    scene = Scene(client)
    client.say("SUB push.q q 7\r\n")
    scene.consumer(deliver_subject="push.q")
    scene.fill(2)
    scene.info()
    client.say("SUB push.q 8\r\n")
    scene.fill(2)
    scene.info()
    client.say("UNSUB 7\r\n")
    scene.fill(1)
    scene.info()


def test_acks_by_flow_control(client):
    scene = Scene(client)
    client.say("SUB push.f 7\r\n")
    scene.consumer(deliver_subject="push.f", ack_policy="flow_control", max_ack_pending=2)
    scene.fill(3)
    scene.info()

    def answer(place, cseq, sseq):
        head = (
            f"NATS/1.0\r\nNats-Last-Consumer: {cseq}\r\nNats-Last-Stream: {sseq}\r\n\r\n".encode()
        )

        def act(twin):
            asked = [one for one in twin.acks if one.startswith(b"$JS.FC")][place]
            twin.send(b"HPUB %s %d %d\r\n%s\r\n" % (asked, len(head), len(head), head))

        client.both(act, f"flow answer {place} {cseq} {sseq}")

    answer(0, 1, 1)
    scene.info()
    client.wait(1.3)
    answer(1, 2, 2)
    scene.info()
    client.answer(0, "", "in.z")
    scene.info()


def test_longer_ack_subjects(client):
    scene = Scene(client)
    scene.fill(4)
    scene.consumer()
    scene.pull(4)

    def act(place, prefix):
        def send(twin):
            tail = b".".join(twin.acks[place].split(b".")[2:])
            twin.send(b"PUB $JS.ACK.%s.%s in.z 0\r\n\r\n" % (prefix, tail))

        client.both(send, f"ack {place} {prefix!r}", quiet_s=0.1)

    # hashes of the account's name: the one of $G, and another
    act(0, b"_." + short_hash("$G").encode())
    scene.info()
    act(1, b"hub." + short_hash("$G").encode())
    scene.info()
    act(2, short_hash("$G").encode())
    scene.info()
