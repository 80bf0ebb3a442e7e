"""Pull requests, ordered reading and calls of the API, fed with what servers answer."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from pelton.client.aio.jetstream import JetStream
from pelton.client.base.mailbox import Interest
from pelton.client.base.message import BaseMessage, nak_body, publish_headers
from pelton.client.base.models import ConsumerInfo, StreamConfig
from pelton.client.consume.ordered import Position
from pelton.client.consume.pull import Fetch, Sizes, control_reply, pull_body
from pelton.core.protocol.wire import decode_headers
from pelton.errors import (
    ConsumerDeletedError,
    ConsumerNotFoundError,
    NoRespondersError,
    NotJetStreamMessageError,
    ProtocolError,
    PullError,
    StreamNotFoundError,
)
from tests.client.by_hand import House, answered, carry_on
from tests.client.test_intake import Model

INTEREST = Interest(1, "_INBOX.x.*", "", None)
ACK = "$JS.ACK.S.C.1.{seq}.{cseq}.1700000000000000001.{pending}"


def message(seq: int = 1, cseq: int = 1, pending: int = 0) -> BaseMessage:
    reply = ACK.format(seq=seq, cseq=cseq, pending=pending)
    return BaseMessage("s.a", reply, b"", b"data", INTEREST)


def status(text: str, reply: str = "_INBOX.x.1", **headers: str) -> BaseMessage:
    lines = "".join(f"{k.replace('_', '-')}: {v}\r\n" for k, v in headers.items())
    return BaseMessage(reply, "", f"NATS/1.0 {text}\r\n{lines}\r\n".encode(), b"", INTEREST)


def fetched(*messages: BaseMessage, batch: int = 2) -> Fetch:
    fetch = Fetch("NEXT", batch)
    fetch.begin("_INBOX.x.1")
    for one in messages:
        assert not fetch.done
        fetch.take(one)
    return fetch


def test_a_fetch_that_saw_its_leader_go_has_none_when_none_came() -> None:
    fetch = fetched(status("409 Leadership Change"))
    assert fetch.may_begin_again(clustered=True)
    fetch.begin("_INBOX.x.2")
    fetch.take(status("503", "_INBOX.x.2"))
    assert fetch.may_begin_again(clustered=True)
    assert fetch.result() == []
    unknown = fetched(status("503"))
    with pytest.raises(NoRespondersError):  # there may be no such consumer
        unknown.result()


def test_a_pull_says_only_what_it_wants() -> None:
    assert json.loads(pull_body(5)) == {"batch": 5}
    assert json.loads(
        pull_body(5, expires_ns=7, no_wait=True, max_bytes=3, idle_heartbeat_ns=2)
    ) == {
        "batch": 5,
        "expires": 7,
        "no_wait": True,
        "max_bytes": 3,
        "idle_heartbeat": 2,
    }
    with pytest.raises(ValueError, match="at least one"):
        pull_body(0)


def test_a_fetch_is_done_with_its_batch() -> None:
    fetch = fetched(message(1), message(2))
    assert fetch.done
    assert [one.metadata.stream_seq for one in fetch.result()] == [1, 2]


@pytest.mark.parametrize(
    "text",
    ["404 No Messages", "408 Request Timeout", "409 Batch Completed", "408 Requests Pending"],
)
def test_a_fetch_ends_early_without_error(text: str) -> None:
    assert fetched(status(text)).result() == []
    assert len(fetched(message(), status(text)).result()) == 1


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("409 Consumer Deleted", ConsumerDeletedError),
        ("409 Exceeded MaxRequestBatch of 10", PullError),
        ("409 Message Size Exceeds MaxBytes", PullError),
        ("400 Bad Request - heartbeat value too large", PullError),
        ("503", NoRespondersError),
    ],
)
def test_a_fetch_fails_only_with_empty_hands(text: str, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        fetched(status(text)).result()
    assert len(fetched(message(), status(text)).result()) == 1


def test_a_status_of_an_earlier_request_and_heartbeats_do_not_end_a_fetch() -> None:
    fetch = fetched(status("408 Request Timeout", reply="_INBOX.x.0"), status("100 Idle Heartbeat"))
    assert not fetch.done


def asked(model: Model) -> list[int]:
    """The sizes of the requests that were sent since the last look."""
    before = len(model.requests)
    model.read()
    return [amount for _, amount in model.requests[before:]]


def test_an_operation_asks_again_at_half_a_batch() -> None:
    model = Model(10, by_bytes=False)
    assert [amount for _, amount in model.requests] == [10]
    for _ in range(5):
        model.deliver()
    for _ in range(5):  # the fifth message is in the user's hands
        assert model.take()
        assert asked(model) == []
    assert not model.take()
    assert asked(model) == [5]
    assert model.intake.expected == 10


def test_an_operation_forgets_what_an_ended_request_did_not_deliver() -> None:
    model = Model(10, by_bytes=False)
    model.end("408 Request Timeout", told=True)
    assert asked(model) == [10]
    reply = model.requests[0][0]
    model.status(reply, "100 Idle Heartbeat")
    assert (model.intake.expected, asked(model)) == (10, [])
    model.status(reply, "409 Leadership Change")
    assert asked(model) == [10]
    model.intake.restart("it is told to")
    assert asked(model) == [10]
    model.status(reply, "408 Request Timeout\r\nNats-Pending-Messages: 10")  # it was given up
    assert (model.intake.expected, asked(model)) == (10, [])


@pytest.mark.parametrize(
    ("text", "kind"),
    [("409 Consumer Deleted", ConsumerDeletedError), ("503", NoRespondersError)],
)
def test_an_operation_doubts_its_consumer(text: str, kind: type[Exception]) -> None:
    model = Model(10, by_bytes=False)
    model.status(model.requests[0][0], text)
    assert isinstance(model.intake.doubted, kind)
    assert (model.intake.expected, asked(model)) == (0, [])


@pytest.mark.parametrize("most", [{"max_messages": 0}, {"max_bytes": 0}])
def test_an_operation_takes_at_least_one(most: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Sizes(**most)  # type: ignore[arg-type]  # the other options have other types


def test_heartbeats_and_flow_control_are_told_from_messages() -> None:
    assert control_reply(message()) is None
    assert control_reply(status("100 Idle Heartbeat")) == ""
    assert (
        control_reply(status("100 Idle Heartbeat", Nats_Consumer_Stalled="$JS.FC.1")) == "$JS.FC.1"
    )
    request = BaseMessage(
        "x", "$JS.FC.2", b"NATS/1.0 100 FlowControl Request\r\n\r\n", b"", INTEREST
    )
    assert control_reply(request) == "$JS.FC.2"


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("$JS.ACK.S.C.3.4.5.6.7", ("", "S", "C", 3, 4, 5, 6, 7)),
        ("$JS.ACK._.h.S.C.3.4.5.6.7", ("", "S", "C", 3, 4, 5, 6, 7)),
        ("$JS.ACK.D.h.S.C.3.4.5.6.7.x.y", ("D", "S", "C", 3, 4, 5, 6, 7)),
    ],
)
def test_metadata_is_read_from_both_forms_of_ack_subjects(reply: str, expected: Any) -> None:
    found = BaseMessage("s", reply, b"", b"", INTEREST).metadata
    assert (found.domain, found.stream, found.consumer, *found[4:]) == expected


@pytest.mark.parametrize(
    "reply", ["", "_INBOX.1", "$JS.ACK.S.C.3.4.5.6", "$JS.ACK._.h.S.C.3.4.5.6"]
)
def test_metadata_of_other_messages_is_an_error(reply: str) -> None:
    with pytest.raises(NotJetStreamMessageError):
        _ = BaseMessage("s", reply, b"", b"", INTEREST).metadata


@pytest.mark.parametrize("block", [b"garbage", b"NATS/1.0 xyz\r\n\r\n", b"NATS/1.0 ", b"NATS/1.0"])
def test_a_header_block_of_garbage_has_no_status(block: bytes) -> None:
    one = BaseMessage("s", "", block, b"", INTEREST)
    assert one.status == 0
    with pytest.raises(ValueError, match=r"header|status"):
        _ = one.headers


def test_a_nak_tells_its_delay_in_nanoseconds() -> None:
    assert nak_body(None) == b"-NAK"
    assert nak_body(timedelta(seconds=1.5)) == nak_body(1.5)
    assert nak_body(1.5) == b'-NAK {"delay":1500000000}'
    with pytest.raises(ValueError, match="negative"):
        nak_body(-1)


def consumer(name: str, stream_seq: int = 0) -> ConsumerInfo:
    info = ConsumerInfo(name=name)
    info.delivered.stream_seq = stream_seq
    return info


def test_an_ordered_reader_starts_over_behind_the_last_message_after_a_gap() -> None:
    state = Position("S", ["a", "b"], 5, None, False)
    config = state.config()
    assert (config.deliver_policy, config.opt_start_seq) == ("by_start_sequence", 5)
    assert config.filter_subjects == ["a", "b"]
    state.started(consumer("C"))
    assert state.take(message(7, 1).metadata)
    assert state.take(message(9, 2).metadata)
    assert not state.take(message(12, 4).metadata), "consumer sequence 3 is missing"
    assert state.config().opt_start_seq == 10
    state.started(consumer("D"))
    assert not state.take(message(10, 1).metadata), "a message of the old consumer"


def test_an_ordered_reader_of_new_messages_means_new_since_it_began() -> None:
    state = Position("S", (), 1, "new", False)
    assert state.config().deliver_policy == "new"
    state.started(consumer("C", stream_seq=41))
    again = state.config()
    assert (again.deliver_policy, again.opt_start_seq) == ("by_start_sequence", 42)


def jetstream(*, domain: str | None = None, prefix: str | None = None) -> JetStream:
    return JetStream(House(), domain=domain, prefix=prefix, timeout=2.0)


def run(js: JetStream, call: Any, *answers: dict[str, Any]) -> tuple[list[tuple[str, Any]], Any]:
    """Requests and result of a call that gets these answers."""
    assert isinstance(js.client, House)
    bodies = [json.dumps(answer).encode() for answer in answers]
    requests, result = answered(js.client, call, *bodies)
    return [(subject, json.loads(body or b"null")) for subject, body in requests], result


def test_lists_are_asked_for_page_by_page() -> None:
    js = jetstream()
    requests, names = run(
        js,
        js.stream_names("a.*"),
        {"total": 3, "offset": 0, "limit": 2, "streams": ["A", "B"]},
        {"total": 3, "offset": 2, "limit": 2, "streams": ["C"]},
    )
    assert names == ["A", "B", "C"]
    assert [subject for subject, _ in requests] == ["$JS.API.STREAM.NAMES"] * 2
    assert [body["offset"] for _, body in requests] == [0, 2]
    assert run(js, js.stream_names(), {"total": 0, "streams": None})[1] == []


def test_subjects_of_a_stream_are_asked_for_page_by_page() -> None:
    first = {"config": {"name": "S"}, "state": {"subjects": {"a": 1, "b": 2}}, "total": 3}
    second = {"config": {"name": "S"}, "state": {"subjects": {"c": 3}}, "total": 3}
    js = jetstream()
    requests, info = run(js, js.stream_info("S", subjects_filter=">"), first, second)
    assert info.state.subjects == {"a": 1, "b": 2, "c": 3}
    assert requests[1][1]["offset"] == 2


def test_errors_are_the_class_of_their_code() -> None:
    error = {"code": 404, "err_code": 10059, "description": "stream not found"}
    js = jetstream()
    with pytest.raises(StreamNotFoundError, match="stream not found") as caught:
        run(js, js.stream_info("S"), {"type": "x", "error": error})
    assert (caught.value.code, caught.value.err_code) == (404, 10059)
    error = {"code": 404, "err_code": 10014, "description": "consumer not found"}
    with pytest.raises(ConsumerNotFoundError):
        run(js, js.consumer_info("S", "C"), {"error": error})


@pytest.mark.parametrize("answer", [b"", b"[]", b"{", b'{"config": 5}'])
def test_an_answer_that_is_none_is_a_protocol_error(answer: bytes) -> None:
    house = House()
    call = JetStream(house, domain=None, prefix=None, timeout=2.0).stream_info("S")
    with pytest.raises(ProtocolError):
        answered(house, call, answer)


def test_unknown_fields_of_newer_servers_are_passed_over() -> None:
    answer = {"config": {"name": "S", "new_thing": {"x": 1}}, "state": {"messages": 5}, "novel": 1}
    js = jetstream()
    info = run(js, js.stream_info("S"), answer)[1]
    assert (info.config.name, info.state.messages) == ("S", 5)


@pytest.mark.parametrize("name", ["", "a.b", "a b", "*", "a>", "a/b"])
def test_names_that_would_change_the_subject_are_refused(name: str) -> None:
    js = jetstream()
    for call in (
        lambda: js.create_stream(StreamConfig(name=name)),
        lambda: js.stream_info(name),
        lambda: js.delete_stream(name),
        lambda: js.consumer_info("S", name),
        lambda: js.consumer_names(name),
    ):
        with pytest.raises(ValueError, match="name"):
            carry_on(call())


def test_a_domain_and_a_prefix_change_the_subject() -> None:
    for js, subject in (
        (jetstream(domain="hub"), "$JS.hub.API.INFO"),
        (jetstream(prefix="from.b"), "from.b.INFO"),
    ):
        requests, _ = run(js, js.account_info(), {"memory": 0})
        assert [asked for asked, _ in requests] == [subject]
    with pytest.raises(ValueError, match="not both"):
        jetstream(domain="a", prefix="b")


def test_expectations_become_headers() -> None:
    block = publish_headers(
        {"Own": ["1", "2"]},
        msg_id="m",
        expected_stream="S",
        expected_last_seq=0,
        expected_last_subject_seq=7,
        expected_last_msg_id="l",
        ttl=90,
    )
    assert decode_headers(block)[2] == {
        "Own": ["1", "2"],
        "Nats-Msg-Id": ["m"],
        "Nats-Expected-Stream": ["S"],
        "Nats-Expected-Last-Sequence": ["0"],
        "Nats-Expected-Last-Subject-Sequence": ["7"],
        "Nats-Expected-Last-Msg-Id": ["l"],
        "Nats-TTL": ["1m30s"],
    }
    assert publish_headers(None) == b""
    with pytest.raises(ValueError, match="line end"):
        publish_headers({"a": "b\r\nc"})
