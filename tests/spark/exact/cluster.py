"""A standalone cluster on this machine: a master and two workers with one core each, as processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

import pyspark

from pelton.spark.java import ensure_java
from tests.peers import free_port
from tests.spark.exact.lives import ROOT, kill_session

_CLASSES = "org.apache.spark.deploy"
_START_SECONDS = 120.0


class Cluster:
    """Started by the constructor; `stop` ends it. Its Python processes find what is in `paths`, and
    have `environment` over that of this process. Workers are on `hosts` in turn: Spark believes that
    other addresses of the loopback are other machines.
    """

    def __init__(
        self,
        folder: Path,
        workers: int = 2,
        *,
        hosts: Sequence[str] = ("127.0.0.1",),
        paths: Sequence[Path] = (ROOT, ROOT / "src"),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        inherited = os.environ.get("PYTHONPATH", "") if paths else ""
        self._environment = {
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(filter(None, [*map(str, paths), inherited])),
            **(environment or {}),
        }
        self._folder = folder / "cluster"
        self._folder.mkdir()
        self._hosts = hosts
        self._started = 0
        self._registering = 0
        """The newest worker that nobody has seen registered yet; 0 when there is none."""
        self._workers: list[subprocess.Popen[bytes]] = []
        ensure_java()
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        where = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port())]
        self._master = self._start("master.Master", where)
        try:
            self._wait("master", b"New state: ALIVE")
            for _ in range(workers):
                self.add_worker()
                self.await_workers()
        except BaseException:
            self.stop()
            raise

    def _start(
        self, name: str, arguments: list[str], host: str = "127.0.0.1"
    ) -> subprocess.Popen[bytes]:
        home = Path(pyspark.__file__).parent
        log = self._log(name.partition(".")[0], self._started)
        with log.open("ab") as output:
            return subprocess.Popen(
                [str(home / "bin" / "spark-class"), f"{_CLASSES}.{name}", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={
                    **os.environ,
                    "SPARK_HOME": str(home),
                    "SPARK_LOCAL_IP": host,
                    **self._environment,
                },
            )

    def _log(self, kind: str, number: int) -> Path:
        return self._folder / f"{kind}-{number}.log"

    def _wait(self, kind: str, line: bytes, number: int = 0) -> None:
        log, end = self._log(kind, number), time.monotonic() + _START_SECONDS
        while line not in log.read_bytes():
            if time.monotonic() > end:
                raise TimeoutError(f"no {kind}: {log.read_text()[-2000:]}")
            time.sleep(0.1)

    def add_worker(self) -> None:
        """Start another worker; the master hears of it a few seconds later."""
        host = self._hosts[self._started % len(self._hosts)]
        self._started += 1
        where = ["--host", host, "--webui-port", str(free_port()), "-c", "1", "-m", "1g"]
        folder = str(self._folder / f"work-{self._started}")
        arguments = [*where, "-d", folder, self.url]
        self._workers.append(self._start("worker.Worker", arguments, host))
        self._registering = self._started

    def await_workers(self) -> None:
        """Until the master knows all workers."""
        if self._registering:
            self._wait("worker", b"Successfully registered with master", self._registering)
            self._registering = 0

    def kill_worker(self, rng: Random) -> None:
        """End one worker with the executors and Python processes on it, and start another one.

        What runs goes on with the others meanwhile, and may be killed at once; never are all of them
        gone.
        """
        self.await_workers()
        victim = self._workers.pop(rng.randrange(len(self._workers)))
        _end(victim)
        self.add_worker()

    def stop(self) -> None:
        """End everything."""
        for process in [*self._workers, self._master]:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    kill_session(process.pid)
    process.wait()
