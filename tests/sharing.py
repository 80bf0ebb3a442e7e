"""Shares the tests of a run among processes, forked when all tests are collected.

Collecting ten thousand tests takes 10 s of processor time and 400 MB. It is done once: what was
collected is there in each forked process. A process gets whole files, in the order of
`tests/schedule.py`, and asks for the next file before the last test of one, so that fixtures which
live longer than a file stay::

    first process                      each of the others
      collects, forks                    asks for a file
      gives files      <-- (ask) --      runs its tests
      logs reports     <-- reports --
      forks again when one has crashed

Nothing that a test needs may start threads while it is imported: a forked process has none of them.

    python -m pytest -p tests.sharing --jobs 6
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tests import schedule
from tests.work import Meter

LONG_S = 0.5  # of tests that take longer, and of each file, the work is told exactly
GRACE_S = 20  # for fixtures of a process to stop their servers, when a run ends early


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("sharing")
    group.addoption("--jobs", type=int, default=1, help="how many processes share the tests")


def pytest_configure(config: pytest.Config) -> None:
    schedule.measure(config)
    option = config.option
    if option.jobs > 1 and not (option.collectonly or option.usepdb):
        config.pluginmanager.register(Sharing(config))


# -- the process that collects --------------------------------------------------------------------


class Worker:
    """A forked process, as the first one sees it."""

    def __init__(self, pid: int, connection: Connection) -> None:
        self.pid = pid
        self.connection = connection
        self.ended = os.pidfd_open(pid)
        self.given: deque[int] = deque()  # tests, by number, that have no reports yet
        self.running: int | None = None
        self.last: int | None = None

    def status(self) -> int:
        """Wait for its end; what it ended with, as `os.waitpid` says it."""
        _, status = os.waitpid(self.pid, 0)
        os.close(self.ended)
        self.connection.close()
        return status


class Sharing:
    """Gives files to processes and logs what they report."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.workers: list[Worker] = []
        self.files = schedule.Files()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.session = session
        if session.testsfailed and not self.config.option.continue_on_collection_errors:
            raise session.Interrupted(f"{session.testsfailed} errors during collection")
        numbers: dict[str, list[int]] = {}
        for number, item in enumerate(session.items):
            numbers.setdefault(item.nodeid.partition("::")[0], []).append(number)
        self.files = schedule.Files(numbers)
        if terminal := self.config.pluginmanager.get_plugin("terminalreporter"):
            terminal.showfspath = False  # tests of several files take turns
        folders(self.config).getbasetemp()  # now: each process would empty it
        try:
            for _ in range(min(self.config.option.jobs, len(numbers))):
                self.fork()
            while self.workers:
                self.listen()
        finally:
            self.end()
        return True

    def fork(self) -> None:
        """Start one more process."""
        ours, theirs = Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                ours.close()
                for other in self.workers:
                    other.connection.close()
                status = work(self.session, theirs)
            finally:
                os._exit(status)
        theirs.close()
        self.workers.append(Worker(pid, ours))

    def listen(self) -> None:
        """Take one message of each process that has sent one; see which have ended."""
        ready = wait([each for one in self.workers for each in (one.connection, one.ended)])
        for worker in list(self.workers):
            if worker.ended in ready:
                while self.hear(worker):
                    pass
                self.bury(worker)
            elif worker.connection in ready:
                self.hear(worker)

    def hear(self, worker: Worker) -> bool:
        """Take one message; whether there was one."""
        try:
            if not worker.connection.poll():
                return False
            self.take(worker, *worker.connection.recv())
        except (EOFError, ConnectionError):
            return False
        return True

    def take(self, worker: Worker, kind: str, said: Any) -> None:
        """Do what a message of a process asks for."""
        match kind:
            case "next":
                given = self.files.next(worker)
                worker.given.extend(given)
                worker.connection.send(given)
            case "start":
                worker.running = worker.last = said
            case "reports":
                self.log(self.session.items[worker.given.popleft()], said)
                worker.running = None
            case "warning":
                warn(self.config, *said)
            case "stop":
                raise self.session.Interrupted(said)

    def log(self, item: pytest.Item, reports: list[dict[str, Any]]) -> None:
        """Tell this process's plugins of a test as if it had been run here."""
        hook = self.config.hook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for data in reports:
            report = hook.pytest_report_from_serializable(config=self.config, data=data)
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        if self.session.shouldfail:
            raise self.session.Failed(self.session.shouldfail)
        if self.session.shouldstop:
            raise self.session.Interrupted(self.session.shouldstop)

    def bury(self, worker: Worker) -> None:
        """A process has ended. When it crashed, its test failed, and another one takes the others."""
        self.workers.remove(worker)
        self.files.forget(worker)
        status = worker.status()
        if status == 0 and not worker.given:
            return
        number = worker.running if worker.running is not None else worker.last
        if number is None:
            raise RuntimeError(f"a process ended before its first test: {says(status)}")
        item = self.session.items[number]
        report = pytest.TestReport(
            nodeid=item.nodeid,
            location=item.location,
            keywords={},
            outcome="failed",
            longrepr=f"the process of this test ended: {says(status)}",
            when="call" if worker.running is not None else "teardown",
        )
        if worker.running is not None:
            worker.given.popleft()
        if worker.given:
            self.files.give_back(list(worker.given))
        if self.files:
            self.fork()
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        self.log(item, [data])

    def end(self) -> None:
        """Have the processes that are left stop, those that don't within a grace by force."""
        for worker in self.workers:
            worker.connection.close()
        left = {worker.ended for worker in self.workers}
        while left and (ended := wait(left, GRACE_S)):
            left.difference_update(ended)  # type: ignore[arg-type]  # each is one of these
        for worker in self.workers:
            if worker.ended in left:
                os.kill(worker.pid, signal.SIGKILL)
            worker.status()


