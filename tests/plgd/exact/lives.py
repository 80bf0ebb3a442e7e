"""A run of ``pelton plgd run`` that is killed again and again: the driver, or a worker that works for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from tests import pythons

if TYPE_CHECKING:
    from tests.spark.exact.cluster import Cluster

COMMAND = [sys.executable, "-m", "pelton.cli"]
LIFE_SECONDS = 900.0


def parents() -> dict[int, tuple[int, str]]:
    """Parent and command line of every process."""
    found: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue  # it has ended meanwhile
        found[int(entry.name)] = int(stat[1]), line
    return found


def workers_of(driver: int) -> list[int]:
    """The processes in which Spark runs Python for a driver: those that its daemon forked."""
    known = parents()

    def is_below(pid: int) -> bool:
        while pid in known:
            if pid == driver:
                return True
            pid = known[pid][0]
        return False

    return sorted(
        pid
        for pid, (parent, line) in known.items()
        if "pyspark.daemon pyspark.worker" in line
        and "pyspark.daemon" in known.get(parent, (0, ""))[1]
        if is_below(pid)
    )


class Life:
    """One life of a run: its lines, and how it ended."""

    def __init__(self, words: list[str]) -> None:
        """Start it."""
        self.batches: list[dict[str, Any]] = []
        self.summary: dict[str, Any] | None = None
        self.child = subprocess.Popen(
            [*COMMAND, *words],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=pythons.plain(os.environ),
        )
        self.changed = threading.Condition()
        self.ended = False
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        """Take the lines as they come."""
        assert self.child.stdout is not None
        for line in self.child.stdout:
            told = json.loads(line)
            with self.changed:
                if told["event"] == "batch":
                    self.batches.append(told)
                else:
                    self.summary = told
                self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def wait_for_batches(self, count: int) -> bool:
        """Wait until it has told of some batches, or ended; whether it lives."""
        with self.changed:
            self.changed.wait_for(
                lambda: self.ended or len(self.batches) >= count, timeout=LIFE_SECONDS
            )
            return not self.ended

    def kill(self) -> None:
        """Kill the driver."""
        self.child.send_signal(signal.SIGKILL)
        self.child.wait()

    def kill_worker(self, rng: Random) -> bool:
        """Kill one of its workers; whether there was one."""
        workers = workers_of(self.child.pid)
        if not workers:
            return False
        os.kill(rng.choice(workers), signal.SIGKILL)
        return True

    def end(self) -> dict[str, Any]:
        """Wait for its end, which must be a good one; its summary."""
        status = self.child.wait(timeout=LIFE_SECONDS)
        assert status == 0, "it failed: see stderr"
        with self.changed:
            self.changed.wait_for(lambda: self.ended, timeout=LIFE_SECONDS)
        assert self.summary is not None
        return self.summary


def live(
    words: list[str],
    *,
    kills: int,
    rng: Random,
    cluster: Cluster | None = None,
) -> dict[str, int]:
    """Run a command to its end, and kill driver and workers by turns on the way; how often each was killed.

    With a cluster its workers are killed, with their executors and the processes of these.
    """
    killed = {"driver": 0, "worker": 0}
    life = Life(words)
    seen = 0
    for number in range(kills):
        seen += 1
        print(f"kill {number}: waiting for batch {seen}", flush=True)
        if not life.wait_for_batches(seen):
            break
        time.sleep(rng.uniform(0, 1.5))  # somewhere in the next batch
        if number % 2:
            if cluster is None:
                killed["worker"] += life.kill_worker(rng)
            else:
                cluster.kill_worker(rng)
                killed["worker"] += 1
        elif life.child.poll() is None:
            life.kill()
            killed["driver"] += 1
            life, seen = Life(words), 0
    life.end()
    return killed
