"""From where and when a user JWT counts."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.server.auth.claims import TimeRange, UserPart
from pelton.server.auth.validity import allowed_until_ns, from_allowed_network

SECOND = 1_000_000_000
ZONE = "America/New_York"


@pytest.mark.parametrize(
    ("src", "host", "allowed"),
    [
        (None, "10.0.0.1", True),
        ([], "10.0.0.1", True),
        (["10.0.0.0/8"], "10.1.2.3", True),
        (["10.0.0.0/8"], "11.1.2.3", False),
        (["192.168.0.0/16", "10.0.0.1/32"], "10.0.0.1", True),
        ("10.0.0.0/8, 11.0.0.0/8", "11.1.2.3", True),
        (["2001:db8::/32"], "2001:db8::1", True),
        (["2001:db8::/32"], "10.0.0.1", False),
        (["10.0.0.0/8"], "::ffff:10.0.0.1", True),
        (["10.0.0.0/8"], "a name", False),
        (["10.0.0.0/8"], "", False),
        (["nonsense"], "10.0.0.1", False),
    ],
)
def test_networks(src, host, allowed):
    assert from_allowed_network(UserPart(src=src), host) is allowed


def at(hour, minute=0, day=15):
    return round(datetime(2026, 6, day, hour, minute, tzinfo=ZoneInfo(ZONE)).timestamp()) * SECOND


def until(hour, *ranges):
    nats = UserPart(times=[TimeRange(*each) for each in ranges], times_location=ZONE)
    return allowed_until_ns(nats, at(hour))


def test_parts_of_the_day():
    assert until(12) == 0
    assert until(12, ("11:00:00", "13:00:00")) == at(13)
    assert until(10, ("11:00:00", "13:00:00")) is None
    assert until(13, ("11:00:00", "13:00:00")) is None
    assert until(12, ("11:00:00", "13:00:00"), ("09:00:00", "17:00:00")) == at(17)
    assert until(23, ("22:00:00", "06:00:00")) == at(6, day=16)
    assert until(5, ("22:00:00", "06:00:00")) == at(6)
    assert until(7, ("22:00:00", "06:00:00")) is None


@given(st.integers(0, 86399), st.integers(0, 86399), st.integers(0, 86399))
def test_against_a_clock_face(start, end, now):
    """Seconds of a day without a change of the clock, counted round."""

    def text(seconds):
        return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"

    nats = UserPart(times=[TimeRange(text(start), text(end))], times_location="UTC")
    midnight = datetime(2026, 6, 15, tzinfo=ZoneInfo("UTC"))
    moment = midnight + timedelta(seconds=now)
    found = allowed_until_ns(nats, round(moment.timestamp()) * SECOND)
    inside = start < now < end if start <= end else (now < end or now > start)
    assert (found is not None) is inside
    if found is not None:
        left = (end - now) % 86400
        assert found == round((moment + timedelta(seconds=left)).timestamp()) * SECOND
