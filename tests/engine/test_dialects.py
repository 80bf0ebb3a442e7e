"""Requests in the dialects of 2019 and 2020: each row of the table, and what the server keeps of a
dialect.
"""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.api.dialects import configurations as old
from pelton.api.dialects.requests import ROWS
from pelton.core.protocol.permissions import ConnectionPermissions
from tests.engine.house import SECOND, START_NS, House

OK = b"+OK"


def said(house: House, subject: str, body: Any = b"") -> bytes:
    """The one answer to a request."""
    answers = house.request(f"$JS.{subject}", body)
    assert not house.server.errors, house.server.errors
    assert len(answers) == 1, answers
    payload: bytes = answers[0][1]
    return payload


def shown(house: House, subject: str, body: Any = b"") -> Any:
    answer = said(house, subject, body)
    assert not answer.startswith(b"-ERR"), answer
    return json.loads(answer)


def early(house: House) -> None:
    """A message set with two messages and a pull observable."""
    config = {"name": "derek", "subjects": ["foo", "bar"], "storage": "file"}
    assert said(house, "MSGSET.CREATE", config) == OK
    assert house.request("foo", b"hello")[0][1] == OK
    assert house.request("bar", b"world")[0][1] == OK
    pull = {"durable_name": "p1", "deliver_all": True, "ack_policy": "explicit"}
    assert said(house, "OBSERVABLE.CREATE", {"msg_set_name": "derek", "config": pull}) == OK


def late(house: House) -> None:
    """A stream with two messages and a pull consumer, in the dialect of 2020."""
    config = {"name": "LOGS", "subjects": ["logs.>"], "storage": "file"}
    assert said(house, "STREAM.LOGS.CREATE", config) == OK
    assert house.request("logs.a", b"one")[0][1] == OK
    assert house.request("logs.b", b"two")[0][1] == OK
    pull = {"durable_name": "TAIL", "deliver_all": True, "ack_policy": "explicit"}
    asked = {"stream_name": "LOGS", "config": pull}
    assert said(house, "STREAM.LOGS.CONSUMER.TAIL.CREATE", asked) == OK


def pulled(house: House, subject: str, body: bytes = b"1") -> list[Any]:
    """What a pull request brings: (subject, reply, payload)."""
    house.client.send(b"PUB %s _I.pull %d\r\n%s\r\n" % (subject.encode(), len(body), body))
    found = house.client.events()
    return [(event[1], event[3], event[5]) for event in found]


def test_each_row_has_a_test() -> None:
    files = (Path(__file__), Path(__file__).with_name("test_templates.py"))
    text = "".join(each.read_text() for each in files)
    for row in ROWS:
        literal = [part for part in row.pattern.split("*") if part.strip(".")]
        assert all(part.strip(".") in text for part in literal), row.pattern


def test_2019_of_an_account_and_its_message_sets(house: House) -> None:
    assert said(house, "ENABLED", b".") == OK
    assert said(house, "MSGSETS") == b"null"
    early(house)
    assert said(house, "MSGSETS") == b'[\n  "derek"\n]'
    account = shown(house, "INFO", b".")
    assert list(account) == ["memory", "storage", "streams", "limits"]
    assert (account["streams"], account["limits"]["max_streams"]) == (1, -1)
    info = shown(house, "MSGSET.INFO", b"derek")
    assert info == {"Msgs": 2, "Bytes": 76, "FirstSeq": 1, "LastSeq": 2}
    assert said(house, "MSGSET.INFO", b"nobody") == b"-ERR msgset not found"
    assert said(house, "MSGSET.INFO") == b"-ERR bad request"
    assert said(house, "MSGSET.CREATE", b"{") == b"-ERR bad request"
    again = said(house, "MSGSET.CREATE", {"name": "derek"})
    assert again == b"-ERR message set name already in use"
    found = shown(house, "BYSEQ.derek", b"2")
    assert (found["subject"], base64.b64decode(found["data"])) == ("bar", b"world")
    assert said(house, "MSGSET.MSG.DELETE", b"derek 1") == OK
    assert said(house, "MSGSET.MSG.DELETE", b"derek 1") == b"-ERR sequence [1] not found"
    assert said(house, "MSGSET.MSG.DELETE", b"derek x") == b"-ERR bad request"
    assert said(house, "MSGSET.PURGE", b"derek") == OK
    assert shown(house, "MSGSET.INFO", b"derek")["Msgs"] == 0
    assert said(house, "MSGSET.DELETE", b"derek") == OK
    assert said(house, "MSGSET.DELETE", b"derek") == b"-ERR msgset not found"
    assert said(house, "MSGSET.CREATE", {"name": "m"}) == OK
    assert house.ok("STREAM.INFO.m")["config"]["storage"] == "memory"


