"""``pelton bench`` against every server there is: each mode moves the messages that it counts."""

from __future__ import annotations

import csv
import itertools
import json
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.cli.bench.load import shares
from pelton.cli.bench.report import percentile, spread
from pelton.cli.bench.supply import Pace, Subjects, Supply
from pelton.core.protocol.wire import OP_PUB, ROLE_SERVER, Parser
from pelton.sync import connect
from tests import copies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cli.conftest import Ran
    from tests.peers import ServerProcess

    Run = Callable[..., Ran]

MSGS = 500


@st.composite
def _loads(draw: Any) -> tuple[Subjects, bytes, bytes, int, list[str]]:
    first, most = draw(st.integers(0, 10**6)), draw(st.integers(0, 300))
    many = draw(st.booleans())
    subjects = Subjects("a.b", many=many, most=most)
    count = draw(st.integers(1, 2000))
    width = len(str(most - 1)) if most else 0
    names = [f"a.b.{n % most if most else n:0{width}}" for n in range(first, first + count)]
    lines = draw(st.sampled_from([b"", b"K: v\r\n"]))
    payload = draw(st.binary(max_size=40))
    return subjects, payload, lines, first, names if many else ["a.b"] * count


@given(_loads())
def test_a_supply_is_the_messages_that_were_asked_for(load: Any) -> None:
    subjects, payload, lines, first, names = load
    supply = Supply(subjects, payload, lines=lines, first=first, max_payload=1 << 20)
    found, left = b"", len(names)
    while left:
        data, made = supply.take(left)
        assert 0 < made <= left
        found += bytes(data)
        left -= made
    block = b"NATS/1.0\r\n" + lines + b"\r\n" if lines else b""
    assert Parser(ROLE_SERVER).feed(found) == [(OP_PUB, name, "", block, payload) for name in names]


@given(st.integers(1, 10**6), st.integers(1, 300))
def test_shares_are_equal_and_complete(total: int, parts: int) -> None:
    found = shares(total, parts)
    assert sum(found) == total
    assert max(found) - min(found) <= 1


@given(st.lists(st.integers(0, 10**9), min_size=1), st.floats(0.1, 100))
def test_a_percentile_is_the_smallest_that_covers_it(values: list[int], percent: float) -> None:
    ordered = sorted(values)
    found = percentile(ordered, percent)
    at_most = sum(each <= found for each in ordered)
    below = sum(each < found for each in ordered)
    assert below < percent / 100 * len(ordered) <= at_most + 1e-6
    low, mean, high, deviation = spread(values)
    assert low <= mean + 1e-6
    assert mean <= high + 1e-6
    assert 0 <= deviation <= high - low + 1e-6


@given(st.floats(10, 1e7), st.lists(st.integers(0, 10**8), min_size=1, max_size=50))
def test_a_pace_is_never_exceeded(per_second: float, steps: list[int]) -> None:
    pace, sent, start = Pace(0, per_second), 0, 10**9
    for now in itertools.accumulate(steps, initial=start):
        sent += pace.allowed(sent, 10**9, now)
        assert sent <= (now - start) * per_second / 1e9 + 1
        assert pace.due(sent) > now or pace.allowed(sent, 1, pace.due(sent)) == 1


def test_a_pause_lets_one_message_go() -> None:
    pace = Pace(1000)
    assert pace.allowed(0, 50, 10) == 1
    pace.sent(10)
    assert (pace.allowed(1, 50, 1009), pace.due(1), pace.allowed(1, 50, 1010)) == (0, 1010, 1)


def _figures(ran: Ran, messages: int = MSGS, clients: int = 1) -> dict[str, Any]:
    assert ran.status == 0, ran.err
    found: dict[str, Any] = ran.json
    assert found["messages"] == messages
    assert len(found["clients"]) == clients
    assert sum(each["messages"] for each in found["clients"]) == messages
    assert found["seconds"] > 0
    return found


def test_publish_figures_count_what_the_server_has(at: Run, unique: str) -> None:
    at("stream", "add", unique, "--subjects", f"{unique}.>", "--defaults")
    common = ("--msgs", MSGS, "--json")
    _figures(at("bench", "pub", f"{unique}.a", "--clients", 3, *common), clients=3)
    many = ("--multisubject", "--multisubjectmax", 7)
    _figures(at("bench", "pub", f"{unique}.b", *many, "-H", "K: v", *common))
    info = at("stream", "info", unique, "--json").json
    assert info["state"]["messages"] == 2 * MSGS
    assert info["state"]["num_subjects"] == 8
    got = at("stream", "get", unique, 1, "--json").json
    assert len(got["data"]) == 128
    assert at("stream", "get", unique, MSGS + 1, "--json").json["headers"] == {"K": ["v"]}


