"""Whoever answers one request sees its reply subject, and can guess no other one: what is forged changes nothing.

The attacker of these tests sees every reply subject that a client has sent, because it subscribes to
everything. From those it makes new ones, as far as the old scheme or another pattern would allow.
"""

from __future__ import annotations

import itertools
import random
import re
import string
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton import ConsumerConfig, ObjectStoreConfig, StreamConfig
from pelton.client.session.requests import BLOCK_TOKENS, TOKEN_LENGTH, Replies, Tokens
from pelton.client.sync.columns import ColumnReader, read_range
from pelton.client.sync.gets import read_stored
from pelton.client.sync.rows import RowPublisher
from pelton.core.bulk.publish_window import Column, Rows
from pelton.sync import connect
from tests.client.shells import connected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.peers import ServerProcess

NUMBERED = re.compile(r"(\d+)-([0-9a-f]{24})")
SECRET = set(string.ascii_letters + string.digits + "-_")
ALIKE_MAX = 12
"""Of 16 or more characters of two secrets, so many at most agree in their places: 1 of 10^15 pairs has more."""
FORGED = b'{"stream":"FORGED","seq":77777}'


def secret_of(subject: str) -> str:
    """What an attacker would have to guess: the last token without its number."""
    last = subject.rpartition(".")[2]
    numbered = NUMBERED.fullmatch(last)
    return numbered[2] if numbered else last


def neighbours(subject: str) -> Iterator[str]:
    """Subjects that a guesser derives from one: other numbers, other secrets, those that were seen before."""
    parent, _, last = subject.rpartition(".")
    numbered = NUMBERED.fullmatch(last)
    for n in range(1, 200):
        yield f"{parent}.{n}"
        if numbered and n != int(numbered[1]):
            yield f"{parent}.{n}-{numbered[2]}"
        elif not numbered:
            yield f"{parent}.{last[:TOKEN_LENGTH]}{n}"
    yield f"{parent}.{last[:-1]}"
    yield f"{parent}.{last}x"


def check_unguessable(subjects: list[str]) -> None:
    """No two subjects have secrets that agree in more places than chance allows."""
    secrets = [secret_of(each) for each in subjects]
    assert len(set(secrets)) == len(secrets)
    for each in secrets:
        assert len(each) >= TOKEN_LENGTH, each
        assert set(each) <= SECRET, each
    for one, other in itertools.combinations(secrets, 2):
        assert sum(a == b for a, b in zip(one, other, strict=False)) <= ALIKE_MAX, (one, other)