def test_2019_of_an_observable(house: House) -> None:
    early(house)
    assert said(house, "OBSERVABLES", b"derek") == b'[\n  "p1"\n]'
    first = said(house, "OBSERVABLE.INFO", b"derek p1")
    assert json.loads(first) == {
        "Delivered": {"ObsSeq": 1, "SetSeq": 1},
        "AckFloor": {"ObsSeq": 0, "SetSeq": 0},
        "Pending": None,
        "Redelivery": None,
    }
    assert first.startswith(b'{\n  "Delivered": {\n    "ObsSeq": 1,')
    assert pulled(house, "$JS.RN.derek.p1") == [("foo", "$JS.A.derek.p1.1.1.1", b"hello")]
    state = shown(house, "OBSERVABLE.INFO", b"derek p1")
    assert state["Delivered"] == {"ObsSeq": 2, "SetSeq": 2}
    assert START_NS <= state["Pending"]["1"] < START_NS + SECOND
    assert state["Redelivery"] is None
    house.pass_time(31 * SECOND)
    assert pulled(house, "$JS.RN.derek.p1") == [("foo", "$JS.A.derek.p1.2.1.2", b"hello")]
    state = shown(house, "OBSERVABLE.INFO", b"derek p1")
    assert state["Delivered"] == {"ObsSeq": 3, "SetSeq": 2}
    assert state["Redelivery"] == {"1": 1}
    house.send("$JS.A.derek.p1.2.1.2")
    house.send("$JS.A.derek.p1.2.nonsense")
    house.send("$JS.A.nobody.p1.2.1.2")
    state = shown(house, "OBSERVABLE.INFO", b"derek p1")
    assert (state["AckFloor"]["SetSeq"], state["Pending"]) == (1, None)
    # a body that is no number asks for one message; the ack word +NXT brings the next one
    assert pulled(house, "$JS.RN.derek.p1", b"one")[0][2] == b"world"
    assert said(house, "OBSERVABLE.DELETE", b"derek p1") == OK
    assert said(house, "OBSERVABLE.INFO", b"derek p1") == b"-ERR observable not found"
    assert said(house, "OBSERVABLES", b"derek") == b"null"


def test_an_observable_starts_with_new_messages_and_by_one_rule(house: House) -> None:
    early(house)
    for name, fields, text in (
        ("a", {"ack_policy": "none"}, "observable in pull mode requires explicit ack policy"),
        (
            "b",
            {"deliver_all": True, "msg_set_seq": 2, "ack_policy": "explicit"},
            "observable starting position conflict",
        ),
        ("p1", {"ack_policy": "explicit"}, "observable already exists"),
    ):
        asked = {"msg_set_name": "derek", "config": {"durable_name": name, **fields}}
        assert said(house, "OBSERVABLE.CREATE", asked) == f"-ERR {text}".encode()
    push = {"durable_name": "p2", "delivery_subject": "_I.d"}
    asked = {"msg_set_name": "derek", "config": push}
    assert said(house, "OBSERVABLE.CREATE", asked) == OK
    house.send("foo", b"new")
    assert shown(house, "OBSERVABLE.INFO", b"derek p2")["Delivered"] == {"ObsSeq": 2, "SetSeq": 4}
    assert said(house, "OBSERVABLE.CREATE", asked) == (
        b"-ERR observable already exists and is still active"
    )


