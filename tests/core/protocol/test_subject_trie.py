"""The trie of a server's subscriptions, and its cache."""

import gc
import weakref

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pelton.core.protocol.subjects import SubjectTrie
from tests.core.protocol.test_subjects import (
    LITERAL,
    PATTERN,
    naive_matches,
)
from tests.ways import length


class Thing:
    """Something a trie can hold."""


class TrieMachine(RuleBasedStateMachine):
    """SubjectTrie against a list of pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.trie = SubjectTrie()
        self.pairs: list[tuple[str, Thing]] = []
        self.things = [Thing() for _ in range(3)]
        self.asked: set[str] = set()

    def expected(self, subject: str) -> list[int]:
        return sorted(id(thing) for p, thing in self.pairs if naive_matches(subject, p))

    @rule(pattern=PATTERN, which=st.integers(0, 2))
    def add(self, pattern: str, which: int) -> None:
        self.trie.add(pattern, self.things[which])
        self.pairs.append((pattern, self.things[which]))

    @rule(
        first=st.integers(0, 20), count=st.integers(1, 20), before=st.sampled_from(["", "a.", "*."])
    )
    def add_many(self, first: int, count: int, before: str) -> None:
        for i in range(first, first + count):
            self.add(f"{before}n{i}", i % 3)

    @rule(data=st.data(), count=st.integers(1, 30))
    def drop_held(self, data: st.DataObject, count: int) -> None:
        for _ in range(min(count, len(self.pairs))):
            pair = self.pairs.pop(data.draw(st.integers(0, len(self.pairs) - 1)))
            assert self.trie.drop(*pair)

    @rule(pattern=PATTERN, which=st.integers(0, 2))
    def drop_any(self, pattern: str, which: int) -> None:
        pair = (pattern, self.things[which])
        assert self.trie.drop(*pair) == (pair in self.pairs)
        if pair in self.pairs:
            self.pairs.remove(pair)

    @rule(subject=LITERAL, times=st.integers(1, 3))
    def ask(self, subject: str, times: int) -> None:
        self.asked.add(subject)
        want = self.expected(subject)
        for _ in range(times):
            assert sorted(map(id, self.trie.lookup(subject))) == want
        assert sorted(map(id, self.trie.lookup_once(subject))) == want

    @rule(subject=st.sampled_from(["", ".", "a.", ".a", "a..b", ".."]))
    def ask_without_tokens(self, subject: str) -> None:
        assert self.trie.lookup(subject) == self.trie.lookup_once(subject) == []

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        assert len(self.trie) == self.trie.count == len(self.pairs)
        for subject in self.asked:
            assert sorted(map(id, self.trie.lookup(subject))) == self.expected(subject)
        prefixes = {
            tuple(p.split(".")[: i + 1]) for p, _ in self.pairs for i in range(p.count(".") + 1)
        }
        assert self.trie.nodes == len(prefixes)


TestTrie = TrieMachine.TestCase
TestTrie.settings = settings(max_examples=length(25, 60), stateful_step_count=30)


def test_the_cache_fills_on_the_second_use_and_a_literal_change_takes_one_line() -> None:
    trie = SubjectTrie()
    trie.add("a.*", "wild")
    for _ in range(2):
        trie.lookup("a.b")
        trie.lookup("a.c")
        trie.lookup("nobody.here")
    assert trie.cached == 3
    generation = trie.generation
    trie.add("a.b", "literal")
    assert (trie.cached, trie.generation) == (2, generation)
    assert trie.lookup("a.b") == ["wild", "literal"]
    assert trie.cached == 3
    assert trie.drop("a.b", "literal")
    assert (trie.cached, trie.generation) == (2, generation)
    trie.add("nobody.here", "somebody")
    assert trie.lookup("nobody.here") == ["somebody"]


def test_a_wildcard_change_makes_every_line_stale() -> None:
    trie = SubjectTrie()
    assert trie.generation == 1
    trie.add("a.b", 1)
    assert trie.generation == 1
    assert [trie.lookup("a.b") for _ in range(3)] == [[1]] * 3
    trie.add(">", 2)
    assert trie.generation == 2
    assert set(trie.lookup("a.b")) == {1, 2}
    trie.drop(">", 2)
    assert trie.generation == 3
    assert trie.lookup("a.b") == [1]


def test_the_cache_is_bounded_and_right_after_it_was_dropped() -> None:
    trie = SubjectTrie()
    trie.add("n.*", "all")
    trie.add("n.7", "seven")
    for i in range(140_000):
        subject = b"n.%d" % i
        trie.lookup(subject)
        trie.lookup(subject)
    assert 0 < trie.cached <= 65536
    trie.drop("n.7", "seven")
    assert trie.lookup("n.7") == ["all"]


def test_subjects_used_once_leave_no_trace_in_the_cache() -> None:
    trie = SubjectTrie()
    trie.add("_INBOX.>", 1)
    for i in range(20_000):
        assert trie.lookup(b"_INBOX.client.%d" % i) == [1]
    assert trie.cached < 20  # a subject may be taken for another one with a chance of 1 in 32768


def test_what_leaves_the_trie_is_let_go_of() -> None:
    trie = SubjectTrie()
    things = {pattern: Thing() for pattern in ("a.b", "a.*", ">", "*.b")}
    for pattern, thing in things.items():
        trie.add(pattern, thing)
    for _ in range(3):
        trie.lookup("a.b")
        trie.lookup("x")
    del thing
    left = {pattern: weakref.ref(thing) for pattern, thing in things.items()}
    for pattern in list(things):
        assert trie.drop(pattern, things.pop(pattern))
        assert left[pattern]() is None, pattern
    assert (trie.nodes, trie.count) == (0, 0)


def test_a_trie_in_a_cycle_is_collected() -> None:
    class Owner:
        trie: SubjectTrie

    owner = Owner()
    owner.trie = SubjectTrie()
    owner.trie.add("a.>", owner)
    owner.trie.add("a.b", owner)
    for _ in range(3):
        owner.trie.lookup("a.b")
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


def test_no_limit_on_matches() -> None:
    trie = SubjectTrie()
    for i in range(5000):
        trie.add("a.b", i)
        trie.add("a.*", -i - 1)
    assert sorted(trie.lookup("a.b")) == list(range(-5000, 5000))  # type: ignore[type-var]  # they are ints


def test_a_finalizer_that_changes_the_trie_during_a_lookup_does_no_harm() -> None:
    trie = SubjectTrie()

    class Changing:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            trie.add("a.*", "late")
            trie.lookup("a.c")
            trie.drop("a.*", "late")

    for i in range(40):
        trie.add("a.b", i)
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(300):
            Changing()
            assert trie.lookup("a.b") == list(range(40))
            assert trie.lookup_once("a.b") == list(range(40))
    finally:
        gc.set_threshold(*before)


@pytest.mark.parametrize(
    "pattern", ["", ".", "a..b", "a.>.b", "a b", "a.", ".a", "a\r", "a\n.b", ">.a"]
)
def test_insert_refuses_what_is_no_subject(pattern: str) -> None:
    trie = SubjectTrie()
    with pytest.raises(ValueError, match="not a valid subject"):
        trie.add(pattern, 1)
    assert trie.drop(pattern, 1) is False
    assert (trie.nodes, trie.count) == (0, 0)


def test_very_deep_patterns() -> None:
    trie = SubjectTrie()
    deepest = ".".join(["*"] * 4096)
    trie.add(deepest, 1)
    assert trie.lookup(".".join(["a"] * 4096)) == [1]
    assert trie.lookup(".".join(["a"] * 100_000)) == []
    with pytest.raises(ValueError, match="4097 tokens"):
        trie.add(deepest + ".a", 1)
    assert trie.drop(deepest + ".a", 1) is False
    del trie  # a chain of 4096 nodes goes without deep recursion
    gc.collect()
