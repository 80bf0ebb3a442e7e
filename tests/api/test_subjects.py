"""Subjects of the API are built without accidents; ack subjects are taken apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.api.subjects import AckSubject, Api, parse_ack, valid_name

COUNTS = st.integers(min_value=0, max_value=2**63)
NAMES = st.text(alphabet="abcXYZ019_-$", min_size=1, max_size=12)


def test_subjects_are_built() -> None:
    api = Api()
    assert api.info() == "$JS.API.INFO"
    assert api.stream("NAMES") == "$JS.API.STREAM.NAMES"
    assert api.stream("MSG.GET", "S") == "$JS.API.STREAM.MSG.GET.S"
    assert api.consumer("LIST", "S") == "$JS.API.CONSUMER.LIST.S"
    assert api.create_consumer("S", "c", "a.*.b") == "$JS.API.CONSUMER.CREATE.S.c.a.*.b"
    assert api.create_consumer("S", "c", ">") == "$JS.API.CONSUMER.CREATE.S.c"
    assert api.next_message("S", "c") == "$JS.API.CONSUMER.MSG.NEXT.S.c"
    assert api.direct_get("S", "a.b") == "$JS.API.DIRECT.GET.S.a.b"
    assert Api.of_domain("hub").stream("INFO", "S") == "$JS.hub.API.STREAM.INFO.S"
    assert Api.of_domain("").prefix == "$JS.API"


@pytest.mark.parametrize("name", ["a.b", "a b", "*", "a>", "a/b", "a\\b", "a\tb"])
def test_names_that_would_go_astray_are_refused(name: str) -> None:
    assert not valid_name(name)
    with pytest.raises(ValueError, match="must not be empty"):
        Api().stream("INFO", name)


@pytest.mark.parametrize("prefix", ["", "a..b", "a.*", ">", ".a"])
def test_prefixes_are_literal(prefix: str) -> None:
    with pytest.raises(ValueError, match="not an API prefix"):
        Api(prefix)


@given(NAMES, NAMES, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)
def test_ack_subjects_of_both_forms(
    stream: str, consumer: str, a: int, b: int, c: int, d: int, e: int
) -> None:
    tail = f"{stream}.{consumer}.{a}.{b}.{c}.{d}.{e}"
    expected = AckSubject("", "", stream, consumer, a, b, c, d, e)
    assert parse_ack(f"$JS.ACK.{tail}") == expected
    assert parse_ack(f"$JS.ACK._.hash.{tail}") == expected._replace(account_hash="hash")
    more = parse_ack(f"$JS.ACK.hub.hash.{tail}.later.tokens")
    assert more == expected._replace(domain="hub", account_hash="hash")
    assert parse_ack(f"$JS.ACK.one.{tail}") is None
    assert parse_ack(f"$JS.API.{tail}") is None


@pytest.mark.parametrize(
    "subject", ["", "$JS.ACK", "$JS.ACK.S.c.1.2.3.4.x", "$JS.ACK.S.c.1.2.3.4.-5"]
)
def test_other_subjects_are_no_acks(subject: str) -> None:
    assert parse_ack(subject) is None