class Attacker:
    """Sees every reply subject of a connection, and publishes to what it makes of them."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._everything = client.subscribe(">")
        client.flush()

    def seen(self) -> list[str]:
        """The reply subjects since the last call."""
        self._client.flush()
        found = []
        while self._everything.pending:
            message = self._everything.next(timeout=5)
            if message.reply and not message.reply.startswith("$JS.ACK."):
                found.append(message.reply)
        return found

    def forge(self, seen: list[str], body: bytes = FORGED) -> None:
        """Answer everything that follows from these subjects."""
        for each in seen:
            for guess in neighbours(each):
                self._client.publish(guess, body)
        self._client.flush()


@pytest.fixture
def attacker(server: ServerProcess) -> Iterator[Attacker]:
    with connect(server.url) as client:
        yield Attacker(client)


def test_requests(server: ServerProcess, shell: str, unique: str, attacker: Attacker) -> None:
    with connected(shell, server.url) as client, connect(server.url) as other:
        waiting = other.subscribe(f"{unique}.help")
        other.flush()
        subjects = []
        for number in range(20):
            question = client._requests.ask(f"{unique}.help", b"", b"")
            client.flush()
            request = waiting.next(timeout=5)
            subjects.append(request.reply)
            attacker.forge(subjects)
            client.flush()
            assert question.answer is None, "a forged answer counts"
            other.publish(request.reply, b"%d" % number)
            other.flush()
            client.flush()
            assert question.outcome(0).data == b"%d" % number
            client._requests.forget(question)
        inboxes = [client.new_inbox() for _ in range(20)] + [f"_INBOX.{client.new_id()}"]
    check_unguessable(subjects)
    check_unguessable([*inboxes, subjects[0].rpartition(".")[0]])


def test_a_request_with_a_subscription_of_its_own(server, shell, unique, attacker) -> None:
    with connected(shell, server.url, shared_inbox=False) as client:
        questions = [client._requests.ask(f"{unique}.help", b"", b"") for _ in range(10)]
        client.flush()
        for each in questions:
            client._requests.forget(each)
        seen = [each for each in attacker.seen() if each.startswith("_INBOX.")]
    check_unguessable(seen)


def test_publishes(server: ServerProcess, shell: str, unique: str, attacker: Attacker) -> None:
    """PubAcks are true: nobody has forged one."""
    with connected(shell, server.url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"]))
        with js.publisher() as publisher:
            publisher.publish(f"{unique}.a", b"")
            publisher.flush()
            seen = attacker.seen()
            for _ in range(10):
                attacker.forge(seen)
                publisher.publish(f"{unique}.a", b"")
                client.flush()
                attacker.forge(seen)
                publisher.flush()
                assert publisher.last_ack.stream == unique
                seen += attacker.seen()
            assert publisher.acked == 11
        check_unguessable([each for each in seen if each.startswith("_INBOX.")])
        for _ in range(10):
            assert js.publish(f"{unique}.b", b"").stream == unique
        check_unguessable([each for each in attacker.seen() if each.startswith("_INBOX.")])


@pytest.mark.parametrize("way", ["consume", "fetch"])
def test_pulls(
    server: ServerProcess, shell: str, unique: str, attacker: Attacker, way: str
) -> None:
    with connected(shell, server.url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"]))
        js.create_consumer(unique, ConsumerConfig(name="c", ack_policy="explicit"))
        attacker.seen()
        taken: list[bytes] = []
        seen: list[str] = []

        def more(count: int) -> list[bytes]:
            bodies = [b"%d" % n for n in range(len(taken), len(taken) + count)]
            for body in bodies:
                js.publish(f"{unique}.a", body)
            attacker.forge(seen, b"forged")
            return bodies

        if way == "fetch":
            with js.consumer(unique, "c") as handle:
                for _ in range(5):
                    wanted = more(3)
                    found = [each.data for each in handle.fetch(3, timeout=20)]
                    seen += [each for each in attacker.seen() if NUMBERED.search(each)]
                    assert found == wanted
                    taken += found
        else:
            wanted = more(30)
            with js.consumer(unique, "c").consume(max_messages=4) as messages:
                for message in messages:
                    taken.append(message.data)
                    seen += [each for each in attacker.seen() if NUMBERED.search(each)]
                    attacker.forge(seen[-2:], b"forged")
                    if len(taken) == 30:
                        break
            assert taken == wanted
    assert len(seen) > 3
    check_unguessable([each for each in seen if each.startswith("_INBOX.")])


def test_objects(server: ServerProcess, shell: str, unique: str, attacker: Attacker) -> None:
    content = random.Random(5).randbytes(600_000)
    with connected(shell, server.url) as client:
        store = client.jetstream().create_object_store(ObjectStoreConfig(bucket=unique))
        attacker.seen()
        store.put("a", content)
        seen = [each for each in attacker.seen() if each.startswith("_INBOX.")]
        assert store.get("a") == content
        seen += [each for each in attacker.seen() if each.startswith("_INBOX.")]
    assert len(seen) > 6
    check_unguessable(seen)


def test_bulk_readers_and_writers(server: ServerProcess, unique: str, attacker: Attacker) -> None:
    """What Spark and bulk programs use."""
    with connect(server.url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"]))
        attacker.seen()
        rows = Rows(Column(f"{unique}.a".encode()), Column(b"body"), None, first=0, count=40)
        publisher = RowPublisher(client)
        assert publisher.publish(rows, 0) == 40
        publisher.push()
        assert publisher.wait(0, 20)
        seen = [each for each in attacker.seen() if each.startswith("_INBOX.")]
        assert len(seen) == 40
        assert publisher.flow.acked == 40
        varied = Column(
            b"body" * 20, memoryview(b"".join(n.to_bytes(4, "little") for n in range(0, 84, 4))), 20
        )
        assert (
            publisher.publish(
                Rows(Column(f"{unique}.a".encode()), varied, None, first=40, count=20), 0
            )
            == 20
        )
        publisher.push()
        assert publisher.wait(0, 20)
        publisher.close()
        seen += [each for each in attacker.seen() if each.startswith("_INBOX.")]
        check_unguessable(
            [f"{each.rpartition('.')[0]}.{each.rpartition('.')[2][:16]}" for each in seen]
        )
        assert sum(len(each) for each in read_range(js, unique, 1, 61, rows=8)) == 60
        assert sum(len(each) for each in read_stored(js, unique, 1, 61)) == 60
        check_unguessable([each for each in attacker.seen() if each.startswith("_INBOX.")])


def test_a_forged_row_is_not_read(server: ServerProcess, unique: str, attacker: Attacker) -> None:
    """A reader of columns takes nothing that another client publishes to its inbox."""
    with connect(server.url) as client, connect(server.url) as other:
        js = client.jetstream()
        js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"]))
        js.create_consumer(unique, ConsumerConfig(name="c", ack_policy="explicit"))
        attacker.seen()
        with ColumnReader(js, unique, "c") as reader:
            assert not reader.read(0.2).count
            seen = attacker.seen()
            assert seen
            for subject in [*seen, *itertools.islice(neighbours(seen[0]), 50)]:
                other.publish(subject, b"forged", reply=f"$JS.ACK.{unique}.c.1.9.9.1700000000.0")
            other.flush()
            js.publish(f"{unique}.a", b"true")
            columns = reader.read(20)
            assert (columns.count, bytes(columns.payload_data)) == (1, b"true")


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=8, unique=True), st.text(max_size=40))
def test_only_the_maker_knows_the_codes_of_numbers(numbers: list[int], other: str) -> None:
    mine, yours = Replies("_INBOX.x", b"k" * 32), Replies("_INBOX.x", b"j" * 32)
    for number in numbers:
        assert mine.number_of(mine.subject(number)) == number
        assert yours.number_of(mine.subject(number)) == 0
        for guess in itertools.islice(neighbours(mine.subject(number)), 20):
            assert mine.number_of(guess) == 0
    assert mine.number_of(f"_INBOX.x.{other}") == 0
    check_unguessable([mine.subject(number) for number in numbers])


def test_tokens_come_from_the_given_source() -> None:
    drawn: list[int] = []

    def randbytes(count: int) -> bytes:
        drawn.append(count)
        return source.randbytes(count)

    source = random.Random(1)
    tokens = Tokens(randbytes)
    found = [tokens.next() for _ in range(BLOCK_TOKENS + 1)]
    assert len(set(found)) == len(found)
    assert all(len(each) == TOKEN_LENGTH and set(each) <= SECRET for each in found)
    assert drawn == [BLOCK_TOKENS * 12] * 2
    assert sum(drawn) * 8 / len(found) >= 96
