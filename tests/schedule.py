"""Which file of tests a process gets next, where several processes share them: the longest first.

What takes long begins early, so that no process works alone at the end. Files that use the session
of Spark that a process has go to two processes, which start a JVM each; the others have none.
`tests/durations.txt` has the files that take long, each with seconds beside other tests; only their
order matters. Any other file is short. A run leaves the table as it would be now in
`build/durations.txt`: keep that of a whole run on a quiet machine when the order has changed.

Most of the time is waiting for servers: 54 of 1000 s of the files that compare two are work. So
there are more processes than cores, and those without a JVM wait while the two others work.

    python -m pytest -p tests.schedule -n 5 --dist loadfile
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]  # has no types

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_name("durations.txt")
SHORT_S = 5
JVMS = 2
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


class LongestFirst(LoadFileScheduling):  # type: ignore[misc]  # a class without types
    """Whole files, the longest first."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self.with_jvm: set[Any] = set()

    def _assign_work_unit(self, node: Any) -> None:
        has_jvm = node in self.with_jvm or len(self.with_jvm) < JVMS
        name = longest(self.workqueue, has_jvm=has_jvm)
        if uses_spark(name):
            self.with_jvm.add(node)
        self.workqueue.move_to_end(name, last=False)  # the first one is taken
        super()._assign_work_unit(node)


def table(measured: dict[str, float]) -> str:
    """The table of durations with what a run measured; files that it left out stay as they are."""
    seconds = {**durations(), **{name: round(each) for name, each in measured.items()}}
    lines = sorted((-each, name) for name, each in seconds.items() if each >= SHORT_S)
    return "".join(f"{-each:4} {name}\n" for each, name in lines)


class Stopwatch:
    """Adds up what the files of a run take, and writes the new table when the run ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid.partition("::")[0]] += report.duration  # type: ignore[assignment]  # of seconds

    def pytest_sessionfinish(self) -> None:
        self.path.write_text(table(self.seconds))


def pytest_configure(config: pytest.Config) -> None:
    folder = config.rootpath / "build"
    if not hasattr(config, "workerinput") and folder.is_dir():
        config.pluginmanager.register(Stopwatch(folder / TABLE.name))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LongestFirst | None:
    """Take the place of xdist's own distribution of files."""
    return LongestFirst(config, log) if config.getvalue("dist") == "loadfile" else None
