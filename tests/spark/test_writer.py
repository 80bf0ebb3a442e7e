"""Writing into streams without Spark: what a task does, over each kind of server."""

from __future__ import annotations

import multiprocessing
import random
import time
import warnings
from multiprocessing.connection import Connection

import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from pelton.spark.writing.row_errors import WriteError
from pelton.spark.writing.writer import plan_write, write_partition
from tests.spark.writing import (
    DATA,
    Sink,
    batches,
    broker,
    needs_atomic,
    payloads,
    sink,
    task,
    write,
)

__all__ = ["broker", "sink"]
pytestmark = pytest.mark.peer

MODES = ["ids", "batch", "none"]


def made(sink: Sink, mode: str, **config: object) -> dict[str, object]:
    """A stream fit for the mode; the options that name it."""
    subjects = [f"{sink.low}.>"]
    if mode == "batch":
        needs_atomic(sink)
        sink.make(subjects=[*subjects, sink.progress], allow_atomic=True, **config)
    else:
        sink.make(**config)
    return {"exactlyOnce": mode, "subject": f"{sink.low}.rows"}


@pytest.mark.parametrize("mode", MODES)
def test_rows_are_stored_in_order(sink, mode):
    given = made(sink, mode)
    written = write(sink.plan(DATA, **given), payloads(3500), size=999)
    assert (written.rows, written.already, written.refused) == (3500, 0, 0)
    assert sink.stored() == [(f"{sink.low}.rows", b"row %d" % n) for n in range(3500)]


@pytest.mark.parametrize("mode", ["ids", "batch"])
def test_a_task_run_again_adds_nothing(sink, mode):
    given = made(sink, mode)
    plan = sink.plan(DATA, **given)
    write(plan, payloads(1500))
    again = write(plan, payloads(1500))
    assert (again.rows, again.already) == (1500, 1500)
    assert len(sink.stored()) == 1500


class Killed(Exception):
    """What ends a task in the middle."""


def dying(rows, schema, size, after):
    """Batches, until ``after`` of them were asked for."""
    for number, batch in enumerate(batches(rows, schema, size)):
        if number == after:
            raise Killed
        yield batch


@pytest.mark.filterwarnings("ignore:stream .* recognizes a message id")
@pytest.mark.parametrize("mode", ["ids", "batch"])
@pytest.mark.parametrize("window", [0.1, 120])
def test_a_task_that_failed_goes_on_whatever_the_window(sink, mode, window):
    given = made(sink, mode, duplicate_window=window)
    plan = sink.plan(DATA, **given, maxInFlight=64, atomicRows=100)
    for after in (3, 7, 12):
        with pytest.raises(Killed):
            write_partition(plan, task(), dying(payloads(1500), DATA, 90, after))
        if window < 1:
            time.sleep(0.2)  # the window itself is what must pass
    written = write(plan, payloads(1500), size=90)
    assert written.already > 0
    assert [data for _, data in sink.stored()] == [b"row %d" % n for n in range(1500)]


# Each task is a process of its own, forked from one that has the imports.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([__name__])


def write_slowly(answers: Connection, options: dict[str, str], pause: float) -> None:
    """What a process of a task does: write one partition, slowly."""
    warnings.simplefilter("ignore")
    plan = plan_write(options, from_arrow_schema(DATA))
    answers.send("begun")

    def slowly():
        for batch in batches(payloads(3000), DATA, 20):
            yield batch
            time.sleep(pause)

    answers.send(write_partition(plan, task(), slowly()).rows)


class Attempt:
    """A process that writes one partition."""

    def __init__(self, options: dict[str, object], pause: float) -> None:
        self.answers, theirs = PROCESSES.Pipe(duplex=False)
        texts = {name: str(value) for name, value in options.items()}
        self.process = PROCESSES.Process(target=write_slowly, args=(theirs, texts, pause))
        self.process.start()
        theirs.close()
        assert self.answers.recv() == "begun"

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def rows(self) -> int | None:
        """How many rows it has seen written; None if it failed, and said why."""
        try:
            return self.answers.recv() if self.answers.poll(60) else None
        except EOFError:
            return None
        finally:
            self.kill()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["ids", "batch"])
