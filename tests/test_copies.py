"""A copy does what the plain program does, and is a child of the process that asked for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests import copies

CLI = [sys.executable, "-m", "pelton.cli"]
SERVER = [sys.executable, "-m", "pelton.server"]
PYTHON = [sys.executable, copies.INTERPRETER]


@pytest.fixture(autouse=True)
def _copies() -> None:
    if not copies.may_copy(os.environ):
        pytest.skip("all is started plainly here")


def said(process: Any) -> tuple[int, str, str]:
    return process.returncode, process.stdout, process.stderr


def tell(code: str, **options: Any) -> Any:
    """What a copy of the interpreter prints, as JSON."""
    block = json.dumps({"code": code, "place": "here"})
    done = copies.run(PYTHON, input=block, capture_output=True, text=True, check=True, **options)
    assert done.stdout.endswith("\0done\n"), done.stdout
    return json.loads(done.stdout.splitlines()[0])


@pytest.mark.parametrize(
    "command",
    [
        [*CLI, "--version"],
        [*CLI, "stream", "ls", "--bogus"],
        [*CLI, "-s", "nats://127.0.0.1:1", "--timeout", "1s", "stream", "ls"],
        [*CLI, "-s", "nats://127.0.0.1:1", "--timeout", "1s", "stream", "ls", "--json"],
        [*CLI, "stream", "ls", "--store", "nowhere"],
        [*CLI, "-s", "nats://127.0.0.1:1", "--timeout", "1s", "sql", "select 1"],
        [*CLI, "plgd", "decode", "--bogus"],
        [*SERVER, "-v"],
        [*SERVER, "--bogus"],
        [*SERVER, "-t", "-c", "nowhere.conf"],
    ],
    ids=lambda command: " ".join(command[2:]),
)
def test_it_says_and_returns_what_the_plain_program_does(
    command: list[str], tmp_path: Path
) -> None:
    options: dict[str, Any] = {"capture_output": True, "text": True, "cwd": tmp_path}
    copy = copies.run(command, **options)
    assert said(copy) == said(subprocess.run(command, check=False, **options))


def test_it_is_a_child_of_this_process(tmp_path: Path) -> None:
    words = ["-js", "-a", "127.0.0.1", "-p", "-1", "-sd", str(tmp_path)]
    for number, status in ((signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)):
        with copies.Popen([*SERVER, *words], stderr=subprocess.PIPE, text=True) as server:
            assert "Server is ready" in next(line for line in server.stderr if "ready" in line)
            fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
            assert int(fields[1]) == os.getpid()
            server.send_signal(number)
            assert server.wait(60) == status


def test_it_has_the_environment_the_folder_and_three_files(tmp_path: Path) -> None:
    code = (
        "import os; print(json.dumps([dict(os.environ), os.getcwd(), os.listdir('/proc/self/fd')]))"
    )
    environment, folder, files = tell(
        "import json\n" + code, env={"A": "1", **os.environ, "NATS_URL": "here"}, cwd=tmp_path
    )
    assert environment == {"A": "1", **os.environ, "NATS_URL": "here"}
    assert folder == str(tmp_path)
    assert sorted(files, key=int)[:3] == ["0", "1", "2"]
    assert len(files) == 4  # the folder itself was open


def test_a_command_that_needs_arrow_finds_it_imported() -> None:
    large, small = (
        copies.origin(["pelton.cli", *words])
        for words in (["-s", "x", "sql", "select 1"], ["sub", "x"])
    )
    assert large is not small
    assert copies.origin(["pelton.server", "-c", "run"]) is small
    loaded = {}
    for each in (large, small):
        each.connect().close()
        maps = Path(f"/proc/{each.process.pid}/maps").read_text()
        loaded[each] = {name for name in ("duckdb", "libarrow.so", "deltalake") if name in maps}
        assert len(os.listdir(f"/proc/{each.process.pid}/task")) == 1
    assert loaded == {large: {"duckdb", "libarrow.so", "deltalake"}, small: set()}


def test_each_draws_numbers_of_its_own_and_has_one_thread() -> None:
    code = """
import json, os, random, threading, uuid
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
tids = [threading.get_native_id(), int(status["Pid"]), os.getpid()]
print(json.dumps([random.random(), str(uuid.uuid4()), len(set(tids)), status["Threads"].strip()]))
"""
    one, other = tell(code), tell(code)
    assert one[:2] != other[:2]
    assert one[2:] == other[2:] == [1, "1"]


def test_a_thread_may_signal_the_main_one() -> None:
    """The C library knows the number of a copy's main thread."""
    code = """
import json, signal, threading, time
signal.signal(signal.SIGUSR1, lambda *_: print(json.dumps("heard")))
main = threading.main_thread().ident
thread = threading.Thread(target=signal.pthread_kill, args=(main, signal.SIGUSR1))
thread.start()
thread.join()
"""
    assert tell(code) == "heard"


def test_a_reader_that_is_gone_is_told_of_as_python_does() -> None:
    block = json.dumps({"code": "import os; os.read(0, 1)", "place": "here"}).encode() + b"\n"
    ends = []
    for start in (subprocess.Popen, copies.Popen):
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        with start(PYTHON, **pipes) as process:
            process.stdout.close()
            process.stdin.write(block + b"x")
            process.stdin.close()
            ends.append((process.stderr.read().splitlines()[-1], process.wait(60)))
    assert ends[0] == ends[1]
    assert ends[0][0].startswith(b"BrokenPipeError")


def test_what_a_copy_can_not_be_is_started_plainly() -> None:
    code = "import json, sys; print(json.dumps([sys.flags.hash_randomization, len(sys.modules)]))"
    hashes, modules = tell(code, env={**os.environ, "PYTHONHASHSEED": "0"})
    assert hashes == 0
    assert modules < tell(code)[1]
    assert tell(code, preexec_fn=lambda: None)[1] < tell(code)[1]


def test_a_shell_has_programs_that_become_copies(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{copies.programs()}:{os.environ['PATH']}"}
    script = "echo '{\"max_msgs\": 5}' | pelton validate - > out; echo $?; pelton-server -v"
    done = subprocess.run(
        ["bash", "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    plain = subprocess.run([*SERVER, "-v"], capture_output=True, text=True, check=True)
    assert done.stdout == f"1\n{plain.stdout}"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_program_of_a_shell_ends_with_its_copy(number: signal.Signals, tmp_path: Path) -> None:
    folder = copies.programs()
    words = ["-a", "127.0.0.1", "-p", "-1", "-P", str(tmp_path / "pid")]
    with subprocess.Popen(
        [f"{folder}/pelton-server", *words], stderr=subprocess.PIPE, text=True
    ) as program:
        assert program.stderr is not None
        assert "Server is ready" in next(line for line in program.stderr if "ready" in line)
        copy = int((tmp_path / "pid").read_text())
        program.send_signal(number)
        assert program.wait(60) == (-number if number == signal.SIGKILL else 0)
        program.stderr.read()  # until nobody has it open
    deadline = time.monotonic() + 60
    while Path(f"/proc/{copy}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
