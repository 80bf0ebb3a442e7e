"""The lives of a job: started in a process group of its own, killed with all that is in it.

Spark's Python workers make themselves a process group each. They are in the same session, so they can
be killed as well, or be left alone for the moment they need to see that their JVM is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests import pythons

ROOT = Path(__file__).resolve().parents[3]


class Job:
    """One life of the job."""

    def __init__(self, folder: Path, number: int, master: str, steps: list[dict[str, Any]]) -> None:
        self.number = number
        plan = folder / f"life-{number}.json"
        paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        path = os.pathsep.join(filter(None, paths))
        settings = {"spark.executorEnv.PYTHONPATH": path, "spark.executor.memory": "512m"}
        plan.write_text(json.dumps({"master": master, "settings": settings, "steps": steps}))
        self.log = folder / f"life-{number}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.exact.job", str(plan)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=ROOT,
                env={**pythons.plain(os.environ), "PYTHONPATH": path},
            )
        self.started = time.monotonic()

    @property
    def status(self) -> int | None:
        """What it ended with; None while it lives."""
        return self._process.poll()

    def said(self, line: str) -> bool:
        """Whether it said this on a line of its own."""
        return f"\n{line}\n".encode() in b"\n" + self.log.read_bytes()

    def last_words(self) -> str:
        """The end of what it said."""
        return self.log.read_text(errors="replace")[-3000:]

    def kill(self, *, workers: bool = True) -> None:
        """End driver and JVM at once, and the Python workers with them or not."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        if workers:
            self.sweep()
        self._process.wait()

    def sweep(self) -> None:
        """End whatever is left of this life."""
        kill_session(self._process.pid)


def kill_session(session: int) -> None:
    """End all processes of a session."""
    for pid in _of_session(session):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _of_session(session: int) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            # pid (name) state parent group session ...; the name may hold anything
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                found.append(int(folder.name))
    return found
