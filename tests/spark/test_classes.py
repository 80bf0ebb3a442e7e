"""The archive of Spark's classes."""

import shlex
import subprocess
import sys

import pytest

from pelton.spark import classes
from tests.spark.jvm import EVERY_WAY


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))


def test_an_archive_is_of_one_java(tmp_path):
    homes = [tmp_path / "one", tmp_path / "two"]
    for home in homes:
        home.mkdir()
        assert classes.java_options(home) == []
    (homes[0] / "release").write_text('JAVA_VERSION="17.0.15"')
    found = classes.archive(homes[0])
    found.parent.mkdir(parents=True)
    found.touch()
    (option, *_) = classes.java_options(homes[0])
    assert shlex.split(option) == [f"-XX:SharedArchiveFile={found}"]
    assert classes.java_options(homes[1]) == []
    (homes[0] / "release").write_text('JAVA_VERSION="17.0.16"')
    assert classes.java_options(homes[0]) == []


PROGRAM = """
import shlex, sys
from pathlib import Path
from pelton.spark import classes
from pelton.spark.java import ensure_java
from pelton.spark.session import end_session, jvm_pid, session

made = classes.prepare()
assert made == classes.archive(ensure_java())
assert [path.name for path in made.parent.iterdir()] == [made.name]
spark = session("prepared", log_file=Path(sys.argv[1]))
options = spark.conf.get("spark.driver.extraJavaOptions")
assert f"-XX:SharedArchiveFile={made}" in shlex.split(options)
assert made.name in Path(f"/proc/{jvm_pid(spark)}/maps").read_text()
assert spark.range(3).count() == 3
try:
    classes.prepare()
except classes.PrepareError as refused:
    assert "session" in str(refused)
else:
    raise AssertionError("made beside a session")
assert spark.range(3).count() == 3
end_session(spark)
"""


@EVERY_WAY
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_session_uses_what_was_prepared(tmp_path):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "log")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
