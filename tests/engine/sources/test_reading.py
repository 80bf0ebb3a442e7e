"""Origins that are read through a consumer: workqueue and interest streams, existing consumers, and
origins behind a link, here within the server.
"""

from pathlib import Path
from typing import Any

import pytest

from pelton.engine.sources.links import RouterLink
from tests.engine.house import SECOND, House
from tests.engine.sources.test_following import source_header, stored

STEP = SECOND // 4


@pytest.fixture
def house(tmp_path: Path) -> House:
    found = House(tmp_path)
    remote(found)
    return found


def remote(house: House) -> None:
    """`$JS.hub.API` is a link to the same account: the server gets its own requests."""
    house.engine.accounts["$G"].remotes["$JS.hub.API"] = RouterLink(house.server.router)


EXTERNAL = {"name": "O", "external": {"api": "$JS.hub.API", "deliver": ""}}


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
@pytest.mark.parametrize("how", ["here", "remote"])
def test_what_was_taken_leaves_the_origin(house: House, retention: str, how: str) -> None:
    origin = {"name": "O"} if how == "here" else EXTERNAL
    house.stream("O", subjects=["o.*"], retention=retention)
    house.stream("S", sources=[origin])
    house.server.reactor.settle()
    for n in range(5):
        house.publish(f"o.{n}", b"%d" % n)
    house.pass_time(20 * SECOND, STEP)
    assert [message[4] for message in stored(house, "S")] == [b"0", b"1", b"2", b"3", b"4"]
    assert source_header(stored(house, "S")[2]).rpartition(" ")[0].endswith(" 3 > > o.2")
    assert house.ok("STREAM.INFO.O")["state"]["messages"] == 0
    assert house.ok("STREAM.INFO.O")["state"]["consumer_count"] == 1
    info = house.ok("STREAM.INFO.S")["sources"][0]
    assert (info["lag"], "error" in info) == (0, False)
    if how == "remote":
        return
    after = House(house.folder, house.server.clock.now() + SECOND)
    after.publish("o.5", b"5")
    after.pass_time(5 * SECOND, STEP)
    assert [message[4] for message in stored(after, "S")][-2:] == [b"4", b"5"]
    after.ok("STREAM.DELETE.S")
    assert after.engine.accounts["$G"].streams["O"].consumers == {}


def test_a_mirror_through_a_link(house: House) -> None:
    house.stream("O", subjects=["o.*"])
    for n in range(1, 8):
        house.publish(f"o.{n % 2}", b"%d" % n)
    house.ok("STREAM.MSG.DELETE.O", {"seq": 3})
    house.stream("M", mirror=EXTERNAL)
    house.stream("F", mirror={**EXTERNAL, "filter_subject": "o.1"})
    house.stream("Q", mirror={**EXTERNAL, "opt_start_seq": 6})
    house.pass_time(SECOND, STEP)
    assert stored(house, "M") == stored(house, "O")
    assert [message[0] for message in stored(house, "F")] == [1, 5, 7]
    assert house.ok("STREAM.INFO.Q")["state"]["first_seq"] == 6
    house.ok("STREAM.PURGE.O")
    house.publish("o.1", b"8")
    house.pass_time(SECOND, STEP)
    assert [message[0] for message in stored(house, "F")] == [1, 5, 7, 8]
    assert house.ok("STREAM.INFO.M")["mirror"]["lag"] == 0


def test_an_origin_behind_a_link_may_be_missing(house: House) -> None:
    house.stream("S", sources=[EXTERNAL])
    house.pass_time(SECOND, STEP)
    info = house.ok("STREAM.INFO.S")["sources"][0]
    assert info["error"]["err_code"] == 10059
    assert info["active"] == -1
    house.stream("O", subjects=["o"])
    house.publish("o")
    house.pass_time(30 * SECOND, STEP)
    assert len(stored(house, "S")) == 1
    house.ok("STREAM.DELETE.O")
    house.pass_time(30 * SECOND, STEP)
    assert house.ok("STREAM.INFO.S")["sources"][0]["error"]["err_code"] == 10059


def test_a_consumer_made_beforehand(house: House) -> None:
    house.stream("O", subjects=["o"], retention="workqueue")
    given = {"name": "given", "deliver_subject": "taken"}
    source: dict[str, Any] = {"name": "O", "consumer": given}
    house.stream("S", sources=[source])
    house.pass_time(SECOND, STEP)
    assert house.ok("STREAM.INFO.S")["sources"][0]["active"] == -1
    config = {
        "durable_name": "given",
        "deliver_subject": "taken",
        "ack_policy": "flow_control",
        "flow_control": True,
        "idle_heartbeat": SECOND,
    }
    house.consumer("given", "O", **config)
    house.publish("o")
    house.pass_time(30 * SECOND, STEP)
    assert len(stored(house, "S")) == 1
    assert house.ok("STREAM.INFO.O")["state"]["messages"] == 0
    assert "error" not in house.ok("STREAM.INFO.S")["sources"][0]


def test_a_consumer_made_beforehand_has_to_take_flow_control_for_acks(house: House) -> None:
    house.stream("O", subjects=["o"])
    house.consumer("given", "O", deliver_subject="taken", ack_policy="none")
    given = {"name": "given", "deliver_subject": "taken"}
    house.stream("M", mirror={"name": "O", "consumer": given})
    house.stream("S", sources=[{"name": "O", "consumer": given}])
    house.pass_time(SECOND, STEP)
    assert house.ok("STREAM.INFO.M")["mirror"]["error"]["err_code"] == 10214
    assert house.ok("STREAM.INFO.S")["sources"][0]["error"]["err_code"] == 10217


def test_an_origin_behind_a_link_that_is_another_one_now(house: House) -> None:
    house.stream("O", subjects=["o"])
    house.stream("S", sources=[EXTERNAL])
    for payload in (b"1", b"2"):
        house.publish("o", payload)
    house.pass_time(SECOND, STEP)
    house.ok("STREAM.DELETE.O")
    house.pass_time(SECOND, STEP)
    house.stream("O", subjects=["o"])
    house.publish("o", b"3")
    house.pass_time(60 * SECOND, STEP)
    house.publish("o", b"4")
    house.pass_time(SECOND, STEP)
    assert [message[4] for message in stored(house, "S")] == [b"1", b"2", b"3", b"4"]
