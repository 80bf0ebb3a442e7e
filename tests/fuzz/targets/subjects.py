"""Subjects: validity, matching, the trie and its cache, against a few lines of Python."""

from __future__ import annotations

from collections.abc import Iterable

from pelton.core.protocol.subjects import SubjectTrie, collide, literal, matches, subset, valid
from tests.core.protocol.test_subjects import naive_matches as naive
from tests.fuzz.inputs import Input

MAX_BYTES = 600
WORDS = (b".*", b".>", b"*.", b"a.b", b"..", b"$JS.API", b"\xff")
BLANKS = " \t\r\n\f"


def run(data: bytes) -> None:
    """Steps on a trie: a verb, a subject."""
    source = Input(data)
    trie = SubjectTrie()
    pairs: list[tuple[str, int]] = []
    steps = 0
    while source and steps < 40:
        steps += 1
        verb, text = source.number(), source.text(40)
        right = is_valid(text)
        assert valid(text) == right, text
        assert literal(text) == (right and not {"*", ">"} & set(text.split("."))), text
        if not right:
            continue
        if verb % 4 == 0:
            trie.add(text, verb)
            pairs.append((text, verb))
        elif verb % 4 == 1 and pairs:
            pattern, what = pairs[verb // 4 % len(pairs)]
            assert trie.drop(pattern, what)
            pairs.remove((pattern, what))
        elif literal(text):
            expected = sorted(what for pattern, what in pairs if naive(text, pattern))
            assert sorted(trie.lookup(text)) == expected, (text, pairs)
            assert sorted(trie.lookup_once(text)) == expected
        for pattern, _ in pairs[-4:]:
            compare(text, pattern)
        assert len(trie) == len(pairs)
    for pattern, what in pairs:
        assert trie.drop(pattern, what)
    assert len(trie) == 0
    assert trie.nodes <= 1


def compare(a: str, b: str) -> None:
    if literal(a):
        assert matches(a, b) == naive(a, b), (a, b)
        assert collide(a, b) == naive(a, b)
        assert subset(a, b) == naive(a, b)
    assert collide(a, b) == collide(b, a), (a, b)
    if subset(a, b):
        assert collide(a, b), (a, b)


def is_valid(text: str) -> bool:
    tokens = text.split(".")
    return all(tokens) and ">" not in tokens[:-1] and not any(c in text for c in BLANKS)


def seeds() -> Iterable[bytes]:
    def step(verb: int, text: bytes) -> bytes:
        return bytes([verb, len(text)]) + text

    yield step(0, b"a.*") + step(4, b"a.>") + step(2, b"a.b") + step(1, b"x") + step(2, b"a.b")
    yield step(0, b">") + step(0, b"*") + step(8, b"a") + step(2, b"a") + step(2, b"a.b.c.d")
    yield (
        step(0, b"a.b.c")
        + step(0, b"a.*.c")
        + step(0, b"*.*.>")
        + step(3, b"a.b.c")
        + step(5, b"q")
        + step(3, b"a.x.c")
    )
