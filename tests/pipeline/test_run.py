"""``pelton run`` as a process: one line and exit 1 for what is wrong, and a run that survives
being killed.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from deltalake import DeltaTable

from pelton.client.sync import connect
from pelton.pipeline.children import started_at
from pelton.pipeline.logs.parts import local_time_zone
from pelton.pipeline.logs.run import run
from pelton.pipeline.running.supervising import brief
from pelton.spark import session
from tests.peers import available_servers, command_of, free_port
from tests.ways import FULL, length

# That it runs on any server is for the tests of its parts to show; these take half a minute each.
KINDS = available_servers()[:1]


class Run:
    """The command with a folder, ports and logs of its own."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "data"
        self.logs = folder / "logs"
        self.logs.mkdir()
        self.port = free_port()
        command = command_of(kind)
        assert command is not None
        self.arguments = [
            *("--nats-port", str(self.port), "--http-port", str(free_port())),
            *("--store", str(self.store), "--logs", str(self.logs)),
            *("--server-command", " ".join(command)),
        ]
        self.process: subprocess.Popen[str] | None = None

    def start(self, *more: str) -> subprocess.Popen[str]:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pelton.pipeline", *self.arguments, *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return self.process

    def finish(self, *more: str, timeout: float = 300) -> tuple[int, str]:
        process = self.start(*more)
        output, _ = process.communicate(timeout=timeout)
        return process.returncode, output

    def end(self) -> str:
        """What was printed by a process that ends now."""
        assert self.process is not None
        return self.process.communicate(timeout=240)[0]

    def children(self) -> dict[str, list[int]]:
        """The server, which the command starts, and the JVM, which the pipeline starts."""
        found: dict[str, list[int]] = {}
        for folder in (self.store, self.store / "state"):
            with contextlib.suppress(OSError, ValueError):
                found |= json.loads((folder / "children.json").read_text())
        return found

    def living(self, name: str) -> int | None:
        """The process id of a child that runs now; the record may be that of an earlier run."""
        pid, started = self.children().get(name, [0, -1])
        return pid if started_at(pid) == started else None

    def wait_for(self, what, seconds: float = 180):
        deadline = time.monotonic() + seconds
        while not (found := what()):
            assert time.monotonic() < deadline, "waited in vain"
            assert self.process is None or self.process.poll() is None, self.end()
            time.sleep(0.05)
        return found

    def stored(self) -> int:
        try:
            with connect(f"nats://127.0.0.1:{self.port}", reconnect=False) as client:
                return client.jetstream().stream_info("LOGS").state.messages
        except Exception:
            return 0

    def rows(self) -> int:
        try:
            return int(DeltaTable(self.store / "tables" / "lines").count())
        except Exception:
            return 0

    def write(self, name: str, first: int, last: int) -> None:
        with (self.logs / name).open("a") as file:
            for number in range(first, last + 1):
                file.write(
                    f"Sep 22 04:45:{number % 60:02} box app[{number}]: line {number} of {name}\n"
                )


