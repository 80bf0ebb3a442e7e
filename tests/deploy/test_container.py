"""The entry point of the container image, as the image runs it: environment, arguments, signals, exit status."""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pelton import StreamConfig
from pelton.cli.container import CONFIG, DATA, HUB_LINES
from pelton.errors import PeltonError
from pelton.server.config import read_config
from pelton.sync import connect
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DOCKER = Path(__file__).parents[2] / "deploy" / "docker"
EVENT = "plgd.owners.1.devices.2.resources.3.resourcechanged"
CODE = """
import os, sys
from pathlib import Path
from pelton.cli.container import main
sys.exit(main(sys.argv[3:], os.environ, Path(sys.argv[1]), Path(sys.argv[2])))
"""
DROP_BOUNDING, DAC_OVERRIDE = 24, 1
FREE_PORTS = ("-a", "127.0.0.1", "-p", "-1", "-m", "-1")


def instruction(name: str) -> str:
    (found,) = re.findall(rf"^{name} (.*)$", (DOCKER / "Dockerfile").read_text(), re.MULTILINE)
    return str(found)


def image(folder: Path, *arguments: str) -> list[str]:
    """The command of a container whose volume is a folder; its configuration file is that of the image."""
    data, config = folder / "data", folder / "pelton.conf"
    data.mkdir(exist_ok=True)
    config.write_text((DOCKER / "pelton.conf").read_text().replace(str(DATA), str(data)))
    return [sys.executable, "-c", CODE, str(data), str(config), *arguments]


def environment(**more: str) -> dict[str, str]:
    names = ("JETSTREAM", "JETSTREAM_PATH", "NATS_PORT", "OVERRIDE_FILES")
    return {name: text for name, text in os.environ.items() if name not in names} | more


@contextmanager
def container(
    folder: Path, *arguments: str, **environ: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server that is ready, and its URL."""
    process = subprocess.Popen(
        image(folder, *arguments), env=environment(**environ), stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        text = ""
        while "Server is ready" not in text:
            line = process.stderr.readline()
            assert line, text
            text += line
        found = re.search(r"client connections on (?:127.0.0.1|0.0.0.0):(\d+)", text)
        assert found, text
        yield process, f"nats://127.0.0.1:{found[1]}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def ended(
    folder: Path, *arguments: str, before: Callable[[], object] | None = None, **environ: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        image(folder, *arguments),
        env=environment(**environ),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=before,
    )


def test_the_image_starts_with_the_module() -> None:
    command, *arguments = json.loads(instruction("ENTRYPOINT"))
    assert command == "python"
    done = subprocess.run(
        [sys.executable, *arguments, "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("nats-server: v")
    text = (DOCKER / "Dockerfile").read_text()
    assert "\nCMD " not in text
    assert instruction("VOLUME") == str(DATA)
    assert f"COPY deploy/docker/pelton.conf {CONFIG}\n" in text


def test_a_hubs_configuration_has_what_the_image_needs() -> None:
    ours, _ = read_config((DOCKER / "pelton.conf").read_text(), environ={})
    hub, _ = read_config("\n".join(HUB_LINES), environ={})
    for name in ("http_port", "lame_duck_grace_period_ns", "lame_duck_duration_ns"):
        assert getattr(hub, name) == getattr(ours, name)


@pytest.mark.parametrize(
    "stop", [signal.SIGTERM, signal.SIGINT, getattr(signal, instruction("STOPSIGNAL"))]
)
def test_messages_are_there_after_a_stop(stop: signal.Signals, tmp_path: Path) -> None:
    for number in (1, 2):
        with container(tmp_path, *FREE_PORTS) as (process, url):
            with connect(url) as client:
                jetstream = client.jetstream()
                jetstream.create_stream(StreamConfig(name="ORDERS", subjects=["orders.>"]))
                assert jetstream.publish("orders.new", b"42 bolts").seq == number
            process.send_signal(stop)
            process.wait(timeout=60)
        assert process.returncode == 0
    assert (tmp_path / "data" / "jetstream").is_dir()


def test_it_takes_the_variables_of_a_hubs_bundle(tmp_path: Path) -> None:
    port = str(free_port())
    streams = tmp_path / "streams"
    hub = {"JETSTREAM": "true", "NATS_PORT": port, "JETSTREAM_PATH": str(streams)}
    path = tmp_path / "data" / "jetstream.config"
    others = {"LEAD_RESOURCE_TYPE_ENABLED": "false", "LEAD_RESOURCE_TYPE_FILTER": ""}
    for number in (1, 2):
        with container(tmp_path, "-m", "-1", **hub, **others) as (_, url):
            assert url.endswith(f":{port}")
            with connect(url) as client:
                ack = client.jetstream().publish(EVENT, b"event")
                assert (ack.stream, ack.seq) == ("EVENTS", number)
        assert (streams / "jetstream").is_dir()
        path.write_text(path.read_text() + "max_payload: 1MB\n")  # it is the user's
    with container(tmp_path, "-m", "-1", **hub, OVERRIDE_FILES="true"):
        assert "max_payload" not in path.read_text()


def test_without_jetstream_it_is_the_plain_server_of_a_hub(tmp_path: Path) -> None:
    with (
        container(tmp_path, *FREE_PORTS, JETSTREAM="false") as (_, url),
        connect(url) as client,
        pytest.raises(PeltonError),
    ):
        client.jetstream().account_info()
    assert (tmp_path / "data" / "nats.config").exists()


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        ({"JETSTREAM": "maybe"}, 'JETSTREAM="maybe": expected true or false'),
        ({"JETSTREAM": "true", "NATS_PORT": "x"}, 'NATS_PORT="x": expected a port from 1 to 65535'),
        ({"JETSTREAM": "", "OVERRIDE_FILES": "x"}, 'OVERRIDE_FILES="x": expected true or false'),
    ],
)
def test_a_wrong_variable_is_named(environ: dict[str, str], line: str, tmp_path: Path) -> None:
    done = ended(tmp_path, **environ)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"pelton: {line}\n")
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.parametrize("environ", [{}, {"JETSTREAM": "true"}, {"JETSTREAM": "false"}], ids=str)
def test_a_volume_that_cannot_be_written(environ: dict[str, str], tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o500)
    call = ctypes.CDLL(None).prctl
    done = ended(tmp_path, *FREE_PORTS, before=lambda: call(DROP_BOUNDING, DAC_OVERRIDE), **environ)
    assert done.returncode == 1
    user = os.geteuid()
    assert done.stderr == (
        f"pelton: user {user} cannot write into {data}: chown {user} the folder that is mounted there, "
        'or run the container with --user "$(id -u)"\n'
    )


def test_options_and_other_commands(tmp_path: Path) -> None:
    own = tmp_path / "own.conf"
    own.write_text("port: 4333\n")
    done = ended(tmp_path, "-t", "-c", str(own), JETSTREAM="true")
    assert (done.returncode, f"configuration file {own} is valid" in done.stderr) == (0, True)
    assert list((tmp_path / "data").iterdir()) == []
    done = ended(tmp_path, "-t")
    assert (done.returncode, "pelton.conf is valid" in done.stderr) == (0, True)
    done = ended(tmp_path, "--bogus")
    assert (done.returncode, "unknown option --bogus" in done.stderr) == (2, True)
    done = ended(tmp_path, sys.executable, "-c", "print(7); exit(3)")
    assert (done.returncode, done.stdout) == (3, "7\n")
    done = ended(tmp_path, "no-such-command")
    assert done.returncode == 127
    assert done.stderr == "pelton: cannot run no-such-command: No such file or directory\n"
