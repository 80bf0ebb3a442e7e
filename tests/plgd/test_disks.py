"""A disk that is full or read-only stops a batch with its reason; when there is room the same batch goes in, once.

The disk is a small tmpfs in a mount namespace of its own, where the system gives one to a user.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NAMESPACE = ["unshare", "--map-root-user", "--mount"]
pytestmark = pytest.mark.timeout(180)


def is_permitted(folder: Path) -> bool:
    try:
        trial = [*NAMESPACE, "mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)]
        return subprocess.run(trial, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def tried(folder: Path, kind: str) -> dict[str, Any]:
    """What the job tells."""
    if not is_permitted(folder):
        pytest.skip("no mount namespace of one's own here")
    command = [*NAMESPACE, sys.executable, "-m", "tests.plgd.disk_job", str(folder), kind]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            told |= json.loads(line)
    return told


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_full_disk_stops_a_batch_and_loses_nothing(tmp_path: Path, kind: str) -> None:
    told = tried(tmp_path, kind)
    assert told["full"]
    for said in told["full"]:
        assert said.startswith("TableError: cannot ")
        # Iceberg's catalog is a file of SQLite, which has words of its own
        assert "No space left on device" in said or "database or disk is full" in said
    assert told["other"] == []
    if kind == "delta":
        assert told["read-only"].startswith("TableError: cannot write")
        assert "Read-only file system" in told["read-only"]
        [found, wanted] = told["rows"]
        assert found == wanted == told["opened"]
