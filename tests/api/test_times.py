"""Times and durations survive the wire and look as the protocol writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.api import times
from pelton.api.times import (
    LAST_NS,
    ZERO_NS,
    format_duration,
    format_instant,
    format_time,
    parse_duration,
    parse_instant,
    parse_long_duration,
    parse_time,
)

INSTANTS = st.integers(min_value=1, max_value=4_000_000_000_000_000_000)
DURATIONS = st.integers(min_value=-(2**62), max_value=2**62)


@given(INSTANTS)
def test_a_time_comes_back(ns: int) -> None:
    text = format_time(ns)
    assert parse_time(text) == ns
    assert not text.endswith("0Z") or "." not in text


@given(DURATIONS)
def test_a_duration_comes_back(ns: int) -> None:
    assert parse_duration(format_duration(ns)) == ns


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0001-01-01T00:00:00Z"),
        (1_000_000_000, "1970-01-01T00:00:01Z"),
        (1_763_662_782_292_330_659, "2025-11-20T18:19:42.292330659Z"),
        (1_763_662_782_292_330_000, "2025-11-20T18:19:42.29233Z"),
        (1_763_662_782_000_000_001, "2025-11-20T18:19:42.000000001Z"),
    ],
)
def test_times_are_written_without_trailing_zeros(ns: int, text: str) -> None:
    assert format_time(ns) == text
    assert parse_time(text) == ns


@given(st.integers(min_value=ZERO_NS, max_value=LAST_NS))
def test_an_instant_comes_back(ns: int) -> None:
    assert parse_instant(format_instant(ns)) == ns
    assert parse_time(format_time(ns)) == (ns if ns != ZERO_NS else 0)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("0001-01-01T00:00:00Z", ZERO_NS),
        ("0001-01-01T01:00:00+01:00", ZERO_NS),
        ("0001-01-01T00:00:00+01:00", ZERO_NS),
        ("0000-02-29T00:00:00Z", ZERO_NS),
        ("9999-12-31T23:59:59.999999999Z", LAST_NS),
        ("9999-12-31T23:59:59-01:00", LAST_NS),
    ],
)
def test_the_first_and_the_last_instant(text: str, ns: int) -> None:
    assert parse_instant(text) == ns
    assert parse_time(text) == (0 if ns == ZERO_NS else ns)


def test_offsets_are_taken_off() -> None:
    assert parse_time("2020-01-01T02:30:00+02:30") == parse_time("2020-01-01T00:00:00Z")
    assert parse_time("2019-12-31T23:00:00.5-01:00") == parse_time("2020-01-01T00:00:00.5Z")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("x", 'parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"'),
        ("2020-13-01T00:00:00Z", 'parsing time "2020-13-01T00:00:00Z": month out of range'),
    ],
)
def test_bad_times_name_the_fault(text: str, error: str) -> None:
    with pytest.raises(ValueError, match="parsing time") as caught:
        parse_time(text)
    assert str(caught.value) == error


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_500, "1.5µs"),
        (2_000_000, "2ms"),
        (60_000_000_000, "1m0s"),
        (3_723_500_000_000, "1h2m3.5s"),
        (-30_000_000_000, "-30s"),
    ],
)
def test_durations_are_written_with_units(ns: int, text: str) -> None:
    assert format_duration(ns) == text


@pytest.mark.parametrize("text", ["", "5", "s", "1x", "1s ", "--1s", "1.s.", "."])
def test_bad_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="invalid duration"):
        parse_duration(text)


DAY = 24 * 3_600_000_000_000


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1d", DAY),
        ("1D", DAY),
        ("1w", 7 * DAY),
        ("1M", 30 * DAY),
        ("1m", 60_000_000_000),
        ("1y2M3w4d", (365 + 60 + 21 + 4) * DAY),
        ("3d2h", 3 * DAY + DAY // 12),
        ("2h3d", 3 * DAY + DAY // 12),
        ("1.5d", DAY + DAY // 2),
        ("-1d1µs", -DAY - 1000),
        ("0", 0),
    ],
)
def test_people_count_in_days_too(text: str, ns: int) -> None:
    assert parse_long_duration(text) == ns


@given(st.integers(-(10**18), 10**18))
def test_what_go_writes_is_read_as_people_read_it(ns: int) -> None:
    assert parse_long_duration(format_duration(ns)) == ns


@pytest.mark.parametrize("text", ["", "5", "d", "1x", "1d ", "--1d", "1d-1h", "1 d", "1Ms", "."])
def test_other_texts_are_no_durations_of_people(text: str) -> None:
    with pytest.raises(ValueError, match="invalid duration"):
        parse_long_duration(text)


@given(st.integers(0, 400), st.sampled_from(["y", "M", "w", "d", "h"]))
def test_a_duration_is_at_most_292_years(count: int, unit: str) -> None:
    ns = count * times.LONG_UNITS_NS[unit]
    if ns < 1 << 63:
        assert times.parse_long_duration(f"{count}{unit}") == ns
    else:
        with pytest.raises(times.DurationTooLongError, match="is too long"):
            times.parse_long_duration(f"{count}{unit}")


@pytest.mark.parametrize("text", ["9" * 5000 + "h", "1h" * 5000])
def test_a_text_without_end_is_no_duration(text: str) -> None:
    for parse in (times.parse_duration, times.parse_long_duration):
        with pytest.raises(ValueError, match="invalid duration"):
            parse(text)
