"""Streams over the API: creation, deletion, listing, limits, purge; on disk and in memory."""

from pathlib import Path
from typing import Any

import pytest

from tests.engine.house import SECOND, House

KINDS = pytest.mark.parametrize("storage", ["file", "memory"])


@KINDS
def test_a_stream_lives_and_dies(house: House, storage: str) -> None:
    made = house.stream(subjects=["s.>"], storage=storage)
    assert made["did_create"]
    assert made["config"]["storage"] == storage
    assert house.publish("s.a") == {"stream": "S", "seq": 1}
    info = house.ok("STREAM.INFO.S")
    assert info["state"]["messages"] == 1
    assert info["cluster"] == {"leader": "house"}
    assert (info["total"], info["offset"], info["limit"]) == (0, 0, 0)
    assert house.ok("STREAM.DELETE.S")["success"]
    assert house.error("STREAM.INFO.S")[0] == 10059
    assert house.error("STREAM.DELETE.S")[0] == 10059
    assert house.request("s.a", b"x")[0][0].startswith(b"NATS/1.0 503")
    again = house.stream(subjects=["s.>"], storage=storage)
    assert again["state"]["last_seq"] == 0


def test_the_same_create_is_the_same_stream(house: House) -> None:
    first = house.stream(subjects=["a"])
    second = house.stream(subjects=["a"], metadata={"_nats.ver": "1"})
    assert second["created"] == first["created"]
    assert second["did_create"]
    body = {"name": "S", "subjects": ["b"]}
    assert house.error("STREAM.CREATE.S", body)[0] == 10058


@pytest.mark.parametrize(
    ("subject", "body", "code"),
    [
        ("S", {"name": "T"}, 10056),
        ("S", b"", 10056),
        ("a/b", {"name": "a/b"}, 10128),
        ("S", {"name": "S", "sealed": True}, 10052),
        ("S", {"name": "S", "mirror_direct": True}, 10052),
        ("S", {"name": "S", "num_replicas": 3}, 10074),
        ("S", {"name": "S", "subjects": ["other.x"]}, 10065),
        ("S", {"name": "S", "subjects": ["*.>"], "no_ack": True}, 10065),
    ],
)
def test_what_is_not_created(house: House, subject: str, body: Any, code: int) -> None:
    house.stream("OTHER", subjects=["other.>"])
    assert house.error(f"STREAM.CREATE.{subject}", body)[0] == code
    assert house.ok("STREAM.NAMES")["streams"] == ["OTHER"]


def test_streams_are_listed_by_name_and_subject(house: House) -> None:
    for name in ("b", "C", "a"):
        house.stream(name, subjects=[f"{name}.*"])
    names = house.ok("STREAM.NAMES")
    assert names["streams"] == ["C", "a", "b"]
    assert (names["total"], names["offset"], names["limit"]) == (3, 0, 1024)
    listed = house.ok("STREAM.LIST")
    assert [info["config"]["name"] for info in listed["streams"]] == ["C", "a", "b"]
    assert listed["limit"] == 256
    assert listed["streams"][0]["config"]["metadata"] == {"_nats.req.level": "0"}
    assert "cluster" not in listed["streams"][0]
    assert house.ok("STREAM.NAMES", {"subject": "a.x"})["streams"] == ["a"]
    assert house.ok("STREAM.NAMES", {"subject": "*.x"})["total"] == 3
    assert house.ok("STREAM.NAMES", {"subject": "z"})["streams"] is None
    assert house.ok("STREAM.LIST", {"subject": "z"})["streams"] == []
    assert house.ok("STREAM.NAMES", {"offset": 2})["streams"] == ["b"]
    beyond = house.ok("STREAM.NAMES", {"offset": 9})
    assert (beyond["offset"], beyond["streams"]) == (3, None)


def test_pages_follow_each_other(house: House) -> None:
    for n in range(260):
        house.stream(f"s{n:03d}", storage="memory")
    first = house.ok("STREAM.LIST")
    second = house.ok("STREAM.LIST", {"offset": len(first["streams"])})
    assert (len(first["streams"]), len(second["streams"])) == (256, 4)
    names = [info["config"]["name"] for info in first["streams"] + second["streams"]]
    assert names == house.ok("STREAM.NAMES")["streams"]


