"""The runner's own parts: what is found, what reports say, how two servers compare."""

import subprocess
import sys

from tests.conformance.reports import Result, count, only_ours, read_report, table
from tests.conformance.run import main
from tests.conformance.suites import find_jobs

REPORT = """<testsuites><testsuite>
<testcase classname="tests.test_a.TestA" name="one"/>
<testcase classname="tests.test_a.TestA" name="two"><failure message="it  broke&#10;here"/></testcase>
<testcase classname="tests.test_a.TestA" name="two"/>
<testcase classname="tests.test_a.TestA" name="three"><skipped/></testcase>
<testcase classname="x" name="x" status="notrun"/>
</testsuite></testsuites>"""


def test_a_report_is_read(tmp_path):
    path = tmp_path / "r.xml"
    path.write_text(REPORT)
    found = read_report(path, "nats.test_a")
    assert found == {
        "nats.test_a::TestA::one": Result("passed"),
        "nats.test_a::TestA::two": Result("failed", "it broke here"),
        "nats.test_a::TestA::three": Result("skipped"),
        "nats.test_a::x": Result("skipped"),
    }
    assert count(found.values()) == (1, 1, 2)


def test_a_job_without_a_report_has_failed(tmp_path):
    assert count(read_report(tmp_path / "none.xml", "a.b").values()) == (0, 1, 0)


def test_what_ours_alone_fails_is_named():
    ours = {"a.b::x": Result("failed"), "a.b::y": Result("passed"), "c.d::s": Result("skipped")}
    theirs = {name: Result("passed") for name in [*ours, "a.b::gone"]}
    assert only_ours(ours, theirs) == ["a.b::gone", "a.b::x", "c.d::s"]
    assert only_ours(theirs, ours) == []
    rows = [row.split() for row in table({"ours": ours, "theirs": theirs})]
    assert rows == [
        ["suite", "ours", "theirs"],
        ["a", "1/1/0", "3/0/0"],
        ["c", "0/0/1", "1/0/0"],
        ["total", "1/1/1", "4/0/0"],
    ]


def make_suite(folder, text):
    """A checkout with one test file, run by this Python."""
    tests = folder / "nats.py" / "nats" / "tests"
    tests.mkdir(parents=True)
    (tests / "test_x.py").write_text(text)
    python = folder / "venv-legacy" / "bin"
    python.mkdir(parents=True)
    (python / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (python / "python").chmod(0o755)


def test_suites_are_found_by_their_layout(tmp_path):
    assert find_jobs(tmp_path, "", 5) == ([], [])
    make_suite(tmp_path, "")
    (tmp_path / "nats.py" / "nats-core" / "tests").mkdir(parents=True)
    (tmp_path / "nats.c" / "build").mkdir(parents=True)
    jobs, notes = find_jobs(tmp_path, "", 5)
    assert [job.title for job in jobs] == ["nats.test_x"]
    assert len(notes) == 2
    (tmp_path / "nats.c" / "build" / "CTestTestfile.cmake").write_text("")
    jobs, notes = find_jobs(tmp_path, "", 5)
    assert [job.title for job in jobs] == ["nats.test_x", "nats.c.ctest"]
    assert find_jobs(tmp_path, "ctest", 5)[0] == jobs[1:]


def test_a_suite_gets_our_server_under_the_name_it_looks_for(tmp_path, capsys):
    make_suite(
        tmp_path,
        "import subprocess\n"
        "def test_version():\n"
        "    said = subprocess.run(['nats-server', '-v'], capture_output=True, text=True).stdout\n"
        "    assert 'pelton' in said\n"
        "def test_that_fails():\n"
        "    assert 0, 'as it should'\n",
    )
    out = tmp_path / "out"
    # The suite's own option for a time limit is a plug-in's, which need not be here.
    plain = subprocess.run(
        [sys.executable, "-m", "pytest", "--help"], capture_output=True, text=True, check=True
    )
    if "--timeout" not in plain.stdout:
        (tmp_path / "nats.py" / "conftest.py").write_text(
            "def pytest_addoption(parser):\n    parser.addoption('--timeout')\n"
        )
    assert main([str(tmp_path), "--peer", "none", "--out", str(out)]) == 1
    said = capsys.readouterr().out
    assert "nats.test_x" in said
    assert "failed: 1\n  nats.test_x::test_that_fails  " in said
    assert "as it should" in said


def test_an_empty_folder_is_told(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert "no suites to run" in capsys.readouterr().err
