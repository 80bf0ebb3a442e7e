"""Two attempts at one partition, both alive: a task that Spark runs twice to be quicker, or that it
believes dead. Each row is there once, whatever the duplicate window."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
import pytest

from pelton.client.base.models import StreamConfig
from pelton.errors import ConnectionLostError
from pelton.spark.buckets.object_store import ObjectStore
from pelton.spark.connection import forget_client
from pelton.spark.writing.plan import WritePlan, fingerprint
from pelton.spark.writing.progress import AnotherAttempt, Progress
from pelton.spark.writing.row_errors import WriteError
from pelton.spark.writing.writer import write_partition
from tests.spark.test_writer import Attempt
from tests.spark.writing import (
    DATA,
    Sink,
    batches,
    broker,
    payloads,
    sink,
    task,
    write,
)

__all__ = ["broker", "sink"]
pytestmark = [
    pytest.mark.peer,
    pytest.mark.filterwarnings("ignore:stream .* recognizes a message id"),
]

WINDOW_S = 0.2
BEYOND_SECONDS = 0.3  # the window itself is what must pass
ROWS = [b"row %d" % n for n in range(1000)]


class Stopped(Exception):
    """What ends an attempt in the middle."""


def plans(sink: Sink, **given: object) -> tuple[WritePlan, WritePlan]:
    """The same write twice, each over a connection of its own, as in two workers."""
    given = {"subject": f"{sink.low}.rows", "maxInFlight": 64, **given}
    first = sink.plan(DATA, **given)
    second = sink.plan(DATA, **given, requestTimeout="9s")
    assert first.options.servers != second.options.servers
    return first, second


def interrupted(at: dict[int, Callable[[], None]], size: int = 50) -> Iterator[pa.RecordBatch]:
    """The rows, and what happens before some of the batches is asked for."""
    for number, batch in enumerate(batches(payloads(1000), DATA, size)):
        at.get(number, lambda: None)()
        yield batch


def stop() -> None:
    raise Stopped


def pause() -> None:
    time.sleep(BEYOND_SECONDS)


def test_the_second_is_through_before_the_first_wakes_up(sink):
    sink.make(duplicate_window=WINDOW_S)
    first, second = plans(sink)

    def overtake() -> None:
        assert write(second, payloads(1000)).rows == 1000
        pause()

    written = write_partition(first, task(), interrupted({7: overtake}))
    assert written.rows == 1000
    assert [data for _, data in sink.stored()] == ROWS
    forget_client(second.options.servers)


def test_the_first_goes_on_when_the_second_has_died(sink):
    sink.make(duplicate_window=WINDOW_S)
    first, second = plans(sink, retryTimeout="1s")

    def overtake() -> None:
        with pytest.raises(Stopped):
            write_partition(second, task(), interrupted({13: stop}))
        pause()

    began = time.monotonic()
    written = write_partition(first, task(), interrupted({7: overtake}))
    assert time.monotonic() - began > 1, "it did not wait for the other one"
    assert written.rows == 1000
    assert [data for _, data in sink.stored()] == ROWS
    assert write(first, payloads(1000)).already == 1000
    forget_client(second.options.servers)


def test_an_attempt_that_was_taken_over_gives_way_in_turn(sink):
    """Both alive, both slow: each waits while the other writes, and one is through at last."""
    sink.make(duplicate_window=WINDOW_S)
    first, second = plans(sink, retryTimeout="1s")
    begun = threading.Event()

    def slowly(start: threading.Event | None) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches(payloads(1000), DATA, 50)):
            if number == 3 and start is not None:
                start.set()
            time.sleep(0.15)
            yield batch

    outcome: list[object] = []

    def attempt() -> None:
        outcome.append(write_partition(first, task(), slowly(begun)).rows)

    thread = threading.Thread(target=attempt)
    thread.start()
    assert begun.wait(20)
    assert write_partition(second, task(), slowly(None)).rows == 1000
    thread.join(60)
    assert outcome == [1000]
    assert [data for _, data in sink.stored()] == ROWS
    forget_client(second.options.servers)


def test_the_second_learns_what_the_first_wrote_before_it_gave_way(sink):
    sink.make(duplicate_window=2 * WINDOW_S)
    first, second = plans(sink)
    begun, written, waits = threading.Event(), threading.Event(), threading.Event()
    outcome: list[object] = []

    def let_the_second_begin() -> None:
        begun.set()
        assert written.wait(20)

    def attempt() -> None:
        at = {5: let_the_second_begin, 9: lambda: waits.wait(20)}
        outcome.append(write_partition(first, task(), interrupted(at)).rows)

    def wait_for_the_first() -> None:
        written.set()  # it sends some more, and gives way a quarter of the window later
        time.sleep(4 * BEYOND_SECONDS)

    thread = threading.Thread(target=attempt)
    thread.start()
    try:
        assert begun.wait(20)
        # It claims, reads what is there, writes two batches, and falls asleep.
        assert write_partition(second, task(), interrupted({2: wait_for_the_first})).rows == 1000
    finally:
        written.set()
        waits.set()
        thread.join()
        forget_client(second.options.servers)
    assert outcome == [1000]
    assert [data for _, data in sink.stored()] == ROWS


def test_a_write_that_was_ended_is_not_gone_on_with(sink):
    sink.make(duplicate_window=WINDOW_S)
    first, second = plans(sink)

    def end() -> None:
        js = sink.js
        js.purge_stream("KV_pelton_spark", filter_subject="$KV.pelton_spark.query.>")
        pause()

    with pytest.raises(WriteError, match=r"progress record .* is missing: the write was ended"):
        write_partition(first, task(), interrupted({7: end}))
    forget_client(second.options.servers)


def test_a_write_that_is_ended_while_an_attempt_waits_is_not_gone_on_with(sink):
    sink.make(duplicate_window=WINDOW_S)
    first, second = plans(sink)

    def overtake() -> None:
        with pytest.raises(Stopped):
            write_partition(second, task(), interrupted({13: stop}))
        pause()
        js = sink.js
        purge = partial(js.purge_stream, filter_subject="$KV.pelton_spark.query.>")
        # The first one has looked, and waits, when nothing is left to wait for.
        timers.append(threading.Timer(BEYOND_SECONDS, purge, ["KV_pelton_spark"]))
        timers[0].start()

    timers: list[threading.Timer] = []
    with pytest.raises(WriteError, match=r"progress record .* is missing: the write was ended"):
        write_partition(first, task(), interrupted({7: overtake}))
    timers[0].join()  # it may still wait for its answer
    forget_client(second.options.servers)


def test_who_takes_over_knows_what_is_in_though_the_server_goes_away_meanwhile(sink, monkeypatch):
    sink.make(duplicate_window=WINDOW_S)
    first, second = plans(sink)
    made = [
        Progress(sink.js, plan.options.progress_bucket, plan.target, task())
        for plan in (first, second)
    ]
    rows = fingerprint(first.composer.compose(next(batches(payloads(1000), DATA))))
    for progress in made:
        progress.begin(rows, own_ids=False)
    with pytest.raises(Stopped):  # one more
        write_partition(second, task(), interrupted({13: stop}))
    pause()
    stored = set(range(len(sink.stored())))
    assert stored
    found = Progress.scan

    def lost(*args: object, **given: object) -> None:
        monkeypatch.setattr(Progress, "scan", found)
        raise ConnectionLostError("lost")

    monkeypatch.setattr(Progress, "scan", lost)
    with pytest.raises(ConnectionLostError):
        made[0].take_over(own_ids=False)
    assert not made[0].found
    made[0].take_over(own_ids=False)
    assert made[0].found.rows == stored
    with pytest.raises(AnotherAttempt):
        made[1].look()
    forget_client(second.options.servers)


@pytest.mark.slow
@pytest.mark.usefixtures("one_server")
def test_processes_that_write_the_same_for_longer_than_the_window(sink):
    sink.make(duplicate_window=WINDOW_S)
    options = {"servers": sink.url, "stream": sink.name, "maxInFlight": 50}
    options["subject"] = f"{sink.low}.rows"
    running = [Attempt(options, pause) for pause in (0.015, 0.008, 0.004)]
    assert 3000 in [attempt.rows() for attempt in running]
    assert [data for _, data in sink.stored()] == [b"row %d" % n for n in range(3000)]


def test_two_attempts_at_an_object(sink):
    """Chunks of an attempt that is overtaken never get into what the other one has stored."""
    bucket = sink.name
    sink.js.create_stream(
        StreamConfig(
            name=f"OBJ_{bucket}",
            subjects=[f"$O.{bucket}.C.>", f"$O.{bucket}.M.>"],
            allow_rollup_hdrs=True,
            discard="new",
        )
    )
    data = bytes(range(256)) * 64
    stores = [ObjectStore(sink.js, bucket, 1024) for _ in range(2)]
    publish = stores[0]._publish_chunks

    def slowly(view: memoryview, nuid: str) -> int:
        assert stores[1].put("a", data, "B", earlier=["A"])
        return publish(view, nuid)

    stores[0]._publish_chunks = slowly  # type: ignore[method-assign]  # in its middle the other one runs
    assert not stores[0].put("a", data, "A", earlier=["B"])
    found = stores[1].info("a")
    assert found is not None
    assert found.nuid == "B"
    chunks = [
        (row[2], row[4])
        for columns in sink.js.read_columns(f"OBJ_{bucket}", 1, 1000)
        for row in columns.rows()
    ]
    held = [chunk for subject, chunk in chunks if subject.startswith(f"$O.{bucket}.C.")]
    assert b"".join(held) == data
    sink.js.delete_stream(f"OBJ_{bucket}")
