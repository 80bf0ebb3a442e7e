"""Imports Pelton once, and makes a copy of itself for each server or command that is asked for.

A request comes over a socket, with the three files of the new process. There are two kinds:

========  ==================================================================================================
child     the copy is a child of the process of tests, as if that had started it. The answer is its pid
guest     the copy is a child of this process. The answer is its exit status, when it ends; what comes before
          are numbers of signals to send. When the connection closes before, the copy is killed
========  ==================================================================================================

Started once by each process of tests, with whose end it ends. Nothing that is imported may start a thread.

    python serve.py SOCKET OWNER [libraries]
"""

from __future__ import annotations

import array
import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import marshal
import os
import pkgutil
import platform
import runpy
import select
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass
from typing import NoReturn

PACKAGES = (
    "pelton.api",
    "pelton.apply",
    "pelton.cli",
    "pelton.client",
    "pelton.core",
    "pelton.embedded",
    "pelton.engine",
    "pelton.server",
    "pelton.store",
)
SKIPPED = ("pelton.cli.parquet", "pelton.cli.plgd.", "pelton.cli.sql.")  # large libraries
LIBRARIES = ("asyncio", "uvloop", "websockets", "prometheus_client", "bcrypt", "yaml")
LARGE_PACKAGES = ("pelton.pipeline", "pelton.plgd", "pelton.spark", "pelton.sql")
LARGE_LIBRARIES = (
    "deltalake",
    "duckdb",
    "pandas",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "pyspark.sql.datasource",
    "rich.live",
    "rich.table",
)
NEVER = ("pelton.plgd.gateway", "pelton.cli.plgd.gateway")  # gRPC, of which there are no copies
LOOK_EVERY_S = 1.0
CLONE = {"x86_64": 56, "aarch64": 220}
"""The number of the system call, by machine."""
CLONE_PARENT = 0x8000
PYTHON = ctypes.PyDLL(None)


@dataclass
class Request:
    """What a new process is to be."""

    kind: str
    program: str
    """A module, or a file."""
    arguments: list[str]
    environment: dict[str, str]
    folder: str
    session: bool
    """Whether it has a session of its own."""
    terminal: bool
    """Whether its three files are a terminal that is to be its own."""
    files: array.array[int]


def received(connection: socket.socket) -> Request:
    """The request of a connection; EOFError when its sender is gone."""
    head, rights, _, _ = connection.recvmsg(4, socket.CMSG_SPACE(12))
    if len(head) < 4 or not rights:
        raise EOFError
    files = array.array("i")
    files.frombytes(rights[0][2])
    size, data = int.from_bytes(head, "big"), b""
    while len(data) < size:
        if not (more := connection.recv(size - len(data))):
            raise EOFError
        data += more
    return Request(*marshal.loads(data), files)


# -- copies ---------------------------------------------------------------------------------------


def _tid() -> ctypes.c_int:
    """Where the C library keeps the number of this thread: a raw clone does not renew it."""
    PYTHON.pthread_self.restype = ctypes.c_void_p
    block = PYTHON.pthread_self()
    words = (ctypes.c_int * 512).from_address(block)
    return ctypes.c_int.from_address(block + 4 * list(words).index(os.getpid()))


TID = _tid()


