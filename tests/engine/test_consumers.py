"""Consumers over the API: creation, start positions, updates, deletion."""

from typing import Any

import pytest

from tests.engine.house import SECOND, House


@pytest.fixture
def filled(house: House) -> House:
    """Messages 1 to 6 on s.0, s.1, s.2, s.0, s.1, s.2, one a second; 2 is deleted."""
    house.stream(subjects=["s.*"])
    for n in range(6):
        house.publish(f"s.{n % 3}", b"m%d" % (n + 1))
        house.pass_time(SECOND)
    house.ok("STREAM.MSG.DELETE.S", {"seq": 2})
    return house


def sequences(events: list[Any]) -> list[int]:
    return [int(event[5].removeprefix(b"m")) for event in events]


def test_a_consumer_lives_and_dies(filled: House) -> None:
    made = filled.consumer(durable_name="c", ack_policy="explicit")
    assert (made["stream_name"], made["name"]) == ("S", "c")
    assert made["num_pending"] == 5
    assert "cluster" not in made
    first, second = filled.pull(2)
    filled.send(first[3], b"+ACK")
    info = filled.ok("CONSUMER.INFO.S.c")
    # the floor is right below the oldest unacknowledged message: 2 is removed
    assert (info["delivered"]["stream_seq"], info["ack_floor"]["stream_seq"]) == (3, 2)
    assert (info["num_ack_pending"], info["num_pending"]) == (1, 3)
    assert info["config"] == made["config"]
    assert filled.ok("STREAM.INFO.S")["state"]["consumer_count"] == 1
    assert filled.ok("CONSUMER.DELETE.S.c")["success"]
    assert filled.error("CONSUMER.INFO.S.c")[0] == 10014
    assert filled.error("CONSUMER.DELETE.S.c")[0] == 10014
    assert second[1] == "s.2"


LONG_AGO = "2020-01-01T00:00:00Z"
STARTS: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [1, 3, 4, 5, 6]),
    ({"filter_subject": "s.1"}, [5]),
    ({"filter_subjects": ["s.1", "s.2"]}, [3, 5, 6]),
    ({"deliver_policy": "new"}, []),
    ({"deliver_policy": "last"}, [6]),
    ({"deliver_policy": "last", "filter_subject": "s.0"}, [4]),
    ({"deliver_policy": "last", "filter_subjects": ["s.0", "s.1"]}, [5]),
    ({"deliver_policy": "last", "filter_subject": "none"}, []),
    ({"deliver_policy": "last_per_subject", "filter_subject": ">"}, [4, 5, 6]),
    ({"deliver_policy": "last_per_subject", "filter_subjects": ["s.0", "s.2"]}, [4, 6]),
    ({"deliver_policy": "by_start_sequence", "opt_start_seq": 2}, [3, 4, 5, 6]),
    ({"deliver_policy": "by_start_sequence", "opt_start_seq": 5}, [5, 6]),
    ({"deliver_policy": "by_start_sequence", "opt_start_seq": 50}, []),
    ({"deliver_policy": "by_start_time", "opt_start_time": "2023-11-14T22:13:23Z"}, [4, 5, 6]),
    ({"deliver_policy": "by_start_time", "opt_start_time": "2023-11-14T22:13:24.5Z"}, [6]),
    (
        {"deliver_policy": "by_start_time", "opt_start_time": LONG_AGO},
        [1, 3, 4, 5, 6],
    ),
    ({"deliver_policy": "by_start_time", "opt_start_time": "2050-01-01T00:00:00Z"}, []),
]


@pytest.mark.parametrize(("config", "expected"), STARTS, ids=str)
def test_where_a_consumer_starts(
    filled: House, config: dict[str, Any], expected: list[int]
) -> None:
    made = filled.consumer(**config)
    assert made["num_pending"] == len(expected)
    assert made["delivered"]["consumer_seq"] == 0
    assert made["ack_floor"]["stream_seq"] == made["delivered"]["stream_seq"]
    assert sequences(filled.pull(10)) == expected


def test_new_messages_follow_the_start(filled: House) -> None:
    filled.consumer("new", deliver_policy="new")
    filled.consumer("far", deliver_policy="by_start_sequence", opt_start_seq=8)
    filled.publish("s.0", b"m7")
    assert sequences(filled.pull(10, "new")) == [7]
    assert sequences(filled.pull(10, "far")) == []
    filled.publish("s.0", b"m8")
    assert sequences(filled.pull(10, "far")) == [8]