def test_2020_of_a_stream(house: House) -> None:
    assert said(house, "STREAM.LIST", b"anything") == b"null"
    late(house)
    assert said(house, "STREAM.LIST") == b'[\n  "LOGS"\n]'
    info = shown(house, "STREAM.LOGS.INFO")
    assert info == {
        "config": {
            "name": "LOGS",
            "subjects": ["logs.>"],
            "retention": "limits",
            "max_consumers": -1,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_age": 0,
            "max_msg_size": -1,
            "storage": "file",
            "num_replicas": 1,
        },
        "state": {
            "messages": 2,
            "bytes": info["state"]["bytes"],
            "first_seq": 1,
            "last_seq": 2,
            "consumer_count": 1,
        },
    }
    assert said(house, "STREAM.LOGS.INFO", b"x") == b"-ERR 'bad request'"
    assert said(house, "STREAM.NO.INFO") == b"-ERR 'stream not found'"
    assert said(house, "STREAM.LOGS.CREATE", info["config"]) == b"-ERR 'stream name already in use'"
    text = b"-ERR 'stream name in subject does not match request'"
    assert said(house, "STREAM.NO.CREATE", info["config"]) == text
    assert said(house, "STREAM.NO.UPDATE", info["config"]) == text
    changed = info["config"] | {"max_bytes": 10 << 30}
    assert said(house, "STREAM.LOGS.UPDATE", changed) == OK
    assert shown(house, "STREAM.LOGS.INFO")["config"] == changed
    found = shown(house, "STREAM.LOGS.MSG.BYSEQ", b"1")
    assert (found["subject"], found["seq"]) == ("logs.a", 1)
    assert base64.b64decode(found["data"]) == b"one"
    assert shown(house, "STREAM.LOGS.MSG.BYSEQ")["seq"] == 2
    assert said(house, "STREAM.LOGS.MSG.BYSEQ", b"x") == b"-ERR 'bad sequence argument'"
    text = b"-ERR 'could not load message from storage'"
    assert said(house, "STREAM.LOGS.MSG.BYSEQ", b"9") == text
    assert said(house, "STREAM.LOGS.MSG.DELETE", b"1") == OK
    assert said(house, "STREAM.LOGS.MSG.DELETE", b"1") == b"-ERR 'sequence [1] not found'"
    assert said(house, "STREAM.LOGS.PURGE") == OK
    assert said(house, "STREAM.LOGS.DELETE") == OK
    assert said(house, "STREAM.LOGS.DELETE") == b"-ERR 'stream not found'"


def test_2020_of_a_consumer(house: House) -> None:
    late(house)
    assert said(house, "STREAM.LOGS.CONSUMERS") == b'[\n  "TAIL"\n]'
    assert pulled(house, "$JS.STREAM.LOGS.CONSUMER.TAIL.NEXT", b"2") == [
        ("logs.a", "$JS.ACK.LOGS.TAIL.1.1.1", b"one"),
        ("logs.b", "$JS.ACK.LOGS.TAIL.1.2.2", b"two"),
    ]
    house.send("$JS.ACK.LOGS.TAIL.1.1.1", b"+OK")
    info = shown(house, "STREAM.LOGS.CONSUMER.TAIL.INFO")
    assert info["config"] == {
        "delivery_subject": "",
        "durable_name": "TAIL",
        "start_time": "0001-01-01T00:00:00Z",
        "deliver_all": True,
        "ack_policy": "explicit",
        "ack_wait": 30 * SECOND,
        "max_deliver": -1,
        "replay_policy": "instant",
    }
    assert info["state"]["delivered"] == {"consumer_seq": 2, "stream_seq": 2}
    assert info["state"]["ack_floor"] == {"consumer_seq": 1, "stream_seq": 1}
    assert list(info["state"]["pending"]) == ["2"]
    push = {"stream_name": "LOGS", "config": {"delivery_subject": "_I.e", "deliver_all": True}}
    name = said(house, "STREAM.LOGS.EPHEMERAL.CONSUMER.CREATE", push)
    assert name.startswith(b"+OK ")
    assert house.ok(f"CONSUMER.INFO.LOGS.{name[4:].decode()}")["config"]["ack_policy"] == "none"
    assert said(house, "STREAM.LOGS.CONSUMER.TAIL.DELETE") == OK
    assert said(house, "STREAM.LOGS.CONSUMER.TAIL.DELETE") == b"-ERR 'consumer not found'"


