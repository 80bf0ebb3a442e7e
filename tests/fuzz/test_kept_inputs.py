"""The kept inputs and the seeds of each target, on the normal build; then a short search on the instrumented one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.fuzz import build, corpus, targets
from tests.ways import length

# In `make test` a number of inputs ends the search (tests/fuzz/short.py); the seconds end what hangs.
SECONDS = int(os.environ.get("FUZZ_SECONDS") or length(600, 75))


@pytest.mark.parametrize("name", targets.names())
def test_kept_inputs_pass(name: str) -> None:
    target = targets.load(name)
    inputs = [*target.seeds(), *(path.read_bytes() for path in corpus.inputs(name))]
    assert inputs
    for data in inputs:
        target.run(data)
        assert len(data) <= 65536


def test_a_target_that_is_not_there_is_said_so() -> None:
    with pytest.raises(ValueError, match="wire"):
        targets.load("nothing")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(
    not (build.folder() / ".built").exists() and not os.environ.get("FUZZ"),
    reason="no core with AddressSanitizer: `make test` builds one, so does FUZZ=1",
)
def test_a_short_search_finds_nothing() -> None:
    """Each target for some inputs or seconds with coverage and AddressSanitizer; without atheris its inputs."""
    command = [sys.executable, "-m", "tests.fuzz", "smoke", "--seconds", str(SECONDS)]
    done = subprocess.run(
        command, cwd=build.ROOT, capture_output=True, text=True, errors="replace", check=False
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
