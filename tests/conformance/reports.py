"""What JUnit reports say, and two servers' results beside each other."""

import collections
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


class Result(NamedTuple):
    """How one test ended; the message of one that failed."""

    status: str
    message: str = ""


Results = dict[str, Result]


def read_report(path: Path, title: str) -> Results:
    """The tests of one report by ``job::class::name``; a report that is not there is a failure."""
    found: Results = {}
    try:
        cases = ElementTree.parse(path).getroot().iter("testcase")
    except (OSError, ElementTree.ParseError) as problem:
        return {f"{title}::(no report)": Result(FAILED, str(problem))}
    for case in cases:
        place = (case.get("classname") or "").rpartition(".")[2]
        name = case.get("name") or "?"
        middle = f"{place}::" if place and place != name and place not in title else ""
        key = f"{title}::{middle}{name}"
        result = _result(case)
        # A test that fails and then fails to tidy up is there twice; the worse counts.
        if found.get(key, Result(PASSED)).status != FAILED:
            found[key] = result
    return found


def _result(case: ElementTree.Element) -> Result:
    for tag, status in (("failure", FAILED), ("error", FAILED), ("skipped", SKIPPED)):
        entry = case.find(tag)
        if entry is not None:
            text = entry.get("message") or (entry.text or "").strip().rpartition("\n")[2]
            return Result(status, " ".join(text.split())[:200])
    return Result(SKIPPED if case.get("status") in ("notrun", "disabled") else PASSED)


def count(results: Iterable[Result]) -> tuple[int, int, int]:
    """(passed, failed, skipped)."""
    found = collections.Counter(result.status for result in results)
    return found[PASSED], found[FAILED], found[SKIPPED]


def table(columns: Mapping[str, Results]) -> Iterator[str]:
    """Lines of a table: a row for each suite, passed/failed/skipped of each server beside each
    other.
    """
    suites = sorted({_suite(name) for results in columns.values() for name in results})
    width = max([len(suite) for suite in [*suites, "total"]])
    yield " ".join(["suite".ljust(width), *(name.rjust(20) for name in columns)])
    for suite in [*suites, "total"]:
        cells = []
        for results in columns.values():
            mine = [
                result
                for name, result in results.items()
                if suite == "total" or _suite(name) == suite
            ]
            cells.append("/".join(str(n) for n in count(mine)).rjust(20))
        yield " ".join([suite.ljust(width), *cells])


def _suite(name: str) -> str:
    return name.partition("::")[0].rpartition(".")[0]


def only_ours(ours: Results, theirs: Results) -> list[str]:
    """Tests that the other server passes and ours does not."""
    return [
        name
        for name, result in sorted(theirs.items())
        if result.status == PASSED and ours.get(name, Result(FAILED)).status != PASSED
    ]