def test_a_restart_keeps_the_dialects(house: House) -> None:
    early(house)
    late(house)
    house = house.restart()
    assert house.request("foo", b"x")[0][1] == OK
    assert pulled(house, "$JS.RN.derek.p1")[0][1] == "$JS.A.derek.p1.1.1.1"
    assert pulled(house, "$JS.STREAM.LOGS.CONSUMER.TAIL.NEXT")[0][1] == "$JS.ACK.LOGS.TAIL.1.1.1"
    later = house.crash(gradually=True)
    later.client.send("PUB $JS.MSGSET.INFO _I.9 5\r\nderek\r\n")
    while later.engine.open_more():
        later.server.reactor.turn()
    later.server.reactor.settle()
    (answer,) = [event[5] for event in later.client.events() if event[1] == "_I.9"]
    assert json.loads(answer)["Msgs"] == 3


def test_refusals_of_publishes(house: House) -> None:
    assert said(house, "MSGSET.CREATE", {"name": "a", "max_msg_size": 1}) == OK
    assert said(house, "STREAM.b.CREATE", {"name": "b", "max_msg_size": 1}) == OK
    assert house.request("a", b"xx")[0][1] == b'-ERR "message size exceeds maximum allowed"'
    assert house.request("b", b"xx")[0][1] == b"-ERR 'message size exceeds maximum allowed'"


def test_todays_clients_are_not_disturbed(house: House) -> None:
    house.stream("S", subjects=["s.*"])
    assert house.publish("s.a")["seq"] == 1
    house.consumer("c", ack_policy="explicit")
    (message,) = house.pull()
    assert len(message[3].split(".")) == 9
    # subjects that no dialect has go to their subscribers, also those of a domain
    for subject in (
        "$JS.STREAM.API.INFO",
        "$JS.STREAM",
        "$JS.EVENT.X",
        "$JS.MSGSETX",
        "$JS.RN.S.x",
    ):
        house.client.send(f"SUB {subject} 7\r\nPUB {subject} 1\r\nx\r\nUNSUB 7\r\n")
        assert [event[1] for event in house.client.events()] == [subject], subject
    # a consumer of today may be used in both ways
    assert pulled(house, "$JS.STREAM.S.CONSUMER.c.NEXT") == []
    assert house.publish("s.b")["seq"] == 2
    house.client.events()


@pytest.mark.parametrize(
    ("deny", "subject", "body", "call"),
    [
        ("$JS.API.STREAM.DELETE.>", "MSGSET.DELETE", b"derek", "STREAM.INFO.derek"),
        ("$JS.API.>", "OBSERVABLE.DELETE", b"derek p1", "CONSUMER.INFO.derek.p1"),
    ],
)
def test_what_denies_the_api_denies_the_dialects(
    house: House, deny: str, subject: str, body: bytes, call: str
) -> None:
    early(house)
    owner, house.client = house.client, house.server.client()
    house.client.send("SUB _I.> 1\r\n").events()
    house.client.connection.permissions = ConnectionPermissions(publish_deny=[deny])
    assert said(house, subject, body) == b"-ERR permissions violation"
    house.client = owner
    house.ok(call)


