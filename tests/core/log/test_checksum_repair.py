"""One flipped bit found by a checksum, and what passes for one by chance."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.core.base.buffer import crc32c_of
from pelton.core.log import maintenance
from pelton.core.log.checksum_repair import flipped_bit_of, mend_record, salt_of_records
from tests.core import damage
from tests.ways import length


@given(st.binary(min_size=1, max_size=300), st.integers(0, 2**32 - 1), st.integers(0))
def test_every_flipped_bit_is_named(data: bytes, start: int, where: int) -> None:
    stored = crc32c_of(data, start)
    assert flipped_bit_of(data, stored, start) == -1
    bit = where % (8 * len(data) + 32)
    if bit >= 8 * len(data):
        stored ^= 1 << bit - 8 * len(data)
        assert flipped_bit_of(data, stored, start) == bit
        return
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    assert flipped_bit_of(bytes(changed), stored, start) == bit


@given(st.binary(min_size=1, max_size=2000), st.sets(st.integers(0, 10**6), min_size=2))
def test_an_even_number_of_flipped_bits_never_passes_for_one(data: bytes, bits: set[int]) -> None:
    places = {bit % (8 * len(data)) for bit in bits}
    if len(places) % 2:
        places.pop()
    changed = bytearray(data)
    for bit in places:
        changed[bit // 8] ^= 1 << bit % 8
    assert flipped_bit_of(bytes(changed), crc32c_of(data)) == -1


def test_how_often_other_damage_passes_for_one_bit() -> None:
    # (8n + 32) / 2^32 of random bytes: for 64 KiB, 1.2e-4
    rng = random.Random(5)
    tries, size = length(1000, 4000), 65536
    data = rng.randbytes(size)
    passed = sum(flipped_bit_of(data, rng.getrandbits(32)) >= 0 for _ in range(tries))
    assert passed <= 5  # at most 0.5 expected


def records() -> tuple[list[bytes], int, bytes]:
    store = damage.build("bare")
    path = min(store.files)
    data = store.files[path]
    salt = int.from_bytes(data[12:16], "little")
    return [data[p.start : p.end] for p in damage.pieces(data) if p.kind > 0], salt, data


def test_a_record_with_one_flipped_bit_is_mended_wherever_it_is() -> None:
    whole, salt, _ = records()
    for record in whole[:6]:
        for bit in range(8 * len(record)):
            changed = bytearray(record)
            changed[bit // 8] ^= 1 << bit % 8
            assert mend_record(bytes(changed), salt) == record
    assert mend_record(whole[0], salt) is None
    assert mend_record(whole[0][:-1], salt) is None
    assert mend_record(whole[0] + whole[1], salt) is None
    assert mend_record(b"", salt) is None


def test_the_salt_follows_from_the_records() -> None:
    whole, salt, data = records()
    assert salt_of_records(data, 32) == salt
    assert salt_of_records(b"\xaa" * 32 + data[32:]) == salt
    damaged = bytearray(data)
    damaged[60] ^= 255
    damaged[300] ^= 255
    assert salt_of_records(bytes(damaged), 32) == salt
    assert salt_of_records(b"no record at all" * 10) is None
    assert salt_of_records(whole[0]) == salt


def test_copies_of_a_damaged_record_do_not_outvote_the_others() -> None:
    whole, salt, data = records()
    changed = bytearray(whole[0])
    changed[40] ^= 255
    copies = b"".join(bytes(changed) + bytes(k) for k in range(1, 12))
    assert salt_of_records(data + copies, 32) == salt


def test_a_large_damaged_record_does_not_outvote_small_ones_that_agree() -> None:
    whole, salt, _ = records()
    small = b"".join(sorted(set(whole), key=len)[:6])
    assert salt_of_records(small) == salt
    large = whole[0][4:-4] + bytes(len(small) + 8)
    large = (len(large) + 4).to_bytes(4, "little") + large
    assert salt_of_records(large) not in (None, salt)
    assert salt_of_records(large + small) == salt_of_records(small + large) == salt


@settings(max_examples=length(40, 300), deadline=None)
@given(
    places=st.lists(st.tuples(st.integers(0, 120), st.integers(1, 255)), min_size=1, max_size=4),
    table=st.booleans(),
)
def test_a_damaged_block_does_not_make_up_messages(
    places: list[tuple[int, int]], table: bool
) -> None:
    """What is damaged in compressed bytes comes again in each record that repeats them, so that
    the records agree on a salt.
    """
    shelf = damage.Shelf()
    log = damage.open_log(shelf)
    log.compress = True
    for seq in range(1, 30):
        log.add(
            seq, f"s.{seq % 3}", b"m%d" % seq + b"." * 200, b"NATS/1.0\r\nK: v\r\n\r\n" * (seq % 2)
        )
    log.flush()
    while maintenance.maintain(log):
        pass
    whole = damage.everything(log)
    path = min(path for path in shelf.files if path.endswith(".seg"))
    data = shelf.files[path]
    assert data[8] == 2
    shelf.files = {name: content for name, content in shelf.files.items() if name.endswith(".seg")}
    for at in (12, 31, 52):  # the salt in the head of the file, and the one in the block
        data[at] ^= 90
    for at, flip in places:
        data[60 + at % (len(data) - 60 - 40)] ^= flip
    if not table:
        data[len(data) - 20] ^= 1
    found = damage.everything(damage.open_log(shelf))
    assert {seq: whole[seq] for seq in found} == found
