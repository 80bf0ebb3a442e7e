"""Children end with their parent, by the kernel or by the next start; a folder has one holder."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from pelton.pipeline.children import Children, FolderInUseError, end_process, started_at

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def wait_gone(pid, seconds=10.0):
    deadline = time.monotonic() + seconds
    while started_at(pid) is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    return started_at(pid) is None


def test_a_folder_has_one_holder(tmp_path):
    held = Children(tmp_path / "data")
    with pytest.raises(FolderInUseError, match=str(os.getpid())):
        Children(tmp_path / "data")
    held.release()
    Children(tmp_path / "data").release()


PARENT = """
import sys, time
from pathlib import Path
from pelton.pipeline.children import Children
folder = Path(sys.argv[1])
children = Children(folder)
command = [sys.executable, "-c", "import time; time.sleep(600)"]
child = children.start("sleeper", command, folder / "log")
print(child.pid, flush=True)
time.sleep(600)
"""


def test_a_child_ends_when_its_parent_is_killed(tmp_path):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert started_at(child) is not None
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert wait_gone(child)
    Children(tmp_path).release()


def test_the_next_start_ends_what_is_left_and_no_stranger(tmp_path):
    left = subprocess.Popen(SLEEP)
    stranger = subprocess.Popen(SLEEP)
    try:
        started = started_at(stranger.pid)
        assert started is not None
        record = {"jvm": [left.pid, started_at(left.pid)], "server": [stranger.pid, started + 1]}
        (tmp_path / "children.json").write_text(json.dumps(record))
        Children(tmp_path).release()
        assert left.wait(timeout=10) == -signal.SIGKILL
        assert stranger.poll() is None
        assert json.loads((tmp_path / "children.json").read_text()) == {}
    finally:
        for process in (left, stranger):
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    "text", ["", "nonsense", "[1, 2]", '{"server": 5}', '{"server": ["a", "b"]}']
)
def test_a_broken_record_is_no_obstacle(tmp_path, text):
    (tmp_path / "children.json").write_text(text)
    Children(tmp_path).release()


def test_processes_that_are_not_there():
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    assert started_at(done.pid) is None
    end_process(done.pid, 5)
    assert started_at(os.getpid()) is not None


def test_a_command_that_is_not_there(tmp_path):
    children = Children(tmp_path)
    with pytest.raises(FileNotFoundError):
        children.start("server", ["/nowhere/pelton-server"], tmp_path / "log")
    children.release()
