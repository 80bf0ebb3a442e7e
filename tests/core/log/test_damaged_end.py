"""The end of the newest segment is overwritten: what was given is not given again."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pelton.core.base.disk import PyDisk
from pelton.core.log import maintenance
from pelton.core.log.recovery import open_log
from pelton.core.stream.atomic_batch import store_whole
from pelton.core.stream.draft import draft
from pelton.testing.simulated_disk import SimDisk
from tests.core.damage import everything
from tests.core.streams import Site
from tests.ways import length


@settings(max_examples=length(50, 400), deadline=None)
@given(
    start=st.integers(0, 899),
    length=st.one_of(st.integers(1, 40), st.integers(1, 600)),
    how=st.sampled_from(["zeros", "ones", "other"]),
    skips=st.sampled_from([0, 1, 3]),
    size=st.sampled_from([0, 20, 100, 300]),
    head=st.one_of(st.none(), st.integers(0, 31)),
)
def test_one_run_of_bytes_damaged_near_the_end_gives_no_sequence_again(
    start: int, length: int, how: str, skips: int, size: int, head: int | None
) -> None:
    """Whatever it destroys: heads in a row, sequences, a skip; also when the segment's head has a
    flipped bit beside it. What can be told is.
    """
    target = SimDisk()
    log = open_log("log", PyDisk(target), segment_bytes=1 << 20)
    for seq in range(1, 41):
        log.add(seq, "s", b"%d" % seq + b"m" * size)
    if skips:
        log.skip(41 + skips)
    log.flush()
    data = target.names["log/00000000000000000001.seg"].data
    end = min(len(data) - 4, len(data) - 900 + start + length)
    begin = max(min(len(data) - 900 + start, end - 1), 32)
    for at in range(begin, end):
        data[at] = {"zeros": 0, "ones": 255, "other": data[at] ^ 0x5A}[how]
    if head is not None:
        data[head] ^= 1
    last = 0
    for _ in range(2):
        log = open_log("log", PyDisk(target), segment_bytes=1 << 20)
        found = set(everything(log))
        missing = set(range(1, 41)) - found
        told = {first + k for first, count, _ in log.lost for k in range(count)}
        assert log.last_seq >= 40 + min(skips, 1)
        assert last in (0, log.last_seq)
        last = log.last_seq
        assert len(missing) != 1 or missing <= told, (missing, log.lost)
        assert not missing or told, missing
        # of heads destroyed in a row
        assert missing - told <= set(range(41 - len(missing - told), 41))
        assert told - missing <= set(range(41, 42 + skips)), (told, missing)


PARTS = {"length": (0, 4), "kind": (4, 6), "mark": (10, 12), "sequence": (16, 24), "body": (33, 36)}


@settings(max_examples=length(50, 400), deadline=None)
@given(
    parts=st.lists(st.sets(st.sampled_from(sorted(PARTS))), min_size=1, max_size=5),
    flip=st.integers(1, 255),
    size=st.sampled_from([5, 60, 300]),
    head=st.sampled_from([0, 1, 8]),
)
def test_several_damaged_records_at_the_end_give_no_sequence_again(
    parts: list[set[str]], flip: int, size: int, head: int
) -> None:
    """Each in a part of its own, and bytes of the segment's head."""
    # Behind a length that is damaged nothing is left of a head without a mark and a sequence.
    blind = [{"mark", "sequence"} <= damaged for damaged in parts]
    assume(not any("length" in damaged and all(blind[:k]) for k, damaged in enumerate(parts) if k))
    target = SimDisk()
    log = open_log("log", PyDisk(target), segment_bytes=1 << 20)
    for seq in range(1, 21):
        log.add(seq, "s", b"%d" % seq + b"m" * (size + seq % 3))
    log.flush()
    data = target.names["log/00000000000000000001.seg"].data
    starts = [32]
    while len(starts) < 20:
        starts.append(starts[-1] + int.from_bytes(data[starts[-1] : starts[-1] + 4], "little"))
    for start, damaged in zip(reversed(starts), parts, strict=False):
        for name in damaged:
            for at in range(*PARTS[name]):
                data[start + at] ^= flip
    for at in range(head):
        data[at] ^= flip
    for _ in range(2):
        log = open_log("log", PyDisk(target), segment_bytes=1 << 20)
        assert log.last_seq >= 20
        told = {first + k for first, count, _ in log.lost for k in range(count)}
        # One whose length is damaged looks like one that never reached the disk whole.
        torn = any("length" in damaged for damaged in parts)
        assert told or torn or set(everything(log)) >= set(range(1, 20))


@settings(max_examples=length(25, 60), deadline=None)
@given(cut=st.integers(1, 200), kept=st.booleans())
def test_of_a_group_that_is_known_to_have_been_whole_only_what_is_cut_is_lost(
    cut: int, kept: bool
) -> None:
    """The index file says that all of it was there; without one it may never have reached the disk."""
    target = SimDisk()
    log = open_log("log", PyDisk(target), segment_bytes=1 << 20)
    log.add(1, "s", b"before")
    site = Site(log=log)
    store_whole(site.stream.path, [draft("s", b"m" * 60, b"") for _ in range(3)])
    site.reactor.settle()
    log.flush()
    maintenance.close(log)
    path = "log/00000000000000000001"
    data = target.names[f"{path}.seg"].data
    del data[len(data) - cut :]
    if not kept:
        target.unlink(f"{path}.idx")
    there = {1, *(seq for seq in range(2, 4) if kept and cut <= 97 * (4 - seq))}
    for last in (4, 5, 6):
        log = open_log("log", PyDisk(target), segment_bytes=1 << 20)
        found = everything(log)
        assert {seq for seq in found if found[seq].payload != b"after"} == there
        told = {first + k for first, count, _ in log.lost for k in range(count)}
        assert told == ({2, 3, 4} - there if kept else set())
        if kept:
            assert log.last_seq == last
        log.add(1, "s", b"after")
        log.flush()
        log.fsync()
        target.kill()


def test_removals_are_said_again_when_the_segment_that_said_them_is_given_up() -> None:
    """It has no message, so another one takes its name."""
    target = SimDisk()
    log = open_log("log", PyDisk(target), segment_bytes=1 << 20)
    for seq in (1, 2):
        log.add(seq, "s", b"%d" % seq)
    log.flush()
    target.names["log/00000000000000000001.seg"].data[1] ^= 2
    log = open_log("log", PyDisk(target), segment_bytes=1 << 20)
    assert maintenance.delete(log, 1, erase=False)
    log.flush()
    newest = target.names["log/00000000000000000003.seg"]
    newest.data[1] ^= 2
    for _ in range(3):
        log = open_log("log", PyDisk(target), segment_bytes=1 << 20)
        assert set(everything(log)) == {2}
        assert log.last_seq == 2
    assert target.names["log/00000000000000000003.seg"] is not newest