@pytest.mark.parametrize("mode", ["sync", "async", "atomic", "batch", "fast"])
def test_a_stream_holds_what_was_published(at: Run, unique: str, mode: str) -> None:
    words = ("bench", "js", "pub", mode, unique, "--stream", unique, "--msgs", MSGS, "--json")
    batch = () if mode == "sync" else ("--batch", 64)
    found = _figures(at(*words, "--create", "--clients", 2, *batch), clients=2)
    assert found["latency_ns"]["min"] <= found["latency_ns"]["p50"] <= found["latency_ns"]["max"]
    if mode in ("sync", "async"):
        _figures(at(*words, *batch, "--dedup", "--size", "1KB"))
    else:
        _figures(at(*words, *batch))
    state = at("stream", "info", unique, "--json").json["state"]
    assert state["messages"] == 2 * MSGS
    _figures(at(*words, *batch, "--purge"))
    assert at("stream", "info", unique, "--json").json["state"]["messages"] == MSGS


@pytest.mark.parametrize("acks", ["explicit", "none", "all"])
@pytest.mark.parametrize("mode", ["consume", "fetch"])
def test_consumers_are_read_and_acknowledged(at: Run, unique: str, mode: str, acks: str) -> None:
    at("stream", "add", unique, "--subjects", f"{unique}.>", "--defaults")
    _figures(at("bench", "pub", f"{unique}.a", "--msgs", MSGS, "--json"))
    words = ("bench", "js", mode, "--stream", unique, "--consumer", unique, "--acks", acks)
    more = ("--batch", 60, "--msgs", MSGS, "--json", "--filter", f"{unique}.a,{unique}.b")
    double = ("--doubleack",) if acks == "explicit" else ()
    _figures(at(*words, *more, "--clients", 2, *double), clients=2)
    info = at("consumer", "info", unique, unique, "--json").json
    assert info["delivered"]["stream_seq"] == MSGS
    assert info["num_pending"] == 0
    if acks != "none":
        assert info["ack_floor"]["stream_seq"] == MSGS
        assert info["num_ack_pending"] == 0


def test_reads_without_a_durable_consumer(at: Run, unique: str) -> None:
    words = ("--stream", unique, "--msgs", MSGS, "--json")
    _figures(at("bench", "js", "pub", "async", unique, "--create", *words))
    found = at("bench", "js", "ordered", "--clients", 2, *words)
    _figures(found, 2 * MSGS, clients=2)
    assert at("consumer", "ls", unique, "--json").json == []
    assert _figures(at("bench", "js", "get", "sync", *words))["latency_ns"]["p99.9"] > 0
    batches = ("--batch", 60, "--clients", 2)
    _figures(at("bench", "js", "get", "batch", *batches, *words), clients=2)
    few = at("bench", "js", "get", "sync", "--stream", unique, "--msgs", MSGS + 1)
    assert (few.status, few.out) == (2, "")
    assert f"{MSGS} messages" in few.err
    at("stream", "edit", unique, "--no-allow-direct", "-f")
    _figures(at("bench", "js", "get", "sync", *words))
    assert at("bench", "js", "get", "batch", *words).status == 1


@pytest.mark.parametrize("acks", ["explicit", "none"])
def test_messages_are_pushed(at: Run, unique: str, acks: str) -> None:
    words = ("--stream", unique, "--msgs", MSGS, "--json")
    _figures(at("bench", "js", "pub", "async", unique, "--create", *words))
    found = at("bench", "js", "push", "--clients", 2, "--acks", acks, *words)
    _figures(found, 2 * MSGS, clients=2)
    assert at("consumer", "ls", unique, "--json").json == []


def test_requests_may_be_answered_by_the_same_load(at: Run, unique: str) -> None:
    words = ("bench", "service", "request", unique, "--serve", "--msgs", MSGS, "--json")
    found = _figures(at(*words, "--clients", 2, "--outstanding", 10), clients=2)
    assert found["latency_ns"]["p50"] > 0
    assert found["processor_seconds"] > 0
    large = at("bench", "service", "request", unique, "--size", "9MB")
    assert (large.status, "at most" in large.err) == (1, True)


def test_an_interrupted_load_says_what_it_has_done(peer: ServerProcess, unique: str) -> None:
    words = ["bench", "pub", unique, "--throughput", "1000", "--duration", "1h", "--json"]
    command = [sys.executable, "-m", "pelton.cli", "-s", peer.url, *words]
    with subscribed(peer.url, unique) as heard:
        load = copies.Popen(command, stdout=subprocess.PIPE)
        try:
            heard(5)
        finally:
            load.send_signal(2)
            out, _ = load.communicate(timeout=60)
    found = json.loads(out)
    assert load.returncode == 130
    assert found["interrupted"] is True
    assert found["messages"] >= 5
    assert found["seconds"] > 0


@contextmanager
def subscribed(url: str, subject: str) -> Iterator[Callable[[int], None]]:
    """A function that waits until so many messages have come."""
    with connect(url) as client:
        subscription = client.subscribe(subject)
        client.flush()

        def heard(count: int) -> None:
            for _ in range(count):
                assert subscription.next(60) is not None

        yield heard


