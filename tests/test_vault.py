"""Keys of encrypted stores: wrapping, rotation, small files."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.vault import CIPHERS, Vault, VaultError, fingerprint, is_sealed, key_check


def vault(key: str, previous: str = "", cipher: str = "aes", seed: int = 0) -> Vault:
    source = random.Random(f"{key}{previous}{cipher}{seed}")
    made = Vault.of(key, previous, cipher, random=source.randbytes)
    assert made is not None
    return made


@pytest.mark.parametrize("name", CIPHERS)
def test_a_key_file_gives_back_the_keys(name: str) -> None:
    box = vault("k", cipher=name)
    cipher = box.new()
    data = box.key_file(cipher)
    again = vault("k", cipher=name, seed=1).open([data])
    assert again.rows() == cipher.rows()
    assert again.number == cipher.number != 0
    assert not again.stale
    assert key_check(data) == ""


def test_nothing_configured_is_no_vault_and_an_unknown_cipher_is_refused() -> None:
    assert Vault.of("", random=random.Random(1).randbytes) is None
    with pytest.raises(VaultError, match="no cipher"):
        Vault.of("k", cipher="rot13", random=random.Random(1).randbytes)


def test_a_new_key_opens_with_the_previous_one_and_begins_a_data_key() -> None:
    old = vault("old")
    cipher = old.new()
    data = old.key_file(cipher)
    box = vault("new", "old")
    moved = box.open([data, data])
    assert moved.stale
    assert moved.number != cipher.number
    assert moved.rows()[:-1] == cipher.rows()
    wrapped = box.key_file(moved)
    assert vault("new").open([wrapped, wrapped]).rows() == moved.rows()
    assert fingerprint(wrapped) != fingerprint(data)
    with pytest.raises(VaultError, match="does not open it"):
        old.open([wrapped])
    # cut short between the two copies: the newer one counts, and both are written again
    between = vault("new", "old").open([wrapped, data])
    assert between.rows() == moved.rows()
    assert between.stale


def test_without_a_key_the_previous_one_opens_and_nothing_is_encrypted() -> None:
    box = vault("k")
    cipher = box.new()
    sealed = cipher.seal("meta.json", b"x")
    gone = vault("", "k").open([box.key_file(cipher)])
    assert gone.number == 0
    assert gone.open("meta.json", sealed) == b"x"
    assert gone.seal("meta.json", b"x") == b"x"
    assert not gone.current(sealed)
    assert gone.current(b"x")


@given(flips=st.lists(st.integers(0, 10_000), min_size=2, max_size=5, unique=True))
def test_a_damaged_key_file_gives_the_right_keys_or_none(flips: list[int]) -> None:
    box = vault("k")
    cipher = box.new()
    data = bytearray(box.key_file(cipher))
    for bit in {flip % (len(data) * 8) for flip in flips}:
        data[bit >> 3] ^= 1 << (bit & 7)
    try:
        found = box.open([bytes(data)])
    except VaultError:
        return
    assert found.rows() == cipher.rows()


@given(st.binary(max_size=400), st.integers(0, 1 << 20))
def test_a_small_file_comes_back_also_with_a_flipped_bit_and_only_where_it_was(
    data: bytes, at: int
) -> None:
    cipher = vault("k").new()
    sealed = cipher.seal("a", data)
    assert is_sealed(sealed)
    assert cipher.current(sealed)
    assert cipher.open("a", sealed) == data
    with pytest.raises(VaultError, match="altered or moved"):
        cipher.open("b", sealed)
    bit = at % (len(sealed) * 8)
    bad = bytearray(sealed)
    bad[bit >> 3] ^= 1 << (bit & 7)
    assert cipher.open("a", bytes(bad)) == data
    assert not cipher.current(bytes(bad))
    with pytest.raises(VaultError):
        vault("other").new().open("a", sealed)


def test_two_files_never_have_the_same_bytes_or_key() -> None:
    cipher = vault("k").new()
    assert cipher.seal("a", b"x") != cipher.seal("a", b"x")
    assert len({cipher.fresh() for _ in range(100)}) == 100
