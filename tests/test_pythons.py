"""The processes that stand for Spark's Python end as it does, and with those who asked for them."""

import signal
import subprocess
import sys

import pytest

from tests import pythons

DAEMON = ("-m", "pyspark.daemon", "pyspark.worker")


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The program that Spark starts, of a run of its own."""
    environment = {}
    pythons.tell(environment)
    return environment["PYSPARK_PYTHON"]


@pytest.fixture
def daemon(python):
    """One that has said its port, which is all that it says."""
    with subprocess.Popen([python, *DAEMON], stdin=-1, stdout=-1) as process:
        assert len(process.stdout.read(4)) == 4
        yield process
        process.kill()


@pytest.mark.slow
def test_it_ends_with_the_one_who_asked(daemon):
    daemon.kill()
    assert daemon.stdout.read() == b""  # nobody has this pipe any more
    assert daemon.wait() == -signal.SIGKILL


@pytest.mark.slow
def test_it_ends_when_it_is_told(daemon):
    daemon.terminate()
    assert daemon.stdout.read() == b""
    # it says its port before it takes the signal into account
    assert daemon.wait() in (1, -signal.SIGTERM)


@pytest.mark.slow
def test_errors_are_told_as_python_tells_them(python):
    for program in (python, sys.executable):
        done = subprocess.run([program, "-m", "pyspark.nothing"], capture_output=True, text=True)
        assert done.returncode == 1
        assert "No module named pyspark.nothing" in done.stderr


@pytest.mark.slow
def test_anything_else_is_plain_python(python):
    done = subprocess.run([python, "-c", "import sys; print(sys.path[0]); sys.exit(3)"], stdout=-1)
    assert (done.returncode, done.stdout) == (3, b"\n")
