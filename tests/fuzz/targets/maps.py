"""The core's maps against a dict, by a list of steps."""

from __future__ import annotations

from collections.abc import Iterable

from pelton.core.base.maps import BytesMap, U64Map
from tests.fuzz.inputs import Input

MAX_BYTES = 2000


def run(data: bytes) -> None:
    """Verbs with a key and a value, on both kinds."""
    source = Input(data)
    texts, numbers = BytesMap(), U64Map()
    by_text: dict[bytes, int] = {}
    by_number: dict[int, int] = {}
    while source:
        verb = source.number()
        key = source.bytes(1 + verb % 3) * (1 + (verb >> 6) * 40)
        number = int.from_bytes(key[:8], "little") << (verb & 32)
        number &= (1 << 64) - 1
        if verb & 3 == 3:
            assert texts.delete(key) == (by_text.pop(key, None) is not None)
            assert numbers.delete(number) == (by_number.pop(number, None) is not None)
        elif verb & 31 == 28:
            texts.empty()
            numbers.empty()
            by_text.clear()
            by_number.clear()
        elif verb & 31 == 24:  # many at once, so that it grows
            for k in range(verb):
                many = key + bytes([k])
                texts.set(many, k)
                by_text[many] = k
                numbers.set(number ^ k << 3, k)
                by_number[number ^ k << 3] = k
        else:
            texts.set(key, verb)
            by_text[key] = verb
            numbers.set(number, verb)
            by_number[number] = verb
        assert texts.get(key) == by_text.get(key)
        assert numbers.get(number) == by_number.get(number)
        assert (len(texts), len(numbers)) == (len(by_text), len(by_number))
    assert dict(texts.items()) == by_text
    assert dict(numbers.items()) == by_number


def seeds() -> Iterable[bytes]:
    yield bytes([0, 1, 1, 5, 9, 3, 1, 2, 0, 0, 24, 7, 7, 3, 7])
    yield bytes([24, 0, 88, 1, 152, 2, 216, 3, 27, 0, 91, 1, 28, 0, 24, 9])
    yield bytes(range(256)) * 2
