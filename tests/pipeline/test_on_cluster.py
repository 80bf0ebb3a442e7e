"""A pipeline on a standalone cluster: started by the command, by ``spark-submit`` and by a session of
one's own, on one state folder and tables that all see. Python functions beside the file travel to
workers that cannot import them; a worker is killed in mid-batch, and the driver: rows once each.
"""

import json
import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from random import Random

import pyspark
import pytest

from tests import pythons
from tests.peers import available_servers, free_port, start_server
from tests.pipeline.test_pipeline_runs import (
    FUNCTIONS,
    LIGHT,
    commits,
    compare,
    js,
    publish,
    rows_of,
    version,
)
from tests.spark.exact.cluster import Cluster
from tests.spark.exact.lives import ROOT, kill_session
from tests.spark.jvm import EVERY_WAY

__all__ = ["js"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), EVERY_WAY]

PER_BATCH = 60
# A module, a package and what is loaded only when a row comes: none of it is where a worker looks.
BESIDE = {
    "shop_functions.py": FUNCTIONS.replace(
        "from pyspark.sql import functions as F",
        "from pyspark.sql import functions as F\nfrom shop_units import whole",
    ).replace("int(data) * factor", "whole(data) * factor"),
    "shop_units/__init__.py": "from shop_units.numbers import whole\n",
    "shop_units/numbers.py": "def whole(text):\n    return int(text)\n",
}
SUBMITTED = """
import sys
from pyspark.sql import SparkSession
from pelton.pipeline import load, run

spark = SparkSession.builder.getOrCreate()
result = run(load(sys.argv[1]), spark, once=True)
print("rows", result.rows("table"), flush=True)
spark.stop()
"""


@pytest.fixture(scope="module")
def server():
    started = start_server(available_servers()[0])
    yield started
    started.remove()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    started = Cluster(tmp_path_factory.mktemp("nodes"))
    yield started
    started.stop()


@pytest.fixture
def file(tmp_path, server, cluster):
    """The pipeline, in a folder of its own."""
    folder = tmp_path / "shop"
    for name, text in BESIDE.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    spark = f"spark: {{master: '{cluster.url}', spark.executor.memory: 512m}}\n"
    source = f"maxOffsetsPerTrigger: {PER_BATCH}, maxRecordsPerPartition: 15"
    text = LIGHT.replace("maxOffsetsPerTrigger: PER_BATCH", source).replace("URL", server.url)
    path = folder / "shop.yaml"
    path.write_text(text + spark)
    return path


class Driver:
    """A driver and all that it starts, in a session of its own; output in a file."""

    def __init__(self, command, folder, environment=None):
        self.log = folder / f"driver-{time.monotonic_ns()}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                start_new_session=True,
                env={
                    **pythons.plain(os.environ),
                    "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
                }
                | (environment or {}),
            )

    def wait_for(self, what, seconds=200):
        deadline = time.monotonic() + seconds
        while not what():
            assert self.process.poll() is None, self.log.read_text()[-4000:]
            assert time.monotonic() < deadline, self.log.read_text()[-4000:]
            time.sleep(0.004)

    def kill(self):
        """With SIGKILL, and nothing but the driver's Python process."""
        self.process.kill()
        self.process.wait()

    def end(self, seconds=300):
        try:
            self.process.wait(seconds)
        finally:
            kill_session(self.process.pid)
        said = self.log.read_text()
        assert self.process.returncode == 0, said[-4000:]
        return said


def run_command(file, elsewhere):
    command = [sys.executable, "-m", "pelton.cli", "pipeline", "run", str(file)]
    return Driver([*command, "--once", "--json"], elsewhere)


def submit(file, cluster, elsewhere):
    """``spark-submit`` of a script that loads and runs the file."""
    script = elsewhere / "submitted.py"
    script.write_text(SUBMITTED)
    home = Path(pyspark.__file__).parent
    settings = {
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    chosen = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    command = [str(home / "bin" / "spark-submit"), "--master", cluster.url, *chosen, str(script)]
    environment = {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    return Driver([*command, str(file)], elsewhere, environment)


def test_workers_and_drivers_killed_rows_once_each(tmp_path, server, cluster, file, js):
    folder = file.parent
    elsewhere = tmp_path / "elsewhere"  # what is in a driver's own folder is found by local workers
    elsewhere.mkdir()
    published = [*range(500), "x", *range(500, 900), "y"]
    publish(js, "in", published)

    first = run_command(file, elsewhere)
    # In mid-batch: the table has it, and other sinks have not.
    first.wait_for(lambda: version(folder, "table") > commits(folder) + 1)
    cluster.kill_worker(Random(1))
    batches = commits(folder)
    first.wait_for(lambda: commits(folder) >= batches + 2)
    # Then the driver, while the stream has rows of a batch that is not noted.
    before = js.stream_info("BACK").state.last_seq
    first.wait_for(lambda: js.stream_info("BACK").state.last_seq > before)
    first.kill()
    at = commits(folder)
    assert at * PER_BATCH < len(published)

    # From here on by spark-submit, on the same folder; the executors of the first may still end.
    second = submit(file, cluster, elsewhere)
    second.wait_for(lambda: commits(folder) >= at + 1)
    cluster.kill_worker(Random(2))
    said = second.end()
    assert "rows " in said
    compare(folder, js, published)

    # And a command again: nothing is left, nothing comes twice; what is new comes.
    both = [*published, *range(900, 1000), "z"]
    publish(js, "in", both[len(published) :])
    events = [
        json.loads(line)
        for line in run_command(file, elsewhere).end().splitlines()
        if line.startswith("{")
    ]
    [query] = events[-1]["queries"]
    assert query["rows"] == 101
    compare(folder, js, both)
    assert len(rows_of(folder, "bad")) == 3


def test_a_cluster_that_is_not_there_is_one_line(tmp_path, server, file):
    nobody = f"spark://127.0.0.1:{free_port()}"
    text = re.sub(r"master: '[^']*'", f"master: '{nobody}'", file.read_text())
    file.write_text(text)
    driver = run_command(file, tmp_path)
    assert driver.process.wait(200) == 1
    assert driver.log.read_text().count("\n") == 1
    assert f"Spark failed: no master at {nobody} accepts this application" in driver.log.read_text()