@pytest.mark.usefixtures("one_server")
def test_kills_without_warning(sink, mode):
    """Killed between publish, ack and the record of it, wherever that is."""
    given = made(sink, mode, duplicate_window=0.1)
    options = {"servers": sink.url, "stream": sink.name, "maxInFlight": 500, "atomicRows": 50}
    lives = random.Random(7)
    for _ in range(4):
        attempt = Attempt({**options, **given}, 0.002)
        time.sleep(lives.uniform(0.02, 0.25))
        attempt.kill()
        time.sleep(0.15)  # beyond the duplicate window
    assert Attempt({**options, **given}, 0.002).rows() == 3000
    assert [data for _, data in sink.stored()] == [b"row %d" % n for n in range(3000)]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["ids", "batch"])
def test_two_attempts_at_one_partition_at_once(sink, mode):
    """A task that Spark believes dead writes on while its successor writes the same rows."""
    given = made(sink, mode)
    options = {"servers": sink.url, "stream": sink.name, "maxInFlight": 50, "atomicRows": 40}
    running = [Attempt({**options, **given}, pause) for pause in (0.004, 0.002)]
    assert 3000 in [attempt.rows() for attempt in running]
    stored = [data for _, data in sink.stored()]
    assert sorted(stored) == sorted(b"row %d" % n for n in range(3000))
    if mode == "batch":
        assert stored == [b"row %d" % n for n in range(3000)]


def test_epochs_follow_one_another_and_an_old_one_is_refused(sink):
    for mode in ("ids", "batch"):
        if mode == "batch" and not sink.client.server_info.version_at_least(2, 12):
            continue
        sink.make(
            subjects=[f"{sink.low}.>", sink.progress],
            **({"allow_atomic": True} if mode == "batch" else {}),
        )
        plan = sink.plan(DATA, exactlyOnce=mode, subject=f"{sink.low}.x")
        for epoch in range(3):
            write(plan, payloads(epoch * 10, epoch * 10 + 10), of=task(epoch, writer=mode))
        with pytest.raises(WriteError, match="overtaken: epoch 2 was begun"):
            write(plan, payloads(10, 20), of=task(1, writer=mode))
        with pytest.raises(WriteError, match="other rows than the first time"):
            write(plan, payloads(21, 31), of=task(2, writer=mode))
        with pytest.raises(WriteError, match="other rows than the first time"):
            write(plan, payloads(20, 31), of=task(2, writer=mode))
        assert [data for _, data in sink.stored()] == [b"row %d" % n for n in range(30)]
        sink.js.delete_stream(sink.name)


def test_a_stream_that_was_made_again_is_written_again(sink):
    given = made(sink, "ids")
    write(sink.plan(DATA, **given), payloads(10))
    sink.js.delete_stream(sink.name)
    sink.make()
    assert write(sink.plan(DATA, **given), payloads(10)).already == 0
    assert len(sink.stored()) == 10


@pytest.mark.filterwarnings("ignore:stream .* recognizes a message id")
def test_rows_whose_begin_the_stream_dropped_are_not_written_again(sink):
    given = made(sink, "ids", max_msgs=200, duplicate_window=0.1)
    plan = sink.plan(DATA, **given)
    with pytest.raises(Killed):
        write_partition(plan, task(), dying(payloads(1000), DATA, 100, 6))
    time.sleep(0.2)  # the window itself is what must pass
    write(plan, payloads(1000))
    assert [data for _, data in sink.stored()] == [b"row %d" % n for n in range(800, 1000)]
    assert sink.js.stream_info(sink.name).state.last_seq == 1000