@KINDS
def test_details_of_the_state(house: House, storage: str) -> None:
    house.stream(subjects=["s.*"], storage=storage)
    for n in range(6):
        house.publish(f"s.{n % 3}")
    for seq in (2, 4):
        house.ok("STREAM.MSG.DELETE.S", {"seq": seq})
    plain = house.ok("STREAM.INFO.S")["state"]
    assert (plain["num_deleted"], plain["num_subjects"]) == (2, 3)
    assert "deleted" not in plain
    assert "subjects" not in plain
    asked = house.ok("STREAM.INFO.S", {"deleted_details": True, "subjects_filter": "s.*"})
    assert asked["state"]["deleted"] == [2, 4]
    assert asked["state"]["subjects"] == {"s.0": 1, "s.1": 1, "s.2": 2}
    assert (asked["total"], asked["limit"]) == (3, 100_000)
    page = house.ok("STREAM.INFO.S", {"subjects_filter": ">", "offset": 2})
    assert (page["state"]["subjects"], page["offset"]) == ({"s.2": 2}, 2)


@KINDS
def test_purge(house: House, storage: str) -> None:
    house.stream(subjects=["s.*"], storage=storage)
    for n in range(10):
        house.publish(f"s.{n % 2}")

    def purged(**body: Any) -> int:
        return int(house.ok("STREAM.PURGE.S", body)["purged"])

    assert purged(seq=1) == 0
    assert purged(filter="a b") == 0
    assert purged(seq=3) == 2
    assert purged(filter="s.0", keep=3) == 1
    assert purged(keep=9) == 0
    assert purged(filter="s.1", seq=7) == 2
    assert house.error("STREAM.PURGE.S", {"seq": 2, "keep": 1})[0] == 10003
    assert house.ok("STREAM.PURGE.S", b"garbage")["purged"] == 5
    state = house.ok("STREAM.INFO.S")["state"]
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (0, 11, 10)
    assert state["first_ts"] == "0001-01-01T00:00:00Z"
    assert house.publish("s.0")["seq"] == 11


@KINDS
def test_a_purge_beyond_the_end_moves_the_end(tmp_path: Path, storage: str) -> None:
    house = House(tmp_path)
    house.stream(subjects=["s"], storage=storage)
    house.consumer(durable_name="c", ack_policy="explicit")
    for _ in range(3):
        house.publish("s")
    assert house.ok("STREAM.PURGE.S", {"seq": 99})["purged"] == 3
    if storage == "file":
        house = house.crash()
    state = house.ok("STREAM.INFO.S")["state"]
    assert (state["first_seq"], state["last_seq"]) == (99, 98)
    assert house.publish("s", b"new")["seq"] == 99
    assert [event[5] for event in house.pull(9)] == [b"new"]
    assert house.ok("STREAM.PURGE.S", {"seq": 2**64 - 1})["purged"] == 1


def test_what_may_not_be_removed(house: House) -> None:
    house.stream(subjects=["s"], deny_delete=True, deny_purge=True)
    house.publish("s")
    assert house.error("STREAM.PURGE.S") == (10110, "stream purge not permitted")
    code, text = house.error("STREAM.MSG.DELETE.S", {"seq": 1})
    assert (code, text) == (10057, "message delete not permitted")
    config = {"name": "S", "subjects": ["s"], "deny_delete": True, "deny_purge": True}
    house.ok("STREAM.UPDATE.S", {**config, "sealed": True})
    assert house.error("STREAM.PURGE.S")[0] == 10109
    assert house.error("STREAM.MSG.DELETE.S", {"seq": 1})[0] == 10109
    assert house.publish("s")["error"]["err_code"] == 10109


@KINDS
def test_an_update_holds_at_once(house: House, storage: str) -> None:
    house.stream(subjects=["s.*"], storage=storage)
    for n in range(5):
        house.publish(f"s.{n}")
    config = {"name": "S", "subjects": ["t", "s.1"], "storage": storage, "max_msgs": 2}
    assert house.ok("STREAM.UPDATE.S", config)["state"]["messages"] == 2
    assert house.publish("t") == {"stream": "S", "seq": 6}
    assert house.publish("s.1") == {"stream": "S", "seq": 7}
    assert house.request("s.2", b"x")[0][0].startswith(b"NATS/1.0 503")
    info = house.ok("STREAM.INFO.S")
    assert (info["state"]["messages"], info["state"]["first_seq"]) == (2, 6)
    assert info["config"]["max_msgs"] == 2


