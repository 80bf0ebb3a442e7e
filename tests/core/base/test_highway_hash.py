"""HighwayHash-64 against the published vectors."""

import pytest

from pelton.core.base.highway_hash import highway64

KEY = bytes(range(32))
# of the bytes 0, 1, 2, ... under KEY, as published with the algorithm
VECTORS = {0: 0x907A56DE22C26E53, 1: 0x7EAB43AAC7CDDD78, 2: 0xB8D0569AB0B53D62}


@pytest.mark.parametrize("n", VECTORS)
def test_published_vectors(n: int) -> None:
    assert highway64(KEY, bytes(range(n))) == VECTORS[n]


def test_every_byte_of_data_and_key_counts() -> None:
    data = bytes(range(200))
    seen = {highway64(KEY, data[:n]) for n in range(len(data) + 1)}
    for at in range(len(data)):
        seen.add(highway64(KEY, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]))
    for at in range(32):
        seen.add(highway64(KEY[:at] + bytes([KEY[at] ^ 128]) + KEY[at + 1 :], data))
    assert len(seen) == 201 + 200 + 32


@pytest.mark.parametrize("n", [0, 31, 33])
def test_a_key_has_32_bytes(n: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        highway64(bytes(n), b"")