NAMED: list[tuple[str, dict[str, Any], int | str]] = [
    ("CREATE.S", {}, ""),
    ("CREATE.S", {"name": "n"}, "n"),
    ("CREATE.S", {"durable_name": "d"}, 10020),
    ("CREATE.S.c", {"name": "c"}, "c"),
    ("CREATE.S.c", {}, "c"),
    ("CREATE.S.c", {"durable_name": "d"}, 10017),
    ("CREATE.S.c.s.1", {"name": "c", "filter_subject": "s.1"}, "c"),
    ("CREATE.S.c.s.1", {"name": "c", "filter_subject": "s.2"}, 10131),
    ("CREATE.S.c.s.1", {"name": "c", "filter_subjects": ["s.1"]}, 10137),
    ("CREATE.S.a/b", {"name": "a/b"}, 10127),
    ("CREATE.X.c", {"name": "c"}, 10056),
    ("DURABLE.CREATE.S.d", {"durable_name": "d"}, "d"),
    ("DURABLE.CREATE.S.d", {}, 10018),
    ("DURABLE.CREATE.S.d", {"durable_name": "e"}, 10017),
]


@pytest.mark.parametrize(("call", "config", "outcome"), NAMED)
def test_three_forms_of_create(
    house: House, call: str, config: dict[str, Any], outcome: int | str
) -> None:
    house.stream()
    answer = house.api(f"CONSUMER.{call}", {"stream_name": "S", "config": config})
    if isinstance(outcome, int):
        assert answer["error"]["err_code"] == outcome
        return
    assert answer["name"] == outcome or (outcome == "" and len(answer["name"]) == 8)
    assert house.ok("CONSUMER.NAMES.S")["consumers"] == [answer["name"]]


def test_missing_streams_and_replicas(house: House) -> None:
    body = {"stream_name": "X", "config": {"name": "c"}}
    assert house.error("CONSUMER.CREATE.X.c", body)[0] == 10059
    body["config"] = {"name": "c", "num_replicas": 3}
    assert house.error("CONSUMER.CREATE.X.c", body)[0] == 10074
    for call in ("NAMES.X", "LIST.X", "INFO.X.c", "DELETE.X.c"):
        assert house.error(f"CONSUMER.{call}")[0] == 10059


def test_actions(house: House) -> None:
    house.stream()

    def put(action: str, **config: Any) -> Any:
        body = {"stream_name": "S", "action": action, "config": {"durable_name": "c", **config}}
        answer = house.api("CONSUMER.CREATE.S.c", body)
        return answer.get("error", {}).get("err_code", answer.get("config", {}).get("description"))

    assert put("update", description="a") == 10149
    assert put("create", description="a") == "a"
    assert put("create", description="a") == "a"
    assert put("create", description="b") == 10148
    assert put("update", description="c") == "c"
    assert put("", description="d") == "d"
    assert put("", deliver_policy="new") == 10012


def test_an_update_changes_delivery(filled: House) -> None:
    filled.consumer(durable_name="c", ack_policy="explicit", filter_subject="s.0")
    assert sequences(filled.pull(1)) == [1]
    filled.consumer(durable_name="c", ack_policy="explicit", filter_subject="s.1")
    assert sequences(filled.pull(10)) == [5]


def test_the_stream_says_how_many(house: House) -> None:
    house.stream(max_consumers=1)
    house.consumer("a")
    body = {"stream_name": "S", "config": {"name": "b"}}
    assert house.error("CONSUMER.CREATE.S.b", body)[0] == 10026
    house.consumer("a", description="again")


def test_consumers_are_listed_by_name(house: House) -> None:
    house.stream()
    for name in ("b", "C", "a"):
        house.consumer(name)
    names = house.ok("CONSUMER.NAMES.S")
    assert (names["consumers"], names["total"], names["limit"]) == (["C", "a", "b"], 3, 1024)
    listed = house.ok("CONSUMER.LIST.S", {"offset": 1})
    assert [info["name"] for info in listed["consumers"]] == ["a", "b"]
    assert listed["consumers"][0]["config"]["metadata"] == {"_nats.req.level": "0"}
    assert house.ok("CONSUMER.LIST.S", {"offset": 9})["consumers"] == []


