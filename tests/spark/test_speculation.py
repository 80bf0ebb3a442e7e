"""Spark's own speculation: a task that is slow is run twice, on another host, both attempts write into
the stream, and each row is there once. No attempt counts as a failure of its task, for a few of those
end a job.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pelton.client.base.models import StreamConfig
from pelton.client.sync import connect
from tests import pythons
from tests.peers import ServerProcess, available_servers, start_server
from tests.spark.exact.cluster import Cluster
from tests.spark.exact.lives import ROOT, kill_session
from tests.spark.jvm import EVERY_WAY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), EVERY_WAY]

PARTITIONS, ROWS = 4, 8000
SLOW = PARTITIONS - 1
# All workers are up once the first is through. By name: exactlyOnce, duplicate window of the stream,
# pause of each attempt before each 50 rows.
FAST_SECOND = [0.3, 0.1]
CASES: dict[str, tuple[str, int, list[float]]] = {
    "warm": ("ids", 1, [0.0]),
    "ids-in-the-window": ("ids", 120, FAST_SECOND),
    "ids-beyond-the-window": ("ids", 1, FAST_SECOND),
    "ids-always-slow": ("ids", 1, [0.3]),
    "batch": ("batch", 1, FAST_SECOND),
    "batch-always-slow": ("batch", 1, [0.3]),
}


class Outcome:
    """What came of a case."""

    def __init__(self, server: ServerProcess, name: str, notes: Path) -> None:
        with connect(server.url) as client:
            js = client.jetstream()
            last = js.stream_info(name).state.last_seq
            messages = [js.get_message(name, seq) for seq in range(1, last + 1)]
        self.rows: list[tuple[int, int]] = []
        """Partition and number of each message, in the order of the stream."""
        self.attempts: Counter[str] = Counter()
        """How many rows of the slow partition are of which attempt."""
        for message in messages:
            if message.subject.startswith("spark.progress."):
                continue
            partition, number = map(int, message.data.decode().split("\t"))
            self.rows.append((partition, number))
            if partition == SLOW:
                self.attempts[message.headers["Attempt"]] += 1
        self.begun = {path.name for path in notes.iterdir()}

    @property
    def slow(self) -> list[int]:
        """The rows of the slow partition."""
        return [number for partition, number in self.rows if partition == SLOW]


@pytest.fixture(scope="module")
def server() -> Any:
    started = start_server(available_servers()[0])
    yield started
    started.remove()


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory, server: ServerProcess) -> Any:
    """All cases, one after the other, on one cluster: what the job said, and what the streams have."""
    folder = tmp_path_factory.mktemp("speculation")
    cases = []
    with connect(server.url) as client:
        js = client.jetstream()
        for name, (once, window, pauses) in CASES.items():
            js.create_stream(
                StreamConfig(
                    name=name,
                    subjects=[f"{name}.>", f"spark.progress.{name}.>"],
                    duplicate_window=window,
                    allow_atomic=True,
                )
            )
            options = {"servers": server.url, "stream": name, "subject": f"{name}.rows"}
            # Few rows on their way: what an attempt was given is soon in the stream.
            options |= {"exactlyOnce": once, "atomicRows": "50", "maxInFlight": "50"}
            case = {"name": name, "slow_seconds": pauses, "options": options}
            sizes = {"rows": ROWS, "partitions": PARTITIONS, "notes": str(folder / name)}
            cases.append(case | sizes)
    cluster = Cluster(folder, hosts=("127.0.0.1", "127.0.0.2"))
    plan = folder / "plan.json"
    settings = {"spark.task.maxFailures": "1"}
    plan.write_text(json.dumps({"master": cluster.url, "settings": settings, "cases": cases}))
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.speculation_job", str(plan)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=pythons.plain(os.environ) | {"PYTHONPATH": path},
    )
    try:
        out, err = process.communicate(timeout=600)
    finally:
        kill_session(process.pid)
        cluster.stop()
    print(out)
    assert process.returncode == 0, out + err[-4000:]
    said = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    found = {name: Outcome(server, name, folder / name) for name in CASES}
    return {each["case"]: (each["outcome"], found[each["case"]]) for each in said}


@pytest.mark.parametrize("name", [name for name in CASES if name != "warm"])
def test_two_attempts_write_a_partition_and_each_row_is_there_once(
    outcomes: Any, name: str
) -> None:
    said, outcome = outcomes[name]
    print(name, said, dict(outcome.attempts), sorted(outcome.begun))
    assert said == "written"
    assert Counter(number for _, number in outcome.rows) == Counter(range(ROWS))
    assert outcome.slow == sorted(outcome.slow)
    assert outcome.begun >= {f"{SLOW}-0", f"{SLOW}-1"}, "Spark did not speculate"
    assert outcome.attempts["0"], outcome.attempts
    if CASES[name][2] == FAST_SECOND:
        assert outcome.attempts["1"], outcome.attempts
