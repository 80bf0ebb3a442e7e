"""Sizes beside a model: a number times a power."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.api.sizes import SIZE_MOST, SizeError, parse_size

UNITS = {"": 0, "B": 0} | {
    letter + end: power for power, letter in enumerate("KMGTPE", 1) for end in ("", "B", "i", "iB")
}


@given(st.integers(0, 1 << 70), st.sampled_from(sorted(UNITS)), st.sampled_from([1000, 1024]))
def test_a_size_is_a_number_and_a_unit(count: int, unit: str, bare: int) -> None:
    base = bare if len(unit) < 2 else 1024
    size = count * base ** UNITS[unit]
    for text in (f"{count}{unit}", f" {count} {unit.lower()} "):
        if size <= SIZE_MOST:
            assert parse_size(text, bare=bare) == size
        else:
            with pytest.raises(SizeError, match=f"maximum {SIZE_MOST} bytes"):
                parse_size(text, bare=bare)


@pytest.mark.parametrize(
    "text", ["", "B", "much", "1.5M", "-1", "1KK", "\u0663", "\xb2", "1" * 5000]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(SizeError, match="is not a size such as"):
        parse_size(text)
