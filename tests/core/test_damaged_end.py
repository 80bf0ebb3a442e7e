"""The end of the newest segment is overwritten: what was given is not given again."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.disk import PyDisk
from penstock.core.log import Log
from tests.core.damage import everything
from tests.simulation.disk import SimDisk


@settings(max_examples=400, deadline=None)
@given(
    start=st.integers(0, 899),
    length=st.one_of(st.integers(1, 40), st.integers(1, 600)),
    how=st.sampled_from(["zeros", "ones", "other"]),
    skips=st.sampled_from([0, 1, 3]),
    size=st.sampled_from([0, 20, 100, 300]),
)
def test_one_run_of_bytes_damaged_near_the_end_gives_no_sequence_again(
    start: int, length: int, how: str, skips: int, size: int
) -> None:
    """Whatever it destroys: heads in a row, sequences, a skip. What can be told is."""
    target = SimDisk()
    log = Log("log", PyDisk(target), segment_bytes=1 << 20)
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
    log = Log("log", PyDisk(target), segment_bytes=1 << 20)
    found = set(everything(log))
    missing = set(range(1, 41)) - found
    told = {first + k for first, count, _ in log.lost for k in range(count)}
    assert log.last_seq >= 40 + min(skips, 1)
    assert len(missing) != 1 or missing <= told, (missing, log.lost)
    assert not missing or told, missing
    assert missing - told <= set(range(41 - len(missing - told), 41))  # of heads destroyed in a row
    assert told - missing <= set(range(41, 42 + skips)), (told, missing)
