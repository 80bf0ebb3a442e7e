"""Deployment files agree with the server: its ports, paths, signals, defaults and options."""

import configparser
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pelton.server.config import read_config
from pelton.server.options import parse_options
from pelton.server.settings import DEFAULT_HTTP_PORT, DEFAULT_PORT
from pelton.server.signals import SIGNALS
from tests.server.process import running

DEPLOY = Path(__file__).parents[2] / "deploy"
SECOND_NS = 1_000_000_000


def manifests():
    text = (DEPLOY / "kubernetes" / "pelton.yaml").read_text()
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text)}


def pod():
    return manifests()["StatefulSet", "pelton"]["spec"]["template"]["spec"]


def kubernetes_settings():
    text = manifests()["ConfigMap", "pelton"]["data"]["pelton.conf"]
    return read_config(text, "pelton.conf", environ={"POD_NAME": "pelton-0"})


def test_the_configurations_are_valid():
    settings, warnings = kubernetes_settings()
    assert warnings == []
    assert settings.server_name == "pelton-0"
    assert settings.jetstream
    image, warnings = read_config((DEPLOY / "docker" / "pelton.conf").read_text(), environ={})
    assert warnings == []
    assert (image.port, image.http_port) == (DEFAULT_PORT, DEFAULT_HTTP_PORT)


def test_ports_are_those_of_the_server():
    settings, _ = kubernetes_settings()
    (container,) = pod()["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {"nats": settings.port, "monitor": settings.http_port}
    assert ports == {"nats": DEFAULT_PORT, "monitor": DEFAULT_HTTP_PORT}
    labels = manifests()["StatefulSet", "pelton"]["spec"]["template"]["metadata"]["labels"]
    for name in ("pelton", "pelton-headless"):
        service = manifests()["Service", name]["spec"]
        assert service["selector"].items() <= labels.items()
        assert all(ports[each["targetPort"]] == each["port"] for each in service["ports"])


def test_the_volume_is_where_the_server_keeps_its_streams():
    settings, _ = kubernetes_settings()
    stateful = manifests()["StatefulSet", "pelton"]["spec"]
    (container,) = pod()["containers"]
    mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    (claim,) = stateful["volumeClaimTemplates"]
    assert mounts[settings.store_dir] == claim["metadata"]["name"]
    size = int(claim["spec"]["resources"]["requests"]["storage"].removesuffix("Gi")) << 30
    assert settings.max_file < size
    volumes = {each["name"] for each in pod()["volumes"]} | {claim["metadata"]["name"]}
    assert set(mounts.values()) == volumes
    assert stateful["serviceName"] == "pelton-headless"


def test_the_arguments_and_the_hook_are_the_servers():
    (container,) = pod()["containers"]
    mounted = [each["mountPath"] for each in container["volumeMounts"]]
    options = parse_options(container["args"])
    assert os.path.dirname(options.config) in mounted
    assert os.path.dirname(options.given["pid_file"]) in mounted
    command = container["lifecycle"]["preStop"]["exec"]["command"]
    hook = parse_options(command[1:])
    assert command[0] == "pelton-server"
    assert (hook.action, hook.signal) == ("signal", f"ldm={options.given['pid_file']}")


def test_there_is_time_to_leave_slowly():
    settings, _ = kubernetes_settings()
    assert pod()["terminationGracePeriodSeconds"] * SECOND_NS > settings.lame_duck_duration_ns
    image, _ = read_config((DEPLOY / "docker" / "pelton.conf").read_text(), environ={})
    text = (DEPLOY / "docker" / "Dockerfile").read_text()
    stop = re.search(r"docker stop -t (\d+)", text)
    assert int(stop[1]) * SECOND_NS > image.lame_duck_duration_ns
    assert f"STOPSIGNAL {SIGNALS['ldm'].name}" in text


def test_the_probes_are_answered(tmp_path):
    (container,) = pod()["containers"]
    with running("-js", "-sd", str(tmp_path), "-m", "-1") as server:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            get = container[probe]["httpGet"]
            assert get["port"] == "monitor"
            with socket.create_connection(("127.0.0.1", server.http_port()), timeout=10) as http:
                http.sendall(f"GET {get['path']} HTTP/1.0\r\n\r\n".encode())
                answer = http.makefile("rb").read()
            assert answer.startswith(b"HTTP/1.1 200"), answer
            assert b'"status":"ok"' in answer.replace(b" ", b"")


def unit():
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read(DEPLOY / "systemd" / "pelton.service")
    return parser


def test_the_unit_starts_and_signals_the_server():
    service = unit()["Service"]
    command, *arguments = service["ExecStart"].split()
    assert os.path.basename(command) == "pelton-server"
    assert parse_options(arguments).config == "/etc/pelton/pelton.conf"
    assert service["KillSignal"] == SIGNALS["ldm"].name
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert SIGNALS["reload"] == signal.SIGHUP
    settings, _ = read_config("port: 1", environ={})
    assert int(service["TimeoutStopSec"]) * SECOND_NS > settings.lame_duck_duration_ns
    rotate = (DEPLOY / "logrotate" / "pelton").read_text()
    line = next(each for each in rotate.splitlines() if "pelton-server" in each)
    assert parse_options(line.split(">")[0].split()[1:]).signal.partition("=")[0] == "reopen"


def test_systemd_is_told_when_the_server_listens(tmp_path):
    assert unit()["Service"]["Type"] == "notify"
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(path)
        systemd.settimeout(20)
        with running(env={"NOTIFY_SOCKET": path}) as server:
            assert systemd.recv(100) == b"READY=1"
            with socket.create_connection(("127.0.0.1", server.port()), timeout=10) as client:
                assert client.recv(4) == b"INFO"
        assert systemd.recv(100) == b"STOPPING=1"


@pytest.mark.skipif(
    subprocess.run(["which", "systemd-analyze"], capture_output=True, check=False).returncode != 0,
    reason="no systemd-analyze here",
)
def test_systemd_knows_every_line_of_the_unit(tmp_path):
    text = (DEPLOY / "systemd" / "pelton.service").read_text()
    path = tmp_path / "pelton.service"
    path.write_text(
        re.sub(r"^ExecStart=\S+", f"ExecStart={sys.executable}", text, flags=re.MULTILINE)
    )
    said = subprocess.run(
        ["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False
    )
    assert "pelton.service" not in said.stderr, said.stderr


def test_the_image_copies_what_is_let_through_to_the_builder():
    root = DEPLOY.parent
    allowed = {
        line.removeprefix("!")
        for line in (root / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied = [
        word
        for line in (DEPLOY / "docker" / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for word in line.split()[1:-1]
    ]
    assert set(copied) == allowed
    assert all((root / each).exists() for each in copied)
