"""Writing into streams without Spark: what a task does, over each kind of server."""

from __future__ import annotations

import pytest

from tests.spark.writing import (
    DATA,
    SECOND_NS,
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


@pytest.mark.parametrize("mode", ["ids", "batch"])
@pytest.mark.parametrize("window", [SECOND_NS // 10, 120 * SECOND_NS])
def test_a_task_killed_in_the_middle_goes_on_whatever_the_window(sink, mode, window):
    given = made(sink, mode, duplicate_window=window)
    plan = sink.plan(DATA, **given, maxInFlight=64, atomicRows=100)
    from penstock.spark.writer import write_partition

    for after in (3, 7, 12):
        with pytest.raises(Killed):
            write_partition(plan, task(), dying(payloads(1500), DATA, 90, after))
        while window < SECOND_NS and sink.js.stream_info(sink.name).state.messages:
            import time

            time.sleep(0.25)  # the window itself is what must pass
            break
    written = write(plan, payloads(1500), size=90)
    assert written.already > 0
    assert [data for _, data in sink.stored()] == [b"row %d" % n for n in range(1500)]
