"""Servers and commands for tests: copies of a process that has imported them.

``python -m pelton.server`` and ``python -m pelton.cli`` work for 0.2 to 0.4 s before they do
anything, most of it imports, and the tests start thousands. Here a process of tests has one child that
has imported them, `serve.py`, which makes copies of itself::

    test ── module, environment, folder, files ──► serve.py ── clone ──► the server or command
      └───────── waits for it and signals it: it is a child of the test's process ──┘

Commands that work with Arrow, DuckDB and Spark are copies of a second child, which has imported these, too: it
starts when the first of them is asked for.

`Popen` and `run` take what those of `subprocess` take. What a copy could not do as the plain program
does is started plainly: with other options of Python or of the loader in the environment, or with
something to do before the start. So is everything with PELTON_FULL=1; tests of a start say
``subprocess``.

A page of the documentation is typed into a shell: `programs` is a folder for its PATH, with `ask.py`
under the names of the programs. Each of these processes lives as long as its copy.
"""

from __future__ import annotations

import atexit
import inspect
import marshal
import os
import platform
import pty
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Mapping, MutableMapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FOLDER = "PELTON_TEST_COPIES"
"""The variable that names the folder of the sockets, for all processes of a run."""

INTERPRETER = str(HERE / "interpreter.py")
MODULES = ("pelton.server", "pelton.cli")
LARGE = frozenset(("pipeline", "plgd", "run", "spark", "sql"))
"""Commands that import Arrow, DuckDB or Spark, which takes 0.2 s and more. A copy of a process that has them takes
20 ms longer than one without, so the others are no copies of it.
"""
NO_THREADS = {  # NumPy's, and those of the allocators of Arrow and Delta: a copy has none of them
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "_RJEM_MALLOC_CONF": "background_thread:false",
}
PROGRAMS = {"pelton": "pelton.cli", "pelton-server": "pelton.server"}
OPTIONS = frozenset(
    ("stdin", "stdout", "stderr", "env", "cwd", "text", "encoding", "errors", "start_new_session")
)
# What Python and the loader look at before any module of ours, but for what a copy heeds.
EARLY = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_", "ASAN_", "UBSAN_")
HEEDED = ("PYTHONUNBUFFERED",)
MACHINES = ("x86_64", "aarch64")
FOLDER_MAX = 80  # with the rest, a path of a socket
PATIENCE_S = 60.0
_STARTED = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]  # has no public name


_begun: dict[str, str] = {}  # before any test changes it


def tell(environment: MutableMapping[str, str]) -> None:
    """Begin, with the environment that the run has: the sockets of all its processes are in one folder,
    which goes with the run.
    """
    if FOLDER not in environment:
        folder = tempfile.mkdtemp(prefix="pelton-copies-")
        atexit.register(_remove, folder, os.getpid())
        environment[FOLDER] = folder
    if len(environment[FOLDER]) < FOLDER_MAX:
        _begun.update(environment)


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # and not in a copy of it
        shutil.rmtree(folder, ignore_errors=True)


# -- the process that makes copies ----------------------------------------------------------------


class Origin:
    """The child of this process that has imported all."""

    def __init__(self, *, large: bool) -> None:
        self.owner = os.getpid()
        self.folder = Path(os.environ[FOLDER]) / f"{self.owner}{'l' * large}"
        self.folder.mkdir(mode=0o700)
        self.socket = self.folder / "socket"
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / "serve.py"), str(self.socket), str(self.owner)]
                + ["libraries"] * large,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_begun | NO_THREADS,
            )

    @cached_property
    def works(self) -> bool:
        """Whether this machine's kernel makes copies; some that only look like Linux don't."""
        with open(os.devnull, "r+b") as nothing:
            files = [nothing.fileno()] * 3
            try:
                pid = self.child([INTERPRETER], files, environment=_begun, folder="/")
                return os.waitpid(pid, 0)[1] == 0
            except (OSError, RuntimeError) as problem:
                warnings.warn(f"tests start slower: {problem}", stacklevel=2)
                return False

    def connect(self) -> socket.socket:
        """A connection to it, as soon as it has imported all. RuntimeError when it has ended."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(str(self.socket))
            except OSError:
                connection.close()
            else:
                return connection
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no copies: {(self.folder / 'log').read_text()}")
            time.sleep(0.02)

    def child(
        self,
        words: Sequence[str],
        files: Sequence[int],
        *,
        environment: Mapping[str, str],
        folder: str,
        session: bool = False,
        terminal: bool = False,
    ) -> int:
        """Make a copy that runs these words; its pid."""
        program, *arguments = words
        asked = ("child", program, arguments, dict(environment), folder, session, terminal)
        data = marshal.dumps(asked)
        with self.connect() as connection:
            socket.send_fds(connection, [len(data).to_bytes(4, "big")], list(files))
            connection.sendall(data)
            pid = int.from_bytes(connection.recv(4), "big")  # of nothing, when it has ended
        if not pid:
            raise RuntimeError(f"no copy: {(self.folder / 'log').read_text()}")
        return pid


_origins: dict[tuple[int, bool], Origin] = {}  # by the process that has it: a forked one has none
_starting = threading.Lock()


def origin(words: Sequence[str] = ()) -> Origin:
    """The one of this process for such a command; started when it is first asked for."""
    large = words[:1] == ["pelton.cli"] and not LARGE.isdisjoint(words)
    with _starting:
        key = (os.getpid(), large)
        if key not in _origins:
            _origins[key] = Origin(large=large)
        return _origins[key]


def early(environment: Mapping[str, str]) -> dict[str, str]:
    """What decides how Python starts."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(EARLY) and name not in HEEDED
    }


