"""What `make test-pythons` runs: which interpreters it finds, and which extras it installs."""

import sys
from pathlib import Path

import pytest

from tests.smoke.__main__ import PROJECT, Outcome, light_extras
from tests.smoke.interpreters import Interpreter, interpreters, look


def test_this_interpreter_is_found_once() -> None:
    name = f"{sys.version_info[0]}.{sys.version_info[1]}"
    found = interpreters()
    assert [each.name for each in found].count(name) == 1
    assert found == sorted(found, key=lambda each: each.order)


@pytest.mark.parametrize("script", ["exit 127", "echo no answer", "echo '[[3,10],1]'"])
def test_what_is_no_python_for_us_is_passed_over(tmp_path: Path, script: str) -> None:
    stand_in = tmp_path / "python3.13"
    stand_in.write_text(f"#!/bin/sh\n{script}\n")
    stand_in.chmod(0o755)
    assert look(stand_in) is None
    assert look(tmp_path / "none") is None


def test_versions_are_ordered_as_numbers() -> None:
    names = ["3.14t", "3.9", "3.14", "3.11"]
    found = [Interpreter(name, name, "") for name in names]
    assert [each.name for each in sorted(found, key=lambda each: each.order)] == [
        "3.9",
        "3.11",
        "3.14",
        "3.14t",
    ]


def test_no_extra_brings_spark() -> None:
    extras = set(light_extras())
    assert "sql" in extras
    assert not extras & {"spark", "pipeline", "iceberg", "plgd", "test", "fuzz"}
    assert extras < set(PROJECT["optional-dependencies"])


def test_what_a_version_promises_is_what_the_project_says() -> None:
    assert Outcome(Interpreter("3.14", "3.14.10", "")).promised
    other = Outcome(Interpreter("3.14t", "3.14.10", ""), missing=["sql (none)"], suite="9 passed")
    assert not other.promised
    assert other.line == (
        "Python 3.14.10; 9 passed; not to be installed: sql (none) (a version that we promise nothing for)"
    )