def test_an_update_is_judged(house: House) -> None:
    house.stream("OTHER", subjects=["other"])
    house.stream()
    assert house.error("STREAM.UPDATE.S", {"name": "T"})[0] == 10056
    assert house.error("STREAM.UPDATE.T", {"name": "T"})[0] == 10059
    assert house.error("STREAM.UPDATE.S", {"name": "S", "subjects": ["other"]})[0] == 10065
    assert house.error("STREAM.UPDATE.S", {"name": "S", "storage": "memory"})[0] == 10052


def test_limits_for_consumers_can_not_undercut_them(house: House) -> None:
    house.stream()
    house.consumer(ack_policy="explicit", max_ack_pending=50)
    body = {"name": "S", "consumer_limits": {"max_ack_pending": 7}}
    code, text = house.error("STREAM.UPDATE.S", body)
    assert (code, text) == (10069, "change to limits violates consumers: c")


@KINDS
def test_old_messages_go(house: House, storage: str) -> None:
    house.stream(storage=storage, max_age=10 * SECOND)
    house.publish("S")
    house.pass_time(6 * SECOND)
    house.publish("S")
    house.pass_time(5 * SECOND)
    state = house.ok("STREAM.INFO.S")["state"]
    assert (state["messages"], state["first_seq"]) == (1, 2)
    house.pass_time(6 * SECOND)
    assert house.ok("STREAM.INFO.S")["state"]["messages"] == 0


def test_the_first_sequence_can_be_chosen(house: House) -> None:
    house.stream(first_seq=100)
    assert house.publish("S")["seq"] == 100


def test_strange_names_get_a_folder_of_their_own(tmp_path: Path) -> None:
    house = House(tmp_path)
    names = ["$x", "ü", "a%41", "aA", "AA", "con", "x" * 80, "~", "a\x01b"]
    for name in names:
        house.stream(name, subjects=[f"s.{names.index(name)}"])
        house.publish(f"s.{names.index(name)}", name.encode())
    house = house.restart()
    assert sorted(house.ok("STREAM.NAMES")["streams"]) == sorted(names)
    for name in names:
        assert house.ok(f"STREAM.MSG.GET.{name}", {"seq": 1})["message"]["seq"] == 1


def test_names_may_be_longer_than_file_names(house: House) -> None:
    name = "ü" * 127
    house.ok(f"STREAM.CREATE.{name}", {"name": name, "subjects": ["a"]})
    for consumer in ("c" * 255, "c" * 254 + "d"):
        house.consumer(consumer, stream=name, durable_name=consumer)
    house = house.restart()
    assert house.ok("STREAM.NAMES")["streams"] == [name]
    assert house.ok(f"CONSUMER.NAMES.{name}")["consumers"] == ["c" * 255, "c" * 254 + "d"]
    house.ok(f"STREAM.DELETE.{name}")
    assert house.restart().ok("STREAM.NAMES")["streams"] is None


@pytest.mark.parametrize("seq", [(1 << 62) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_a_purge_beyond_the_highest_sequence_empties_the_stream(house: House, seq: int) -> None:
    house.stream("S", subjects=["s", "t"])
    for subject in "sst":
        house.publish(subject)
    answer = house.ok("STREAM.PURGE.S", {"seq": seq, "filter": "s"})
    assert (answer["success"], answer["purged"]) == (True, 2)
    answer = house.ok("STREAM.PURGE.S", {"seq": seq})
    assert (answer["success"], answer["purged"]) == (True, 1)
    assert house.ok("STREAM.PURGE.S", {"seq": seq})["purged"] == 0
    assert house.publish("s")["seq"] == 4
    house.stream("E")
    assert house.ok("STREAM.PURGE.E", {"seq": seq})["success"]
    assert house.error("STREAM.PURGE.S", {"seq": seq, "keep": 1})[0] == 10003
