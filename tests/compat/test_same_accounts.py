"""What accounts share: our server and nats-server side by side, message by message."""

from collections.abc import Iterator

import pytest

from tests.compat.cast import Cast, cast
from tests.peers import available_servers

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(
        "nats-server" not in available_servers(), reason="no nats-server from 2.14 on"
    ),
]

CONFIG = """
accounts {
  A {
    users: [{user: a, password: pw}]
    exports: [
      {stream: "pub.>"}
      {stream: "private.*", accounts: [B]}
      {stream: "fixed"}
      {stream: "reg.*.*"}
      {service: "help"}
      {service: "calc.*.*"}
      {service: "many", response: stream}
      {service: "chunks", response: chunked}
      {service: "secret", accounts: [C]}
      {service: "quick", threshold: "200ms"}
      {service: "by.*", account_token_position: 2}
      {service: "js.in.>"}
      {service: "tail.>"}
      {service: "in.*.middle.>"}
      {stream: "wide.>"}
    ]
  }
  B {
    users: [{user: b, password: pw}]
    imports: [
      {stream: {account: A, subject: "pub.>"}, prefix: "from.a"}
      {stream: {account: A, subject: "private.*"}, to: "mine.$1.now"}
      {stream: {account: A, subject: "fixed"}}
      {stream: {account: A, subject: "reg.*.*"}, to: "reg.$2.$1"}
      {service: {account: A, subject: "help"}}
      {service: {account: A, subject: "calc.*.*"}, to: "do.$2.$1"}
      {service: {account: A, subject: "many"}, to: "all"}
      {service: {account: A, subject: "chunks"}, share: true}
      {service: {account: A, subject: "quick"}}
      {service: {account: A, subject: "by.B"}, to: "by"}
      {service: {account: A, subject: "tail.>"}, to: "froma.>"}
      {service: {account: A, subject: "in.*.middle.>"}, to: "middle.*.>"}
      {stream: {account: A, subject: "wide.>"}, to: "narrow.>"}
    ]
    exports: [{service: "help"}, {service: "onward"}, {stream: "from.a.>"}]
    mappings: {
      "old.*": "new.$1"
      "gone": [{destination: "gone", weight: 0}]
      "half": [{destination: "half.a", weight: 100}]
      "wild.*.>": "tame.$1.>"
      "pair.*.*": "couple.{{wildcard(2)}}.{{wildcard(1)}}"
      "first.*": "letter.{{left(1,1)}}"
    }
  }
  C {
    users: [{user: c, password: pw}]
    imports: [
      {service: {account: B, subject: "help"}, to: "please", share: true}
      {service: {account: A, subject: "secret"}}
      {stream: {account: B, subject: "from.a.>"}}
    ]
  }
}
"""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cast]:
    with cast(CONFIG, tmp_path_factory.mktemp("accounts"), []) as both:
        yield both


@pytest.fixture
def users(servers: Cast) -> Iterator[Cast]:
    """A fresh connection of every user."""
    fresh = Cast(*servers.ports, ["a", "b", "c"])
    yield fresh
    fresh.close()


def test_accounts_do_not_hear_each_other(users: Cast) -> None:
    for name in "abc":
        users.say(name, "SUB > 1\r\n")
    seen = users.publish("a", "quiet", "x", reply="back")
    assert seen["a"]["1"]
    assert not seen["b"]
    assert not seen["c"]


def test_streams_arrive_under_the_importers_subjects(users: Cast) -> None:
    users.say("b", "SUB from.a.> 1\r\nSUB mine.*.now 2\r\nSUB fixed 3\r\nSUB reg.> 4\r\n")
    seen = users.publish("a", "pub.x.y", "one", reply="back")
    assert seen["b"]["1"][0][0] == b"from.a.pub.x.y"
    seen = users.publish("a", "private.z", "two", headers="A: b")
    assert seen["b"]["2"][0][0] == b"mine.z.now"
    assert users.publish("a", "fixed", "three")["b"]["3"]
    assert users.publish("a", "reg.de.by", "four")["b"]["4"][0][0] == b"reg.by.de"
    assert not users.publish("b", "from.a.pub.q", "own")["a"]
    users.say("b", "UNSUB 1\r\n")
    assert not users.publish("a", "pub.x", "nobody")["b"]