def sibling() -> int:
    """`os.fork`, but the new process is a child of this process's parent."""
    PYTHON.PyOS_BeforeFork()
    pid = PYTHON.syscall(CLONE[platform.machine()], CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        TID.value = PYTHON.getpid()
        PYTHON.PyOS_AfterFork_Child()
        return 0
    PYTHON.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError("the kernel makes no process beside this one")
    return pid


def become(request: Request) -> None:
    """Take the files, the environment and the folder of a request, as if started with them."""
    if request.terminal:
        os.login_tty(request.files[0])
    else:
        if request.session:
            os.setsid()
        for number, file in enumerate(request.files):
            os.dup2(file, number)
    for file in {*request.files} - {0, 1, 2}:
        with contextlib.suppress(OSError):  # login_tty closes it
            os.close(file)
    os.environ.clear()
    os.environ.update(request.environment)
    time.tzset()
    os.chdir(request.folder)
    sys.path.insert(0, request.folder)
    sys.argv[:] = [request.program, *request.arguments]
    sys.orig_argv[:] = [sys.executable, "-m", *sys.argv]
    sys.modules.pop(f"{request.program}.__main__", None)  # it runs anew
    reopen()


def carried_out(request: Request) -> int:
    """Run the module; the exit status, as Python has it."""
    try:
        if request.program.endswith(".py"):
            runpy.run_path(request.program, run_name="__main__")
        else:
            runpy.run_module(request.program, run_name="__main__", alter_sys=True)
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        print(stop.code, file=sys.stderr)
        return 1
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        return 1
    return 0


def end(status: int) -> NoReturn:
    """End as Python does, but leave what is imported where it is: most of its pages are the copy's alone then."""
    threading._shutdown()  # type: ignore[attr-defined]  # has no public name
    atexit._run_exitfuncs()
    for file in (sys.stdout, sys.stderr):
        try:
            if file is not None and not file.closed:
                file.flush()
        except Exception as error:
            status = 120
            if file is sys.stdout:
                text = f"Exception ignored in: {file!r}\n{type(error).__name__}: {error}\n"
                os.write(2, text.encode())
    os._exit(status & 255)


def reopen() -> None:
    """Have Python look at its three files anew: what a terminal gets is not held back."""
    plain = bool(os.environ.get("PYTHONUNBUFFERED"))
    given = io.FileIO(0, "r", closefd=False)
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(  # type: ignore[misc]  # as Python does
        io.BufferedReader(given), sys.stdin.encoding, sys.stdin.errors
    )
    for name, number in (("stdout", 1), ("stderr", 2)):
        old, raw = getattr(sys, name), io.FileIO(number, "w", closefd=False)
        raw.name = f"<{name}>"  # type: ignore[misc]  # as Python does
        new = io.TextIOWrapper(
            raw if plain else io.BufferedWriter(raw),  # type: ignore[arg-type]  # write_through
            old.encoding,
            old.errors,
            newline="\n",
            line_buffering=number == 2 or raw.isatty(),
            write_through=plain,
        )
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


# -- the process that makes them ------------------------------------------------------------------


@dataclass
class Guest:
    """A copy that a connection waits for."""

    connection: socket.socket
    pid: int
    ended: int


class Server:
    """Takes requests, and tells of the guests that end."""

    def __init__(self, path: str, owner: int) -> None:
        """Listens only now that all is imported: who connects is answered at once."""
        self.owner = owner
        self.guests: list[Guest] = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(f"{path}.new")
        self.listener.listen(128)
        os.rename(f"{path}.new", path)

    def run(self) -> Request | None:
        """The request that a copy is to carry out; None here, when the owner has ended."""
        while os.getppid() == self.owner:
            waited = [self.listener.fileno()]
            for guest in self.guests:
                waited += [guest.connection.fileno(), guest.ended]
            ready = set(select.select(waited, [], [], LOOK_EVERY_S)[0])
            if self.listener.fileno() in ready and (request := self.begin()) is not None:
                return request
            for guest in list(self.guests):
                if guest.ended in ready:
                    self.bury(guest)
                elif guest.connection.fileno() in ready:
                    self.hear(guest)
        for guest in self.guests:
            os.kill(guest.pid, signal.SIGKILL)
        return None

    def begin(self) -> Request | None:
        """Make the copy that a connection asks for; what it asks for, in the copy."""
        connection, _ = self.listener.accept()
        try:
            request = received(connection)
        except (EOFError, OSError, ValueError):  # killed while it asked
            connection.close()
            return None
        pid = sibling() if request.kind == "child" else os.fork()
        if pid == 0:
            self.close()
            connection.close()
            return request
        for file in request.files:
            os.close(file)
        if request.kind == "child":
            with contextlib.suppress(OSError):
                connection.send(pid.to_bytes(4, "big"))
            connection.close()
        else:
            self.guests.append(Guest(connection, pid, os.pidfd_open(pid)))
        return None

    def close(self) -> None:
        """Close all that a copy has no part in."""
        self.listener.close()
        for guest in self.guests:
            guest.connection.close()
            os.close(guest.ended)

    def hear(self, guest: Guest) -> None:
        """Send a guest the signals that are asked for, or kill it when nobody waits for it."""
        try:
            said = guest.connection.recv(64)
        except OSError:
            said = b""
        for number in said or [signal.SIGKILL]:
            os.kill(guest.pid, number)
        if not said:
            self.bury(guest)

    def bury(self, guest: Guest) -> None:
        """Tell how a guest has ended."""
        self.guests.remove(guest)
        code = os.waitstatus_to_exitcode(os.waitpid(guest.pid, 0)[1])
        with contextlib.suppress(OSError):
            guest.connection.send(code.to_bytes(2, "big", signed=True))
        guest.connection.close()
        os.close(guest.ended)


def load(*, large: bool) -> None:
    """Import what servers and commands import, but for the modules that are run; `large`: what those import, too,
    that work with Arrow, DuckDB and Spark.
    """
    for name in LIBRARIES + LARGE_LIBRARIES * large:
        importlib.import_module(name)
    skipped = NEVER if large else SKIPPED
    for package in PACKAGES + LARGE_PACKAGES * large:
        folder = importlib.import_module(package).__path__
        for found in pkgutil.walk_packages(folder, f"{package}."):
            if not found.name.endswith("__main__") and not found.name.startswith(skipped):
                importlib.import_module(found.name)
    assert threading.active_count() == len(os.listdir("/proc/self/task")) == 1
    gc.collect()
    gc.freeze()


def main() -> None:
    path, owner, *large = sys.argv[1:]
    del sys.path[0]  # this folder
    load(large=bool(large))
    request = Server(path, int(owner)).run()
    if request is not None:
        become(request)
        end(carried_out(request))


if __name__ == "__main__":
    main()