def words_of(command: object) -> list[str]:
    """The module or file and the arguments of a command that a copy can be; none for another command."""
    if not isinstance(command, list | tuple) or not all(isinstance(each, str) for each in command):
        return []
    match list(command):
        case [sys.executable, "-m", *words] if words and words[0] in MODULES:
            return words
        case [sys.executable, *words] if words == [INTERPRETER]:
            return words
    return []


def may_copy(environment: Mapping[str, str]) -> bool:
    """Whether a copy is what a plain start with this environment would be."""
    alike = bool(_begun) and early(environment) == early(_begun)
    return alike and platform.machine() in MACHINES and origin().works


# -- for tests ------------------------------------------------------------------------------------


class Popen(subprocess.Popen[Any]):
    """`subprocess.Popen`, which has copies made of Pelton's programs."""

    def __init__(self, command: Any, **options: Any) -> None:
        given = {name for name, value in options.items() if value is not None}
        words = words_of(command) if given <= OPTIONS else []
        environment = options.get("env")
        self._environment = dict(os.environ if environment is None else environment)
        self._words = words if words and may_copy(self._environment) else []
        super().__init__(command, **options)

    def _execute_child(self, *given: Any) -> None:
        if not self._words:
            super()._execute_child(*given)  # type: ignore[misc]  # has no public name
            return
        named = _STARTED.bind(self, *given).arguments
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        files = [named[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        try:
            self.pid = origin(self._words).child(
                self._words,
                [number if file == -1 else file for number, file in enumerate(files)],
                environment=self._environment,
                folder=os.path.abspath(named["cwd"] or os.getcwd()),
                session=named["start_new_session"],
            )
            self._child_created = True
        finally:
            self._close_pipe_fds(*(named[name] for name in ends))  # type: ignore[attr-defined]  # as above


def run(
    command: Any,
    *,
    input: Any = None,  # noqa: A002  # as subprocess.run has it
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """`subprocess.run`, with a copy where the command is a program of ours."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if capture_output:
        options["stdout"] = options["stderr"] = subprocess.PIPE
    with Popen(command, **options) as process:
        try:
            out, err = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def at_terminal(command: list[str], environment: Mapping[str, str]) -> tuple[int, int]:
    """Start a command at a terminal of its own, as `pty.fork` does: its pid, and our end of the terminal."""
    words = words_of(command)
    if words and may_copy(environment):
        ours, theirs = pty.openpty()
        try:
            files = [theirs, theirs, theirs]
            pid = origin(words).child(
                words, files, environment=environment, folder=os.getcwd(), terminal=True
            )
        finally:
            os.close(theirs)
        return pid, ours
    pid, ours = pty.fork()
    if pid == 0:
        os.execve(command[0], command, environment)
    return pid, ours


def programs() -> str | None:
    """A folder with programs for a PATH, which become copies; None where there are none."""
    if not may_copy(os.environ):
        return None
    folder = origin().folder / "bin"
    if not folder.exists():
        folder.mkdir()
        origin().connect().close()  # ask.py does not wait until it listens
        words = [sys.executable, "-SEI", str(HERE / "ask.py"), str(origin().socket)]
        for name, module in PROGRAMS.items():
            program = folder / name
            program.write_text(f'#!/bin/sh\nexec {shlex.join([*words, module])} "$@"\n')
            program.chmod(0o755)
    return str(folder)