def test_a_stream_has_interest_only_where_somebody_listens(users: Cast) -> None:
    users.say("a", "SUB in.* 9\r\n")
    assert users.publish("a", "pub.x", reply="in.1")["a"]["9"][0][2].startswith(b"NATS/1.0 503")
    users.say("b", "SUB from.a.pub.* 1\r\n")
    assert "9" not in users.publish("a", "pub.x", reply="in.1")["a"]


def test_queue_groups_share_an_imported_stream(users: Cast) -> None:
    users.say("b", "SUB from.a.> q 1\r\nSUB from.a.> 2\r\n")
    seen = users.publish("a", "pub.x", "one")["b"]
    assert len(seen["1"]) == len(seen["2"]) == 1


def test_a_stream_is_not_passed_on(users: Cast) -> None:
    users.say("c", "SUB from.a.> 1\r\n")
    users.publish("a", "pub.x", "one")
    assert users.publish("b", "from.a.pub.x", "one")["c"]["1"]


def test_a_request_and_its_answer(users: Cast) -> None:
    users.say("a", "SUB help 1\r\n")
    users.say("b", "SUB in.* 1\r\n")
    seen = users.publish("b", "help", "me", reply="in.7")
    assert seen["a"]["1"][0][1] == b"_R_"
    assert users.answer("a", "gladly")["b"]["1"] == [(b"in.7", b"", b"", b"gladly")]
    assert not users.answer("a", "again")["b"]
    users.publish("b", "help", "me", reply="in.8", headers="A: b\nNats-Request-Info: forged\nC: d")
    users.answer("a", "yes", reply="more")
    users.publish("b", "help", "no reply")


def test_nobody_serves(users: Cast) -> None:
    users.say("b", "SUB in.* 1\r\n")
    assert users.publish("b", "help", "me", reply="in.7")["b"]["1"][0][2].startswith(
        b"NATS/1.0 503"
    )


def test_a_services_subject_may_be_another_one(users: Cast) -> None:
    users.say("a", "SUB calc.> 1\r\nSUB by.* 2\r\n")
    users.say("b", "SUB in.* 1\r\n")
    assert users.publish("b", "do.2.1", "x", reply="in.1")["a"]["1"][0][0] == b"calc.1.2"
    users.answer("a", "3")
    assert users.publish("b", "by", "x", reply="in.1")["a"]["2"][0][0] == b"by.B"
    users.answer("a", "3")


def test_many_answers(users: Cast) -> None:
    users.say("a", "SUB many 1\r\nSUB chunks 2\r\n")
    users.say("b", "SUB in.* 1\r\n")
    for subject in ("all", "chunks"):
        users.publish("b", subject, "x", reply="in.1")
        for body in ("one", "two"):
            assert users.answer("a", body)["b"]["1"][0][3] == body.encode()
        users.answer("a", "")
        assert not users.answer("a", "late")["b"]


def test_answers_end_with_the_interest(users: Cast) -> None:
    users.say("a", "SUB many 1\r\nSUB in 9\r\n")
    users.say("b", "SUB in.* 1\r\n")
    users.publish("b", "all", "x", reply="in.1")
    users.answer("a", "one")
    users.say("b", "UNSUB 1\r\n")
    users.answer("a", "two")
    users.say("b", "SUB in.* 1\r\n")
    users.answer("a", "three")


