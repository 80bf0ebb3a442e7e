"""The run that tries a few failed tests once more: what it says, and its exit status."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import steady
from tests.steady import has_room, scratch

ROOT = Path(__file__).parents[1]

# Fails unless it is alone: the file says that it was tried before.
UNSTEADY = """
import pathlib
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_unsteady(number):
    mark = pathlib.Path(__file__).with_name(f"tried-{{number}}")
    tried = mark.exists()
    mark.touch()
    assert tried
"""
FINE = "def test_fine(): pass\n"
BROKEN = "def test_broken(): assert False\n"
SEEDED = """
import os, pathlib

def test_seeded():
    mark = pathlib.Path(__file__).with_name("seeds")
    with mark.open("a") as seeds:
        seeds.write(os.environ["PELTON_SEED"] + "\\n")
    assert False
"""


def run(folder: Path, *options: str, **files: str) -> tuple[int, str]:
    """The exit status and what was said of a run over these files."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "tests.steady", *options, "-q", "-p", "no:cacheprovider"]
    # As a developer calls it, whatever calls this test.
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    kept = {key: value for key, value in kept.items() if key not in ("CI", "PELTON_SEED")}
    kept["PYTHONPATH"] = str(ROOT)
    kept["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # none is needed, and each run would import them
    made = subprocess.run(
        command, cwd=folder, env=kept, capture_output=True, text=True, check=False
    )
    return made.returncode, made.stdout + made.stderr


def last(said: str) -> str:
    return said.rstrip().splitlines()[-1]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_what_passes_alone_is_named_and_passes(tmp_path: Path, jobs: str) -> None:
    status, said = run(tmp_path, "--jobs", jobs, unsteady=UNSTEADY.format(count=2), fine=FINE)
    assert status == 0, said
    assert last(said).startswith("UNSTEADY: failed beside others, passed alone: ")
    assert "test_unsteady[0], test_unsteady.py::test_unsteady[1]" in last(said)
    assert "2 passed" in said  # the fine one ran once


def test_what_fails_twice_fails(tmp_path: Path) -> None:
    status, said = run(tmp_path, unsteady=UNSTEADY.format(count=1), broken=BROKEN)
    assert status == 1
    assert "FAILED twice: test_broken.py::test_broken\nUNSTEADY: " in said
    assert last(said).endswith("passed alone: test_unsteady.py::test_unsteady[0]")


def test_more_than_a_few_fail_at_once(tmp_path: Path) -> None:
    status, said = run(tmp_path, unsteady=UNSTEADY.format(count=16))
    assert status == 1
    assert "16 failed" in last(said)
    assert "alone" not in said


def test_when_all_pass_nothing_runs_again(tmp_path: Path) -> None:
    status, said = run(tmp_path, fine=FINE)
    assert status == 0
    assert "1 passed" in last(said)


def test_a_run_that_was_stopped_fails(tmp_path: Path) -> None:
    """What comes behind the failure was never tried."""
    status, said = run(tmp_path, "-x", unsteady=UNSTEADY.format(count=1), zebra=BROKEN)
    assert status == 1
    assert "alone" not in said


def test_a_file_that_cannot_be_imported_fails(tmp_path: Path) -> None:
    status, said = run(tmp_path, bad="import nothing_of_that_name\n", fine=FINE)
    assert status != 0
    assert "alone" not in said


def test_a_wrong_option_fails(tmp_path: Path) -> None:
    status, said = run(tmp_path, "--no-such-option", fine=FINE)
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "alone" not in said


def test_the_seed_stays(tmp_path: Path) -> None:
    status, _ = run(tmp_path, seeded=SEEDED)
    assert status == 1
    first, second = (tmp_path / "seeds").read_text().split()
    assert first == second


def test_what_tests_write_goes_to_memory_with_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(steady, "ROOM_BYTES", 1)
    left = tmp_path / "pst-killed"
    (left / "inside").mkdir(parents=True)
    with scratch(tmp_path) as more:
        folder = Path(more["TMPDIR"])
        assert folder.parent == tmp_path
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "store").write_text("x")
        with scratch(tmp_path) as other:  # another run
            assert other["TMPDIR"] != str(folder)
            assert not left.exists()
        assert [*tmp_path.iterdir()] == [folder]
        assert (folder / "store").exists()
    assert [*tmp_path.iterdir()] == []


def test_without_room_or_with_a_folder_named_it_goes_where_it_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steady, "ROOM_BYTES", 1 << 60)
    assert not has_room(tmp_path)
    assert not has_room(tmp_path / "nothing")
    monkeypatch.delenv("TMPDIR", raising=False)
    with scratch(tmp_path) as more:
        assert more == {}
    monkeypatch.setattr(steady, "ROOM_BYTES", 1)
    monkeypatch.setenv("TMPDIR", "/somewhere")
    with scratch(tmp_path) as more:
        assert more == {}