def workers_of(parent: int | None) -> list[int]:
    """The processes that a process started, Spark's Python workers if it is a JVM."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = entry.read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent and fields[0] != "Z":
                found.append(int(entry.parent.name))
    return found


@pytest.fixture(params=KINDS)
def job(request, tmp_path):
    made = Run(request.param, tmp_path)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.communicate()
    for pid, started in made.children().values():
        if started_at(pid) == started:
            os.kill(pid, signal.SIGKILL)


def one_line(code, output):
    lines = [line for line in output.splitlines() if line.strip()]
    assert code == 1, output
    assert len(lines) == 1, output
    assert lines[0].startswith("pelton run: ")
    return lines[0]


@pytest.fixture
def complaint(job, capsys):
    """What the command says when it is called here, with more arguments."""

    def call(*more):
        code = run([*job.arguments, *more])
        return one_line(code, "".join(capsys.readouterr()))

    return call


def test_bad_arguments_are_one_line(job, complaint, tmp_path):
    assert "--nonsense" in complaint("--nonsense")
    assert "'99999' is not a port" in complaint("--nats-port", "99999")
    missing = str(tmp_path / "missing.log")
    assert f"{missing} does not exist" in complaint("--logs", missing)
    assert "no file matches" in complaint("--logs", str(tmp_path / "*.nothing"))
    assert "no readable log file" in complaint("--once")
    (tmp_path / "file").write_text("")
    assert "--store" in complaint("--store", str(tmp_path / "file"))
    assert "/nowhere/server" in complaint("--server-command", "/nowhere/server")
    assert "'-1' is not a number of seconds" in complaint("--trigger-seconds=-1")
    (job.store / "tables" / "lines").mkdir(parents=True)
    assert "does not know them" in complaint()


def test_a_taken_port_is_one_line(job):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", job.port))
        taken.listen()
        said = one_line(*job.finish())
        assert f"port {job.port}" in said
        assert "--nats-port" in said


def test_a_server_that_does_not_start_is_one_line(complaint):
    said = complaint("--server-command", "sh -c 'echo no licence; exit 3'")
    assert "did not start: no licence" in said


def test_no_java_is_one_line(complaint, monkeypatch):
    from pelton.spark import java

    monkeypatch.setattr(java, "_installed_homes", list)
    monkeypatch.setattr(java, "_packaged_home", lambda: None)
    assert complaint().startswith("pelton run: Spark needs Java: no Java found.")


def test_a_folder_in_use_is_one_line(job):
    from pelton.pipeline.children import Children

    held = Children(job.store)
    assert f"in use by process {os.getpid()}" in one_line(*job.finish())
    held.release()


def test_help_is_help(capsys):
    assert run(["--help"]) == 0
    assert "--once" in capsys.readouterr().out


def test_the_line_that_says_it():
    ours = "pelton.spark.reading.offsets.DataLossError: stream S dropped"
    spark = f"[STREAM_FAILED] Query died\n  File x\n{ours}"
    assert brief(RuntimeError(f"{spark}\n SQLSTATE")) == "stream S dropped"
    assert brief(RuntimeError("short\nlong")) == "short"
    assert brief(RuntimeError()) == "RuntimeError"


def test_the_time_zone_is_one_spark_knows(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    assert local_time_zone() == "Europe/Berlin"
    monkeypatch.setenv("TZ", ":/usr/share/zoneinfo/posix/Europe/Berlin")
    assert local_time_zone() == "Europe/Berlin"
    monkeypatch.setenv("TZ", "Europe/Nowhere")
    assert local_time_zone() == "UTC"
    monkeypatch.delenv("TZ")
    assert local_time_zone()


@pytest.fixture
def here(spark, job, monkeypatch, capsys):
    """Calls the command in this process, on the session that is there: exit status and output."""

    def call(*more):
        monkeypatch.setattr(session, "end_session", lambda spark: None)
        monkeypatch.setattr(session, "jvm_pid", lambda spark: None)
        capsys.readouterr()
        return run([*job.arguments, *more]), "".join(capsys.readouterr())

    return call


@pytest.fixture
def to_the_end(job, here):
    """Calls the command, which ends by itself; with PELTON_FULL=1 a process with a JVM of its own."""
    return job.finish if FULL else here


@pytest.fixture
def until_ctrl_c(job, here):
    """Calls the command, and has it interrupted when some work is done; with PELTON_FULL=1 a process
    with a JVM of its own.
    """

    def call(work, *more):
        if FULL:
            process = job.start(*more)
            work()
            os.kill(process.pid, signal.SIGINT)
            output = job.end()
            return process.returncode, output
        ended = threading.Event()

        def interrupt():
            try:
                work()
            finally:
                if not ended.is_set():
                    os.kill(os.getpid(), signal.SIGINT)

        with ThreadPoolExecutor(1) as beside:
            told = beside.submit(interrupt)
            try:
                found = here(*more)
            finally:
                ended.set()
            told.result()
        return found

    return call


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.timeout(600)
def test_ctrl_c_is_a_clean_stop_with_a_summary(job, until_ctrl_c):
    pids = []

    def work():
        job.wait_for(lambda: job.rows() >= 500)
        job.write("a.log", 501, 600)
        job.wait_for(lambda: job.rows() >= 600)
        pids.extend(pid for pid, _ in job.children().values())

    job.write("a.log", 1, 500)
    code, output = until_ctrl_c(work, "--trigger-seconds", "0.1")
    assert code == 0, output
    assert "rows in table lines" in output
    assert "PASS" in output
    assert len(pids) == length(1, 2)  # of the server, and of a JVM of its own
    assert all(started_at(pid) is None for pid in pids)
    assert job.children() == {}


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.timeout(600)
def test_killed_anywhere_and_started_again_loses_and_doubles_nothing(job, to_the_end):
    """kill -9 of the command while it ships, the server, the JVM, its workers, the command.

    In `make test` the workers go with the JVM; `tests/plgd/exact` kills them alone.
    """
    lines = length(10_000, 60_000)
    job.write("a.log", 1, lines)
    job.write("b.log", 1, 1000)

    job.start()
    job.wait_for(lambda: job.stored() > 2000)
    job.process.kill()
    job.end()
    deadline = time.monotonic() + 10
    while job.living("server") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not job.living("server"), "the server outlived its parent"

    job.write("b.log", 1001, 2000)
    job.start()
    before = job.wait_for(job.stored)
    job.wait_for(lambda: job.stored() > before)
    os.kill(job.wait_for(lambda: job.living("server")), signal.SIGKILL)
    assert "the server died (signal SIGKILL)" in job.end()
    assert job.process.returncode == 1

    job.start("--trigger-seconds", "0")
    job.wait_for(lambda: list((job.store / "tables" / "lines").glob("*.parquet")))
    jvm = job.wait_for(lambda: job.living("jvm"))
    for pid in (*(() if FULL else workers_of(jvm)), jvm):
        os.kill(pid, signal.SIGKILL)
    assert "pelton run: " in job.end()
    assert job.process.returncode == 1

    job.write("a.log", lines + 1, lines + 5000)
    if FULL:
        job.start("--trigger-seconds", "0")
        rows = job.rows()
        job.wait_for(lambda: job.rows() > rows or job.rows() >= lines)
        for worker in workers_of(job.living("jvm")):
            os.kill(worker, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.process.wait(timeout=3)
        job.process.kill()
        job.end()

    (job.logs / "a.log").rename(job.logs / "a.log.1")
    job.write("a.log", 1, 10)
    code, output = to_the_end("--once")
    assert code == 0, output
    assert ": 3 files, " in output
    assert ": 0 files, 5" not in output  # they count when they are closed, too
    assert "PASS" in output

    total = lines + 5000 + 2000 + 10
    table = DeltaTable(job.store / "tables" / "lines").to_pyarrow_table()
    keys = set(zip(table["identity"].to_pylist(), table["offset"].to_pylist(), strict=True))
    assert (table.num_rows, len(keys)) == (total, total)
    texts = table["message"].to_pylist()
    wanted = [f"line {number} of a.log" for number in [*range(1, lines + 5001), *range(1, 11)]]
    wanted += [f"line {number} of b.log" for number in range(1, 2001)]
    assert sorted(texts) == sorted(wanted)
    counts = DeltaTable(job.store / "tables" / "counts").to_pyarrow_table()
    assert sum(counts["lines"].to_pylist()) == total
