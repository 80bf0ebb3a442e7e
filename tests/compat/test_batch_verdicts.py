"""Atomic batches whose messages carry every header that means something get the same answers from
our server and a nats-server, byte for byte, and leave the same stream behind; two are open at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from tests.compat.pair import Judges, both
from tests.compat.seeds import examples, seed_of
from tests.compat.test_publish_verdicts import (
    CALLS,
    HEADERS,
    STREAMS,
    Config,
    Headers,
    Publish,
    run,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.peer

# How many examples of each kind of stream, and from which seed on.

OF_BATCHES = ("Nats-Batch-Id", "Nats-Batch-Sequence", "Nats-Batch-Commit")
HERE: dict[str, list[str]] = {
    "Nats-Stream-Source": ["X 1", ""],
    "Nats-Request-Info": ["{}"],
    "Nats-Batch-Commit": ["x"],
}
PAIRS = [
    (name, value)
    for name, values in [*HEADERS.items(), *HERE.items()]
    if name not in OF_BATCHES or name in HERE
    for value in values
    if name not in OF_BATCHES or value in HERE[name]
]
KINDS: dict[str, Config] = {
    name: config | {"allow_atomic": True}
    for name, config in STREAMS.items()
    if name not in ("atomic", "async", "no_ack")
} | {
    "memory_new": {
        "storage": "memory",
        "discard": "new",
        "max_bytes": 400,
        "max_msgs": 5,
        "allow_atomic": True,
    },
    "subjects_new": {
        "max_msgs_per_subject": 3,
        "discard": "new",
        "discard_new_per_subject": True,
        "allow_rollup_hdrs": True,
        "allow_atomic": True,
    },
    "counter_small": {"allow_msg_counter": True, "max_msg_size": 90, "allow_atomic": True},
    "everything": {
        "allow_rollup_hdrs": True,
        "allow_msg_ttl": True,
        "allow_msg_schedules": True,
        "subject_transform": {"src": "v.a", "dest": "v.c"},
        "allow_atomic": True,
    },
}
USEFUL = {
    "counter": [("Nats-Incr", "1"), ("Nats-Incr", "-5"), ("Nats-Incr", "+1")],
    "expect": [
        (name, value)
        for name, value in PAIRS
        if name.startswith(("Nats-Expected", "Nats-Msg-Id", "Nats-Rollup")) and value != "x"
    ],
}
Batch = list[tuple[str, Headers, bytes]]  # subject, headers, body of each message


def _messages(kind: str) -> st.SearchStrategy[tuple[str, Headers, bytes]]:
    pairs = st.sampled_from(PAIRS)
    few: st.SearchStrategy[Headers] = st.one_of(
        st.just([]),
        st.lists(st.sampled_from(USEFUL["expect"]), max_size=2),
        st.lists(pairs, max_size=2),
    )
    bodies = st.sampled_from([b"", b"body", b"x" * 61])
    if "counter" in kind:
        count = st.sampled_from(USEFUL["counter"])
        few = st.one_of(
            st.builds(lambda one: [one], count),
            st.builds(lambda one: [one], count),
            st.builds(lambda one, more: [one, *more], count, few),
        )
        bodies = st.sampled_from([b"", b"", b"", b"body"])
    return st.tuples(st.sampled_from("abc"), few, bodies)


def _scripts(kind: str) -> st.SearchStrategy[list[Publish]]:
    batch = st.lists(_messages(kind), min_size=1, max_size=4)
    # a nats-server adds the commit behind `eob` after its checks: before a TTL that it raises, and it
    # stores half of a batch that has no room for it
    ended_apart = kind == "markers" or "max_bytes" in KINDS[kind]
    ends = st.sampled_from(["1", "1", "1", "" if ended_apart else "eob", ""])
    return st.builds(
        _publishes,
        st.lists(st.tuples(batch, ends), min_size=1, max_size=4),
        st.lists(_messages(kind), max_size=3),
        st.randoms(use_true_random=False),
    )


def _publishes(batches: list[tuple[Batch, str]], plain: Batch, random: object) -> list[Publish]:
    """What is published, in an order in which two of the batches are open at a time."""
    lines: list[list[Publish]] = []
    for number, (batch, end) in enumerate(batches):
        line: list[Publish] = []
        for seq, (subject, headers, body) in enumerate(batch, 1):
            own = [("Nats-Batch-Id", f"b{number}"), ("Nats-Batch-Sequence", str(seq))]
            if seq == len(batch) and end == "1":
                own.append(("Nats-Batch-Commit", "1"))
            line.append((subject, own + headers, body))
        if end == "eob":
            own = [("Nats-Batch-Id", f"b{number}"), ("Nats-Batch-Sequence", str(len(batch) + 1))]
            line.append(("a", [*own, ("Nats-Batch-Commit", "eob")], b""))
        lines.append(line)
    lines += [[message] for message in plain]
    result: list[Publish] = []
    while lines:
        which = random.randrange(min(2, len(lines)))  # type: ignore[attr-defined]  # a Random
        result.append(lines[which].pop(0))
        lines = [line for line in lines if line]
    return result


@pytest.fixture(scope="module")
def judges() -> Iterator[Judges]:
    with both() as pair:
        yield Judges(pair)


@pytest.mark.parametrize("kind", KINDS)
def test_batches_with_headers(judges: Judges, kind: str) -> None:
    @seed(seed_of(sorted(KINDS).index(kind)))
    @settings(CALLS, max_examples=examples(15))
    @given(_scripts(kind))
    def judge(publishes: list[Publish]) -> None:
        run(judges, KINDS[kind], publishes)

    judge()
