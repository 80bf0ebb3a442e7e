"""Durations, addresses and ports as people write them."""

import pytest

from pelton.server.units import (
    format_size,
    parse_address,
    parse_duration,
    parse_port,
)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0),
        ("1ns", 1),
        ("1us", 1_000),
        ("1µs", 1_000),
        ("250ms", 250_000_000),
        ("10s", 10_000_000_000),
        ("2m", 120_000_000_000),
        ("1h30m", 5_400_000_000_000),
        ("1.5h", 5_400_000_000_000),
        ("-1.5s", -1_500_000_000),
        (".5s", 500_000_000),
    ],
)
def test_a_duration_is_read_as_go_reads_it(text, ns):
    assert parse_duration(text) == ns


@pytest.mark.parametrize("text", ["", "5", "1x", "s", "1s2", "1 s", "--1s", "1,5s", "always"])
def test_what_is_no_duration_is_refused_with_its_text(text):
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("4333", ("h", 4333)),
        (":4333", ("h", 4333)),
        ("10.0.0.1:4333", ("10.0.0.1", 4333)),
        ("localhost:-1", ("localhost", -1)),
        ("example.org", ("example.org", 4222)),
        ("[::1]:4333", ("::1", 4333)),
        ("[::]", ("::", 4222)),
    ],
)
def test_an_address_takes_what_it_leaves_out_from_the_defaults(text, address):
    assert parse_address(text, "h", 4222) == address


@pytest.mark.parametrize("text", ["::1:4222:5", "host:port", "host:70000", ":-2", "a:b:4222"])
def test_a_broken_address_is_refused(text):
    with pytest.raises(ValueError, match="is not a"):
        parse_address(text, "h", 4222)


@pytest.mark.parametrize("text", ["-2", "65536", "x", "", "4222 x", "1.5"])
def test_a_port_is_a_number_up_to_65535_or_minus_one(text):
    with pytest.raises(ValueError, match="is not a port"):
        parse_port(text)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.00 KB"), (61673321472, "57.44 GB")]
)
def test_a_size_for_people(size, text):
    assert format_size(size) == text
