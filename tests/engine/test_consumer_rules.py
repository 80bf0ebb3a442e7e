"""Pause, reset, groups, sampling, consumers of other servers: over the API and after restarts."""

import json
from typing import Any

import pytest

from pelton.api.times import format_time
from pelton.engine.base.hashes import short_hash
from tests.engine.house import SECOND, House


@pytest.fixture
def filled(house: House) -> House:
    """A stream with five messages on s.a."""
    house.stream(subjects=["s.*"])
    for n in range(5):
        house.publish("s.a", b"m%d" % (n + 1))
    return house


class Ears:
    """A client that gets every advisory except those about API calls."""

    def __init__(self, house: House) -> None:
        self.client = house.server.client()
        self.client.send("SUB $JS.EVENT.> 9\r\n")

    def events(self) -> list[Any]:
        """Return (kind, event) of the new advisories, without those about API calls."""
        came: list[Any] = self.client.events()
        told = [json.loads(event[5]) for event in came]
        kinds = [one["type"].rpartition(".")[2] for one in told]
        return [pair for pair in zip(kinds, told, strict=True) if pair[0] != "api_audit"]

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.events()]


def at(house: House, ns: int) -> str:
    """Return a time so far ahead, as the API writes it."""
    return format_time(house.server.clock.now() + ns)


# -- pause


def test_a_pause_holds_everything_back_until_its_time(filled: House) -> None:
    filled.consumer(durable_name="c", ack_policy="explicit", ack_wait=SECOND)
    (first,) = filled.pull(1)
    ears = Ears(filled)
    answer = filled.ok("CONSUMER.PAUSE.S.c", {"pause_until": at(filled, 10 * SECOND)})
    assert (answer["paused"], answer["pause_remaining"]) == (True, 10 * SECOND)
    ((kind, event),) = ears.events()
    assert (kind, event["paused"], event["consumer"]) == ("consumer_pause", True, "c")
    assert filled.pull(1) == []
    # a request without a reply subject does nothing
    filled.send("$JS.API.CONSUMER.MSG.NEXT.S.c", b"1")
    filled.client.send("PUB $JS.API.CONSUMER.MSG.NEXT.S.c _I.wait 1\r\n2\r\n")
    filled.pass_time(5 * SECOND)
    assert ears.events() == []
    info = filled.ok("CONSUMER.INFO.S.c")
    assert info["paused"]
    assert 0 < info["pause_remaining"] <= 5 * SECOND
    assert (info["num_waiting"], info["num_ack_pending"]) == (1, 1)
    filled.pass_time(6 * SECOND)
    assert [event[5] for event in filled.client.events()] == [b"m1", b"m2"]
    assert [(kind, event["paused"]) for kind, event in ears.events()] == [("consumer_pause", False)]
    assert "paused" not in filled.ok("CONSUMER.INFO.S.c")
    assert first[5] == b"m1"


def test_a_pause_survives_a_restart(filled: House) -> None:
    ears = Ears(filled)
    filled.consumer(durable_name="c", ack_policy="explicit", pause_until=at(filled, 60 * SECOND))
    assert ears.kinds() == ["consumer_action", "consumer_pause"]
    house = filled.restart()
    assert house.ok("CONSUMER.INFO.S.c")["paused"]
    assert house.pull(1) == []
    house = house.crash()
    assert house.ok("CONSUMER.INFO.S.c")["paused"]
    house.pass_time(61 * SECOND, step_ns=SECOND)
    assert [event[5] for event in house.pull(1)] == [b"m1"]


def test_a_pause_is_kept_by_updates_and_needs_its_level(filled: House) -> None:
    made = filled.consumer(durable_name="c", ack_policy="explicit")
    assert made["config"]["metadata"]["_nats.req.level"] == "0"
    until = at(filled, 60 * SECOND)
    filled.ok("CONSUMER.PAUSE.S.c", {"pause_until": until})
    updated = filled.consumer(durable_name="c", ack_policy="explicit", description="x")
    assert updated["config"]["pause_until"] == until
    assert updated["config"]["metadata"]["_nats.req.level"] == "1"
    again = filled.ok("CONSUMER.PAUSE.S.c")
    assert again == {
        "type": "io.nats.jetstream.api.v1.consumer_pause_response",
        "paused": False,
        "pause_until": "0001-01-01T00:00:00Z",
    }
    config = filled.ok("CONSUMER.INFO.S.c")["config"]
    assert "pause_until" not in config
    assert config["metadata"]["_nats.req.level"] == "0"


