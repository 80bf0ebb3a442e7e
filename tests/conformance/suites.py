"""Finds the official clients' test suites in a folder, and says how each is run.

    SUITES/nats.py              a checkout, with the environments it runs in beside it:
    SUITES/venv-legacy            for its package `nats`
    SUITES/venv313                for its other packages
    SUITES/nats.c/build         a build with tests (ctest), for NATS_TEST_SERVER_EXE

A suite starts `nats-server` from PATH, or the executable that a variable names; both are a shim of
ours. Nothing of a suite is changed.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

SHIM = "{shim}"  # in arguments and variables of a job: the folder that holds `nats-server`
REPORT = "{report}"  # ... and the file that its JUnit report goes to
VERSION = "{version}"  # ... and what the server says it is


@dataclass(frozen=True)
class Job:
    """One command that runs some tests and leaves a JUnit report."""

    suite: str
    name: str
    folder: str
    command: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """How it is called in reports and in the names of files."""
        return f"{self.suite}.{self.name}"


def find_jobs(suites: Path, only: str, timeout_s: int) -> tuple[list[Job], list[str]]:
    """(jobs, what is there and can't be run); `only` is in the title of each job."""
    jobs, notes = _python_jobs(suites, timeout_s)
    more, more_notes = _c_jobs(suites, timeout_s)
    return [job for job in jobs + more if only in job.title], notes + more_notes


def _python_jobs(suites: Path, timeout_s: int) -> tuple[list[Job], list[str]]:
    checkout = suites / "nats.py"
    jobs: list[Job] = []
    notes: list[str] = []
    for tests in sorted(checkout.glob("*/tests")):
        package = tests.parent.name
        # The old package's files are named from the checkout, the others' from their own folder.
        folder = checkout if package == "nats" else tests.parent
        python = suites / ("venv-legacy" if package == "nats" else "venv313") / "bin" / "python"
        if not python.exists():
            notes.append(f"nats.py/{package}: there is no {python}")
            continue
        for file in sorted(tests.glob("test_*.py")):
            command = (
                str(python),
                "-m",
                "pytest",
                str(file.relative_to(folder)),
                "-q",
                *("-p", "no:cacheprovider", "-p", "no:benchmark"),
                *("-p", "unittest.mock"),  # which one test uses without importing it
                *("--timeout", str(timeout_s)),
                *("-o", "junit_family=xunit1", "--junitxml", REPORT),
            )
            jobs.append(Job(package, file.stem, str(folder), command))
    return jobs, notes


def _c_jobs(suites: Path, timeout_s: int) -> tuple[list[Job], list[str]]:
    checkout = suites / "nats.c"
    if not checkout.is_dir():
        return [], []
    build = checkout / "build"
    if not (build / "CTestTestfile.cmake").exists():
        return [], [f"nats.c: there is no build with tests in {build}"]
    command = ("ctest", "--timeout", str(timeout_s), "--output-junit", REPORT)
    variables = {
        "NATS_TEST_SERVER_EXE": os.path.join(SHIM, "nats-server"),
        "NATS_TEST_SERVER_VERSION": VERSION,
    }
    return [Job("nats.c", "ctest", str(build), command, variables)], []
