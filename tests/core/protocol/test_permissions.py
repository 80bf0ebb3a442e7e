"""Permissions of a connection against a model that tries out every literal subject there is."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.core.protocol.permissions import (
    REPLIES_MAX,
    REPLY_BYTES_MAX,
    SUB_ALLOWED,
    SUB_FILTERED,
    SUB_REFUSED,
    ConnectionPermissions,
)
from tests.core.wires import Server
from tests.ways import length

SECOND_NS = 1_000_000_000

# Every subject of a small world. "x" is in no pattern: it stands for all other tokens.
LITERALS = [
    ".".join(tokens) for depth in range(1, 5) for tokens in itertools.product("abx", repeat=depth)
]


def matches(pattern: str, subject: str) -> bool:
    """As the protocol says it, token by token."""
    p, s = pattern.split("."), subject.split(".")
    if p[-1] == ">":
        p = p[:-1]
        if len(s) <= len(p):
            return False
        s = s[: len(p)]
    return len(p) == len(s) and all(a in ("*", b) for a, b in zip(p, s, strict=True))


def extent(pattern: str) -> frozenset[str]:
    """All that a pattern matches."""
    return frozenset(subject for subject in LITERALS if matches(pattern, subject))


class Model:
    """Permissions as lists, decided by looking at all subjects."""

    def __init__(
        self,
        publish_allow: list[str] | None,
        publish_deny: list[str],
        subscribe_allow: list[str] | None,
        subscribe_deny: list[str],
    ) -> None:
        self.publish_allow, self.publish_deny = publish_allow, publish_deny
        self.subscribe_allow = None if subscribe_allow is None else split(subscribe_allow)
        self.subscribe_deny = split(subscribe_deny)

    def may_publish(self, subject: str) -> bool:
        allow = self.publish_allow
        if allow is not None and not any(matches(pattern, subject) for pattern in allow):
            return False
        return not any(matches(pattern, subject) for pattern in self.publish_deny)

    def may_receive(self, subject: str, queue: str) -> bool:
        return not any(
            matches(pattern, subject) and fits(only, queue) for pattern, only in self.subscribe_deny
        )

    def may_subscribe(self, subject: str, queue: str) -> int:
        wanted = extent(subject)
        if self.subscribe_allow is not None:
            cover = [only for pattern, only in self.subscribe_allow if wanted <= extent(pattern)]
            queues = [only for only in cover if only]
            if queue and queues:
                allowed = any(fits(only, queue) for only in queues)
            else:
                allowed = "" in cover
            if not allowed:
                return SUB_REFUSED
        denies = [extent(pattern) for pattern, only in self.subscribe_deny if fits(only, queue)]
        if any(wanted <= deny for deny in denies):
            return SUB_REFUSED
        return SUB_FILTERED if any(wanted & deny for deny in denies) else SUB_ALLOWED


def split(entries: list[str]) -> list[tuple[str, str]]:
    return [(subject, queue) for subject, _, queue in (entry.partition(" ") for entry in entries)]


def fits(only: str, queue: str) -> bool:
    """Whether an entry's queue is meant; "" stands for all."""
    return not only or (bool(queue) and (only == queue or extent(queue) <= extent(only)))


tokens = st.sampled_from("aab*")
patterns = st.lists(tokens, min_size=1, max_size=3).flatmap(
    lambda found: st.sampled_from([".".join(found), ".".join([*found[:2], ">"])])
)
queues = st.sampled_from(["", "a", "b", "a.b"])
entries = (
    st.tuples(patterns, st.sampled_from(["", "", "a", "*", "a.>"])).map(" ".join).map(str.strip)
)
rules = st.builds(
    Model,
    st.none() | st.lists(patterns, max_size=3),
    st.lists(patterns, max_size=3),
    st.none() | st.lists(entries, max_size=3),
    st.lists(entries, max_size=3),
)


def permits_of(model: Model) -> ConnectionPermissions:
    def joined(found: list[tuple[str, str]] | None) -> list[str] | None:
        return None if found is None else [f"{subject} {queue}".strip() for subject, queue in found]

    return ConnectionPermissions(
        model.publish_allow,
        model.publish_deny,
        joined(model.subscribe_allow),
        joined(model.subscribe_deny),
    )


@settings(max_examples=length(30, 150))
@given(rules, st.data())
def test_decisions_are_those_of_the_model(model: Model, data: st.DataObject) -> None:
    permits = permits_of(model)
    for subject in data.draw(st.lists(st.sampled_from(LITERALS), max_size=20)):
        queue = data.draw(queues)
        for _ in range(2):  # the second time from the cache
            assert permits.may_publish(subject) == model.may_publish(subject)
            assert permits.may_receive(subject, queue) == model.may_receive(subject, queue)
    for pattern in data.draw(st.lists(patterns, max_size=10)):
        queue = data.draw(queues)
        assert permits.may_subscribe(pattern, queue) == model.may_subscribe(pattern, queue)


