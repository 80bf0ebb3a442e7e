"""Which process `-sl` means."""

import os
import subprocess
import sys

import pytest

from pelton.server.errors import StartError
from pelton.server.signals import is_server, running_servers, send_signal


@pytest.mark.parametrize(
    ("command", "server"),
    [
        ("pelton-server -p 4222", True),
        ("/usr/bin/pelton-server", True),
        ("/usr/bin/python3 /usr/local/bin/pelton-server -js", True),
        ("python -m pelton.server -js", True),
        ("python3.11 -X utf8 -m pelton.server", True),
        ("python -m pytest -m pelton.server", False),
        ("python x.py pelton-server", False),
        ("vim pelton-server", False),
        ("nats-server", False),
        ("", False),
    ],
)
def test_a_server_is_known_by_its_command_line(command, server):
    assert is_server(command.split(" ")) is server


def make(proc, pid, command):
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "cmdline").write_bytes(command.replace(" ", "\0").encode() + b"\0")


def test_the_servers_of_a_machine_are_found(tmp_path):
    make(tmp_path, 30, "pelton-server -js")
    make(tmp_path, 4, "python -m pelton.server")
    make(tmp_path, 5, "bash")
    make(tmp_path, os.getpid(), "pelton-server -sl quit")
    (tmp_path / "6").mkdir()
    (tmp_path / "self").mkdir()
    assert running_servers(str(tmp_path)) == [4, 30]


@pytest.mark.parametrize(
    ("running", "command", "message"),
    [
        ([], "quit", "no pelton-server processes running"),
        ([4, 30], "quit", "multiple pelton-server processes running:\n4\n30"),
        ([4, 30], "quit=5*", "no pelton-server process runs whose id begins with 5"),
        ([4], "explode", 'unknown signal "explode"'),
        ([4], "quit=x*", "neither a process id nor a readable pid file"),
    ],
)
def test_what_cant_be_signalled_is_told(running, command, message, monkeypatch):
    monkeypatch.setattr("pelton.server.signals.running_servers", lambda: running)
    with pytest.raises(StartError, match=message.replace("*", r"\*")):
        send_signal(command)


@pytest.mark.parametrize("target", ["", "=*", "=file"])
def test_a_process_gets_its_signal(target, tmp_path, monkeypatch):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        monkeypatch.setattr("pelton.server.signals.running_servers", lambda: [child.pid])
        if target == "=file":
            (tmp_path / "pid").write_text(f"{child.pid}\n")
            target = f"={tmp_path / 'pid'}"
        send_signal(f"term{target}")
        assert child.wait(timeout=20) == -15
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
