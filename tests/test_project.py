"""What the project shows to the world (changelog, tags, workflows, issue forms), and files that a tool makes."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import pelton

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
CHANGES = (ROOT / "CHANGELOG.md").read_text()
LINES = 120  # of a release
ENTRY_LINES = 3


def releases() -> dict[str, str]:
    """The sections of the changelog."""
    parts = re.split(r"^## (.+)\n", CHANGES, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def loaded(path: Path) -> dict[str, Any]:
    """A YAML file; ``on`` is a word in workflows."""
    return dict(yaml.load(path.read_text(), yaml.BaseLoader))


def test_the_changelog_has_a_section_for_each_release_and_the_rule_at_its_head() -> None:
    head = CHANGES.partition("\n## ")[0]
    assert "An entry tells users of the last release what is different for them" in head
    form = r"Unreleased|\d+\.\d+\.\d+ \((\d{4}-\d\d-\d\d|not released)\)"
    assert [title for title in releases() if not re.fullmatch(form, title)] == []
    assert any(title.startswith(f"{PROJECT['version']} ") for title in releases())
    unreleased = [title for title in releases() if "eleased" in title]
    assert list(releases())[: len(unreleased)] == unreleased


def test_a_release_is_told_briefly_and_by_area() -> None:
    for title, text in releases().items():
        assert text.count("\n") <= LINES, title
        areas = re.findall(r"^### (.+)$", text, re.MULTILINE)
        assert len(areas) == len(set(areas))
        assert not {"Added", "Changed", "Fixed", "Removed"} & set(areas), "where would a user look?"
        entries = re.split(r"^- ", text.replace("\n\n", "\n- \n"), flags=re.MULTILINE)
        assert [each for each in entries if each.strip().count("\n") >= ENTRY_LINES] == []


def test_the_former_name_is_in_one_line_of_the_changelog() -> None:
    assert len(re.findall("pen" + "stock", CHANGES, re.IGNORECASE)) == 1


@pytest.mark.parametrize(("tag", "says"), [("v9.9.9", "the tag is v9.9.9"), ("", "usage")])
def test_a_tag_that_is_not_the_version_is_refused(tag: str, says: str) -> None:
    command = [sys.executable, ROOT / "tools/check-release", *([tag] if tag else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert says in done.stderr


def test_a_release_needs_its_day_in_the_changelog() -> None:
    command = [sys.executable, ROOT / "tools/check-release", f"v{PROJECT['version']}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    day = re.search(rf"^## {re.escape(PROJECT['version'])} \(\d", CHANGES, re.MULTILINE)
    assert (done.returncode == 0) == bool(day), done.stderr


def test_the_version_is_the_same_everywhere() -> None:
    assert pelton.__version__ == PROJECT["version"]


def test_the_blocking_half_of_the_client_is_made_of_the_other() -> None:
    command = [sys.executable, ROOT / "tools/gen_sync.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# -- workflows ------------------------------------------------------------------------------------


def jobs() -> list[tuple[str, dict[str, Any]]]:
    """The jobs of all workflows."""
    return [
        (f"{path.stem}: {name}", job)
        for path in WORKFLOWS
        for name, job in loaded(path)["jobs"].items()
    ]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_grants_nothing_but_what_a_job_names(path: Path) -> None:
    assert loaded(path)["permissions"] == {}
    assert "secrets." not in path.read_text()


@pytest.mark.parametrize(
    ("name", "job"), jobs(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_job_ends_and_uses_actions_of_a_version(name: str, job: dict[str, Any]) -> None:
    assert "permissions" in job
    writes = {key for key, value in job["permissions"].items() if value == "write"}
    allowed = {"release: publish": {"id-token"}, "site: deploy": {"id-token", "pages"}}
    assert writes == allowed.get(name, set())
    if "steps" not in job:
        assert job["uses"].startswith("./.github/workflows/")
        return
    assert int(job["timeout-minutes"]) <= 120
    for step in job["steps"]:
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+(\.\d+\.\d+)?", step["uses"])
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] == "false"


def test_the_tests_run_on_each_python_and_the_client_on_three_systems() -> None:
    tests = loaded(ROOT / ".github/workflows/tests.yml")["jobs"]
    assert tests["test"]["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13", "3.14"]
    systems = tests["client"]["strategy"]["matrix"]["system"]
    assert [each.partition("-")[0] for each in systems] == ["ubuntu", "macos", "windows"]


def test_every_make_verb_of_a_workflow_exists() -> None:
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        verb
        for _, job in jobs()
        for step in job.get("steps", ())
        for line in step.get("run", "").splitlines()
        if line.startswith("make ")
        for verb in re.findall(r"(?<= )[a-z-]+(?= |$)", line.partition("PYTHON=")[0])
    }
    assert {"docs", "lint", "test"} <= named <= known


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_asks_for_what_a_maintainer_needs(path: Path) -> None:
    form = loaded(path)
    assert {"name", "description", "body"} <= form.keys()
    asked = [each for each in form["body"] if each["type"] != "markdown"]
    names = [each["id"] for each in asked]
    assert len(names) == len(set(names))
    assert all(each["attributes"]["label"] for each in asked)
    needed = {each["id"] for each in asked if each.get("validations", {}).get("required") == "true"}
    assert needed >= (
        {"happened", "repeat", "version", "server", "system"} if path.stem == "bug" else {"task"}
    )
