"""A repair brings back what a checksum proves, loses nothing, and keeps what it replaces."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pelton.core.base.disk import Disk, PyDisk
from pelton.core.log import maintenance
from pelton.core.log.recovery import open_log
from pelton.store.checks import look
from pelton.store.consumer_checks import repaired_states
from pelton.store.describe import described
from pelton.store.repair import repair
from tests.ways import length

from .stores import CREATED, Failing, flip, make_stream, messages_of, place_of, segments_of, tree

NUMBERS = itertools.count()


def test_a_sound_stream_is_not_touched(tmp_path: Path) -> None:
    make_stream(tmp_path)
    before = tree(tmp_path)
    report = repair(*place_of(tmp_path), Disk())
    assert report.changes == []
    assert tree(tmp_path) == before


@settings(max_examples=length(20, 40), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 32), compress=st.booleans())
def test_one_flipped_bit_anywhere_is_put_right(tmp_path: Path, seed: int, compress: bool) -> None:
    pick = random.Random(seed)
    store = tmp_path / f"s{next(NUMBERS)}"
    folder = make_stream(store, count=60, compress=compress)
    everything = messages_of(folder)
    sound = tree(folder)
    path = pick.choice([each for each in folder.rglob("*") if each.is_file()])
    flip(path, pick.randrange(path.stat().st_size), pick.randrange(8))
    hurt = path.read_bytes()
    report = repair(*place_of(store), Disk())
    after = look(*place_of(store), whole=True)
    assert after.state == "sound"
    assert messages_of(folder) == everything
    name = str(path.relative_to(folder))
    if path.read_bytes() != hurt:
        kept = [Path(c.kept).read_bytes() for c in report.changes if c.file == str(path)]
        assert kept == [hurt]
        if path.suffix != ".idx" and ".seg" not in path.suffix:
            assert path.read_bytes() == sound[name]
    again = repair(*place_of(store), Disk())
    assert again.changes == []


@settings(max_examples=length(20, 40), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 32))
def test_nothing_that_was_there_is_lost(tmp_path: Path, seed: int) -> None:
    pick = random.Random(seed)
    store = tmp_path / f"s{next(NUMBERS)}"
    folder = make_stream(store, count=80, compress=pick.random() < 0.3)
    for _ in range(pick.randint(1, 4)):
        path = pick.choice([each for each in folder.rglob("*") if each.is_file()])
        data = bytearray(path.read_bytes())
        if not data:
            continue
        at = pick.randrange(len(data))
        end = min(len(data), at + pick.choice([1, 1, 5, 200]))
        data[at:end] = pick.randbytes(end - at)
        path.write_bytes(data[: at + 1] if pick.random() < 0.2 else data)
    before, readable = tree(folder), messages_of(folder)
    told = repair(*place_of(store), None)
    assert tree(folder) == before
    done = repair(*place_of(store), Disk())
    assert [change.file for change in told.changes] == [change.file for change in done.changes]
    after = messages_of(folder)
    assert {seq: after.get(seq) for seq in readable} == readable
    kept = set(tree(folder).values())
    assert all(data in kept for data in before.values())
    log = open_log(str(folder / "log"))
    assert log.msgs == len(after) == done.after.messages
    maintenance.close(log)


@pytest.mark.parametrize("changes", range(0, 40, 3))
def test_a_repair_that_is_cut_short_can_be_run_again(tmp_path: Path, changes: int) -> None:
    folder = make_stream(tmp_path, count=60)
    everything = messages_of(folder)
    flip(segments_of(folder)[0], 200)
    flip(folder / "meta.json", 20)
    before = tree(folder)
    try:
        repair(*place_of(tmp_path), PyDisk(Failing(changes)))
    except OSError:
        kept = set(tree(folder).values())
        assert all(data in kept for data in before.values())
    repair(*place_of(tmp_path), Disk())
    assert look(*place_of(tmp_path), whole=True).state == "sound"
    assert messages_of(folder) == everything


@settings(max_examples=length(20, 100), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 32))
def test_states_are_mended_only_from_one_bit(tmp_path: Path, seed: int) -> None:
    pick = random.Random(seed)
    folder = tmp_path / "s"
    stream = folder / "jetstream" / "$G" / "streams" / "ORDERS"
    if not stream.exists():
        make_stream(folder, count=5)
    data = (stream / "consumers" / "states.0").read_bytes()
    bit = pick.randrange(len(data) * 8)
    hurt = bytearray(data)
    hurt[bit >> 3] ^= 1 << (bit & 7)
    assert repaired_states(bytes(hurt)) == data
    other = (bit + pick.randrange(8, 200)) % (len(data) * 8)
    hurt[other >> 3] ^= 1 << (other & 7)
    assert repaired_states(bytes(hurt)) in (None, data)


@pytest.mark.parametrize(("mirror", "last"), [("ORIGIN", 200), ("", 201)])
def test_a_torn_message_of_a_mirror_comes_again(tmp_path: Path, mirror: str, last: int) -> None:
    """The origin still has it under its sequence; another stream gives the sequence to nobody."""
    folder = make_stream(tmp_path, mirror=mirror)
    log = open_log(str(folder / "log"))
    assert log.add(CREATED, "ORDERS.1", b"torn") == 201
    log.flush()
    del log  # its process ends
    newest = segments_of(folder)[-1]
    newest.write_bytes(newest.read_bytes()[:-5])
    disk, place = place_of(tmp_path)
    assert look(disk, place).last_seq == look(disk, place, whole=True).last_seq == last
    assert described(disk, place).state.last_seq == last
    repair(disk, place, Disk())
    log = open_log(str(folder / "log"), numbered=bool(mirror))
    assert log.last_seq == last
    maintenance.close(log)