# -- reset


def test_a_reset_begins_anew(filled: House) -> None:
    filled.consumer(durable_name="c", ack_policy="explicit")
    first, *_ = filled.pull(3)
    filled.send(first[3], b"+ACK")
    answer = filled.ok("CONSUMER.RESET.S.c")
    assert (answer["reset_seq"], answer["num_pending"], answer["num_ack_pending"]) == (2, 4, 0)
    assert answer["delivered"] == {"consumer_seq": 0, "stream_seq": 1}
    house = filled.restart()
    assert [event[3].split(".")[4:7] for event in house.pull(1)] == [["1", "2", "1"]]
    assert house.ok("CONSUMER.RESET.S.c", {"seq": 5})["num_pending"] == 1
    assert [event[5] for event in house.pull(9)] == [b"m5"]
    assert house.api("CONSUMER.RESET.S.none") is None


@pytest.mark.parametrize(
    ("seq", "late", "then"),
    [
        (8, 8, 9),  # the late ack has a consumer sequence that no delivery since the reset has
        (3, 5, 7),  # it has the one of another message
    ],
)
def test_a_late_ack_from_before_a_reset_does_not_settle_later_acks(
    filled: House, seq: int, late: int, then: int
) -> None:
    """Behind a reset, consumer sequences begin at 1 again."""
    house = filled
    for _ in range(10 - house.ok("STREAM.INFO.S")["state"]["messages"]):
        house.publish("s.x")
    house.consumer("all", durable_name="all", ack_policy="all")
    before = {int(event[3].split(".")[5]): event[3] for event in house.pull(10, "all")}
    assert house.ok("CONSUMER.RESET.S.all", {"seq": seq})["reset_seq"] == seq
    since = {int(event[3].split(".")[5]): event[3] for event in house.pull(10, "all")}
    assert min(since) == seq
    assert house.request(before[late], b"+ACK")
    assert house.ok("CONSUMER.INFO.S.all")["ack_floor"]["stream_seq"] == late
    assert house.request(since[then], b"+ACK")
    info = house.ok("CONSUMER.INFO.S.all")
    assert (info["ack_floor"]["stream_seq"], info["num_ack_pending"]) == (then, 10 - then)


def test_resets_without_a_reply_do_nothing(filled: House) -> None:
    filled.consumer(durable_name="c", ack_policy="explicit")
    filled.pull(3)
    filled.send("$JS.API.CONSUMER.RESET.S.c")
    assert filled.ok("CONSUMER.INFO.S.c")["num_ack_pending"] == 3


# -- groups


def test_a_pin_is_told_shown_and_taken(filled: House) -> None:
    filled.consumer(
        durable_name="c",
        ack_policy="explicit",
        priority_policy="pinned_client",
        priority_groups=["g"],
        priority_timeout=2 * SECOND,
    )
    assert filled.ok("CONSUMER.INFO.S.c")["priority_groups"] == [
        {"group": "g", "pinned_ts": "0001-01-01T00:00:00Z"}
    ]
    ears = Ears(filled)
    body = json.dumps({"batch": 1, "group": "g"})
    ask = f"PUB $JS.API.CONSUMER.MSG.NEXT.S.c _I.x {len(body)}\r\n{body}\r\n"
    filled.client.send(ask)
    filled.client.events()
    ((kind, event),) = ears.events()
    assert (kind, event["group"], event["account"]) == ("consumer_group_pinned", "g", "$G")
    (group,) = filled.ok("CONSUMER.INFO.S.c")["priority_groups"]
    assert group["pinned_client_id"] == event["pinned_id"]
    filled.pass_time(3 * SECOND)
    ((kind, event),) = ears.events()
    assert (kind, event["reason"]) == ("consumer_group_unpinned", "timeout")
    filled.client.send(ask)
    filled.client.events()
    assert ears.kinds() == ["consumer_group_pinned"]
    filled.ok("CONSUMER.UNPIN.S.c", {"group": "g"})
    assert "pinned_client_id" not in filled.ok("CONSUMER.INFO.S.c")["priority_groups"][0]
    assert filled.error("CONSUMER.UNPIN.S.c", {"group": "h"})[0] == 10160
    # a pin does not survive a restart
    filled.client.send(ask)
    house = filled.restart()
    assert "pinned_client_id" not in house.ok("CONSUMER.INFO.S.c")["priority_groups"][0]


