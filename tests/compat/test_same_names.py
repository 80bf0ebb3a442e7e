"""Names with a NUL, which no file can have: what is kept in memory may be called so."""

from __future__ import annotations

import json

import pytest

from tests.compat.scene import NEEDS_BOTH, Scene

pytestmark = NEEDS_BOTH


@pytest.mark.parametrize("name", ["A\0B", "\0", "end\0"])
def test_a_stream_with_a_nul_in_its_name(client, name):
    made = f"STREAM.CREATE.{name}"
    for config in ({"subjects": ["nul"]}, {"mirror": {"name": "O"}}, {"max_msgs": -7}):
        answer = client.ask(made, {"name": name, **config})
        assert answer["error"]["err_code"] == 10049
    for call in ("INFO", "PURGE", "DELETE"):
        assert client.ask(f"STREAM.{call}.{name}")["error"]["err_code"] == 10059
    answer = client.ask(made, {"name": name, "subjects": ["nul"], "storage": "memory"})
    assert answer["config"]["name"] == name
    client.publish("nul", "x")
    assert client.ask(f"STREAM.INFO.{name}")["state"]["messages"] == 1
    client.ask(f"STREAM.DELETE.{name}")


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize(
    "config", [{}, {"durable_name": "a\0b"}, {"mem_storage": True}, {"deliver_subject": "to"}]
)
def test_a_consumer_with_a_nul_in_its_name(client, storage, config):
    scene = Scene(client, storage=storage)
    scene.fill(1)
    body = {"stream_name": scene.name, "config": {"name": "a\0b", **config}}
    made = client.ask(f"CONSUMER.CREATE.{scene.name}.a\0b", json.dumps(body))
    kept = storage == "memory" or "mem_storage" in config
    assert made.get("error", {}).get("err_code") == (None if kept else 10012)
    client.ask(f"CONSUMER.INFO.{scene.name}.a\0b")
    client.ask(f"CONSUMER.NAMES.{scene.name}")
    client.ask(f"CONSUMER.DELETE.{scene.name}.a\0b")
