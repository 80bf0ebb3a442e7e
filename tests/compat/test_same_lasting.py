"""Rollups, TTLs, markers, transforms, republish, counters and schedules beside a real nats-server:
same bytes to both, same bytes back.
"""

import pytest

from tests.compat.scene import NEEDS_BOTH, Scene, second

pytestmark = NEEDS_BOTH


def put(scene, subject, body="x", headers=None):
    """Publish below the stream's subject and compare the PubAcks."""
    scene.client.publish(f"{scene.name}.{subject}", body, headers, reply="in.ack")


def state(scene):
    """The stream's info, and every message it holds."""
    info = scene.client.ask(
        f"STREAM.INFO.{scene.name}", {"subjects_filter": ">", "deleted_details": True}
    )
    for seq in range(max(info["state"]["first_seq"], 1), info["state"]["last_seq"] + 1):
        scene.client.ask(f"STREAM.MSG.GET.{scene.name}", {"seq": seq})


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_rollups(client, storage):
    scene = Scene(client, storage=storage, allow_rollup_hdrs=True)
    scene.consumer()
    for subject in ("a", "b", "a", "c", "a"):
        put(scene, subject)
    for how in ("sub", "SUB", "Sub ", "x", 'q"\x01\\é', ""):
        put(scene, "a", headers=f"Nats-Rollup: {how}")
        state(scene)
        scene.info()
    put(scene, "c", headers="Nats-Rollup: all\nNats-Expected-Last-Sequence: 99")
    put(scene, "c", headers="Nats-Msg-Id: 1\nNats-Rollup: all")
    put(scene, "c", headers="Nats-Msg-Id: 1\nNats-Rollup: nothing")
    state(scene)
    scene.info()
    put(scene, "d")
    put(scene, "d", headers="nats-rollup: all")
    state(scene)


def test_rollups_that_are_not_allowed(client):
    scene = Scene(client)
    for how in ("sub", "all", "x", ""):
        put(scene, "a", headers=f"Nats-Rollup: {how}")
    state(scene)


def test_rollups_and_discard_new(client):
    scene = Scene(
        client,
        allow_rollup_hdrs=True,
        discard="new",
        discard_new_per_subject=True,
        max_msgs_per_subject=2,
        max_msgs=5,
    )
    for subject in ("a", "a", "a", "b", "b", "b", "c", "c"):
        put(scene, subject)
    for how in ("sub", "x", ""):
        put(scene, "a", headers=f"Nats-Rollup: {how}")
        put(scene, "d", headers=f"Nats-Rollup: {how}")
        state(scene)


def test_what_may_not_be_removed(client):
    for config in ({"deny_delete": True}, {"deny_purge": True}, {"allow_rollup_hdrs": True}):
        scene = Scene(client, **config)
        put(scene, "a")
        put(scene, "a")
        put(scene, "a", headers="Nats-Rollup: sub")
        name = scene.name
        base = {"name": name, "subjects": [f"{name}.>"], "storage": "file"}
        for more in (
            {},
            {"deny_delete": True},
            {"deny_purge": True},
            {"allow_rollup_hdrs": True},
            {"allow_rollup_hdrs": True, "deny_purge": True},
            {"sealed": True, **config},
            {"sealed": True, "deny_delete": True, "deny_purge": True},
            {"sealed": False},
        ):
            client.ask(f"STREAM.UPDATE.{name}", {**base, **more})
            client.ask(f"STREAM.MSG.DELETE.{name}", {"seq": 100})
            client.ask(f"STREAM.PURGE.{name}", {"keep": 1})
        put(scene, "a")
        put(scene, "a", headers="Nats-Rollup: sub")
        state(scene)


TTLS = ("1", "0", "00", "-1", "1.5s", "2s", "500ms", "never", "Never", "x", "", " 3", "1m", "+2s")


@pytest.mark.parametrize("config", [{}, {"allow_msg_ttl": True}], ids=str)
def test_ttls_that_are_taken(client, config):
    scene = Scene(client, **config)
    for ttl in TTLS:
        put(scene, "a", headers=f"Nats-TTL: {ttl}")
        put(scene, "a", headers=f"Nats-TTL: {ttl}\nNats-Expected-Last-Sequence: 77")
        put(scene, "a", headers=f"Nats-TTL: {ttl}\nNats-Rollup: sub")


@pytest.mark.parametrize("per_subject", [-1, 1])
def test_ttls_are_raised_to_that_of_markers(client, per_subject):
    scene = Scene(client, subject_delete_marker_ttl=5_500_000_000, max_msgs_per_subject=per_subject)
    for number, ttl in enumerate(TTLS):
        put(scene, f"a.{number}", headers=f"Nats-TTL: {ttl}\nOther: x")
        put(scene, f"a.{number}", headers=f"First: y\nNats-TTL: {ttl}")
    state(scene)


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_messages_end_and_leave_markers(client, storage):
    scene = Scene(client, storage=storage, subject_delete_marker_ttl=1_000_000_000)
    plain = Scene(client, storage=storage, allow_msg_ttl=True, max_age=second(1))
    for number in range(3):
        put(scene, f"a.{number}", headers="Nats-TTL: 1")
    put(scene, "b", headers="Nats-TTL: 1")
    put(scene, "b")
    put(scene, "c", headers="Nats-TTL: 1\nKV-Operation: PURGE")
    put(scene, "d", headers="Nats-TTL: 1\nKV-Operation: DEL")
    put(scene, "e", headers="Nats-TTL: never")
    for number in range(3):
        put(plain, f"a.{number}", headers=f"Nats-TTL: {('1', 'never', '60')[number]}")
        put(plain, f"b.{number}")
    client.wait(1.7)
    state(scene)
    client.wait(2.5)
    state(scene)
    state(plain)


def test_age_leaves_markers(client):
    scene = Scene(client, subject_delete_marker_ttl=second(60), max_age=second(1))
    for subject in ("a", "a", "b", "c", "b"):
        put(scene, subject)
    put(scene, "d", headers="Nats-TTL: never")
    client.wait(3.5)
    state(scene)
    name = scene.name
    base = {"name": name, "subjects": [f"{name}.>"], "storage": "file"}
    for more in ({}, {"allow_msg_ttl": True}, {"subject_delete_marker_ttl": 5}, {"max_age": 0}):
        client.ask(f"STREAM.UPDATE.{name}", {**base, **more})
