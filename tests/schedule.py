"""Which file of tests a process gets next, where several processes share them: the longest first.

What takes long begins early, so that no process works alone at the end. Files that use the session
of Spark that a process has go to two processes, which start a JVM each; the others have none.
`tests/durations.txt` has the files that take long, each with seconds beside other tests; only their
order matters. Any other file is short. A run leaves the table as it would be now in
`build/durations.txt`: keep that of a whole run on a quiet machine when the order has changed.

Most of the time is waiting for servers: 54 of 1000 s of the files that compare two are work. So
there are more processes than cores, and those without a JVM wait while the two others work.
`tests/sharing.py` has these processes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_name("durations.txt")
SHORT_S = 5
JVMS = 2
WORK_TABLE = "work.txt"
WORK = "processor_s"  # the property of a test's last report that has its processor time
SPARK = re.compile(r"^ *def \w+\([^)]*\bspark\b", re.MULTILINE)


@cache
def durations() -> dict[str, int]:
    """The seconds of each file that takes long."""
    lines = [line.split() for line in TABLE.read_text().splitlines()]
    return {name: int(seconds) for seconds, name in lines}


@cache
def uses_spark(name: str) -> bool:
    """Whether tests of a file take the session of Spark of their process."""
    path = ROOT / name
    return path.is_file() and SPARK.search(path.read_text()) is not None


def longest(waiting: Iterable[str], *, has_jvm: bool) -> str:
    """The file to give to a process. One that may have no JVM gets those that need none first."""
    return min(
        waiting,
        key=lambda name: (
            not has_jvm and uses_spark(name),
            -durations().get(name, SHORT_S),
            name,
        ),
    )


class Files:
    """The files that no process has yet, each with the numbers of its tests."""

    def __init__(self, waiting: Mapping[str, list[int]] | None = None) -> None:
        self._waiting = dict(waiting or {})
        self._back: list[list[int]] = []
        self._with_jvm: set[Hashable] = set()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._back)

    def next(self, worker: Hashable) -> list[int]:
        """The tests that a process runs next; none when all are given."""
        if self._back:
            return self._back.pop()
        if not self._waiting:
            return []
        has_jvm = worker in self._with_jvm or len(self._with_jvm) < JVMS
        name = longest(self._waiting, has_jvm=has_jvm)
        if uses_spark(name):
            self._with_jvm.add(worker)
        return self._waiting.pop(name)

    def forget(self, worker: Hashable) -> None:
        """A process has ended: another one may have a JVM."""
        self._with_jvm.discard(worker)

    def give_back(self, tests: list[int]) -> None:
        """What a process that crashed has not run comes first."""
        self._back.append(tests)


def table(measured: dict[str, float]) -> str:
    """The table of durations with what a run measured; files that it left out stay as they are."""
    seconds = {**durations(), **{name: round(each) for name, each in measured.items()}}
    lines = sorted((-each, name) for name, each in seconds.items() if each >= SHORT_S)
    return "".join(f"{-each:4} {name}\n" for each, name in lines)


def work_table(work: Mapping[str, float]) -> str:
    """The processor time of a run, of each file and of each test that takes long, the most first."""
    files: Counter[str] = Counter()
    for name, seconds in work.items():
        files[name.partition("::")[0]] += seconds  # type: ignore[assignment]  # of seconds
    long = {name: each for name, each in [*files.items(), *work.items()] if each >= SHORT_S}
    lines = sorted((-each, name) for name, each in long.items())
    total = f"{sum(work.values()):7.1f} all\n"
    return total + "".join(f"{-each:7.1f} {name}\n" for each, name in lines)


class Stopwatch:
    """Adds up what the files of a run take, and writes the new table when the run ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seconds: Counter[str] = Counter()
        self.work: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid.partition("::")[0]] += report.duration  # type: ignore[assignment]  # of seconds
        for name, value in report.user_properties:
            if name == WORK:
                self.work[report.nodeid] = float(str(value))

    def pytest_sessionfinish(self) -> None:
        self.path.write_text(table(self.seconds))
        if self.work:
            self.path.with_name(WORK_TABLE).write_text(work_table(self.work))


def measure(config: pytest.Config) -> None:
    """Write the table as it would be now, when a run ends."""
    folder = config.rootpath / "build"
    if folder.is_dir():
        config.pluginmanager.register(Stopwatch(folder / TABLE.name))
