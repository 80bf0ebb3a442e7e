"""Real processes: starting, refusing to start, stopping, signals, files."""

import contextlib
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pelton.server.files import StoreLock, lock_store
from tests import copies

from .process import GoneError, ServerLog, ServerProcess, Wire, running


@pytest.fixture(autouse=True)
def plain_starts(monkeypatch):
    """Each server imports what it needs, as a user's does."""
    monkeypatch.setattr(copies, "may_copy", lambda environment: False)


def refused(*arguments, status=1):
    """Run a server that can't start: the lines that it leaves on stderr."""
    server = ServerProcess(*arguments)
    assert server.end() == status, server.text
    return server.text.splitlines()


def test_version_and_help_are_answered():
    for option, text in (("--version", "nats-server: v2."), ("-h", "--store_dir")):
        result = subprocess.run(
            [sys.executable, "-m", "pelton.server", option],
            capture_output=True,
            text=True,
            check=True,
        )
        assert text in result.stdout
        assert result.stderr == ""
    assert result.stdout.count("\n") > 20


def test_version_is_one_line():
    result = subprocess.run(
        [sys.executable, "-m", "pelton.server", "-v"], capture_output=True, text=True, check=True
    )
    assert re.fullmatch(r"nats-server: v\d+\.\d+\.\d+ \(pelton \d+\.\d+\.\d+\)\n", result.stdout)


