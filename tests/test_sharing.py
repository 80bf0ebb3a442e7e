"""The processes that share the tests: every test runs once, whatever a process does."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Appends a line to the file "ran" for each test, with the process that ran it.
NOTING = """
import os, pathlib, pytest

def note(what):
    with open("ran", "a") as ran:
        ran.write(f"{pathlib.Path(__file__).stem} {what} {os.getpid()}\\n")
"""
FOUR = NOTING + "@pytest.mark.parametrize('n', range(4))\ndef test_it(n): note(n)\n"


def environment() -> dict[str, str]:
    """As a developer calls it, whatever calls this test, without the plugins that are installed."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def command(*options: str) -> list[str]:
    shared = ["-p", "tests.sharing", "--jobs", "2", "-p", "no:cacheprovider"]
    return [sys.executable, "-m", "pytest", *shared, *options]


def run(folder: Path, *options: str, **files: str) -> tuple[int, str]:
    """The exit status and what was said of a run of two processes over these files."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    made = subprocess.run(
        command(*options),
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return made.returncode, made.stdout + made.stderr


def ran(folder: Path) -> list[list[str]]:
    return [line.split() for line in (folder / "ran").read_text().splitlines()]


def test_every_test_runs_once_and_a_file_in_one_process(tmp_path: Path) -> None:
    status, said = run(tmp_path, **{f"test_{number}": FOUR for number in range(5)})
    assert status == 0, said
    assert "20 passed" in said
    wanted = [(f"test_{file}", str(n)) for file in range(5) for n in range(4)]
    assert sorted((file, n) for file, n, _ in ran(tmp_path)) == wanted
    assert len({(file, process) for file, _, process in ran(tmp_path)}) == 5


def test_tests_are_collected_once(tmp_path: Path) -> None:
    status, said = run(
        tmp_path, test_a=NOTING + "note('import')\ndef test_it(): note('run')\n", test_b=FOUR
    )
    assert status == 0, said
    (importing,) = {process for _, what, process in ran(tmp_path) if what == "import"}
    assert importing not in {process for _, what, process in ran(tmp_path) if what != "import"}


def test_a_fixture_of_the_session_lives_from_file_to_file(tmp_path: Path) -> None:
    conftest = NOTING + "@pytest.fixture(scope='session')\ndef thing():\n    note('up')\n"
    conftest += "    yield\n    note('down')\n"
    using = NOTING + "def test_it(thing): note('run')\n"
    files = {f"test_{number}": using for number in range(6)}
    status, said = run(tmp_path, conftest=conftest, **files)
    assert status == 0, said
    for process in {process for _, _, process in ran(tmp_path)}:
        did = [what for _, what, by in ran(tmp_path) if by == process]
        assert (did[0], did[-1]) == ("up", "down")
        assert set(did[1:-1]) == {"run"}


@pytest.mark.parametrize(
    ("ending", "reason"),
    [("os._exit(3)", "exit status 3"), ("os.kill(os.getpid(), 9)", "killed by SIGKILL")],
)
def test_a_process_that_crashes_fails_its_test_alone(
    tmp_path: Path, ending: str, reason: str
) -> None:
    crashing = FOUR.replace("note(n)", f"n == 1 and {ending} or note(n)")
    status, said = run(tmp_path, test_a=crashing, test_b=FOUR, test_c=FOUR)
    assert status == 1
    assert "1 failed, 11 passed" in said
    assert f"the process of this test ended: {reason}" in said
    assert "test_a.py::test_it[1]" in said
    assert len(ran(tmp_path)) == 11


def test_a_crash_behind_the_last_test_fails(tmp_path: Path) -> None:
    conftest = "import os, pytest\n@pytest.fixture(scope='session')\ndef thing():\n"
    conftest += "    yield\n    os._exit(5)\n"
    status, said = run(tmp_path, conftest=conftest, test_a="def test_it(thing): pass\n")
    assert status == 1
    assert "exit status 5" in said


def test_failures_are_told_with_what_was_printed(tmp_path: Path) -> None:
    telling = "def test_it():\n    print('from the {name}')\n    assert 1 == {number}\n"
    status, said = run(
        tmp_path,
        test_a=telling.format(name="first", number=1),
        test_b=telling.format(name="second", number=2),
        test_c=telling.format(name="third", number=3),
    )
    assert status == 1
    assert "2 failed, 1 passed" in said
    assert "from the first" not in said
    for name, number in (("second", 2), ("third", 3)):
        (part,) = re.findall(rf"assert 1 == {number}.*?from the \w+", said, re.DOTALL)
        assert part.endswith(name)


def test_the_first_failure_ends_the_run_and_stops_fixtures(tmp_path: Path) -> None:
    conftest = NOTING + "@pytest.fixture(scope='session')\ndef thing():\n    note('up')\n"
    conftest += "    yield\n    note('down')\n"
    slow = NOTING + "import time\n@pytest.mark.parametrize('n', range(100))\n"
    slow += "def test_it(thing, n): time.sleep(0.1)\n"
    failing = "import time\ndef test_it(thing):\n    time.sleep(0.3)\n    assert False\n"
    status, said = run(tmp_path, "-x", conftest=conftest, test_a=slow, test_b=failing)
    assert status == 1
    assert "1 failed" in said
    assert sorted(what for _, what, _ in ran(tmp_path)) == ["down", "down", "up", "up"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import pytest\ndef test_it(): pytest.exit('enough of it')\n", "enough of it"),
        ("def test_it(): raise KeyboardInterrupt\n", "KeyboardInterrupt"),
    ],
)
def test_a_test_can_end_the_run(tmp_path: Path, text: str, reason: str) -> None:
    status, said = run(tmp_path, test_a=text, test_b="def test_it(): pass\n")
    assert status == pytest.ExitCode.INTERRUPTED
    assert reason in said


def test_a_file_that_cannot_be_collected_fails(tmp_path: Path) -> None:
    status, said = run(tmp_path, test_a="import nothing_of_that_name\n", test_b=FOUR)
    assert status == pytest.ExitCode.INTERRUPTED
    assert "1 error" in said
    assert not (tmp_path / "ran").exists()


def test_a_warning_is_told_once(tmp_path: Path) -> None:
    warning = "import warnings\nclass Odd(UserWarning): pass\n"
    warning += "warnings.warn('at {name}', Odd)\ndef test_it(): warnings.warn('in {name}', Odd)\n"
    status, said = run(
        tmp_path, test_a=warning.format(name="first"), test_b=warning.format(name="second")
    )
    assert status == 0
    assert "2 passed, 4 warnings" in said
    for text in ("at first", "in first", "at second", "in second"):
        assert f"Odd: {text}" in said


def test_processes_have_folders_of_their_own(tmp_path: Path) -> None:
    writing = NOTING + "def test_it(tmp_path): note(tmp_path)\n"
    base = tmp_path / "base"
    status, said = run(tmp_path, f"--basetemp={base}", test_a=writing, test_b=writing)
    assert status == 0, said
    folders = [(Path(folder), process) for _, folder, process in ran(tmp_path)]
    assert len({folder for folder, _ in folders}) == 2
    assert [f.relative_to(base).parts[0] for f, _ in folders] == [f"p{pid}" for _, pid in folders]


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_processes_end_with_the_first_one(tmp_path: Path, stop: signal.Signals) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    text = NOTING + "import time\n@pytest.mark.parametrize('n', range(1000))\n"
    text += "def test_it(n):\n    note(n)\n    time.sleep(0.1)\n"
    for name in ("a", "b"):
        (tmp_path / f"test_{name}.py").write_text(text)
    with subprocess.Popen(
        command(),
        cwd=tmp_path,
        env=environment(),
        stdout=-3,
        # A shell that runs the tests in the background ignores it, and its children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as first:
        await_text(tmp_path / "ran", lines=4)
        first.send_signal(stop)
        first.wait(60)
    processes = {int(process) for *_, process in ran(tmp_path)}
    assert len(processes) == 2
    until = time.monotonic() + 60
    while any(Path(f"/proc/{process}").exists() for process in processes):
        assert time.monotonic() < until, "they live on"
        time.sleep(0.05)


def await_text(path: Path, *, lines: int) -> None:
    until = time.monotonic() + 60
    while not path.exists() or len(path.read_text().splitlines()) < lines:
        assert time.monotonic() < until
        time.sleep(0.05)
