"""The Python that Spark's workers run on this machine."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from pelton.spark.java import ensure_java
from pelton.spark.workers import run_this_python, use_installed_pyspark


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, sys.executable)


def path_of_a_worker(*path: str) -> list[str]:
    """What is before everything else on the path of a worker that was given this."""
    command = [os.environ["PYSPARK_PYTHON"], "-c", "import os; print(os.environ['PYTHONPATH'])"]
    environment = {**os.environ, "PYTHONPATH": ":".join(path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip().split(":")


def test_only_the_archives_of_spark_go():
    use_installed_pyspark(local=True)
    assert os.environ["PYSPARK_PYTHON"] != sys.executable
    lib = "/opt/my spark/python/lib"
    archives = [f"{lib}/pyspark.zip", f"{lib}/py4j-0.10.9.9-src.zip"]
    mine = ["/srv/anna/lib", "/srv/anna/my files/*.zip", "/x/pyspark.zip"]
    assert path_of_a_worker(*archives, *mine) == mine
    assert path_of_a_worker(mine[0], archives[0], mine[1], archives[1]) == mine[:2]
    assert path_of_a_worker(*archives) == [""]


def test_it_is_this_python_with_its_packages():
    use_installed_pyspark(local=True)
    command = [os.environ["PYSPARK_PYTHON"], "-c", "import sys, msgspec; print(sys.executable)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == sys.executable


def test_what_a_user_says_stays(monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python/bin/python3")
    use_installed_pyspark(local=True)
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python/bin/python3"
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "/opt/python/bin/python3")
    use_installed_pyspark(local=True)
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == "/opt/python/bin/python3"


def test_the_process_that_looks_for_formats_runs_it_too():
    """Spark starts that one with the driver's Python."""
    for local in (True, False):
        use_installed_pyspark(local=local)
        assert os.environ["PYSPARK_DRIVER_PYTHON"] not in ("", sys.executable)


def test_other_machines_do_not_have_the_script():
    use_installed_pyspark(local=True)
    use_installed_pyspark(local=False)
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_an_empty_variable_is_none(monkeypatch):
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, "")
    ensure_java()
    assert os.environ["PYSPARK_PYTHON"] == os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable


class Context:
    """What a running session has of a SparkContext."""

    def __init__(self, master: str, settings: dict[str, str]) -> None:
        self.master = master
        self.pythonExec = "python3"
        self._settings = settings

    def getConf(self) -> dict[str, str]:  # noqa: N802  # Spark's name
        return self._settings


@pytest.mark.parametrize(
    ("variable", "master", "settings", "ours"),
    [
        ("", "local[2]", {}, True),
        ("/opt/python3", "local[2]", {}, False),
        ("", "spark://far:7077", {}, False),
        ("", "local[2]", {"spark.pyspark.python": "/opt/python3"}, False),
    ],
)
def test_a_session_that_runs_already_gets_this_python(
    monkeypatch, variable, master, settings, ours
):
    monkeypatch.setenv("PYSPARK_PYTHON", variable)
    context = Context(master, settings)
    run_this_python(SimpleNamespace(_sc=context))
    assert context.pythonExec == (sys.executable if ours else "python3")
    run_this_python(SimpleNamespace())  # of Spark Connect