def says(status: int) -> str:
    """The end of a process in words."""
    code = os.waitstatus_to_exitcode(status)
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


def warn(config: pytest.Config, message: Any, parts: dict[str, Any], where: dict[str, Any]) -> None:
    """Record a warning of another process."""
    config.hook.pytest_warning_recorded.call_historic(
        kwargs={"warning_message": warnings.WarningMessage(message, **parts), **where}
    )


# -- a forked process -----------------------------------------------------------------------------


class Teller:
    """Tells the first process what the tests of this one do."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.meter = Meter()
        self.begun = False  # what was warned of until then is told as soon as this is registered

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        long = sum(each.duration for each in reports) >= LONG_S
        last = nextitem is None or nextitem.path != item.path
        worked = round(self.meter.look_s(whole=long or last), 2)
        hook, config = item.config.hook, item.config
        reports[-1].user_properties.append((schedule.WORK, worked))
        told = [hook.pytest_report_to_serializable(config=config, report=each) for each in reports]
        self.connection.send(("reports", told))
        return True

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        if not self.begun:
            return
        kind = warning_message.category
        message: str | Warning = warning_message.message
        names = ("filename", "lineno", "line")
        parts = {name: getattr(warning_message, name) for name in names}
        if kind.__module__ != "builtins":  # it may be one that can't be sent
            message, kind = f"{kind.__module__}.{kind.__name__}: {message}", Warning
        told = (str(message), {"category": kind, **parts})
        where = {"when": when, "nodeid": nodeid, "location": location}
        self.connection.send(("warning", (*told, where)))


def work(session: pytest.Session, connection: Connection) -> int:
    """Run the files that the first process gives, then end; the exit status."""
    config = session.config
    manager = config.pluginmanager
    try:
        # What is captured goes to files: each process needs its own.
        capture = manager.get_plugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
        own_folder(config)
        teller = Teller(connection)
        manager.register(teller)
        teller.begun = True
        with stopping(session, connection):
            run(session, connection)
    except BaseException as error:  # whatever it is, it ends the run
        with suppress(OSError):
            stop = f"{type(error).__name__}: {error}"
            if not isinstance(error, pytest.exit.Exception | KeyboardInterrupt):
                stop = "".join(traceback.format_exception(error))
            connection.send(("stop", stop))
    sys.stdout.flush()
    sys.stderr.flush()
    return 0


def folders(config: pytest.Config) -> pytest.TempPathFactory:
    """What makes the folders of tests, below one that is made when it is first asked for."""
    return config._tmp_path_factory  # type: ignore[attr-defined, no-any-return]  # has no public name


def own_folder(config: pytest.Config) -> None:
    """Give this process's tests a folder of their own below the run's."""
    factory = folders(config)
    folder = factory.getbasetemp() / f"p{os.getpid()}"
    folder.mkdir(mode=0o700)
    factory._basetemp = folder


@contextmanager
def stopping(session: pytest.Session, connection: Connection) -> Iterator[None]:
    """At the end of this, fixtures of the session are done with."""
    try:
        yield
    finally:
        session.config.pluginmanager.get_plugin("runner").pytest_sessionfinish(session)


def run(session: pytest.Session, connection: Connection) -> None:
    """Run the tests that the first process gives until it has none or goes away."""
    ahead: deque[int] = deque()

    def ask() -> bool:
        try:
            connection.send(("next", None))
            ahead.extend(connection.recv())
        except (EOFError, ConnectionError):
            return False
        return bool(ahead)

    more = ask()
    while ahead:
        number = ahead.popleft()
        more = more if ahead else more and ask()
        item = session.items[number]
        connection.send(("start", number))
        following = session.items[ahead[0]] if ahead else None
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if connection.poll():  # what comes unasked is the end
            return
