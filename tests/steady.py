"""Runs the tests, and those few that failed once more alone: `make test` is this.

A test that fails beside others and passes alone says more about the machine than about the code, but
should be mended, too: it is named in the last line. The second run has the seed of the first one,
and its exit status counts. More failures than a few, or a run that did not come to its end, fail at
once.

What tests write goes to memory where there is room (unless TMPDIR says where): hundreds of servers that
sync a disk wait for it. Tests about a disk bring one that is simulated.

    python -m tests.steady [--jobs N] [options for pytest]

It is a plugin of pytest as well, which writes down what failed, and runs only what was written.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

FEW = 15  # of more than ten thousand tests, in processes that share two cores
MEMORY = Path("/dev/shm")
ROOM_BYTES = 6 << 30  # a whole run writes less
PYTEST = [sys.executable, "-m", "pytest", "-p", "tests.steady"]


# -- the plugin -----------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("steady")
    group.addoption(
        "--write-failed", type=Path, help="write the names of failed tests to this file"
    )
    group.addoption("--only-failed", type=Path, help="run the tests that are named in this file")


class Failures:
    """Writes what failed when a run has come to its end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.names[report.nodeid] = None
            print(
                f"\nfailed: {report.nodeid}", flush=True
            )  # the reasons come at the end of the run

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.names[report.nodeid] = None

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        stopped = session.shouldstop or session.shouldfail
        if not stopped:
            self.path.write_text(json.dumps([*self.names]))


class Chosen:
    """Leaves out all but the tests of a list."""

    def __init__(self, path: Path) -> None:
        self.names = set(json.loads(path.read_text()))
        self.files = {name.partition("::")[0] for name in self.names}

    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> bool | None:
        here = collection_path.relative_to(config.rootpath).as_posix()
        other = collection_path.suffix == ".py" and collection_path.name.startswith("test_")
        return True if other and here not in self.files else None

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        left_out = [item for item in items if item.nodeid not in self.names]
        items[:] = [item for item in items if item.nodeid in self.names]
        config.hook.pytest_deselected(items=left_out)


def pytest_configure(config: pytest.Config) -> None:
    if path := config.getoption("--write-failed"):
        config.pluginmanager.register(Failures(path))
    if path := config.getoption("--only-failed"):
        config.pluginmanager.register(Chosen(path))


# -- the command ----------------------------------------------------------------------------------


def has_room(memory: Path) -> bool:
    """Whether what tests write, programs among it, may go to a file system in memory."""
    try:
        there = os.statvfs(memory)
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return False
    kib = {
        name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines)
    }
    return (
        there.f_bavail * there.f_frsize >= ROOM_BYTES
        and kib.get("MemAvailable", 0) << 10 >= 2 * ROOM_BYTES  # the tests need some, too
        and not there.f_flag & os.ST_NOEXEC
        and os.access(memory, os.W_OK)
    )


@contextmanager
def scratch(memory: Path = MEMORY) -> Iterator[dict[str, str]]:
    """What to add to the environment: a folder in memory for what tests write, if there is room.

    A lock says that a run lives; what is left of one that was killed is removed by the next.
    """
    for left in memory.glob("pst-*"):
        with suppress(OSError), locked(left):
            shutil.rmtree(left, ignore_errors=True)
    if "TMPDIR" in os.environ or not has_room(memory):
        yield {}
        return
    folder = Path(tempfile.mkdtemp(prefix="pst-", dir=memory))  # short, as paths of sockets must be
    try:
        with locked(folder):
            # what a test that passed has written makes room for the next
            options = f"{os.environ.get('PYTEST_ADDOPTS', '')} -o tmp_path_retention_policy=failed"
            yield {"TMPDIR": str(folder), "PYTEST_ADDOPTS": options.strip()}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Within this the folder is locked; OSError when it is already."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(opened)


def run(jobs: int, arguments: list[str]) -> int:
    """Run the tests, a few failed ones again; the exit status."""
    with scratch() as more:
        return run_twice(jobs, arguments, {**os.environ, **more})


def run_twice(jobs: int, arguments: list[str], environment: dict[str, Any]) -> int:
    """Run the tests in an environment, a few failed ones again; the exit status."""
    if not environment.get("CI"):  # there it is always the same
        environment.setdefault("PELTON_SEED", str(random.SystemRandom().randrange(2**32)))
    shared = ["-p", "tests.sharing", "--jobs", str(jobs)] if jobs > 1 else []
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "failed.json"
        writing = f"--write-failed={written}"
        first = subprocess.run(
            [*PYTEST, writing, *shared, *arguments], env=environment, check=False
        )
        if first.returncode != pytest.ExitCode.TESTS_FAILED or not written.exists():
            return first.returncode
        failed = json.loads(written.read_text())
        if not 1 <= len(failed) <= FEW or not all("::" in name for name in failed):
            return first.returncode
        print(f"\n{len(failed)} failed beside others: once more, alone", flush=True)
        again = [one for one in arguments if not one.startswith(("--junitxml", "--junit-xml"))]
        still = Path(folder) / "still.json"
        only = [f"--only-failed={written}", f"--write-failed={still}"]
        second = subprocess.run([*PYTEST, *only, *again], env=environment, check=False)
        broken = set(json.loads(still.read_text()) if still.exists() else failed)
        if second.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            broken = set(failed)  # nothing was tried
    unsteady = [name for name in failed if name not in broken]
    if broken:
        print(f"FAILED twice: {', '.join(sorted(broken))}")
    if unsteady:
        print(f"UNSTEADY: failed beside others, passed alone: {', '.join(unsteady)}")
    return second.returncode


def main(arguments: list[str]) -> int:
    """The command line."""
    jobs = 1
    if arguments[:1] == ["--jobs"]:
        jobs, arguments = int(arguments[1]), arguments[2:]
    return run(jobs, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
