"""Advisories of an account: their content, and that only subscribers cause them."""

import json
from typing import Any

from tests.engine.house import SECOND, House


def told(house: House) -> list[tuple[str, Any]]:
    """Subject (behind the prefix) and body of every new advisory, without those about API calls."""
    prefix = "$JS.EVENT.ADVISORY."
    events: list[Any] = house.client.events()
    return [
        (event[1].removeprefix(prefix), json.loads(event[5]))
        for event in events
        if event[1].startswith(prefix) and event[1] != f"{prefix}API"
    ]


def test_nobody_listens(house: House) -> None:
    house.stream()
    assert told(house) == []


def test_life_of_streams_and_consumers(house: House) -> None:
    listener = house.server.client()
    listener.send("SUB $JS.EVENT.ADVISORY.> 1\r\n").events()
    house.stream()
    house.ok("STREAM.UPDATE.S", {"name": "S", "max_msgs": 3})
    house.consumer()
    house.ok("CONSUMER.DELETE.S.c")
    house.ok("STREAM.DELETE.S")
    house.client = listener
    events = told(house)
    assert [(subject, body["action"]) for subject, body in events] == [
        ("STREAM.CREATED.S", "create"),
        ("STREAM.UPDATED.S", "modify"),
        ("CONSUMER.CREATED.S.c", "create"),
        ("CONSUMER.DELETED.S.c", "delete"),
        ("STREAM.DELETED.S", "delete"),
    ]
    first = events[0][1]
    assert list(first) == ["type", "id", "timestamp", "stream", "action"]
    assert first["type"] == "io.nats.jetstream.advisory.v1.stream_action"
    assert first["timestamp"] == "2023-11-14T22:13:20Z"
    assert len({body["id"] for _, body in events}) == len(events)


def calls(house: House) -> list[Any]:
    events: list[Any] = house.client.events()
    return [json.loads(event[5]) for event in events if event[1].endswith(".API")]


def test_calls(house: House) -> None:
    listener = house.server.client()
    listener.send("SUB $JS.EVENT.ADVISORY.API 1\r\n").events()
    house.stream()
    house.publish("S")
    house.ok("STREAM.MSG.GET.S", {"seq": 1})  # this call has an advisory only when it fails
    house.error("STREAM.MSG.GET.S", {"seq": 9})
    house.api("NONSENSE")
    house.ok("STREAM.INFO.S", b"\xff<")
    source = house.client.connection
    house.client = listener
    created, missing, shown = calls(house)
    assert list(created) == [
        "type", "id", "timestamp", "server", "client", "subject", "request", "response"
    ]  # fmt: skip
    assert created["type"] == "io.nats.jetstream.advisory.v1.api_audit"
    assert created["server"] == "house"
    assert created["client"]["id"] == source.id
    assert created["client"]["acc"] == "$G"
    assert (created["subject"], created["request"]) == ("$JS.API.STREAM.CREATE.S", '{"name": "S"}')
    assert json.loads(created["response"])["did_create"]
    assert json.loads(missing["response"])["error"]["err_code"] == 10037
    assert shown["request"] == "\ufffd<"


def test_what_a_call_is_counted_as(house: House) -> None:
    """A delete that finds no message has not failed, and reads of messages are not counted."""
    house.stream()
    house.publish("S")
    house.ok("STREAM.MSG.GET.S", {"seq": 1})
    house.error("STREAM.MSG.GET.S", {"seq": 9})
    house.error("STREAM.MSG.DELETE.S", {"seq": 9})
    house.error("STREAM.MSG.DELETE.S", {})
    assert house.ok("INFO")["api"] == {"level": 5, "total": 4, "errors": 2}


def test_what_happens_to_messages(house: House) -> None:
    house.stream()
    house.consumer(durable_name="c", ack_policy="explicit", ack_wait=SECOND, max_deliver=2)
    for _ in range(3):
        house.publish("S")
    first, second, _ = house.pull(3)
    listener = house.server.client()
    listener.send("SUB $JS.EVENT.ADVISORY.CONSUMER.> 1\r\n").events()
    house.send(first[3], b"-NAK")
    house.send(second[3], b"+TERM too bad")
    house.pull(1)
    house.pass_time(3 * SECOND)
    house.pull(3)
    house.pass_time(3 * SECOND)
    house.client = listener
    events = dict(told(house))
    naked = events["CONSUMER.MSG_NAKED.S.c"]
    assert (naked["stream_seq"], naked["consumer_seq"], naked["deliveries"]) == (1, 1, 1)
    termed = events["CONSUMER.MSG_TERMINATED.S.c"]
    assert (termed["stream_seq"], termed["reason"]) == (2, "too bad")
    spent = events["CONSUMER.MAX_DELIVERIES.S.c"]
    assert spent["deliveries"] == 2
    assert spent["type"] == "io.nats.jetstream.advisory.v1.max_deliver"
