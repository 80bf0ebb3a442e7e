"""NATS keys, against the library that others use, and against garbage."""

from __future__ import annotations

import base64
import re
from binascii import crc_hqx

import nacl.public
import nkeys as peer
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton import nkeys

RAW = st.binary(min_size=32, max_size=32)
SIGNING = st.sampled_from([nkeys.USER, nkeys.ACCOUNT, nkeys.OPERATOR, nkeys.SERVER, nkeys.CLUSTER])
ALICE, BOB = nkeys.CurvePair(bytes(range(32))), nkeys.CurvePair(bytes(range(1, 33)))


@given(SIGNING, RAW, st.binary(max_size=200))
def test_keys_are_those_of_the_other_library(kind: int, raw: bytes, data: bytes) -> None:
    ours = nkeys.KeyPair(kind, raw)
    theirs = peer.from_seed(ours.seed.encode())
    assert theirs.public_key.decode() == ours.public
    assert theirs.verify(data, ours.sign(data))
    signature = theirs.sign(data)
    assert nkeys.verify(ours.public, data, signature)
    assert not nkeys.verify(ours.public, data + b"x", signature)
    assert nkeys.KeyPair.from_seed(ours.seed).public == ours.public


@given(SIGNING, RAW)
def test_text_and_back(kind: int, raw: bytes) -> None:
    assert nkeys.decode(nkeys.encode(kind, raw), kind) == raw
    assert nkeys.decode_seed(nkeys.encode_seed(kind, raw)) == (kind, raw)
    assert nkeys.kind_of(nkeys.encode(kind, raw)) == kind


@given(RAW, st.integers(0, 55), st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567=a1 é"))
def test_one_letter_off_is_no_key(raw: bytes, place: int, letter: str) -> None:
    key = nkeys.encode(nkeys.USER, raw)
    changed = key[:place] + letter + key[place + 1 :]
    assert nkeys.is_public(changed) == (changed == key)


@given(st.binary(min_size=35, max_size=35), st.booleans())
def test_a_key_is_its_bytes_in_base_32(raw: bytes, sound: bool) -> None:
    if sound:
        raw = raw[:-2] + crc_hqx(raw[:-2], 0).to_bytes(2, "little")
    key = base64.b32encode(raw).decode()
    kinds = (nkeys.ACCOUNT, nkeys.CLUSTER, nkeys.SERVER, nkeys.OPERATOR, nkeys.USER, nkeys.CURVE)
    fits = raw[-2:] == crc_hqx(raw[:-2], 0).to_bytes(2, "little") and raw[0] in kinds
    assert nkeys.is_public(key) == fits
    if fits:
        assert nkeys.decode(key) == raw[1:-2]


@given(st.text(max_size=80))
def test_garbage_is_a_nkey_error(text: str) -> None:
    for read in (nkeys.decode, nkeys.decode_seed, nkeys.read_seed, nkeys.read_credentials):
        with pytest.raises(nkeys.NkeyError):
            read(text)
    assert not nkeys.verify(text, b"", b"")


def test_kinds_are_told_apart() -> None:
    account = nkeys.encode(nkeys.ACCOUNT, bytes(32))
    assert account[0] == "A"
    assert nkeys.is_public(account, nkeys.ACCOUNT)
    assert nkeys.is_public(account, nkeys.USER, nkeys.ACCOUNT)
    assert not nkeys.is_public(account, nkeys.USER)
    with pytest.raises(nkeys.NkeyError, match="not a public user key"):
        nkeys.decode(account, nkeys.USER)
    with pytest.raises(nkeys.NkeyError, match="encrypts"):
        nkeys.KeyPair.from_seed(ALICE.seed)
    with pytest.raises(nkeys.NkeyError, match="not the seed of a curve key"):
        nkeys.CurvePair.from_seed(nkeys.encode_seed(nkeys.USER, bytes(32)))


def test_secrets_are_not_shown() -> None:
    seed = nkeys.encode_seed(nkeys.USER, bytes(32))
    pair = nkeys.KeyPair.from_seed(seed)
    shown = f"{pair!r} {ALICE!r} {nkeys.Credentials('jwt', seed)!r}"
    assert seed not in shown
    assert ALICE.seed not in shown
    with pytest.raises(nkeys.NkeyError) as caught:
        nkeys.decode_seed(seed[:-1] + "A")
    assert seed[:4] not in str(caught.value)


@given(st.binary(max_size=400), st.binary(min_size=24, max_size=24))
def test_what_is_sealed_is_a_box(data: bytes, nonce: bytes) -> None:
    sealed = ALICE.seal(data, BOB.public, nonce)
    assert BOB.open(sealed, ALICE.public) == data
    box = nacl.public.Box(
        nacl.public.PrivateKey(bytes(range(1, 33))),
        nacl.public.PublicKey(nkeys.decode(ALICE.public)),
    )
    assert box.decrypt(sealed[4:]) == data
    assert BOB.open(b"xkv1" + bytes(box.encrypt(data, nonce)), ALICE.public) == data


@given(st.integers(0, 60), st.integers(1, 255))
def test_what_was_changed_is_not_opened(place: int, by: int) -> None:
    sealed = bytearray(ALICE.seal(b"some text of a request", BOB.public, bytes(24)))
    sealed[place] ^= by
    with pytest.raises(nkeys.NkeyError):
        BOB.open(bytes(sealed), ALICE.public)


@pytest.mark.parametrize("sealed", [b"", b"xkv1", b"xkv1" + bytes(39), b"eyJ"])
def test_what_was_not_sealed_is_not_opened(sealed: bytes) -> None:
    with pytest.raises(nkeys.NkeyError):
        BOB.open(sealed, ALICE.public)
    with pytest.raises(nkeys.NkeyError):
        BOB.open(sealed, nkeys.encode(nkeys.CURVE, bytes(32)))


def test_the_signature_of_a_nonce_is_for_urls() -> None:
    pair = nkeys.KeyPair(nkeys.USER, bytes(32))
    for number in range(20):
        text = nkeys.sign_nonce(pair.seed, f"nonce{number}")
        assert re.fullmatch(r"[\w-]{86}", text)
        raw = nkeys.read_signature(text)
        assert raw is not None
        assert nkeys.verify(pair.public, f"nonce{number}".encode(), raw)


@pytest.mark.parametrize("text", ["!", "a", "é", "ab cd", "+/-_"])
def test_what_is_no_signature(text: str) -> None:
    assert nkeys.read_signature(text) is None


def test_files() -> None:
    seed = nkeys.encode_seed(nkeys.USER, bytes(32))
    creds = nkeys.format_credentials("eyJ0.eyJ1.c2ln", seed)
    assert nkeys.read_credentials(creds) == ("eyJ0.eyJ1.c2ln", seed)
    assert nkeys.read_credentials(creds.replace("\n", "\r\n")) == ("eyJ0.eyJ1.c2ln", seed)
    assert nkeys.read_jwt(creds) == "eyJ0.eyJ1.c2ln"
    assert nkeys.read_jwt(" eyJ0.eyJ1.c2ln\n") == "eyJ0.eyJ1.c2ln"
    assert nkeys.read_seed(creds) == seed
    assert nkeys.read_seed(f"\n{seed}\n") == seed
    assert nkeys.read_seed(f"# my key\n{seed}\n") == seed
    with pytest.raises(nkeys.NkeyError):
        nkeys.read_credentials(seed)
