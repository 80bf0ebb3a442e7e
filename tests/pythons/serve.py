"""Imports what Spark's Python processes need once, and forks a process for each that is asked for.

Of Pelton it imports the modules that formats need. Arrow's allocator has the only threads, and knows of
forks.
"""

import array
import contextlib
import gc
import importlib
import marshal
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
import time
import warnings
from pathlib import Path

LIBRARIES = (
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "pandas",
    "deltalake",
    "msgspec",
)
PACKAGES = (
    "pelton.client.sync",
    "pelton.plgd.spark",
    "pelton.plgd.tables",
    "pelton.spark.buckets",
    "pelton.spark.delta",
    "pelton.spark.iceberg",
    "pelton.spark.reading",
    "pelton.spark.tables",
    "pelton.spark.writing",
)
NEED_NOT_BE_THERE = ("pyiceberg", "sqlalchemy")  # each process of a query imports them for 0.8 s
LOOK_EVERY_S = 1.0


class Server:
    """Takes requests, and passes on how the processes end."""

    def __init__(self, path, owner):
        """Listens only now that the libraries are there: who connects is answered at once."""
        self.owner = owner
        self.workers = {}  # the connection that asked: the process
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path + ".new")
        self.listener.listen(128)
        os.rename(path + ".new", path)
        self.bell, ring = socket.socketpair()
        for end in (self.bell, ring):
            end.setblocking(False)
        self.ring = ring
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(ring.fileno())

    def run(self):
        """Until the run of the tests is over; all processes end then."""
        while self.owner_lives():
            waited = [self.listener, self.bell, *self.workers]
            for ready in select.select(waited, [], [], LOOK_EVERY_S)[0]:
                if ready is self.listener:
                    self.begin(self.listener.accept()[0])
                elif ready is self.bell:
                    with contextlib.suppress(BlockingIOError):
                        self.bell.recv(4096)
                elif ready in self.workers:
                    self.hear(ready)
            self.bury()
        for pid in self.workers.values():
            os.kill(pid, signal.SIGKILL)

    def owner_lives(self):
        """Whether the process that began the run is there."""
        try:
            stat = Path(f"/proc/{self.owner}/stat").read_text()
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[0] not in "ZX"

    def begin(self, connection):
        """Fork the process that a connection asks for."""
        try:
            words, environment, folder, pipes = asked(connection)
        except (EOFError, OSError, ValueError):  # killed while it asked
            connection.close()
            return
        pid = os.fork()
        if not pid:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in (self.listener, self.bell, self.ring, connection, *self.workers):
                each.close()
            become(words, environment, folder, pipes)
        for pipe in pipes:
            os.close(pipe)
        self.workers[connection] = pid

    def hear(self, connection):
        """End the process of one that was told to end, or that is gone."""
        try:
            said = connection.recv(1)
        except OSError:
            said = b""
        os.kill(self.workers[connection], signal.SIGTERM if said else signal.SIGKILL)
        if not said:
            os.waitpid(self.workers.pop(connection), 0)
            connection.close()

    def bury(self):
        """Tell of the processes that have ended."""
        for connection, pid in list(self.workers.items()):
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            del self.workers[connection]
            with contextlib.suppress(OSError):
                connection.send(code.to_bytes(2, "big", signed=True))
            connection.close()


def asked(connection):
    """What a connection asks for: the words behind ``-m``, the environment, the folder, three pipes."""
    head, rights, _, _ = connection.recvmsg(4, socket.CMSG_SPACE(12))
    if len(head) < 4 or not rights:
        raise EOFError
    pipes = array.array("i")
    pipes.frombytes(rights[0][2])
    size, data = int.from_bytes(head, "big"), b""
    while len(data) < size:
        if not (more := connection.recv(size - len(data))):
            raise EOFError
        data += more
    return *marshal.loads(data), pipes


def become(words, environment, folder, pipes):
    """Be the Python that was asked for: ``python -m`` and the words. Does not return."""
    for number, pipe in enumerate(pipes):
        os.dup2(pipe, number)
        os.close(pipe)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(folder)
    sys.stdout.reconfigure(write_through=True)
    given = [entry for entry in environment.get("PYTHONPATH", "").split(":") if entry]
    archives = ("/python/lib/pyspark.zip", "-src.zip")  # PySpark is installed
    sys.path[:0] = [folder, *(entry for entry in given if not entry.endswith(archives))]
    sys.argv[:] = words
    sys.modules["numpy"].random.seed()
    # the module is imported already
    warnings.filterwarnings("ignore", category=RuntimeWarning, module="runpy")
    code = 0
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code & 255)


def main():
    path, owner = sys.argv[1:]
    del sys.path[0]  # this folder
    for name in LIBRARIES:
        importlib.import_module(name)
    with contextlib.suppress(ImportError):
        importlib.import_module("pyiceberg.catalog.sql")
    for name in PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            try:
                importlib.import_module(module.name)
            except ImportError as missing:
                if missing.name is None or missing.name.split(".")[0] not in NEED_NOT_BE_THERE:
                    raise
    gc.collect()
    gc.freeze()
    Server(path, int(owner)).run()


main()