@settings(max_examples=length(20, 100))
@given(
    rules, st.lists(st.tuples(patterns, queues), max_size=6), st.lists(st.sampled_from(LITERALS))
)
def test_what_arrives_is_what_the_model_lets_through(
    model: Model, wanted: list[tuple[str, str]], published: list[str]
) -> None:
    server = Server()
    guarded = server.client()
    guarded.connection.permissions = permits_of(model)
    accepted = []
    for sid, (pattern, queue) in enumerate(wanted):
        guarded.send(f"SUB {pattern} {queue} {sid}\r\n")
        if model.may_subscribe(pattern, queue) != SUB_REFUSED:
            accepted.append((str(sid), pattern, queue))
    assert guarded.raw().count(b"-ERR") == len(wanted) - len(accepted)
    other = server.client()
    for subject in published:
        other.send(f"PUB {subject} 0\r\n\r\n")
        groups: dict[tuple[str, str], list[str]] = {}
        expected = []
        for sid, pattern, queue in accepted:
            if matches(pattern, subject) and model.may_receive(subject, queue):
                if queue:
                    groups.setdefault((pattern, queue), []).append(sid)
                else:
                    expected.append(sid)
        got = [line.split()[2].decode() for line in guarded.raw().split(b"\r\n") if line]
        for members in groups.values():
            taken = [sid for sid in got if sid in members]
            assert len(taken) == 1
            got.remove(taken[0])
        assert sorted(got) == sorted(expected)
    assert not server.errors


@given(st.binary(max_size=40), st.lists(patterns, max_size=3), st.lists(patterns, max_size=3))
def test_any_bytes_can_be_asked_about(subject: bytes, allow: list[str], deny: list[str]) -> None:
    permits = ConnectionPermissions(allow, deny, allow, deny)
    permits.may_receive(subject, b"q")
    permits.may_subscribe(subject, subject)
    if permits.may_publish(subject):
        assert any(matches(p, subject.decode("latin-1")) for p in allow)
        assert not any(matches(p, subject.decode("latin-1")) for p in deny)


@pytest.mark.parametrize(
    "subject", ["secret.>.x", "secret.*", "secret.\rx", "secret.\x0b", "secret.>"]
)
def test_a_deny_holds_for_subjects_that_are_odd(subject: str) -> None:
    assert not ConnectionPermissions(publish_deny=["secret.>"]).may_publish(subject)


def test_a_wildcard_has_to_be_covered_whole() -> None:
    permits = ConnectionPermissions(subscribe_allow=["foo.*"])
    assert permits.may_subscribe("foo.*") == SUB_ALLOWED
    assert permits.may_subscribe("foo.>") == SUB_REFUSED


def test_queue_entries_say_which_queues() -> None:
    permits = ConnectionPermissions(subscribe_allow=["foo", "foo v1", "bar v.*"])
    assert [permits.may_subscribe("foo", q) for q in ("", "v1", "v2")] == [1, 1, 0]
    assert [permits.may_subscribe("bar", q) for q in ("", "v.1", "w")] == [0, 1, 0]


@pytest.mark.parametrize("bad", ["", "a..b", "a b", ".a", "a.>.b", "a\tb"])
def test_what_is_no_subject_is_told(bad: str) -> None:
    with pytest.raises(ValueError, match="not a subject"):
        ConnectionPermissions(publish_allow=[bad])
    with pytest.raises(ValueError, match="not a subject"):
        ConnectionPermissions(subscribe_deny=[bad + " x y z"])


def test_it_shows_what_it_was_made_of() -> None:
    permits = ConnectionPermissions(["a"], ["b.>"], ["c q", "d"], ["e"], 3, 4)
    assert repr(permits) == (
        "ConnectionPermissions(publish_allow=['a'], publish_deny=['b.>'], subscribe_allow=['c q', 'd'], "
        "subscribe_deny=['e'], responses_max=3, responses_expires_ns=4)"
    )
    assert (ConnectionPermissions().publish_allow, ConnectionPermissions().subscribe_allow) == (
        None,
        None,
    )


# --- leave to answer ---


def test_each_received_message_gives_leave_for_so_many_answers() -> None:
    permits = ConnectionPermissions(responses_max=2)
    assert not permits.may_publish("r")
    permits.received("r", 0)
    assert [permits.may_publish("r", 0) for _ in range(3)] == [True, True, False]
    permits.received("r", 0)
    permits.received("r", 0)
    assert [permits.may_publish("r", 0) for _ in range(5)] == [True] * 4 + [False]
    assert (permits.open_replies, permits.reply_bytes) == (0, 0)