def test_a_push_consumer_delivers_while_bound(filled: House) -> None:
    filled.consumer(durable_name="c", deliver_subject="d", ack_policy="explicit")
    listener = filled.server.client()
    assert not filled.ok("CONSUMER.INFO.S.c").get("push_bound")
    got: list[Any] = listener.send("SUB d 7\r\n").events()
    assert sequences(got) == [1, 3, 4, 5, 6]
    assert filled.ok("CONSUMER.INFO.S.c")["push_bound"]
    other = {"durable_name": "c", "deliver_subject": "e", "ack_policy": "explicit"}
    body = {"stream_name": "S", "config": other}
    assert filled.error("CONSUMER.CREATE.S.c", body)[0] == 10013
    listener.send("UNSUB 7\r\n").events()
    filled.ok("CONSUMER.CREATE.S.c", body)


def test_unused_ephemerals_go_away(house: House) -> None:
    house.stream()
    house.consumer("short")
    house.consumer("long", inactive_threshold=60 * SECOND)
    house.consumer("durable", durable_name="durable")
    house.consumer("push", deliver_subject="d")
    house.client.send("SUB d 9\r\n").events()
    house.pass_time(4 * SECOND)
    house.pull(1, "short")
    house.pass_time(4 * SECOND)
    assert house.ok("CONSUMER.NAMES.S")["consumers"] == ["durable", "long", "push", "short"]
    house.pass_time(2 * SECOND)
    assert house.ok("CONSUMER.NAMES.S")["consumers"] == ["durable", "long", "push"]
    house.client.send("UNSUB 9\r\n").events()
    house.pass_time(60 * SECOND)
    assert house.ok("CONSUMER.NAMES.S")["consumers"] == ["durable"]


def test_redelivery_keeps_time(filled: House) -> None:
    filled.consumer(durable_name="c", ack_policy="explicit", ack_wait=2 * SECOND, max_deliver=2)
    assert sequences(filled.pull(1)) == [1]
    filled.pass_time(SECOND)
    assert sequences(filled.pull(1)) == [3]
    filled.pass_time(SECOND + SECOND // 10)
    assert sequences(filled.pull(1)) == [1]
    assert filled.ok("CONSUMER.INFO.S.c")["num_redelivered"] == 1


@pytest.mark.parametrize("call", ["CONSUMER.DELETE.S.c", "STREAM.DELETE.S"])
def test_pull_requests_end_with_their_consumer(house: House, call: str) -> None:
    house.stream()
    house.consumer(durable_name="c")
    house.client.send("PUB $JS.API.CONSUMER.MSG.NEXT.S.c _I.pull 0\r\n\r\n")
    assert house.client.events() == []
    assert house.ok("CONSUMER.INFO.S.c")["num_waiting"] == 1
    house.client.send(f"PUB $JS.API.{call} 0\r\n\r\n")
    [event] = house.client.events()
    assert (event[1], event[4]) == ("_I.pull", b"NATS/1.0 409 Consumer Deleted\r\n\r\n")


def test_a_start_that_the_stream_has_not_reached(house: House) -> None:
    house.stream()
    house.consumer(
        durable_name="c",
        ack_policy="explicit",
        deliver_policy="by_start_sequence",
        opt_start_seq=3,
        filter_subject="S",
    )
    assert house.pull(1) == []
    house.publish("S")
    house.publish("S")
    assert house.pull(1) == []
    house.publish("S")
    (message,) = house.pull(1)
    assert message[3].startswith("$JS.ACK.S.c.1.3.1.")


@pytest.mark.parametrize("limits", [{"max_msgs_per_subject": 1}, {"max_msgs": 3}])
def test_a_limit_acknowledges_no_other_message(house: House, limits: dict[str, int]) -> None:
    """Under `ack_policy: all`, too: nats-server counts it as an ack of all messages below."""
    house.stream(subjects=["s.*"], retention="interest", **limits)
    house.consumer(durable_name="c", ack_policy="all")
    for subject in ("s.a", "s.b", "s.c"):
        house.publish(subject, subject.encode())
    taken = house.pull(3)
    assert [event[1] for event in taken] == ["s.a", "s.b", "s.c"]
    house.publish("s.b", b"again")
    removed = 2 if "max_msgs_per_subject" in limits else 1
    state = house.ok("STREAM.INFO.S")["state"]
    assert (state["messages"], state["first_seq"]) == (3, 2 if removed == 1 else 1)
    info = house.ok("CONSUMER.INFO.S.c")
    assert (info["num_ack_pending"], info["num_pending"]) == (2, 1)
    left = next(event for event in taken if event[1] == ("s.a" if removed == 2 else "s.b"))
    house.send(left[3], b"+ACK")
    assert house.ok("CONSUMER.INFO.S.c")["num_ack_pending"] == 1
