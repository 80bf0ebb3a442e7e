"""The api_subjects: which subjects go where, in any shape."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.streams import Site, block


def pending_site() -> Site:
    site = Site()
    site.publish("s.a")
    site.publish("s.b")
    site.consumer()
    site.pull("2")
    assert len(site.heard()) == 2
    return site


@pytest.mark.parametrize(
    ("subject", "left", "status"),
    [
        ("$JS.ACK.S.C.1.1.1.0.0", 1, ""),
        ("$JS.ACK.S.C.1.2.2.1700000000000000000.0", 1, ""),
        ("$JS.ACK._.HASH.S.C.1.2.2.0.0", 1, ""),
        ("$JS.ACK.reactor.HASH.S.C.1.2.2.0.0.more.tokens", 1, ""),
        ("$JS.ACK.S.C.1.1.1.0", 2, "503"),
        ("$JS.ACK.S.C.1.1.1.0.0.0", 2, "503"),
        ("$JS.ACK.S.X.1.1.1.0.0", 2, "503"),
        ("$JS.ACK.S.C.x.1.1.0.0", 2, "nothing"),
        ("$JS.ACK.S.C.1.-1.1.0.0", 2, "nothing"),
        ("$JS.ACK.S.C.1.99999999999999999999.1.0.0", 2, "nothing"),
        ("$JS.ACK.S.C.1.9.1.0.0", 2, "nothing"),
    ],
)
def test_ack_subjects(subject: str, left: int, status: str) -> None:
    site = pending_site()
    (consumer,) = site.stream.consumers()
    for _ in range(2):  # the second time past the short cut
        site.publish(subject, b"", "in.done")
        assert [m.status for m in site.heard()] == ([] if status == "nothing" else [status])
    assert consumer.state().num_ack_pending == left


@given(
    st.lists(st.sampled_from(["S", "C", "1", "2", "x", "_", "99"]), max_size=14).map(".".join),
    st.sampled_from(["ACK", "FC", "API.CONSUMER.MSG.NEXT"]),
)
def test_any_subject_below_the_prefixes_is_survived(rest: str, prefix: str) -> None:
    site = pending_site()
    site.publish(f"$JS.{prefix}.{rest}" if rest else f"$JS.{prefix}", b"{", "in.done")
    site.heard()


def test_other_requests_go_to_the_api() -> None:
    site = Site()
    site.publish("$JS.API.STREAM.INFO.S", b"{}", "in.r", block("A: b"))
    site.publish("$JS.API.CONSUMER.MSG.NEXTX", b"")
    assert site.heard() == []
    assert [call[1:] for call in site.api] == [
        ("$JS.API.STREAM.INFO.S", "in.r", block("A: b"), b"{}"),
        ("$JS.API.CONSUMER.MSG.NEXTX", "", b"", b""),
    ]


def test_requests_to_nobody_hear_503() -> None:
    site = Site()
    site.pull("1", consumer="X")
    assert [m.status for m in site.heard()] == ["503"]


@pytest.mark.parametrize(
    ("level", "status"),
    [("5", "404 No Messages"), ("6", "412 Required Api Level"), ("x", "412 Required Api Level")],
)
def test_required_api_level(level: str, status: str) -> None:
    site = Site()
    site.consumer()
    site.publish(
        "$JS.API.CONSUMER.MSG.NEXT.S.C",
        b'{"no_wait":true}',
        "in.n",
        block(f"Nats-Required-Api-Level: {level}"),
    )
    assert [m.status for m in site.heard()] == [status]


def test_a_name_can_be_given_to_another_consumer() -> None:
    site = pending_site()
    (first,) = site.stream.consumers()
    site.publish("$JS.ACK.S.C.1.1.1.0.0")
    site.api_subjects.remove(first)
    first.close("")
    second = site.consumer()
    site.api_subjects.remove(first)  # no longer its own: nothing happens
    site.pull("1")
    (message,) = site.heard()
    site.ack(message)
    assert second.state().floor_stream_seq == 1
    assert first.closed
