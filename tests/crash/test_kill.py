"""Nothing that was acknowledged is lost when the server's process is killed.

ROUNDS is how many lives a server has in each test.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.crash.load import (
    MAX_BYTES,
    MAX_MSGS,
    PER_SUBJECT,
    STREAMS,
    Publisher,
    Told,
    Worker,
    furnish,
    same,
    stored,
)
from tests.crash.waiting import pause
from tests.crash.wire import Wire
from tests.peers import ServerProcess, running_server
from tests.ways import SEED, length

if TYPE_CHECKING:
    from collections.abc import Iterable

ROUNDS = length(2, 10)
PUBLISHERS = 3
OLD_LOOKED_AT = 200

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120 + 30 * ROUNDS)]


@pytest.mark.parametrize("sync", ["always", "2m"])
def test_nothing_acked_is_lost_by_a_kill(sync: str) -> None:
    print(f"seed {SEED}")
    rng = Random(SEED)
    told = Told()
    with running_server("pelton", "--sync_interval", sync) as server:
        wire = Wire(server.port)
        furnish(wire)
        wire.close()
        for number in range(ROUNDS):
            one_life(server, told, rng, number)
        assert len(told.acked["PLAIN"]) > 20 * ROUNDS, "too little load to say anything"
        assert told.confirmed, "no ack was ever confirmed"
        drain(server, told, rng)


def one_life(server: ServerProcess, told: Told, rng: Random, number: int) -> None:
    """Load, kill, start, compare."""
    first = number * 10**8
    publishers = [
        Publisher(server.port, told, rng.randrange(2**32), first + k * 10**7)
        for k in range(PUBLISHERS)
    ]
    worker = Worker(server.port, told, rng.randrange(2**32))
    threads = [*publishers, worker]
    for thread in threads:
        thread.start()
    acked, confirmed = len(told.acked["PLAIN"]), len(told.confirmed)

    def enough() -> bool:
        return len(told.acked["PLAIN"]) > acked + 20 and len(told.confirmed) > confirmed

    pause(rng.uniform(0.05, length(0.2, 0.6)), enough)
    server.stop(kill=True)
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert not any(publisher.disorder for publisher in publishers), publishers[0].disorder
    assert not worker.came_back, ("a confirmed ack came back", number, worker.came_back)
    assert not told.refused, told.refused[:3]
    server.start()
    wire = Wire(server.port)
    look(wire, told, rng)
    told.fresh.clear()
    wire.close()


def look(wire: Wire, told: Told, rng: Random) -> None:
    """Hold a server that has just started to what its predecessors said."""
    assert set(wire.ok("STREAM.NAMES")["streams"]) == set(STREAMS)
    assert wire.ok("CONSUMER.NAMES.PLAIN")["consumers"] == ["work"]
    for name, limits in STREAMS.items():
        info = wire.ok(f"STREAM.INFO.{name}")
        state = info["state"]
        assert {key: info["config"][key] for key in limits} == limits
        acked = told.acked[name]
        assert state["last_seq"] >= max(acked, default=0), (name, state)
        old = rng.sample(sorted(acked), min(OLD_LOOKED_AT, len(acked)))
        fresh = [seq for seq, sent in told.fresh if sent.stream == name]
        wanted = sorted({*fresh, *old})
        found = stored(wire, name, wanted, 8 if name == "LARGE" else 64)
        for seq, got in found.items():
            assert same(acked[seq], got), (name, seq, got["subject"], acked[seq])
        missing = [seq for seq in wanted if seq not in found]
        unexplained = list(without_reason(wire, name, missing, state, told))
        assert not unexplained, (name, unexplained, state)
        if name == "LARGE":
            wire.ok("STREAM.PURGE.LARGE")
            acked.clear()
    goes_on(wire, told, rng)


def without_reason(
    wire: Wire, name: str, missing: list[int], state: dict[str, Any], told: Told
) -> Iterable[int]:
    """Which of these are not gone by the stream's limits."""
    if name == "COUNT":
        assert state["messages"] <= MAX_MSGS
        return (seq for seq in missing if seq > state["last_seq"] - MAX_MSGS)
    if name == "BYTES":
        assert state["bytes"] <= MAX_BYTES
        full = state["bytes"] > MAX_BYTES - 2200
        return (seq for seq in missing if not full or seq >= state["first_seq"])
    if name == "LATEST" and missing:
        info = wire.ok("STREAM.INFO.LATEST", {"subjects_filter": ">", "deleted_details": True})
        counts = info["state"]["subjects"]
        assert max(counts.values()) <= PER_SUBJECT
        gone = set(info["state"].get("deleted") or ())
        first = state["first_seq"]
        later: dict[str, int] = {}
        for seq, sent in told.acked[name].items():
            if seq >= first and seq not in gone:
                later[sent.subject] = max(later.get(sent.subject, 0), seq)
        # a message may only give way to PER_SUBJECT that came after it
        return (
            seq
            for seq in missing
            if counts.get(told.acked[name][seq].subject) != PER_SUBJECT
            or seq >= later.get(told.acked[name][seq].subject, seq + 1)
        )
    return missing


def goes_on(wire: Wire, told: Told, rng: Random) -> None:
    """No sequence is given twice, and message ids are remembered."""
    for name, acked in told.acked.items():
        if name not in ("IDS", "LATEST", "LARGE"):
            answer = wire.request(f"{name}.probe", b"probe")
            assert answer["seq"] > max(acked, default=0), (name, answer)
    ids = told.acked["IDS"]
    recent = sorted(ids)[-50:]
    for seq in rng.sample(recent, min(10, len(recent))):
        answer = wire.request(ids[seq].subject, b"again", ids[seq].headers)
        assert answer == {"stream": "IDS", "seq": seq, "duplicate": True}, answer


def drain(server: ServerProcess, told: Told, rng: Random) -> None:
    """Every message that was not acked is delivered, and none whose ack was confirmed."""
    handled = set(told.handled)
    last = Worker(server.port, told, rng.randrange(2**32), drain=True)
    last.start()
    last.join(110)
    assert not last.is_alive()
    assert not last.came_back, last.came_back
    unhandled = set(told.acked["PLAIN"]) - handled
    assert unhandled <= last.delivered, sorted(unhandled - last.delivered)[:10]
    wire = Wire(server.port)
    info = wire.ok("CONSUMER.INFO.PLAIN.work")
    wire.close()
    assert (info["num_pending"], info["num_ack_pending"]) == (0, 0)