def test_leave_expires() -> None:
    permits = ConnectionPermissions(responses_max=-1, responses_expires_ns=SECOND_NS)
    permits.received("r", 5)
    assert all(permits.may_publish("r", 5 + SECOND_NS) for _ in range(100))
    assert not permits.may_publish("r", 6 + SECOND_NS)
    assert permits.open_replies == 0


def test_an_answer_may_go_where_publishing_is_denied() -> None:
    permits = ConnectionPermissions(publish_allow=["a"], publish_deny=["r"], responses_max=1)
    permits.received("r", 0)
    permits.received("a", 0)  # may be published anyhow: nothing to remember
    assert permits.open_replies == 1
    assert [permits.may_publish("r"), permits.may_publish("r")] == [True, False]


def test_expired_leave_is_pruned_and_the_oldest_goes_when_there_is_too_much() -> None:
    permits = ConnectionPermissions(responses_max=1, responses_expires_ns=SECOND_NS)
    for i in range(1000):
        permits.received(f"r.{i}", i * SECOND_NS // 10)
    assert permits.open_replies == 11
    permits = ConnectionPermissions(responses_max=1, responses_expires_ns=-1)
    for i in range(REPLIES_MAX + 10):
        permits.received(f"r.{i}", i)
    assert permits.open_replies == REPLIES_MAX
    assert not permits.may_publish("r.9", 0)
    assert permits.may_publish("r.10", 0)
    for i in range(2 * REPLY_BYTES_MAX // 4000):
        permits.received(f"{i:04000}", i)
    assert permits.reply_bytes <= REPLY_BYTES_MAX


@given(
    st.integers(min_value=1, max_value=3) | st.just(-1),
    st.lists(st.tuples(st.sampled_from("pr"), st.sampled_from("xyz"), st.integers(0, 3))),
)
def test_leave_is_that_of_a_model_that_keeps_all_of_it(
    most: int, steps: list[tuple[str, str, int]]
) -> None:
    permits = ConnectionPermissions(responses_max=most, responses_expires_ns=5)
    now = 0
    owed: dict[str, tuple[int, int]] = {}  # subject -> (deadline, answers)
    for kind, subject, passed in steps:
        now += passed
        deadline, left = owed.get(subject, (-1, 0))
        if now > deadline:
            left = 0
        if kind == "r":
            permits.received(subject, now)
            owed[subject] = (now + 5, left + most if most > 0 else 1)
        else:
            assert permits.may_publish(subject, now) == (left > 0)
            owed[subject] = (deadline, max(left - 1, 0) if most > 0 else left)


def test_copies_share_rules_and_not_leave() -> None:
    first = ConnectionPermissions(publish_allow=["a"], responses_max=1)
    second = first.copy()
    first.received("r", 0)
    assert (first.may_publish("r"), second.may_publish("r")) == (True, False)
    assert second.may_publish("a")


# --- at a connection ---


def test_a_connection_answers_what_it_was_asked() -> None:
    server = Server()
    service = server.client()
    service.connection.permissions = ConnectionPermissions(
        responses_max=1, responses_expires_ns=SECOND_NS
    )
    service.send("SUB svc 1\r\n")
    asker = server.client().send("SUB in.> 1\r\nPUB svc in.1 0\r\n\r\nPUB svc in.2 0\r\n\r\n")
    assert service.raw() == b"MSG svc 1 in.1 0\r\n\r\nMSG svc 1 in.2 0\r\n\r\n"
    service.send("PUB in.1 1\r\na\r\nPUB in.1 1\r\nb\r\n")
    assert service.raw() == b"-ERR 'Permissions Violation for Publish to \"in.1\"'\r\n"
    server.clock.set(server.reactor.now_ns + 2 * SECOND_NS)
    server.reactor.turn()
    service.send("PUB in.2 1\r\nc\r\n")
    assert service.raw() == b"-ERR 'Permissions Violation for Publish to \"in.2\"'\r\n"
    assert asker.raw() == b"MSG in.1 1 1\r\na\r\n"


def test_a_queue_passes_over_a_member_that_may_not_have_it() -> None:
    server = Server()
    guarded, open_ = server.client(), server.client().send("SUB a.* q 1\r\n")
    guarded.connection.permissions = ConnectionPermissions(subscribe_deny=["a.b"])
    guarded.send("SUB a.* q 1\r\n")
    server.client().send("PUB a.b 0\r\n\r\n" * 20)
    assert (guarded.raw(), open_.raw().count(b"MSG")) == (b"", 20)


def test_what_is_denied_to_all_was_delivered_to_nobody() -> None:
    server = Server()
    guarded = server.client()
    guarded.connection.permissions = ConnectionPermissions(subscribe_deny=["a.b"])
    guarded.send("SUB a.* 1\r\n")
    asker = server.client().send("SUB in 1\r\nPUB a.b in 0\r\n\r\n")
    assert b"NATS/1.0 503" in asker.raw()


def test_violations_are_quoted_and_told() -> None:
    server = Server()
    told: list[str] = []
    server.sessions.on_violation = lambda connection, text: told.append(text)
    client = server.client()
    client.connection.permissions = ConnectionPermissions(
        publish_allow=["a"], subscribe_allow=["a"]
    )
    client.send(b'PUB "\xff 0\r\n\r\nSUB b\\ 1\r\nSUB b q" 2\r\n')
    assert client.raw() == (
        b'-ERR \'Permissions Violation for Publish to "\\"\\xff"\'\r\n'
        b"-ERR 'Permissions Violation for Subscription to \"b\\\\\"'\r\n"
        b'-ERR \'Permissions Violation for Subscription to "b" using queue "q\\""\'\r\n'
    )
    assert len(told) == 3


def test_a_change_ends_what_it_does_not_cover() -> None:
    server = Server()
    client = server.client().send("SUB a.* 1\r\nSUB b q 2\r\nSUB a.b 3\r\nSUB c 4\r\n")
    assert server.sessions.recheck(client.connection) == 0
    client.connection.permissions = ConnectionPermissions(
        subscribe_allow=["a.>", "c"], subscribe_deny=["a.b"]
    )
    assert server.sessions.recheck(client.connection) == 2
    assert client.raw() == (
        b'-ERR \'Permissions Violation for Subscription to "b" using queue "q" (sid "2")\'\r\n'
        b'-ERR \'Permissions Violation for Subscription to "a.b" (sid "3")\'\r\n'
    )
    other = server.client().send("PUB a.b 0\r\n\r\nPUB a.c 0\r\n\r\nPUB c 0\r\n\r\n")
    assert client.raw() == b"MSG a.c 1 0\r\n\r\nMSG c 4 0\r\n\r\n"
    client.connection.permissions = None
    server.sessions.recheck(client.connection)
    other.send("PUB a.b 0\r\n\r\n")
    assert client.raw() == b"MSG a.b 1 0\r\n\r\n"


def test_a_deny_holds_at_once_for_subscriptions_there_are() -> None:
    server = Server()
    client = server.client().send("SUB a.* 1\r\n")
    client.connection.permissions = ConnectionPermissions(subscribe_deny=["a.b"])
    server.client().send("PUB a.b 0\r\n\r\n")
    assert client.raw() == b""


# --- the work of a decision ---

MANY = 20_000
LISTS = {
    "literals": [f"a.{k}" for k in range(MANY)],
    "tails": [f"a.{k}.>" for k in range(MANY)],
    "stars": [f"*.{k}" for k in range(MANY)],
    "queues": [f"a.{k} q{k}" for k in range(MANY)],
}


@pytest.mark.parametrize("kind", LISTS)
def test_a_decision_does_not_look_at_each_entry(kind: str) -> None:
    entries = LISTS[kind]
    plain = [entry.partition(" ")[0] for entry in entries]
    for permits in (
        ConnectionPermissions(subscribe_deny=entries),
        ConnectionPermissions(plain, plain, [">", "> q", *entries], entries),
    ):
        before = permits.steps
        permits.may_publish("a.5")
        permits.may_publish("b.none.of.them")
        for queue in ("", "q7"):
            permits.may_receive("b.none.of.them", queue)
            permits.may_receive("a.7", queue)
            permits.may_subscribe("b.none.of.them", queue)
            permits.may_subscribe("a.7", queue)
        assert permits.steps - before < 200


@pytest.mark.parametrize("kind", LISTS)
def test_a_subscription_that_would_be_compared_with_each_entry_is_filtered(kind: str) -> None:
    permits = ConnectionPermissions(subscribe_deny=LISTS[kind])
    for subject in ("*.none", "*.none.>"):
        before = permits.steps
        assert permits.may_subscribe(subject, "none") in (SUB_ALLOWED, SUB_FILTERED)
        assert permits.steps - before < 3000
    assert permits.may_receive("a.none", "none")


def test_subjects_of_very_many_tokens_are_decided() -> None:
    deep = ".".join("a" * 300_000)
    permits = ConnectionPermissions([deep], [deep + ".>"], [deep], [deep + ".*"])
    assert permits.may_publish(deep)
    assert not permits.may_publish(deep + ".b")
    assert permits.may_subscribe(deep) in (SUB_ALLOWED, SUB_FILTERED)
    assert permits.may_subscribe(deep + ".b") == SUB_REFUSED
    assert not permits.may_receive(deep + ".b")
    stars = ".".join("*" * 300_000)
    assert ConnectionPermissions(subscribe_deny=[deep]).may_subscribe(stars) == SUB_FILTERED