def test_keys_are_put_and_got(at: Run, unique: str) -> None:
    words = ("--bucket", unique, "--msgs", 200, "--json")
    _figures(at("bench", "kv", "put", "--clients", 2, *words), 200, clients=2)
    assert sorted(at("kv", "ls", unique, "--json").json, key=int) == [str(n) for n in range(200)]
    _figures(at("bench", "kv", "get", *words), 200)
    _figures(at("bench", "kv", "get", "--randomize", 100, *words), 200)
    _figures(at("bench", "kv", "put", "--purge", "--randomize", 5, *words), 200)
    assert set(at("kv", "ls", unique, "--json").json) <= set("01234")
    few = at("bench", "kv", "get", "--bucket", unique)
    assert few.status == 2
    assert "values" in few.err


def test_a_service_answers_requests(at: Run, peer: ServerProcess, unique: str) -> None:
    command = [sys.executable, "-m", "pelton.cli", "-s", peer.url, "bench"]
    serving = copies.Popen(
        [*command, "service", "serve", unique, "--clients", "2"], stderr=subprocess.PIPE
    )
    try:
        deadline = time.monotonic() + 60
        while at("req", unique, "x", "--raw").status and time.monotonic() < deadline:
            assert serving.poll() is None
        found = _figures(at("bench", "service", "request", unique, "--msgs", MSGS, "--json"))
        assert found["latency_ns"]["p50"] > 0
        shown = at("service", "ls", "--json").json
        assert [each["name"] for each in shown].count("nats-bench-service") == 2
        assert unique in at("service", "info", "nats-bench-service").out
        stats = at("service", "stats", "nats-bench-service", "--json").json
        answered = sum(each["endpoints"][0]["num_requests"] for each in stats)
        assert answered == MSGS + 1
    finally:
        serving.send_signal(2)
        _, err = serving.communicate(timeout=60)
    assert serving.returncode == 130
    assert f"{MSGS + 1} requests answered" in err.decode()


def test_a_subscriber_gets_what_is_published(at: Run, peer: ServerProcess, unique: str) -> None:
    command = [sys.executable, "-m", "pelton.cli", "-s", peer.url, "bench"]
    listening = copies.Popen(
        [*command, "sub", unique, "--clients", "2", "--msgs", str(MSGS), "--json"],
        stdout=subprocess.PIPE,
    )
    try:
        while listening.poll() is None:  # what is published before it listens is not heard
            assert at("bench", "pub", unique, "--msgs", MSGS, "--json").status == 0
        out, _ = listening.communicate(timeout=60)
    finally:
        listening.kill()
    assert listening.returncode == 0
    assert b'"messages": 1000,' in out


def test_the_forms_of_the_figures(at: Run, unique: str, tmp_path: Path) -> None:
    file = tmp_path / "figures.csv"
    words = ("bench", "pub", unique, "--msgs", MSGS)
    text = at(*words)
    assert text.out.startswith("Pub stats: ")
    assert " msgs/sec ~ " in text.out
    assert "Starting Pub benchmark [" in text.err
    several = at(*words, "--clients", 2, "--csv", file, "--no-progress").out
    assert several.count("(250 msgs)") == 2
    assert "message rates: min " in several
    rows = list(csv.DictReader(file.open()))
    assert [row["MsgCount"] for row in rows] == ["250", "250"]
    assert at(*words, "--format", "csv").out.startswith("Client,Messages,Seconds")
    slow = at(*words, "--throughput", 1000, "--duration", "100ms", "--json").json
    assert slow["messages"] == 100
    assert slow["messages_per_second"] <= 1020
    paused = at(*words[:3], "--msgs", 5, "--sleep", "5ms", "--json").json
    assert paused["seconds"] >= 0.02


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (("pub", "a b"), 2, "cannot publish"),
        (("pub", "a", "--duration", "1s"), 2, "--throughput"),
        (("pub", "a", "--msgs", "2", "--clients", "3"), 2, "cannot share"),
        (("pub", "a", "--size", "9MB", "--msgs", "1"), 1, "at most"),
        (("pub", "a", "--payload", "/nowhere"), 2, "does not exist"),
        (("js", "pub", "sync", "a", "--stream", "NOTHERE"), 1, "stream not found"),
        (("js", "pub", "atomic", "a", "--batch", "1001"), 2, "1000 at most"),
        (("js", "consume", "--stream", "NOTHERE"), 1, "stream not found"),
        (("js", "pub", "slow", "a"), 2, "No such command"),
        (("kv", "get", "--bucket", "NOTHERE"), 1, "bucket"),
        (("service", "request", "nobody.here"), 1, "nobody answers"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    at: Run, words: tuple[str, ...], status: int, text: str
) -> None:
    ran = at("bench", *words)
    assert (ran.status, ran.out) == (status, "")
    assert text in ran.err.splitlines()[-1]
    assert "Traceback" not in ran.err
