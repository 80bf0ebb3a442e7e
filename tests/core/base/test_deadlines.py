"""The deadline heap against a sorted list, its bytes, and what it costs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.core.base.deadlines import DeadlineHeap
from pelton.core.log import maintenance
from pelton.core.log.recovery import open_log
from pelton.core.stream.message_ttl import learn, prune
from tests.core.streams import block

ITEMS = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), max_size=200)


def drained(heap: DeadlineHeap) -> list[int]:
    return heap.take(1 << 62, 1 << 30)


@given(items=ITEMS, now=st.integers(0, 60), limit=st.integers(0, 20), keep=st.integers(1, 50))
def test_a_heap_gives_what_a_sorted_list_gives(
    items: list[tuple[int, int]], now: int, limit: int, keep: int
) -> None:
    heap = DeadlineHeap()
    for due_ns, seq in items:
        heap.add(due_ns, seq)
    model = sorted(items)
    assert heap.next_ns() == (model[0][0] if model else 0)
    due = [item for item in model if item[0] <= now][:limit]
    assert heap.take(now, limit) == [seq for _, seq in due]
    model = model[len(due) :]
    assert len(heap) == len(model)
    kept = [item for item in model if item[1] <= keep]
    assert heap.keep(lambda _, seq: seq <= keep) == len(model) - len(kept)
    copy = DeadlineHeap()
    assert copy.load(heap.dump(keep - 1, note=7)) == (keep - 1, 7)
    assert drained(copy) == [seq for _, seq in kept if seq < keep]
    assert drained(heap) == [seq for _, seq in kept]
    assert heap.next_ns() == 0


@given(data=st.binary(max_size=80), at=st.integers(0, 67), bit=st.integers(0, 7))
def test_damaged_bytes_are_no_dump(data: bytes, at: int, bit: int) -> None:
    heap = DeadlineHeap()
    heap.add(5, 1)
    heap.add(6, 2)
    good = bytearray(heap.dump(9))
    good[at] ^= 1 << bit
    for bad in (data, bytes(good), heap.dump(9)[:-16]):
        with pytest.raises(ValueError, match="dump of deadlines"):
            DeadlineHeap().load(bad)


def test_a_log_is_learned_from_a_sequence_on() -> None:
    log = open_log(None)
    for ttl in ("1", "never", "x", "9" * 30, "2s", "0"):
        log.add(1000, "s", b"", block(f"Nats-TTL: {ttl}"))
    log.add(1000, "s", b"")
    log.add(1000, "s", b"", block("Other: 1"))
    heap = DeadlineHeap()
    assert learn(heap, log, 0) == 1
    assert drained(heap) == [1, 5, 4]
    assert learn(heap, log, 2) == 1
    maintenance.delete(log, 5)
    assert prune(heap, log) == 1
    assert drained(heap) == [4]
