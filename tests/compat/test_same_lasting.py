"""Rollups, TTLs, markers, transforms, republish, counters and schedules beside a real nats-server:
same bytes to both, same bytes back.
"""

import pytest

from tests.compat.scene import NEEDS_BOTH, Scene

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
