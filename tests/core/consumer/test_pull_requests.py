"""Pull requests: reading them as Go's decoder would, and the round-robin queue."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.core.consumer.pull_requests import PullQueue, read_request
from tests.ways import length

FIELDS = st.dictionaries(
    st.sampled_from(
        [
            "batch",
            "max_bytes",
            "expires",
            "idle_heartbeat",
            "no_wait",
            "group",
            "id",
            "foo",
            "Batch",
            "EXPIRES",
        ]
    ),
    st.one_of(
        st.integers(-5, 10**19),
        st.booleans(),
        st.text(max_size=3),
        st.none(),
        st.just([]),
        st.just(1.5),
    ),
    max_size=6,
)
ORDER = ("batch", "max_bytes", "expires", "idle_heartbeat", "no_wait")


def expected_of(fields: dict[str, object]) -> tuple[object, ...] | None:
    values: dict[str, object] = {**dict.fromkeys(ORDER, 0), "no_wait": False}
    for key, value in fields.items():
        name = key.lower()
        if value is None:
            continue
        if name in ("group", "id"):
            if not isinstance(value, str):
                return None
        elif name == "no_wait":
            if not isinstance(value, bool):
                return None
            values[name] = value
        elif name in values:
            if isinstance(value, bool) or not isinstance(value, int) or value >= 2**63:
                return None
            values[name] = value
    numbers = [int(str(values[name])) for name in ORDER[:4]]
    kept = ("batch", "expires")  # what is below zero is for the consumer to refuse
    signed = [n if name in kept else max(n, 0) for name, n in zip(ORDER, numbers, strict=False)]
    return (*signed, values["no_wait"])


@given(FIELDS, st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t: ")]))
@settings(max_examples=length(50, 400), deadline=None)
def test_json_requests_mean_what_they_say(
    fields: dict[str, object], separators: tuple[str, str]
) -> None:
    assert read_request(json.dumps(fields, separators=separators).encode()) == expected_of(fields)


@given(st.binary(max_size=30) | st.binary(max_size=20).map(lambda b: b'{"batch":' + b))
def test_any_bytes_are_a_request_or_none(text: bytes) -> None:
    request = read_request(text)
    assert request is None or len(request) == 5


@pytest.mark.parametrize(
    ("text", "batch"),
    [
        (b"", 1),
        (b"10", 10),
        (b" 7 ", 7),
        (b"0", 0),
        (b"-3", -3),
        (b"hello", 1),
        (b"{}", 0),
        (b'{"batch":0}', 0),
        (b'{"batch":9}', 9),
    ],
)
def test_short_forms(text: bytes, batch: int) -> None:
    assert read_request(text) == (batch, 0, 0, 0, False)


@pytest.mark.parametrize(
    "text",
    [
        b'{"batch":1',
        b'{"batch":01}',
        b'{"batch":1}}',
        b'{"batch":1,}',
        b'{"batch" 1}',
        b'{"no_wait":1}',
        b"{" * 5000,
    ],
)
def test_broken_json_is_no_request(text: bytes) -> None:
    assert read_request(text) is None


def test_a_long_queue_can_be_dropped_at_once() -> None:
    queue = PullQueue()
    for _ in range(300_000):
        queue.put(b"r", 1)
    del queue


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(1, 5)), st.tuples(st.just("serve"), st.just(0))
        ),
        max_size=80,
    )
)
def test_requests_take_turns(steps: list[tuple[str, int]]) -> None:
    queue, model = PullQueue(), list[list[Any]]()
    for number, (verb, n) in enumerate(steps):
        if verb == "put":
            name = b"r%d" % number
            queue.put(name, n)
            model.append([name, n])
        else:
            name = b""
            if model:
                head = model.pop(0)
                name = bytes(head[0])
                head[1] -= 1
                if head[1]:
                    model.append(head)
            assert queue.serve() == (name or None)
        assert queue.replies() == [(r[0], r[1]) for r in model]
        assert queue.count == len(model)
        assert queue.wanted == sum(r[1] for r in model)
