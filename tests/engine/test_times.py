"""Times in configurations and requests: missing ones, zero, and times that no message can have."""

import json
from pathlib import Path

import pytest

from tests.engine.house import House

ZERO = "0001-01-01T00:00:00Z"
ZEROS = [ZERO, "0001-01-01T00:00:00.000Z", "0001-01-01T01:00:00+01:00", "0000-02-29T00:00:00Z"]
BEFORE = [*ZEROS, "0001-01-01T00:00:00+01:00", "1969-12-31T23:59:59.9Z", "1970-01-01T00:00:00Z"]
AFTER = ["2999-01-01T00:00:00Z", "2262-04-11T23:47:16.854775808Z", "9999-12-31T23:59:59-01:00"]


@pytest.mark.parametrize("zero", ZEROS)
def test_a_zero_pause_needs_no_newer_server(tmp_path: Path, zero: str) -> None:
    house = House(tmp_path)
    house.stream()
    made = house.consumer(durable_name="c", ack_policy="explicit", pause_until=zero)
    later = "2100-01-01T00:00:00Z"
    house.consumer("p", durable_name="p", ack_policy="explicit", pause_until=later)
    for _ in range(2):
        for info in (made, house.ok("CONSUMER.INFO.S.c")):
            assert info["config"]["metadata"]["_nats.req.level"] == "0"
            assert info["config"]["pause_until"] == ZERO
            assert not info.get("paused")
        paused = house.ok("CONSUMER.INFO.S.p")
        assert (paused["paused"], paused["config"]["metadata"]["_nats.req.level"]) == (True, "1")
        house = house.restart()
    assert house.ok("CONSUMER.PAUSE.S.p", {"pause_until": zero})["paused"] is False
    config = house.ok("CONSUMER.INFO.S.p")["config"]
    assert ("pause_until" in config, config["metadata"]["_nats.req.level"]) == (False, "0")


def test_the_end_of_a_pause_that_was_none_is_not_told(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream()
    house.consumer(durable_name="c", ack_policy="explicit", pause_until=ZERO)
    listener = house.server.client()
    listener.send("SUB $JS.EVENT.ADVISORY.CONSUMER.PAUSE.> 1\r\n")
    house.ok("CONSUMER.PAUSE.S.c", {"pause_until": ZERO})
    assert listener.events() == []
    assert "pause_until" not in house.ok("CONSUMER.INFO.S.c")["config"]


@pytest.mark.parametrize("time", AFTER)
def test_a_pause_of_centuries(tmp_path: Path, time: str) -> None:
    house = House(tmp_path)
    house.stream()
    house.consumer(durable_name="c", ack_policy="explicit")
    most = 2**63 - 1  # the longest duration
    told = house.ok("CONSUMER.PAUSE.S.c", {"pause_until": time})
    house = house.restart()
    info = house.ok("CONSUMER.INFO.S.c")
    assert (told["paused"], info["paused"]) == (True, True)
    for answer in (told, info):
        left = answer["pause_remaining"]
        assert left == most or (time == AFTER[1] and 0 < left < most)


@pytest.mark.parametrize("time", [*BEFORE, *AFTER])
def test_a_start_at_any_time(tmp_path: Path, time: str) -> None:
    house = House(tmp_path)
    house.stream("S", subjects=["s"], allow_direct=True)
    for _ in range(3):
        house.publish("s")
    count = 3 if time in BEFORE else 0
    made = house.consumer(
        durable_name="c", ack_policy="explicit", deliver_policy="by_start_time", opt_start_time=time
    )
    assert made["num_pending"] == count
    house.stream("M", mirror={"name": "S", "opt_start_time": time})
    house.stream("N", sources=[{"name": "S", "opt_start_time": time}])
    for _ in range(2):
        told = house.ok("CONSUMER.INFO.S.c")["config"]["opt_start_time"]
        mirror = house.ok("STREAM.INFO.M")
        source = house.ok("STREAM.INFO.N")
        if time in (ZERO, BEFORE[-1], AFTER[0]):
            assert told == time
        assert mirror["config"]["mirror"]["opt_start_time"] == told
        assert source["config"]["sources"][0]["opt_start_time"] == told
        assert (mirror["state"]["messages"], source["state"]["messages"]) == (count, count)
        house = house.restart()
    answer = house.api("STREAM.MSG.GET.S", {"start_time": time})
    assert answer.get("error", {}).get("err_code") == (None if count else 10037)
    [(headers, _)] = house.request("$JS.API.DIRECT.GET.S", {"start_time": time})
    assert headers.startswith(b"NATS/1.0\r\n" if count else b"NATS/1.0 404")
    answers = house.request("$JS.API.DIRECT.GET.S", {"multi_last": ["s"], "up_to_time": time})
    assert answers[0][0].startswith(b"NATS/1.0 404" if count else b"NATS/1.0\r\n")
    assert json.loads(house.request("s", b"x")[0][1])["seq"] == 4
