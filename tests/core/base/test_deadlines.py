"""The agenda against a sorted list, its bytes, and what it costs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.base.deadlines import DeadlineHeap
from penstock.core.log import maintenance
from penstock.core.log.recovery import open_log
from penstock.core.stream.message_ttl import learn, prune
from tests.core.streams import block

ITEMS = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), max_size=200)


def drained(agenda: DeadlineHeap) -> list[int]:
    return agenda.take(1 << 62, 1 << 30)


@given(items=ITEMS, now=st.integers(0, 60), limit=st.integers(0, 20), keep=st.integers(1, 50))
def test_an_agenda_gives_what_a_sorted_list_gives(
    items: list[tuple[int, int]], now: int, limit: int, keep: int
) -> None:
    agenda = DeadlineHeap()
    for due_ns, seq in items:
        agenda.add(due_ns, seq)
    model = sorted(items)
    assert agenda.next_ns() == (model[0][0] if model else 0)
    due = [item for item in model if item[0] <= now][:limit]
    assert agenda.take(now, limit) == [seq for _, seq in due]
    model = model[len(due) :]
    assert len(agenda) == len(model)
    kept = [item for item in model if item[1] <= keep]
    assert agenda.keep(lambda _, seq: seq <= keep) == len(model) - len(kept)
    copy = DeadlineHeap()
    assert copy.load(agenda.dump(keep - 1, note=7)) == (keep - 1, 7)
    assert drained(copy) == [seq for _, seq in kept if seq < keep]
    assert drained(agenda) == [seq for _, seq in kept]
    assert agenda.next_ns() == 0


@given(data=st.binary(max_size=80), at=st.integers(0, 67), bit=st.integers(0, 7))
def test_damaged_bytes_are_no_agenda(data: bytes, at: int, bit: int) -> None:
    agenda = DeadlineHeap()
    agenda.add(5, 1)
    agenda.add(6, 2)
    good = bytearray(agenda.dump(9))
    good[at] ^= 1 << bit
    for bad in (data, bytes(good), agenda.dump(9)[:-16]):
        with pytest.raises(ValueError, match="agenda"):
            DeadlineHeap().load(bad)


def test_a_log_is_learned_from_a_sequence_on() -> None:
    log = open_log(None)
    for ttl in ("1", "never", "x", "9" * 30, "2s", "0"):
        log.add(1000, "s", b"", block(f"Nats-TTL: {ttl}"))
    log.add(1000, "s", b"")
    log.add(1000, "s", b"", block("Other: 1"))
    agenda = DeadlineHeap()
    assert learn(agenda, log, 0) == 1
    assert drained(agenda) == [1, 5, 4]
    assert learn(agenda, log, 2) == 1
    maintenance.delete(log, 5)
    assert prune(agenda, log) == 1
    assert drained(agenda) == [4]