def test_no_heavy_module_is_loaded_by_a_bare_server():
    code = (
        "import sys, pelton.server.__main__, pelton.server.transports.listener, pelton.server.startup,"
        " pelton.server.app;"
        "print([m for m in ('rich', 'click', 'http.server', 'http.client', 'numpy', 'pyspark',"
        " 'pelton.client', 'pelton.engine', 'pelton.server.monitor', 'unittest')"
        " if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_a_server_serves_and_stops(tmp_path):
    with running() as server, Wire(server.port()) as wire:
        assert wire.info["port"] == server.port()
        assert wire.info["server_id"].startswith("N")
        wire.send("SUB a 1\r\nPUB a 2\r\nhi\r\n")
        assert wire.ping() == b"MSG a 1 2\r\nhi\r\n"
        server.signal(signal.SIGTERM)
        assert wire.rest() == b""
    for line in server.text.splitlines():
        assert re.match(r"\[\d+\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} \[[A-Z]{3}\] ", line), line
    assert "Server Exiting" in server.text


def test_interrupt_stops_it_well():
    server = ServerProcess("-a", "127.0.0.1", "-p", "-1")
    server.port()
    server.signal(signal.SIGINT)
    assert server.end() == 0
    assert "Server Exiting" in server.text


@pytest.mark.parametrize(
    ("status", "arguments", "text"),
    [
        (2, ["--bogus"], "unknown option --bogus; see pelton-server --help"),
        (2, ["-p", "x"], 'invalid value "x" for option -p'),
        (1, ["-c", "/no/such.conf"], "can't read configuration file /no/such.conf: No such file"),
        (2, ["-t"], "option -t needs a configuration file"),
        (1, ["-l", "/no/such/log", "-p", "-1"], "can't open log file /no/such/log"),
        (1, ["-a", "203.0.113.7", "-p", "-1"], "this machine has no such address"),
        (2, ["-p", "4999", "-m", "4999"], "cannot share port 4999"),
        (2, ["-sl", "explode=1"], 'unknown signal "explode"'),
        (2, ["--routes", "nats://10.0.0.1:6222"], "option --routes: routes to other servers"),
        (1, ["-sl", "quit=/no/such.pid"], "neither a process id nor a readable pid file"),
        (1, ["-sl", "quit=999999999"], "there is no process 999999999"),
    ],
)
def test_what_cant_start_says_why_in_one_line(status, arguments, text):
    lines = refused(*arguments, status=status)
    assert len(lines) == 1, lines
    assert re.match(r"pelton-server: |\[\d+\] .* \[FTL\] ", lines[0])
    assert text in lines[0]


def test_a_taken_port_is_told_in_one_line():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        lines = refused("-a", "127.0.0.1", "-p", str(port))
        assert len(lines) == 1
        assert f"can't listen on 127.0.0.1:{port}: the port is taken" in lines[0]
        lines = refused("-a", "127.0.0.1", "-p", "-1", "-m", str(port))
        assert len(lines) == 1
        assert "choose another with -m" in lines[0]


def test_a_broken_configuration_lists_its_mistakes(tmp_path):
    path = tmp_path / "x.conf"
    path.write_text("port: x\nfoo: 1\n")
    lines = refused("-c", str(path))
    assert lines[0].startswith(f"pelton-server: {path}:1:1: port:")
    assert lines[1] == f'{path}:2:1: unknown field "foo"'


def test_checking_a_configuration(tmp_path):
    path = tmp_path / "x.conf"
    path.write_text("port: 4222\n")
    server = ServerProcess("-t", "-c", str(path))
    assert server.end() == 0
    assert f"configuration file {path} is valid (sha256:" in server.text


def test_files_that_tell_others_where_it_is(tmp_path):
    with running(
        *("-P", str(tmp_path / "pid"), "--ports_file_dir", str(tmp_path)),
        *("-m", "-1", "--profile", "-1"),
    ) as server:
        assert (tmp_path / "pid").read_text() == f"{server.pid}\n"
        assert (tmp_path / "pid").stat().st_mode & 0o777 == 0o600
        ports = json.loads((tmp_path / f"nats-server_{server.pid}.ports").read_text())
        assert ports == {
            "nats": [f"nats://127.0.0.1:{server.port()}"],
            "monitoring": [f"http://127.0.0.1:{server.http_port()}"],
            "profile": [server.wait_for(r"Profiling is on (http://\S+:\d+)/debug")[1]],
        }
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", [["-P", "/no/such/pid"], ["--ports_file_dir", "/no/such"]])
def test_files_that_cant_be_written_stop_the_start(option):
    lines = refused("-a", "127.0.0.1", "-p", "-1", *option)
    assert "can't write" in lines[-1]


def test_it_listens_on_ipv6_when_asked():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("no IPv6 on this machine")
    server = ServerProcess("-a", "::1", "-p", "-1")
    port = server.port()
    with socket.create_connection(("::1", port), timeout=10) as connected:
        assert b'"client_ip":"::1"' in connected.recv(4096)
    assert server.stop() == 0
    assert f"on [::1]:{port}" in server.text


def test_a_log_file_is_written_and_reopened(tmp_path):
    path = tmp_path / "log"
    server = ServerProcess("-a", "127.0.0.1", "-p", "-1", "-l", str(path))
    wait_until(lambda: path.exists() and "Server is ready" in path.read_text())
    path.rename(tmp_path / "old")
    server.signal(signal.SIGUSR1)
    wait_until(lambda: path.exists() and "File log re-opened" in path.read_text())
    assert server.stop() == 0
    assert "Server Exiting" in path.read_text()
    assert server.text == ""


def wait_until(true):
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_structured_log_lines():
    server = ServerProcess("-a", "127.0.0.1", "-p", "-1", "--log_format", "json")
    server.wait_for("Server is ready")
    assert server.stop() == 0
    texts = [json.loads(line)["text"] for line in server.text.splitlines()]
    assert "Server is ready" in texts


def test_signals_by_option(tmp_path):
    with running("-P", str(tmp_path / "pid")) as server:
        command = ServerProcess("-sl", f"reload={tmp_path / 'pid'}")
        assert command.end() == 0
        server.wait_for("Reloaded server configuration")
        assert ServerProcess("--signal", f"term={server.pid}").end() == 0
        assert server.end() == 0


def test_a_reload_changes_what_it_can(tmp_path):
    path = tmp_path / "x.conf"
    path.write_text("max_payload: 1000\n")
    with running("-c", str(path)) as server:
        before = Wire(server.port())
        assert before.info["max_payload"] == 1000
        path.write_text("max_payload: 2000, debug: true, authorization { token: t }\n")
        server.signal(signal.SIGHUP)
        server.wait_for("Reloaded server configuration")
        assert before.rest() == b"-ERR 'Authorization Violation'\r\n"
        after = Wire(server.port(), hello='{"auth_token":"t","verbose":false}')
        assert after.info["max_payload"] == 2000
        assert after.ping() == b""
        path.write_text("max_payload: 3000, server_name: other\n")
        server.signal(signal.SIGHUP)
        server.wait_for("config reload not supported for ServerName: old=, new=other")
        assert Wire(server.port(), hello=None).info["max_payload"] == 2000
        path.write_text("max_payload: nonsense\n")
        server.signal(signal.SIGHUP)
        server.wait_for("Failed to reload server configuration: .*expected a whole number")
        assert after.ping() == b""


def test_clients_are_served_while_a_reload_reads_the_configuration(tmp_path):
    path = tmp_path / "x.conf"
    path.write_text("max_payload: 1000\n")
    with running("-c", str(path)) as server:
        client = Wire(server.port())
        path.unlink()
        os.mkfifo(path)  # who reads it waits until something is written
        server.signal(signal.SIGHUP)
        server.wait_for("hangup")
        assert client.ping() == b""
        server.signal(signal.SIGHUP)  # one more, which is not forgotten
        path.write_text("max_payload: 2000\n")
        server.wait_for("Reloaded server configuration")
        assert Wire(server.port(), hello=None).info["max_payload"] == 2000
        path.write_text("max_payload: 3000\n")
        server.wait_for("Reloaded: max_payload = 3000")
        assert client.ping() == b""


def test_lame_duck_tells_clients_and_leaves(tmp_path):
    path = tmp_path / "x.conf"
    path.write_text('lame_duck_duration: "30s", lame_duck_grace_period: "50ms"\n')
    server = ServerProcess("-a", "127.0.0.1", "-p", "-1", "-c", str(path))
    wire = Wire(server.port(), hello='{"verbose":false,"protocol":1}')
    wire.ping()
    assert json.loads(wire.line()[5:])["connect_info"] is True
    server.signal(signal.SIGUSR2)
    assert json.loads(wire.line()[5:])["ldm"] is True
    with pytest.raises((GoneError, OSError)):
        Wire(server.port())
    assert wire.rest() == b""
    assert server.end() == 0


def test_the_limit_of_open_files_is_raised_and_a_low_one_is_told():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    code = (
        "import resource, sys;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 500));"
        "from pelton.server.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, "-a", "127.0.0.1", "-p", "-1"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stderr is not None
    lines = []
    for line in child.stderr:
        lines.append(line)
        if "Server is ready" in line:
            break
    limits = Path(f"/proc/{child.pid}/limits").read_text()
    child.terminate()
    child.communicate(timeout=20)
    assert re.search(r"Max open files +500 +500", limits)
    assert any("may open only 500 files" in line for line in lines)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)


def test_running_out_of_descriptors_is_survived():
    code = (
        "import resource, sys;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60));"
        "from pelton.server.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, "-a", "127.0.0.1", "-p", "-1"], stderr=subprocess.PIPE
    )
    server = ServerProcess(child=child)
    port = server.port()
    many = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(80)]
    server.wait_for("Cannot accept a connection: Too many open files")
    for each in many:
        each.close()
    with Wire(port) as wire:
        assert wire.ping() == b""
    assert server.stop() == 0


