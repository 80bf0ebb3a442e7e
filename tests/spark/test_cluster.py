"""A standalone cluster, a master and two workers as processes, whose Python does not see this source
tree: each way of bringing Pelton there, for reading and writing; both workers do a part.
"""

import os
import shutil
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

import pyspark
import pytest

import pelton
from pelton.client.base.models import StreamConfig
from pelton.spark.packaging import package
from pelton.sync import connect
from pelton.testing import LocalServer
from tests import javas
from tests.spark.exact.cluster import Cluster
from tests.spark.jvm import EVERY_WAY
from tests.ways import FULL

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

MESSAGES = 4000
JOB = Path(__file__).with_name("cluster_job.py")
# What a node has that can run Spark's own Python data sources, and nothing else.
NODE = ("pyspark", "py4j", "pyarrow", "numpy", "pandas", "dateutil", "pytz", "six.py", "tzdata")


def make_python(folder):
    """A Python with Spark's packages alone; its program."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    [packages] = folder.glob("lib/python*/site-packages")
    installed = Path(pyspark.__file__).parents[1]
    for name in NODE:
        for found in [installed / name, installed / f"{name}.libs"]:
            if found.exists():
                (packages / found.name).symlink_to(found)
    return folder / "bin" / "python"


def install(python):
    """Put Pelton into it, file by file as an installation has them."""
    import msgspec

    [packages] = python.parents[1].glob("lib/python*/site-packages")
    shutil.copytree(Path(msgspec.__file__).parent, packages / "msgspec")
    home = Path(pelton.__file__).parent
    sources = shutil.ignore_patterns("*.pyx", "*.pxd", "*.c", "__pycache__")
    for folder in (home, *home.parent.glob("pyspark_jetstream*")):
        shutil.copytree(folder, packages / folder.name, ignore=sources)
    return packages


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nodes")
    package(folder / "pelton.zip")
    make_python(folder / "bare")
    if FULL:
        install(make_python(folder / "full"))
    (folder / "tmp").mkdir()
    return folder


@pytest.fixture(scope="module")
def cluster(nodes):
    started = Cluster(nodes, paths=(), environment={"TMPDIR": str(nodes / "tmp")})
    yield started
    started.stop()


@pytest.fixture(scope="module")
def server():
    with LocalServer() as local:
        with connect(local.url) as client:
            js = client.jetstream()
            js.create_stream(StreamConfig(name="SOURCE", subjects=["source.>"], storage="memory"))
            with js.publisher() as publisher:
                for number in range(MESSAGES):
                    publisher.publish("source.x", b"%d" % number)
        yield local


def submit(cluster, nodes, folder, python, flags, arguments, path=""):
    """`spark-submit` in a folder of its own; its output."""
    home = Path(pyspark.__file__).parent
    settings = {
        "spark.cores.max": "2",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": javas.options(),
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        # Both executors are there before the first task is given out.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    }
    chosen = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    program = [str(home / "bin" / "spark-submit"), "--master", cluster.url, *chosen, *flags]
    done = subprocess.run(
        [*program, str(JOB), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        env={
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": javas.options(),  # as users have it: Spark compiles its queries
            "PYSPARK_PYTHON": str(python),
            "PYSPARK_DRIVER_PYTHON": str(python),
            "PYTHONPATH": path,
            "TMPDIR": str(nodes / "tmp"),
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    return done.stdout


def copies(server, target):
    """Of each way to read: sequences, how many by worker, where Pelton was found."""
    found = {}
    with connect(server.url) as client:
        js = client.jetstream()
        for seq in range(1, js.stream_info(target).state.last_seq + 1):
            message = js.get_message(target, seq)
            cwd, home, number = bytes(message.data).decode().split("\t")
            seqs, workers, homes = found.setdefault(
                message.subject.removeprefix("copies."), (Counter(), Counter(), set())
            )
            seqs[int(number)] += 1
            workers[next(part for part in Path(cwd).parts if part.startswith("work-"))] += 1
            homes.add(home)
    return found


@pytest.mark.parametrize(
    "way",
    [
        pytest.param("installed", marks=EVERY_WAY),
        pytest.param("py-files", marks=EVERY_WAY),
        "archives",
    ],
)
def test_each_way_of_bringing_it_there(cluster, nodes, server, tmp_path, way):
    archive = nodes / "pelton.zip"
    target = f"COPIES-{way}"
    with connect(server.url) as client:
        js = client.jetstream()
        for old in js.stream_names():
            if old != "SOURCE":
                js.delete_stream(old)
        js.create_stream(StreamConfig(name=target, subjects=["copies.*"], storage="memory"))
    bare, full = (nodes / name / "bin" / "python" for name in ("bare", "full"))
    arguments = [server.url, "SOURCE", target, str(tmp_path / "checkpoint")]
    if way == "installed":
        submit(cluster, nodes, tmp_path, full, [], arguments)
    elif way == "py-files":
        flags = ["--py-files", str(archive)]
        # Of itself Spark hides the archive from the process that plans micro-batches.
        path = str(archive)
        submit(cluster, nodes, tmp_path, bare, flags, [*arguments, "register"], path=path)
    else:
        here = tmp_path / "unpacked"
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(here)
        flags = ["--archives", f"{archive}#pelton-here"]
        flags += ["--conf", "spark.executorEnv.PYTHONPATH=pelton-here"]
        submit(cluster, nodes, tmp_path, bare, flags, arguments, path=str(here))
    found = copies(server, target)
    assert set(found) == {"batch", "stream"}
    for seqs, workers, homes in found.values():
        assert seqs == Counter(range(1, MESSAGES + 1))
        assert set(workers) == {"work-1", "work-2"}
        where = {"installed": nodes / "full", "py-files": nodes / "tmp"}.get(way, nodes / "cluster")
        assert all(Path(home).resolve().is_relative_to(where.resolve()) for home in homes), homes


@EVERY_WAY
def test_without_it_the_format_is_not_found(cluster, nodes, server, tmp_path):
    """What the other tests rest on: these machines do not find the source tree."""
    python = nodes / "bare" / "bin" / "python"
    arguments = [server.url, "SOURCE", "COPIES", str(tmp_path / "checkpoint")]
    with pytest.raises(AssertionError, match="DATA_SOURCE_NOT_FOUND"):
        submit(cluster, nodes, tmp_path, python, [], arguments)