def test_an_answer_that_takes_too_long(users: Cast) -> None:
    users.say("a", "SUB quick 1\r\n")
    users.say("b", "SUB in.* 1\r\n")
    users.publish("b", "quick", "x", reply="in.1")
    users.wait(0.7)
    assert not users.answer("a", "late")["b"]


def test_services_through_three_accounts(users: Cast) -> None:
    users.say("a", "SUB help 1\r\n")
    users.say("c", "SUB in.* 1\r\n")
    assert users.publish("c", "please", "x", reply="in.1")["a"]["1"]
    assert users.answer("a", "yes")["c"]["1"][0][3] == b"yes"
    users.say("b", "SUB help 5\r\n")
    users.publish("c", "please", "x", reply="in.2")
    users.answer("b", "from b")


def test_queue_groups_serve(users: Cast) -> None:
    users.say("a", "SUB help workers 1\r\n")
    users.add("a", "another")
    users.say("another", "SUB elsewhere workers 1\r\n")
    users.say("b", "SUB in.* 1\r\n")
    assert len(users.publish("b", "help", "x", reply="in.1")["a"]["1"]) == 1


def test_mappings(users: Cast) -> None:
    users.say("b", "SUB > 1\r\n")
    assert users.publish("b", "old.x", "1")["b"]["1"][0][0] == b"new.x"
    assert users.publish("b", "half", "1")["b"]["1"][0][0] == b"half.a"
    assert "1" not in users.publish("b", "gone", "1")["b"]
    users.publish("b", "old.x", "1", reply="old.y")
    users.say("b", "UNSUB 1\r\nSUB in.* 2\r\n")
    users.publish("b", "old.x", "1", reply="in.1")
    users.publish("b", "gone", "1", reply="in.1")


# What clients publish may itself have the wildcards of a subscription: the request that makes a
# consumer has its filter at the end.
TAILS = ["x", "x.y", "x.>", ">", "*", "*.x", "x.*.>", "x.*", "x.*y.>z", ">.x", "é.>"]


@pytest.mark.parametrize("tail", TAILS)
def test_a_request_with_wildcards_in_its_subject(users: Cast, tail: str) -> None:
    users.say("a", "SUB tail.> 1\r\nSUB in.> 2\r\n")
    users.say("b", "SUB in.* 1\r\n")
    seen = users.publish("b", f"froma.{tail}", "x", reply="in.1")
    assert seen["a"]["1"][0][0] == f"tail.{tail}".encode()
    assert users.answer("a", "yes")["b"]["1"][0][3] == b"yes"
    seen = users.publish("b", f"middle.one.{tail}", "x", reply="in.1")
    assert seen["a"]["2"][0][0] == f"in.one.middle.{tail}".encode()
    users.publish("b", f"middle.{tail}", "x", reply="in.1")
    users.publish("b", f"do.{tail}", "x", reply="in.1")


@pytest.mark.parametrize("tail", TAILS)
def test_a_stream_with_wildcards_in_its_subject(users: Cast, tail: str) -> None:
    users.say("b", "SUB narrow.> 1\r\nSUB from.a.> 2\r\nSUB reg.> 3\r\nSUB mine.> 4\r\n")
    assert users.publish("a", f"wide.{tail}", "x")["b"]["1"][0][0] == f"narrow.{tail}".encode()
    assert users.publish("a", f"pub.{tail}", "x")["b"]["2"][0][0] == f"from.a.pub.{tail}".encode()
    users.publish("a", f"reg.{tail}", "x")
    users.publish("a", f"private.{tail}", "x")


@pytest.mark.parametrize("tail", TAILS)
def test_a_mapping_of_a_subject_with_wildcards(users: Cast, tail: str) -> None:
    users.say("b", "SUB > 1\r\n")
    users.publish("b", f"wild.one.{tail}", "x")
    users.publish("b", f"wild.{tail}", "x")
    users.publish("b", f"pair.{tail}", "x")
    users.publish("b", f"old.{tail}", "x")
    users.publish("b", f"first.{tail}", "x")
