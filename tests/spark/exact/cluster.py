"""A standalone cluster on this machine: a master and two workers with one core each, as processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pyspark

from penstock.spark.java import ensure_java
from tests.peers import free_port
from tests.spark.exact.lives import ROOT, kill_session

_CLASSES = "org.apache.spark.deploy"
_START_SECONDS = 120.0


class Cluster:
    """Started by the constructor; `stop` ends it."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder / "cluster"
        self._folder.mkdir()
        self._started = 0
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
        except BaseException:
            self.stop()
            raise

    def _start(self, name: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        home = Path(pyspark.__file__).parent
        log = self._log(name.partition(".")[0])
        paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
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
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "PYSPARK_PYTHON": sys.executable,
                    "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                },
            )

    def _log(self, kind: str) -> Path:
        return self._folder / f"{kind}-{self._started}.log"

    def _wait(self, kind: str, line: bytes) -> None:
        log, end = self._log(kind), time.monotonic() + _START_SECONDS
        while line not in log.read_bytes():
            if time.monotonic() > end:
                raise TimeoutError(f"no {kind}: {log.read_text()[-2000:]}")
            time.sleep(0.1)

    def add_worker(self) -> None:
        """Another worker, once it is known to the master."""
        self._started += 1
        where = ["--host", "127.0.0.1", "--webui-port", str(free_port()), "-c", "1", "-m", "1g"]
        folder = str(self._folder / f"work-{self._started}")
        self._workers.append(self._start("worker.Worker", [*where, "-d", folder, self.url]))
        self._wait("worker", b"Successfully registered with master")

    def kill_worker(self, rng: Random) -> None:
        """End one worker with the executors and Python processes on it, and start another one."""
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
