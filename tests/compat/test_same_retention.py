"""Interest and workqueue retention, compared with a real nats-server step by step."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.compat.scene import NEEDS_BOTH, Scene, second
from tests.compat.seeds import seed_of, walks

pytestmark = NEEDS_BOTH


looked_at: dict[str, Scene] = {}


def state(scene: Scene) -> Any:
    """What the stream holds; acks of the other server take effect a moment later."""
    looked_at[scene.name] = scene
    answer = scene.client.agree(f"STREAM.INFO.{scene.name}", {"deleted_details": True})
    assert "error" not in answer, answer
    return answer["state"]


@pytest.fixture(autouse=True)
def last_states(client):
    """What takes effect after the last look is seen as well."""
    looked_at.clear()
    yield
    client.settle()
    for scene in [*looked_at.values()]:
        state(scene)


def update(scene: Scene, **config: Any) -> Any:
    body = {"name": scene.name, "subjects": [f"{scene.name}.>"], "storage": "file", **config}
    return scene.client.ask(f"STREAM.UPDATE.{scene.name}", body)


def test_what_nobody_takes_is_not_stored(client):
    scene = Scene(client, retention="interest")
    client.publish(f"{scene.name}.a", "x", "Nats-Msg-Id: one", "in.p")
    assert state(scene)["messages"] == 0
    client.publish(f"{scene.name}.a", "x", "Nats-Msg-Id: one", "in.p")
    client.publish(f"{scene.name}.a", "x", "Nats-Expected-Last-Msg-Id: one", "in.p")
    client.publish(f"{scene.name}.a", "x", "Nats-Expected-Last-Sequence: 2", "in.p")
    scene.consumer(filter_subject=f"{scene.name}.b")
    client.publish(f"{scene.name}.a", "x", reply="in.p")
    client.publish(f"{scene.name}.b", "x", reply="in.p")
    client.publish(f"{scene.name}.a", "x", "Nats-Msg-Id: two", "in.p")
    client.publish(f"{scene.name}.b", "x", "Nats-Msg-Id: two", "in.p")
    state(scene)
    scene.info()
    scene.pull({"batch": 3, "no_wait": True})
    client.answer(0, "+ACK", "in.r")
    state(scene)
    scene.info()


@pytest.mark.parametrize("word", ["+ACK", "", "+NXT", "+TERM", "-NAK", "+WPI"])
@pytest.mark.parametrize("retention", ["interest", "workqueue"])
def test_what_answers_do(client, word, retention):
    scene = Scene(client, retention=retention)
    scene.consumer()
    scene.fill(4)
    scene.pull("3")
    client.answer(1, word, "in.r")
    state(scene)
    client.answer(1, word, "in.r")
    client.answer(0, "+ACK")
    state(scene)
    scene.info()


def test_all_that_came_before(client):
    scene = Scene(client, retention="interest")
    scene.consumer("all", ack_policy="all")
    scene.consumer("none", ack_policy="none", filter_subject=f"{scene.name}.a")
    scene.fill(6, "a", "b")
    scene.pull("5", name="all")
    client.answer(3, "+ACK", "in.r")
    assert state(scene)["messages"] == 4
    scene.pull({"batch": 9, "no_wait": True}, name="none")
    state(scene)
    scene.info("all")
    scene.info("none")


def test_a_consumer_that_leaves(client):
    scene = Scene(client, retention="interest")
    scene.consumer("one")
    scene.consumer("two", filter_subject=f"{scene.name}.a")
    scene.fill(6, "a", "b")
    scene.pull("4", name="one")
    for at in (0, 1, 3):
        client.answer(at, "+ACK", "in.r")
    state(scene)
    scene.ok(f"CONSUMER.DELETE.{scene.name}.two")
    state(scene)
    scene.info("one")
    scene.ok(f"CONSUMER.DELETE.{scene.name}.one")
    assert state(scene)["messages"] == 0
    scene.fill(1, "a")
    state(scene)


def test_other_filters(client):
    scene = Scene(client, retention="interest")
    scene.consumer("one", filter_subjects=[f"{scene.name}.a", f"{scene.name}.b"])
    scene.consumer("two", filter_subject=f"{scene.name}.c")
    scene.fill(9, "a", "b", "c")
    scene.pull("2", name="one")
    client.answer(0, "+ACK", "in.r")
    client.answer(1, "+ACK", "in.r")
    scene.consumer("one", filter_subjects=[f"{scene.name}.a"])
    assert state(scene)["messages"] == 5
    scene.info("one")
    scene.info("two")


def test_limits_become_interest(client):
    scene = Scene(client)
    scene.fill(6, "a", "b")
    scene.consumer("one", filter_subject=f"{scene.name}.a")
    scene.pull("2", name="one")
    client.answer(0, "+ACK", "in.r")
    update(scene, retention="interest")
    state(scene)
    client.answer(1, "+ACK", "in.r")
    state(scene)
    scene.fill(2, "a", "b")
    state(scene)
    update(scene, retention="limits")
    scene.fill(2, "a", "b")
    state(scene)
    update(scene, retention="workqueue")


def test_a_queue_drains(client):
    scene = Scene(client, retention="workqueue")
    scene.fill(5, "a", "b")
    scene.consumer("a", filter_subject=f"{scene.name}.a")
    scene.consumer("b", filter_subject=f"{scene.name}.b")
    scene.pull("5", name="a")
    client.answer(1, "+ACK", "in.r")
    state(scene)
    scene.pull("5", name="b")
    client.answer(0, "+ACK")
    state(scene)
    scene.ok(f"CONSUMER.DELETE.{scene.name}.a")
    state(scene)
    scene.consumer("c", filter_subject=f"{scene.name}.a")
    scene.pull({"batch": 9, "no_wait": True}, name="c")
    scene.info("c")
    state(scene)


@pytest.mark.parametrize(
    ("present", "added"),
    [
        (None, {"ack_policy": "none"}),
        (None, {"ack_policy": "all"}),
        (None, {"deliver_policy": "new"}),
        (None, {"deliver_policy": "last"}),
        (None, {"ack_policy": "none", "deliver_subject": "d"}),
        ({}, {}),
        ({}, {"filter_subject": "Q.a"}),
        ({"filter_subject": "Q.a"}, {}),
        ({"filter_subject": "Q.a"}, {"filter_subject": "Q.a"}),
        ({"filter_subject": "Q.a"}, {"filter_subject": "Q.b"}),
        ({"filter_subject": "Q.*"}, {"filter_subject": "Q.b"}),
        ({"filter_subject": "Q.*"}, {"filter_subject": "Q.b.c"}),
        ({"filter_subject": "Q.a.*"}, {"filter_subject": "Q.*.b"}),
        ({"filter_subject": "Q.a.>"}, {"filter_subject": "Q.*"}),
        ({"filter_subject": ">"}, {"filter_subject": "Q.a"}),
        ({"filter_subject": "Q.a"}, {"filter_subject": ">"}),
        ({"filter_subjects": ["Q.a", "Q.b"]}, {"filter_subjects": ["Q.c", "Q.b"]}),
        (None, {"num_replicas": 1}),
        (None, {"num_replicas": 2}),
    ],
)
def test_who_may_share_a_queue(client, present, added):
    scene = Scene(client, retention="workqueue")

    def own(config: dict[str, Any]) -> dict[str, Any]:
        return {
            key: [v.replace("Q", scene.name) for v in value]
            if isinstance(value, list)
            else value.replace("Q", scene.name)
            if isinstance(value, str)
            else value
            for key, value in config.items()
        }

    if present is not None:
        scene.consumer("present", **own(present))
    scene.consumer("added", check=False, **own(added))
    scene.consumer("third", check=False, filter_subject=f"{scene.name}.third")
    scene.consumer("third", check=False, filter_subject=f"{scene.name}.a")
    scene.consumer("third", check=False)


@pytest.mark.parametrize("retention", ["interest", "workqueue"])
def test_what_goes_out_as_often_as_it_may_stays(client, retention):
    scene = Scene(client, retention=retention)
    scene.consumer(max_deliver=1, ack_wait=second(0.2))
    scene.fill(3)
    scene.pull("2")
    client.wait(0.6)
    assert state(scene)["messages"] == 3
    client.answer(0, "+ACK", "in.r")
    assert state(scene)["messages"] == 2
    scene.pull({"batch": 5, "no_wait": True})
    client.answer(2, "+TERM", "in.r")
    state(scene)


POLICIES = ["explicit", "explicit", "all", "none"]


@pytest.mark.parametrize("retention", ["interest", "workqueue"])
@pytest.mark.parametrize("seed", walks(6))
def test_random_walks(client, retention, seed):
    rng = random.Random(seed_of(seed))
    limits = rng.choice([{}, {"max_msgs": 8}, {"max_msgs_per_subject": 2}])
    scene = Scene(client, retention=retention, **limits)
    scene.fill(1)  # the other server lists a deleted message 0 of a stream that never held any
    here: list[str] = []
    subjects = ["a", "b", "c.d"]
    filters = [{}, {"filter_subject": "a"}, {"filter_subject": "*"}, {"filter_subject": "c.>"}]
    for step in range(40):
        what = rng.random()
        if what < 0.35:
            scene.fill(rng.randint(1, 3), *rng.sample(subjects, 2))
        elif what < 0.5:
            # names are new: acks of a former namesake's deliveries are no consumer's to judge
            name = f"c{step}"
            config = dict(rng.choice(filters))
            if config:
                config["filter_subject"] = f"{scene.name}.{config['filter_subject']}"
            policy = rng.choice(POLICIES) if retention == "interest" else "explicit"
            if limits and policy == "all":
                policy = "explicit"  # docs/reference/differences.md: a limit acknowledges nothing
            if len(here) < 3 and "error" not in scene.consumer(
                name, check=False, ack_policy=policy, **config
            ):
                here.append(name)
        elif what < 0.55 and here:
            name = here.pop(rng.randrange(len(here)))
            scene.ok(f"CONSUMER.DELETE.{scene.name}.{name}")
        elif what < 0.8 and here:
            body = {"batch": rng.randint(1, 4), "no_wait": True}
            scene.pull(body, name=rng.choice(here))
        elif client.ours.acks:
            at = rng.randrange(len(client.ours.acks))
            client.answer(at, rng.choice(["+ACK", "", "+TERM", "+WPI"]), "in.r")
        state(scene)
    for name in here:
        scene.info(name)
