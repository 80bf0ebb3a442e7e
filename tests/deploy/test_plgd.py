"""The broker of a plgd hub: the bundle, the files for Helm and Kubernetes, and a leaf of a real nats-server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from pelton.apply.defaults import settled_stream
from pelton.apply.reading import checked, read
from pelton.apply.terraform import File
from pelton.cli.plgd.hub_server import configuration
from pelton.errors import PeltonError
from pelton.server.config import read_config
from pelton.sync import connect
from tests.peers import ServerProcess
from tests.server.leafs import linked, need, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

PLGD = Path(__file__).parents[2] / "deploy" / "plgd"
SUBJECT = "plgd.owners.1.devices.2.resources.3.resourcechanged"


@contextmanager
def bundle(folder: Path, **environ: str) -> Iterator[str]:
    """A bundle that runs; its URL."""
    command = [sys.executable, "-m", "pelton.cli", "bundle", "--data", str(folder)]
    child = subprocess.Popen(
        [*command, "-a", "127.0.0.1", "-p", "-1"],
        env={**os.environ, **environ},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stderr is not None
        text = ""
        while "Server is ready" not in text:
            line = child.stderr.readline()
            assert line, text
            text += line
        found = re.search(r"client connections on 127.0.0.1:(\d+)", text)
        assert found, text
        yield f"nats://127.0.0.1:{found[1]}"
    finally:
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=60)


def declared(name: str) -> dict[str, object]:
    (found,) = checked(read([File(name, (PLGD / name).read_text())])).resources
    return {"config": settled_stream(found.config), "name": found.stream}


def test_all_forms_of_the_stream_say_the_same(tmp_path: Path) -> None:
    assert declared("jetstream.json") == declared("stream.yaml")
    settings, warnings = read_config(configuration(tmp_path, {}), environ={})
    assert (settings.max_memory, settings.max_file, warnings) == (1 << 30, 10 << 30, [])


def test_the_bundle_keeps_the_events_of_a_hub(tmp_path: Path) -> None:
    for number in (1, 2):
        with bundle(tmp_path / "data", JETSTREAM="true") as url, connect(url) as client:
            jetstream = client.jetstream()
            assert jetstream.publish(SUBJECT, b"event").stream == "EVENTS"
            info = jetstream.stream_info("EVENTS")
            assert info.state.messages == number
    made = declared("jetstream.json")["config"]
    assert (info.config.subjects, info.config.duplicate_window) == (
        made.subjects,
        made.duplicate_window,
    )


def test_the_configuration_is_the_users_after_the_first_start(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    text = configuration(tmp_path / "data", {}).replace('"10m"', '"3m"')
    (tmp_path / "data" / "jetstream.config").write_text(text)
    with bundle(tmp_path / "data", JETSTREAM="1") as url, connect(url) as client:
        config = client.jetstream().stream_info("EVENTS").config
        assert config.duplicate_window == 180 * 1_000_000_000
    assert (tmp_path / "data" / "jetstream.config").read_text() == text


def test_without_jetstream_the_bundle_is_a_plain_server(tmp_path: Path) -> None:
    with bundle(tmp_path / "data") as url, connect(url) as client:
        with pytest.raises(PeltonError):
            client.jetstream().account_info()
        client.publish(SUBJECT, b"event")
        client.flush()


def test_jetstream_is_true_or_false(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pelton.cli", "bundle", "--data", str(tmp_path / "data")],
        env={**os.environ, "JETSTREAM": "maybe"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert 'JETSTREAM="maybe": expected true or false' in done.stderr
    assert not (tmp_path / "data").exists()


def test_the_values_switch_the_publishers_on() -> None:
    values = yaml.safe_load((PLGD / "values.yaml").read_text())
    assert values["clients"]["eventBus"]["nats"]["jetstream"] is True
    for service in ("resourceaggregate", "identitystore"):
        assert values[service]["clients"]["eventBus"]["nats"]["jetstream"] is True


@pytest.mark.peer
def test_a_leaf_keeps_the_events_of_a_real_hub(tmp_path: Path) -> None:
    """What is published to a nats-server without JetStream is stored at its leaf, which may come and go."""
    from tests.ports import free_port

    need("nats-server")
    leaf_port, port = free_port(), free_port()
    config = tmp_path / "hub.conf"
    config.write_text(f"server_name: hub\nleafnodes {{ listen: 127.0.0.1:{leaf_port} }}\n")
    hub = ServerProcess("nats-server", arguments=["-c", str(config)])
    environ = {
        "LEAF_PORT": str(port),
        "HUB_URL": f"nats://127.0.0.1:{leaf_port}",
        "JETSTREAM_PATH": str(tmp_path / "store"),
    }
    hub.start()
    try:
        with connect(hub.url, timeout=60) as at_hub:
            for number in (1, 2):
                command = [sys.executable, "-m", "pelton.server", "-a", "127.0.0.1"]
                leaf = subprocess.Popen(
                    [*command, "-c", str(PLGD / "leaf.conf")],
                    env={**os.environ, **environ},
                    stderr=subprocess.DEVNULL,
                )
                try:
                    store(at_hub, port, number)
                finally:
                    leaf.terminate()
                    leaf.wait(60)
    finally:
        hub.stop()
        hub.remove()


def store(at_hub, port: int, number: int) -> None:
    """Publish at the hub; wait until the leaf has it."""
    url = f"nats://127.0.0.1:{port}"
    with connect(url, timeout=60, retry_first_connect=True) as at_leaf:
        linked(at_hub, at_leaf)
        at_hub.publish(SUBJECT, b"event")
        jetstream = at_leaf.jetstream()
        wait_for(lambda: jetstream.stream_info("EVENTS").state.messages == number, "the event")
        assert at_hub.jetstream(domain="plgd").stream_info("EVENTS").state.messages == number
