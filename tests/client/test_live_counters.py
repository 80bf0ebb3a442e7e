"""Counters and schedules: both shells, every server."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton import (
    ApiError,
    ConsumerConfig,
    InvalidSubjectError,
    MessageNotFoundError,
    ProtocolError,
    StoredMessage,
    StreamConfig,
    StreamSource,
    WrongStreamError,
)
from pelton.client.stored import entry_of, number_of, pattern_of, text_of_number
from tests.client.shells import connected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.peers import ServerProcess


@pytest.fixture
def js(shell: str, server: ServerProcess) -> Iterator[Any]:
    with connected(shell, server.url) as client:
        yield client.jetstream()


def counters(name: str, **fields: Any) -> StreamConfig:
    given = {"subjects": [f"{name}.>"], "allow_msg_counter": True, "allow_direct": True}
    return StreamConfig(name=name, storage="memory", **{**given, **fields})


@pytest.mark.needs("allow_msg_counter")
def test_counters_against_a_dictionary(js: Any, unique: str) -> None:
    js.create_stream(counters(unique))
    counter = js.counter(unique)
    with pytest.raises(MessageNotFoundError):
        counter.get(f"{unique}.a")
    draw = random.Random(7)
    model: dict[str, int] = {}
    states: dict[str, list[tuple[int, int]]] = {}
    for _ in range(60):
        subject = f"{unique}.{draw.randrange(4)}"
        by = draw.choice([1, -1, 10**30, -(10**25), 0, draw.randrange(-1000, 1000)])
        model[subject] = model.get(subject, 0) + by
        states.setdefault(subject, []).append((by, model[subject]))
        assert counter.increment(subject, by) == model[subject]
    for subject, value in model.items():
        assert counter.get(subject) == value
        past = [(each.increment, each.value) for each in counter.history(subject)]
        assert past == states[subject]
    found = {each.subject: each.value for each in counter.get_many(f"{unique}.>")}
    assert found == model
    assert counter.increment(f"{unique}.new") == 1
    js.delete_stream(unique)


@pytest.mark.needs("allow_msg_counter")
def test_an_increment_with_an_id_counts_once(js: Any, unique: str) -> None:
    js.create_stream(counters(unique))
    counter = js.counter(unique)
    assert counter.increment(f"{unique}.a", 5, msg_id="1") == 5
    assert counter.increment(f"{unique}.a", 5, msg_id="1") == 5
    assert counter.increment(f"{unique}.a", 5, msg_id="2") == 10
    for wrong in (True, 1.0, "1", None):
        with pytest.raises(TypeError):
            counter.increment(f"{unique}.a", wrong)
    with pytest.raises(ValueError, match="digits"):
        counter.increment(f"{unique}.a", 1 << 100_000)
    with pytest.raises(InvalidSubjectError):
        counter.get(f"{unique}.*")
    with pytest.raises(ValueError, match="name"):
        js.counter("a.b")
    js.create_stream(counters(f"{unique}x", subjects=[f"{unique}x"]))
    with pytest.raises(WrongStreamError, match=f"{unique}x"):
        counter.increment(f"{unique}x")
    js.create_stream(StreamConfig(name=f"{unique}p", subjects=[f"{unique}p"], storage="memory"))
    with pytest.raises(ApiError):
        js.counter(f"{unique}p").increment(f"{unique}p")
    assert counter.get(f"{unique}.a") == 10
    for name in (unique, f"{unique}x", f"{unique}p"):
        js.delete_stream(name)


@pytest.mark.needs("allow_msg_counter")
def test_a_counter_names_the_counters_that_it_sums_up(js: Any, unique: str) -> None:
    js.create_stream(counters(unique))
    total = counters(f"{unique}t", subjects=[], sources=[StreamSource(name=unique)])
    js.create_stream(total)
    js.counter(unique).increment(f"{unique}.a", 4)
    js.counter(unique).increment(f"{unique}.a", 3)
    summed = js.counter(total.name)
    js.create_consumer(total.name, ConsumerConfig(durable_name="c"))
    assert len(js.consumer(total.name, "c").fetch(2, timeout=30)) == 2, "both have arrived"
    entry = summed.load(f"{unique}.a")
    assert entry.value == 7
    assert list(entry.sources.values()) == [{f"{unique}.a": 7}]
    js.delete_stream(total.name)
    js.delete_stream(unique)


@given(st.integers() | st.integers(1, 99).map(lambda n: (-7) ** (n * 300)))
def test_numbers_of_any_size_are_texts(number: int) -> None:
    text = text_of_number(number)
    assert text[0] in "+-"
    assert text[1:].isdigit()
    assert number_of(text) == number


def test_a_number_has_as_many_digits_as_the_error_allows() -> None:
    largest = 10**30_000 - 1
    assert text_of_number(largest)[1:] == "9" * 30_000
    assert text_of_number(-largest)[1:] == "9" * 30_000
    with pytest.raises(ValueError, match="at most 30000 digits"):
        text_of_number(largest + 1)


@given(st.text(max_size=40) | st.sampled_from(["", "1" * 30_002, "1e5", "٣", "1_000", " 1", "+"]))
def test_other_texts_are_no_numbers(text: str) -> None:
    body = StoredMessage("a", 1, text.encode("utf-8", "replace"), {}, 0)
    with pytest.raises(ProtocolError):
        entry_of(body)


# -- schedules -------------------------------------------------------------------------------------

MOMENT = datetime(2090, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"at": MOMENT}, "@at 2090-01-02T03:04:05Z"),
        ({"at": "2090-01-02T04:04:05+01:00"}, "@at 2090-01-02T03:04:05Z"),
        ({"delay": "1m"}, "@at 1970-01-01T00:01:01Z"),
        ({"every": timedelta(minutes=90)}, "@every 1h30m0s"),
        ({"every": 1}, "@every 1s"),
        ({"cron": "0 0 8 * * mon-fri"}, "0 0 8 * * mon-fri"),
        ({"cron": "@daily"}, "@daily"),
    ],
)
def test_times_as_patterns(fields: dict[str, Any], pattern: str) -> None:
    given = {"at": None, "every": None, "cron": None, "delay": None, **fields}
    assert pattern_of(**given, now_ns=10**9) == pattern


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"at": MOMENT, "delay": 1},
        {"at": datetime(2090, 1, 1)},  # without a zone
        {"every": 0.5},
        {"cron": "0 8 * * *"},
        {"cron": "@sometimes"},
        {"cron": "0 0 8 * * 1\r\nNats-TTL: 1"},
        {"delay": -1},
    ],
)
def test_times_that_are_none_are_refused(fields: dict[str, Any]) -> None:
    given = {"at": None, "every": None, "cron": None, "delay": None, **fields}
    with pytest.raises(ValueError, match=r"give one|zone|second|cron|negative"):
        pattern_of(**given, now_ns=0)


def schedules(name: str, **fields: Any) -> StreamConfig:
    return StreamConfig(
        name=name,
        subjects=[f"{name}.>"],
        allow_msg_schedules=True,
        allow_msg_ttl=True,
        **{"storage": "memory", **fields},
    )


@pytest.mark.needs("allow_msg_schedules")
@pytest.mark.parametrize("direct", [False, True])
def test_schedules_are_made_listed_and_cancelled(js: Any, unique: str, direct: bool) -> None:
    js.create_stream(schedules(unique, allow_direct=direct))
    target = f"{unique}.out"
    js.schedule(f"{unique}.s.1", b"1", target=target, at=MOMENT)
    js.schedule(f"{unique}.s.2", b"2", target=target, every="1h", ttl="5m", headers={"A": "b"})
    js.schedule(
        f"{unique}.s.3",
        target=target,
        cron="0 0 8 * * 1-5",
        time_zone="Europe/Berlin",
        source=f"{unique}.in",
        rollup=True,
    )
    js.publish(f"{unique}.in", b"not a schedule")
    one, two, three = sorted(js.iter_schedules(unique), key=lambda each: str(each.subject))
    assert (one.subject, one.pattern, one.target, one.data) == (
        f"{unique}.s.1",
        "@at 2090-01-02T03:04:05Z",
        target,
        b"1",
    )
    assert (two.pattern, two.ttl, two.headers.get_all("A")) == ("@every 1h0m0s", "5m0s", ["b"])
    assert (three.time_zone, three.source) == ("Europe/Berlin", f"{unique}.in")
    assert [each.seq for each in js.iter_schedules(unique, f"{unique}.*.2")] == [two.seq]
    assert js.cancel_schedule(unique, one.subject)
    assert not js.cancel_schedule(unique, one.subject)
    assert not js.cancel_schedule(unique, f"{unique}.in"), "no schedule, so it stays"
    assert js.get_message(unique, last_by_subject=f"{unique}.in").data == b"not a schedule"
    js.schedule(two.subject, b"new", target=target, every="2h")
    left = {each.subject: each.data for each in js.iter_schedules(unique)}
    assert left == {two.subject: b"new", three.subject: b""}
    js.delete_stream(unique)


@pytest.mark.needs("allow_msg_schedules")
def test_a_schedule_produces_its_message(js: Any, unique: str) -> None:
    js.create_stream(schedules(unique))
    target = f"{unique}.out"
    js.create_consumer(unique, ConsumerConfig(durable_name="c", filter_subject=target))
    js.schedule(f"{unique}.s", b"now", target=target, delay="1ms", headers={"A": "b"})
    (message,) = js.consumer(unique, "c").fetch(1, timeout=30)
    assert (message.data, message.header("A")) == (b"now", "b")
    stored = js.get_message(unique, last_by_subject=target)
    assert stored.headers.get_all("Nats-Scheduler") == [f"{unique}.s"]
    js.delete_stream(unique)


@pytest.mark.needs("allow_msg_counter", "allow_msg_schedules")
def test_mistakes_are_found_before_anything_is_sent(js: Any, unique: str) -> None:
    js.create_stream(schedules(unique))
    good: dict[str, Any] = {"subject": f"{unique}.s", "target": f"{unique}.out", "every": "1h"}
    wrongs: list[dict[str, Any]] = [
        {"target": f"{unique}.s"},
        {"target": f"{unique}.*"},
        {"source": f"{unique}.out"},
        {"source": f"{unique}.>"},
        {"time_zone": "UTC"},
        {"at": MOMENT},
        {"every": None},
    ]
    for wrong in wrongs:
        with pytest.raises(ValueError, match=r"target|publish|source|time_zone|one of"):
            js.schedule(**{**good, **wrong})
    assert js.stream_info(unique).state.messages == 0
    with pytest.raises(ApiError) as caught:
        js.schedule(**{**good, "target": f"other.{unique}"})
    assert caught.value.err_code == 10190
    js.delete_stream(unique)
