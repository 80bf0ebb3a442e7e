"""Run a job on other versions of Spark: ``python -m tests.spark.sparks VERSION...``, `make test-sparks`.

A version is that of the environment, or one of ``.venv/sparks``, which tools/get-sparks fetches. For
each, a server gets a stream, and ``program.py`` runs with that Spark: until it is killed amid its
first micro-batch, until it is killed amid a later one, and then to its end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from pelton.client.base.models import StreamConfig
from pelton.client.sync import connect
from tests.javas import SHORT_LIVED, UNCOMPILED
from tests.peers import start_server
from tests.spark.exact.lives import ROOT, kill_session
from tests.spark.sparks.program import PER_BATCH, subject_of

PLACE = ROOT / ".venv" / "sparks"
PROGRAM = Path(__file__).with_name("program.py")
COUNT = 600
KILLED_IN = (0, 4)
KILLED_SECONDS, ENDED_SECONDS = 180, 300
LINES = 60  # of a program that fails, shown


def find(version: str) -> tuple[str, Path | None] | None:
    """The whole version and the folder with it; no folder for that of the environment."""
    own = metadata.version("pyspark")
    if own.startswith(f"{version}."):
        return own, None
    infos = sorted((PLACE / version).glob("pyspark-*.dist-info"))
    return (infos[0].name[len("pyspark-") : -len(".dist-info")], PLACE / version) if infos else None


class Run:
    """One life of the program."""

    def __init__(self, place: Path | None, plan: dict[str, Any]) -> None:
        folder = Path(plan["folder"])
        file = folder / "plan.json"
        file.write_text(json.dumps(plan))
        environment = dict(os.environ)
        for name in ("SPARK_HOME", "PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
            environment.pop(name, None)
        if place is not None:
            environment["PYTHONPATH"] = str(place)
        environment["SPARK_SUBMIT_OPTS"] = " ".join([*SHORT_LIVED, *UNCOMPILED])
        self.log = folder / "log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(PROGRAM), str(file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=environment,
            )

    def kill(self) -> None:
        """End the program and all processes that it started."""
        kill_session(self.process.pid)
        self.process.wait()

    def fail(self, why: str) -> None:
        """Raise, with the end of what the program said."""
        said = self.log.read_text(errors="replace").splitlines()[-LINES:]
        raise AssertionError("\n".join([*said, why]))


def newest(folder: Path) -> int:
    """The newest batch of a folder of the checkpoint."""
    return max((int(path.name) for path in folder.glob("[0-9]*")), default=-1)


def run(version: str, place: Path | None, url: str, folder: Path) -> None:
    """Both runs on one version."""
    with connect(url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name="ORDERS", subjects=["orders.>"]))
        with js.publisher() as publisher:
            for seq in range(1, COUNT + 1):
                publisher.publish(subject_of(seq), b"%d" % seq, headers={"Seq": str(seq)})
    plan = {"url": url, "folder": str(folder), "version": version, "count": COUNT}
    for batch in KILLED_IN:
        kill_amid(
            batch, Run(place, {**plan, "first": batch == 0, "kill": True}), folder / "checkpoint"
        )
    last = Run(place, {**plan, "first": False, "kill": False})
    try:
        if last.process.wait(ENDED_SECONDS) != 0:
            last.fail("it failed")
    except subprocess.TimeoutExpired:
        last.fail(f"it was not over after {ENDED_SECONDS} seconds")
    finally:
        last.kill()


def kill_amid(batch: int, life: Run, checkpoint: Path) -> None:
    """Kill a life amid this batch, or a later one that is not the last."""
    deadline = time.monotonic() + KILLED_SECONDS
    try:
        while not batch - 1 <= newest(checkpoint / "commits") < newest(checkpoint / "offsets"):
            if life.process.poll() is not None or time.monotonic() > deadline:
                life.fail(f"it came to no batch {batch}")
            time.sleep(0.002)
    finally:
        life.kill()
    done = newest(checkpoint / "commits") + 1
    assert batch <= done < COUNT // PER_BATCH, f"killed after {done} batches"
    print(f"  killed in batch {done}", flush=True)


def main(versions: list[str]) -> int:
    """0 when no version failed; one that is not here does not fail."""
    failed = 0
    for version in versions:
        found = find(version)
        if found is None:
            print(f"Spark {version}: not here, not tested (make test-sparks fetches it)")
            continue
        begun = time.monotonic()
        print(f"Spark {found[0]}", flush=True)
        server = start_server("pelton")
        try:
            with tempfile.TemporaryDirectory(prefix="pelton-sparks-") as folder:
                try:
                    run(*found, server.url, Path(folder))
                finally:
                    for line in (Path(folder) / "log").read_text(errors="replace").splitlines():
                        if line.startswith("right: "):
                            print(f"  {line}")
            print(f"  passed in {time.monotonic() - begun:.0f} s", flush=True)
        except AssertionError as error:
            failed += 1
            print(f"{error}\nSpark {found[0]} failed", flush=True)
        finally:
            server.remove()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