def test_environment_and_includes_reach_the_running_server(tmp_path):
    path = tmp_path / "x.conf"
    path.write_text("include more.conf\nserver_name: $THE_NAME\n")
    (tmp_path / "more.conf").write_text("max_payload: 512\n")
    with running("-c", str(path), env={**os.environ, "THE_NAME": "from-outside"}) as server:
        info = Wire(server.port(), hello=None).info
    assert (info["server_name"], info["max_payload"]) == ("from-outside", 512)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_that_comes_while_the_server_is_being_loaded_waits(
    tmp_path: Path, number: signal.Signals
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    server = ServerProcess(*("-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(tmp_path)))
    until = time.monotonic() + 20
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as link:
            link.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
            link.settimeout(20)
            data = b""
            while b"PONG" not in data:
                data += link.recv(4096)
            break
    server.signal(number)
    if number != signal.SIGTERM:
        server.wait_for("Reloaded server conf" if number == signal.SIGHUP else "re-opened")
        server.wait_for("Server is ready")
        server.signal(signal.SIGTERM)
    assert server.end() == 0, server.text
    assert "Server Exiting.." in server.text


def test_lame_duck_ignores_sigterm_and_sigint_ends_it(tmp_path):
    path = tmp_path / "x.conf"
    path.write_text('lame_duck_duration: "60s", lame_duck_grace_period: "30s"\n')
    server = ServerProcess("-a", "127.0.0.1", "-p", "-1", "-c", str(path))
    wire = Wire(server.port(), hello='{"verbose":false,"protocol":1}')
    wire.ping()
    assert json.loads(wire.line()[5:])["connect_info"] is True
    server.signal(signal.SIGUSR2)
    assert json.loads(wire.line()[5:])["ldm"] is True
    server.signal(signal.SIGTERM)
    server.wait_for('Trapped "terminated" signal')
    assert wire.ping() == b""
    server.signal(signal.SIGINT)
    assert server.end() == 0


def test_jetstream_comes_and_goes_with_a_reload(tmp_path):
    path = tmp_path / "x.conf"
    path.write_text("debug: false\n")
    ask = "PUB $JS.API.INFO r 0\r\n\r\n"
    with running("-c", str(path)) as server, Wire(server.port(), hello=None) as wire:
        wire.send('CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB r 1\r\n')

        def answer():
            wire.send(ask)
            kind = wire.line().split(" ")[0]
            wire.ping()
            return kind

        assert answer() == "HMSG"  # nobody is there
        path.write_text(f'jetstream {{ store_dir: "{tmp_path / "s"}", max_file: 1GB }}\n')
        server.signal(signal.SIGHUP)
        server.wait_for("Took .* to start JetStream")
        assert answer() == "MSG"
        path.write_text(f'jetstream {{ store_dir: "{tmp_path / "s"}", max_file: 1MB }}\n')
        server.signal(signal.SIGHUP)
        server.wait_for("not supported for decreasing jetstream max memory and store")
        path.write_text(f'jetstream {{ store_dir: "{tmp_path / "s"}", max_file: 2GB }}\n')
        server.signal(signal.SIGHUP)
        server.wait_for("Reloaded: JetStream max_file_store = 2.00 GB")
        path.write_text("debug: false\n")
        server.signal(signal.SIGHUP)
        server.wait_for(r"INF\] JetStream Shutdown")
        assert answer() == "HMSG"
        path.write_text(f'jetstream {{ store_dir: "{tmp_path / "s"}" }}\n')
        server.signal(signal.SIGHUP)
        server.wait_for("(?s)JetStream Shutdown.*Took .* to start JetStream")
        assert answer() == "MSG"


def test_a_slow_consumer_is_told_in_the_log(tmp_path):
    path = tmp_path / "x.conf"
    path.write_text("max_pending: 1MB, max_payload: 512KB\n")
    with running("-c", str(path)) as server:
        slow = Wire(server.port())
        slow.send("SUB flood 1\r\n")
        slow.ping()
        with Wire(server.port()) as wire:
            for _ in range(60):
                wire.send(b"PUB flood 500000\r\n" + bytes(500_000) + b"\r\n")
            wire.ping()
        server.wait_for(r"Slow Consumer Detected: (MaxPending of 1048576 Exceeded|WriteDeadline)")
        slow.close()


def test_a_store_that_is_made_is_for_its_user_alone(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(mode=0o755)
    before = os.umask(0)
    try:
        for folder in ("new/inner/store", "there"):
            StoreLock(str(tmp_path / folder)).close()
    finally:
        os.umask(before)
    for folder in ("new", "new/inner", "new/inner/store"):
        assert (tmp_path / folder).stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "new/inner/store/lock").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "there").stat().st_mode & 0o777 == 0o755  # as its owner wants it


def test_a_server_that_logs_a_lot_is_not_stopped_by_a_test_that_does_not_read() -> None:
    with running("-DV") as server, Wire(server.port()) as wire:
        for _ in range(4):
            wire.send(b"PUB a 1\r\nx\r\n" * 1000)
            wire.ping()
    assert len(re.findall(r"<<- \[PUB a 1\]", server.text)) == 4000


def test_of_a_very_long_log_the_beginning_and_the_end_are_kept() -> None:
    code = "import sys\nfor i in range(0, 1_000_000, 500):\n"
    code += "    sys.stderr.write(''.join(f'line {n}.\\n' for n in range(i, i + 500)))"
    child = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE)
    server = ServerProcess(child=child)
    assert server.end() == 0
    assert server.text.startswith("line 0.\n")
    assert server.text.endswith("line 999999.\n")
    assert re.search(r"\n\[\d+ bytes left out\]\nline \d+\.\n", server.text)
    assert len(server.text) < ServerLog.HEAD + ServerLog.TAIL + 100


@pytest.mark.parametrize(("first", "second"), [("a", "a/jetstream"), ("a/jetstream", "a")])
def test_a_second_store_around_or_inside_another_one_is_told(
    first: str, second: str, tmp_path: Path
) -> None:
    told: list[object] = []
    for folder in (first, first, second, second):
        lock_store(str(tmp_path / folder), "", told.append).close()
    there = f"{tmp_path / first}"
    new = f"{tmp_path / second}"
    assert told == [f"this server begins a new store in {new}; there is another one in {there}"]