def test_denied_acks_and_pulls_are_denied_in_the_dialects(house: House) -> None:
    early(house)
    (message,) = pulled(house, "$JS.RN.derek.p1")
    owner, house.client = house.client, house.server.client()
    house.client.send("SUB _I.> 1\r\n").events()
    denied = ConnectionPermissions(publish_deny=["$JS.ACK.>", "$JS.API.CONSUMER.MSG.NEXT.>"])
    house.client.connection.permissions = denied
    house.send(message[1])
    assert pulled(house, "$JS.RN.derek.p1") == []
    house.client.connection.permissions = ConnectionPermissions(publish_deny=["other"])
    assert len(pulled(house, "$JS.RN.derek.p1")) == 1
    house.client = owner
    assert list(shown(house, "OBSERVABLE.INFO", b"derek p1")["Pending"]) == ["1", "2"]


NAMES = st.from_regex(r"[a-z]{1,8}", fullmatch=True)
LIMITS = st.sampled_from([-1, 1, 1000, 1 << 40])
STREAMS = st.builds(
    old.OldStream,
    name=NAMES,
    subjects=st.lists(NAMES, min_size=1, max_size=3, unique=True),
    retention=st.sampled_from(["limits", "interest", "workqueue"]),
    max_consumers=st.sampled_from([-1, 5]),
    max_msgs=LIMITS,
    max_bytes=LIMITS,
    max_age=st.sampled_from([0, SECOND]),
    max_msg_size=st.sampled_from([-1, 1024]),
    storage=st.sampled_from(["memory", "file"]),
    num_replicas=st.just(1),
    no_ack=st.booleans(),
    template_owner=st.sampled_from(["", "t"]),
)
STARTS = st.sampled_from(
    [{}, {"deliver_all": True}, {"deliver_last": True}, {"stream_seq": 7}, {"start_time": START_NS}]
)
CONSUMERS = st.builds(
    lambda start, **fields: old.OldConsumer(**start, **fields),
    STARTS,
    durable_name=NAMES,
    delivery_subject=st.one_of(NAMES),
    ack_policy=st.sampled_from(["none", "all", "explicit"]),
    ack_wait=st.sampled_from([0, SECOND]),
    max_deliver=st.sampled_from([-1, 3]),
    filter_subject=st.sampled_from(["", "a.b"]),
    replay_policy=st.sampled_from(["instant", "original"]),
    sample_freq=st.sampled_from(["", "50%"]),
)


@given(STREAMS, CONSUMERS)
def test_configurations_survive_the_way_to_today_and_back(
    stream: old.OldStream, consumer: old.OldConsumer
) -> None:
    today = old.stream_of(stream)
    assert old.old_stream(today) == stream
    stream.template_owner = ""
    message_set = old.message_set(today)
    assert old.old_stream(old.stream_of(message_set)) == stream
    assert old.message_set(old.stream_of(message_set)) == message_set
    later = old.consumer_of(consumer)
    assert old.old_consumer(later) == consumer
    observable = old.observable(later)
    assert old.old_consumer(old.consumer_of(observable)) == consumer


@pytest.mark.parametrize(
    ("create", "body", "words"),
    [
        (
            "$JS.OBSERVABLE.CREATE",
            {"msg_set_name": "M", "config": {"delivery_subject": "d.p", "ack_policy": "none"}},
            b"-ERR observable requires interest for delivery subject when ephemeral",
        ),
        (
            "$JS.STREAM.M.EPHEMERAL.CONSUMER.CREATE",
            {"stream_name": "M", "config": {"delivery_subject": "d.p", "ack_policy": "none"}},
            b"-ERR 'consumer requires interest for delivery subject when ephemeral'",
        ),
    ],
)
def test_an_ephemeral_push_consumer_needs_a_subscriber(
    house: House, create: str, body: dict[str, Any], words: bytes
) -> None:
    house.stream("M", subjects=["m"])
    assert house.request(create, body)[0][1] == words
    assert not house.account.streams["M"].consumers
    house.client.send("SUB d.* 7\r\n")
    assert house.request(create, body)[0][1].startswith(b"+OK")
    assert len(house.account.streams["M"].consumers) == 1