# -- sampling


@pytest.mark.parametrize(("frequency", "low", "high"), [("100", 400, 400), ("30%", 70, 170)])
def test_some_acks_make_a_metric(house: House, frequency: str, low: int, high: int) -> None:
    house.stream(subjects=["s.*"])
    for _ in range(400):
        house.send("s.a", b"x")
    house.consumer(ack_policy="explicit", sample_freq=frequency)
    ears = Ears(house)
    messages = house.pull(400)
    house.pass_time(SECOND // 10)
    heard = 0
    for event in messages:
        house.client.send(f"PUB {event[3]} 0\r\n\r\n")
    house.client.events()
    for kind, metric in ears.events():
        assert kind == "consumer_ack"
        assert (metric["ack_time"], metric["deliveries"]) == (SECOND // 10, 1)
        heard += 1
    assert low <= heard <= high


# -- consumers of other servers


MIRROR = {
    "deliver_subject": "m.in",
    "deliver_policy": "all",
    "ack_policy": "none",
    "max_deliver": 1,
    "flow_control": True,
    "idle_heartbeat": SECOND,
    "inactive_threshold": 10 * SECOND,
    "direct": True,
    "sourcing": True,
}


def test_a_mirror_elsewhere_reads_through_a_consumer_that_counts_for_nothing(house: House) -> None:
    house.stream(subjects=["s.*"], max_consumers=1)
    house.publish("s.a", b"m1")
    house.client.send("SUB m.in 9\r\n")
    body = {"stream_name": "S", "config": {"name": "JS_MIRROR_x", **MIRROR}}
    names = []
    for _ in range(2):
        ((headers, payload),) = [
            one
            for one in house.request("$JS.API.CONSUMER.CREATE.S.JS_MIRROR_x", body)
            if b"error" not in one[1]
        ]
        assert headers.startswith(b"NATS/1.0\r\nNats-Stream-Identity: ")
        names.append(json.loads(payload)["name"])
    assert all(name.startswith("JS_MIRROR_x-") for name in names)
    assert names[0] != names[1]
    house.consumer("mine", durable_name="mine")
    assert house.error(
        "CONSUMER.CREATE.S.more", {"stream_name": "S", "config": {"name": "more"}}
    ) == (10026, "maximum consumers limit reached")
    assert house.ok("CONSUMER.NAMES.S")["consumers"] == ["mine"]
    assert house.ok("CONSUMER.LIST.S")["total"] == 1
    assert house.ok("STREAM.INFO.S")["state"]["consumer_count"] == 1
    assert house.ok(f"CONSUMER.INFO.S.{names[0]}")["config"]["direct"]
    house.pass_time(1100 * SECOND // 1000)
    beats = [event for event in house.client.events() if b"Idle Heartbeat" in event[4]]
    assert beats
    assert b"Nats-Last-Consumer: 1\r\nNats-Last-Stream: 1" in beats[-1][4]
    later = house.restart()
    assert later.error(f"CONSUMER.INFO.S.{names[0]}")[0] == 10014
    assert later.ok("CONSUMER.NAMES.S")["consumers"] == ["mine"]


def test_a_reader_that_knows_another_stream_is_told(house: House) -> None:
    house.stream(subjects=["s.*"])
    body = {"stream_name": "S", "config": {"name": "x", **MIRROR}}
    other = b"NATS/1.0\r\nNats-Stream-Identity: 12345678\r\n\r\n"
    answer = house.api("CONSUMER.CREATE.S.x", body, other)
    assert answer["error"]["err_code"] == 10225
    ((headers, _),) = house.request("$JS.API.CONSUMER.CREATE.S.x", body)
    assert "error" not in house.api("CONSUMER.CREATE.S.x", body, headers)


def test_a_reader_of_a_workqueue_acknowledges(house: House) -> None:
    house.stream(subjects=["s.*"], retention="workqueue")
    body = {"stream_name": "S", "config": {"name": "src", **MIRROR}}
    made = house.ok("CONSUMER.CREATE.S.src", body)
    config = made["config"]
    assert (made["name"], config["durable_name"], config["ack_policy"]) == (
        "src",
        "src",
        "flow_control",
    )
    assert "direct" not in config
    assert config["max_ack_pending"] == 1000


# -- redelivery


def test_delivery_counts_survive_a_restart(filled: House) -> None:
    filled.consumer(durable_name="c", ack_policy="explicit", ack_wait=SECOND, max_deliver=3)
    filled.pull(1)
    filled.pass_time(2 * SECOND)
    assert [event[3].split(".")[4] for event in filled.pull(1)] == ["2"]
    house = filled.restart()
    house.pass_time(2 * SECOND)
    ears = Ears(house)
    assert [event[3].split(".")[4] for event in house.pull(1)] == ["3"]
    house.pass_time(5 * SECOND)
    told = [one for kind, one in ears.events() if kind == "max_deliver"]
    assert [(one["stream_seq"], one["deliveries"]) for one in told] == [(1, 3)]
    info = house.ok("CONSUMER.INFO.S.c")
    assert (info["num_ack_pending"], info["num_redelivered"]) == (0, 1)
    house = house.restart()
    info = house.ok("CONSUMER.INFO.S.c")
    assert (info["num_ack_pending"], info["num_redelivered"]) == (0, 1)
    ears = Ears(house)
    house.pass_time(5 * SECOND)
    assert ears.events() == []
    assert [event[5] for event in house.pull(1)] == [b"m2"]


def test_messages_that_age_are_told_of(house: House) -> None:
    house.stream(subjects=["s.*"], max_age=2 * SECOND, duplicate_window=SECOND)
    house.publish("s.a", b"m1")
    house.publish("s.a", b"m2")
    house.consumer(ack_policy="explicit")
    house.pull(2)
    ears = Ears(house)
    house.pass_time(4 * SECOND)
    told = [one for kind, one in ears.events() if kind == "terminated"]
    assert [(one["stream_seq"], one["reason"]) for one in told] == [
        (1, "Unacknowledged message was deleted"),
        (2, "Unacknowledged message was deleted"),
    ]


def test_a_deleted_message_is_told_with_all_its_deliveries(house: House) -> None:
    house.stream()
    house.publish("S")
    house.consumer(ack_policy="explicit")
    for _ in range(2):
        house.send(house.pull(1)[0][3], b"-NAK")
    house.pull(1)
    ears = Ears(house)
    house.ok("STREAM.MSG.DELETE.S", {"seq": 1})
    house.pass_time(SECOND)
    told = [one for kind, one in ears.events() if kind == "terminated"]
    assert [(one["stream_seq"], one["deliveries"]) for one in told] == [(1, 3)]


# -- ack subjects


def test_longer_ack_subjects_name_the_domain_and_the_account(house: House) -> None:
    house.stream(subjects=["s.*"])
    house.publish("s.a", b"m1")
    house.consumer(ack_policy="explicit")
    (message,) = house.pull(1)
    tail = message[3].removeprefix("$JS.ACK.")
    for owner in (f"_.{short_hash('other')}", f"reactor.{short_hash('$G')}", "_"):
        house.send(f"$JS.ACK.{owner}.{tail}", b"+ACK")
        assert house.ok("CONSUMER.INFO.S.c")["num_ack_pending"] == 1
    house.send(f"$JS.ACK._.{short_hash('$G')}.{tail}.more", b"+ACK")
    assert house.ok("CONSUMER.INFO.S.c")["num_ack_pending"] == 0


# -- use


def test_who_is_used_stays(house: House) -> None:
    house.stream(subjects=["s.*"])
    for n in range(9):
        house.publish("s.a", b"m%d" % (n + 1))
    listener = house.server.client()
    listener.send("SUB push.a 1\r\n")
    house.consumer("pushed", deliver_subject="push.a")
    house.consumer("pulled", ack_policy="explicit", ack_wait=20 * SECOND)
    house.consumer("acked", ack_policy="explicit", ack_wait=8 * SECOND)
    house.consumer("idle", ack_policy="explicit")
    house.consumer("kept", durable_name="kept")
    house.consumer("long", durable_name="long", inactive_threshold=30 * SECOND)
    house.pull(1, consumer="pulled")
    (message,) = house.pull(1, consumer="acked")
    house.pass_time(3 * SECOND)
    house.send(message[3], b"+ACK")
    house.pass_time(2 * SECOND)

    def there() -> list[str]:
        found: list[str] = house.ok("CONSUMER.NAMES.S")["consumers"]
        return found

    assert there() == ["acked", "idle", "kept", "long", "pulled", "pushed"]
    house.pass_time(SECOND)
    assert there() == ["acked", "kept", "long", "pulled", "pushed"]
    house.pass_time(5 * SECOND)
    assert there() == ["kept", "long", "pulled", "pushed"]  # five seconds after the ack
    listener.send("UNSUB 1\r\n")
    house.pass_time(4 * SECOND)
    assert "pushed" in there()
    house.pass_time(2 * SECOND)
    assert there() == ["kept", "long", "pulled"]
    house.pass_time(10 * SECOND)
    assert there() == ["kept", "long"]  # the ack wait of the message, and five seconds
    house.pass_time(10 * SECOND)
    assert there() == ["kept"]
    later = house.restart()
    assert later.ok("CONSUMER.NAMES.S")["consumers"] == ["kept"]


def test_a_waiting_request_keeps_a_consumer(house: House) -> None:
    house.stream(subjects=["s.*"])
    house.consumer(ack_policy="explicit")
    house.client.send("PUB $JS.API.CONSUMER.MSG.NEXT.S.c _I.wait 1\r\n1\r\n")
    house.pass_time(20 * SECOND)
    assert house.ok("CONSUMER.NAMES.S")["consumers"] == ["c"]
    house.send("s.a", b"x")
    house.pass_time(40 * SECOND)
    assert house.ok("CONSUMER.NAMES.S")["consumers"] == []


def test_one_of_many_is_saved_alone(house: House) -> None:
    house.stream(subjects=["s.*"])
    house.publish("s.a", b"m1")
    house.publish("s.a", b"m2")
    for n in range(40):
        house.consumer(f"d{n}", durable_name=f"d{n}", ack_policy="explicit")
    house.pass_time(SECOND)
    folder = house.folder / "jetstream" / "$G" / "streams" / "S" / "consumers"

    def saved_bytes() -> int:
        return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())

    before = saved_bytes()
    house.pull(1, consumer="d7")
    house.pass_time(SECOND)
    assert 0 < saved_bytes() - before < 500
    house = house.crash()
    assert [event[5] for event in house.pull(1, consumer="d7")] == [b"m2"]
    assert [event[5] for event in house.pull(1, consumer="d8")] == [b"m1"]


def test_states_are_written_in_the_order_in_which_they_changed(house: House) -> None:
    house.stream(subjects=["s.*"])
    house.publish("s.a", b"m1")
    names = [f"d{n}" for n in range(30)]
    for name in names:
        house.consumer(name, durable_name=name, ack_policy="explicit")
    house.pass_time(SECOND)
    entry = house.engine.accounts["$G"].stream("S")
    assert not entry.changed
    for name in reversed(names):
        house.pull(1, consumer=name)
    assert [consumer.name for consumer in entry.changed] == names[::-1]


def test_unused_consumers_cost_a_tick_nothing(house: House) -> None:
    house.stream(subjects=["s.*"], storage="memory")
    entry = house.engine.accounts["$G"].stream("S")
    for n in range(2000):
        house.client.send(consumer_request(f"d{n}"))
    house.client.events()
    assert len(entry.consumers) == 2000
    house.pass_time(SECOND)
    assert len(house.engine.accounts["$G"].timers) == len(house.engine.accounts["$G"].alarms) == 0
    assert not house.engine.accounts["$G"].unsaved


def consumer_request(name: str) -> str:
    config = {"durable_name": name, "name": name, "ack_policy": "explicit"}
    body = json.dumps({"stream_name": "S", "config": config})
    return f"PUB $JS.API.CONSUMER.CREATE.S.{name} {len(body)}\r\n{body}\r\n"
