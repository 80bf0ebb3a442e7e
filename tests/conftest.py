"""What every test gets: repeatable randomness with its seed shown, no Spark of the surroundings."""

import gc
import os
import random
import sys
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from tests import copies, javas, pure, pythons
from tests.ways import FULL, IN_CI, REASON, SEED, length

settings.register_profile(
    "pelton",
    max_examples=length(30, 100),
    deadline=None,  # the machine's speed is not what a property says
    print_blob=True,
    derandomize=IN_CI,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("pelton")

# Set where Spark or a JVM is installed by hand; those would be used instead of the ones that the
# tests are about.
SURROUNDINGS = (
    "SPARK_HOME",
    "SPARK_CONF_DIR",
    "SPARK_LOCAL_IP",
    "SPARK_REMOTE",
    "PYSPARK_PYTHON",
    "PYSPARK_DRIVER_PYTHON",
    "PYSPARK_SUBMIT_ARGS",
    "HADOOP_CONF_DIR",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
)
for name in SURROUNDINGS:
    os.environ.pop(name, None)
javas.tell(os.environ)
if not FULL:
    pythons.tell(os.environ)
pure.begin()

# NumPy multiplies no matrix here; threads of its library would wait, turning, for one that comes.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Byte code is kept, whatever the surroundings say: a server of a test then starts with half of the
# work, and the tests are collected with half of it.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
if not FULL:
    copies.tell(os.environ)
gc.disable()  # until all tests are collected: nothing of them is freed before


@pytest.hookimpl(tryfirst=True)  # before Hypothesis reads the option
def pytest_configure(config: pytest.Config) -> None:
    """Give Hypothesis the run's seed, unless one was given on the command line."""
    if not IN_CI and config.getoption("--hypothesis-seed", default=None) is None:
        config.option.hypothesis_seed = str(SEED)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Connections that Spark's code keeps do not outlive a file: with the server gone, they would try to
    connect, and log that into the tests that follow.
    """
    connection = sys.modules.get("pelton.spark.connection")
    if connection and (nextitem is None or nextitem.path != item.path):
        connection.forget_all()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """What `make check` runs connects to nothing, in any run."""
    if not pure.is_pure(item):
        return (yield)
    with pure.without_connections(item.nodeid):
        return (yield)


def pytest_report_header() -> str:
    return f"seed: {SEED} (repeat with PELTON_SEED={SEED})"


def pytest_collection_finish() -> None:
    """Thousands of tests are there for as long as the process: a collection of garbage need not walk them.
    Collections are rarer than Python's, too: they were a fifteenth of the work.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line of what is not run at its length."""
    skipped = terminalreporter.stats.get("skipped", [])
    left_out = sum(REASON in str(report.longrepr) for report in skipped)
    if not FULL:
        terminalreporter.write_line(
            f"left out: {left_out} long tests; kills, damage, failing disks, simulation and fuzzing were"
            " tried in part: `make test-all` tries all"
        )


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A seed of this test's own: the same for the same PELTON_SEED, whatever else runs."""
    return random.Random(f"{SEED} {request.node.nodeid}").randrange(2**32)
