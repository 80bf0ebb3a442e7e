"""Messages look on the wire as a nats-server writes them; bodies are read with its tolerance."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.api import calls
from pelton.api.calls import CreateConsumerRequest, PubAck, StreamConfigRequest
from pelton.api.codec import JsonError, decode_request, decode_response, encode
from pelton.api.consumers import ConsumerConfig, ConsumerInfo
from pelton.api.streams import StreamConfig, StreamInfo, StreamSource

# Answers of nats-server 2.15.1, one per kind of response and outcome; times shifted.
ANSWERS = (Path(__file__).parent / "answers.jsonl").read_text().splitlines()

CLASSES: dict[str, type[calls.Response]] = {
    "account_info": calls.AccountInfoResponse,
    "consumer_create": calls.ConsumerInfoResponse,
    "consumer_info": calls.ConsumerInfoResponse,
    "consumer_list": calls.ConsumerListResponse,
    "consumer_names": calls.ConsumerNamesResponse,
    "stream_create": calls.StreamCreateResponse,
    "stream_info": calls.StreamInfoResponse,
    "stream_list": calls.StreamListResponse,
    "stream_msg_get": calls.MsgGetResponse,
    "stream_names": calls.StreamNamesResponse,
    "stream_purge": calls.StreamPurgeResponse,
    "stream_update": calls.StreamUpdateResponse,
}


@pytest.mark.parametrize("text", ANSWERS, ids=range(len(ANSWERS)))
def test_an_answer_comes_back_byte_for_byte(text: str) -> None:
    kind = msgspec.json.decode(text)["type"].removeprefix(calls.TYPE_PREFIX)
    response = CLASSES.get(kind.removesuffix("_response"), calls.SuccessResponse)
    assert encode(decode_response(response, text.encode())).decode() == text


def test_every_kind_of_answer_was_recorded() -> None:
    kinds = {msgspec.json.decode(text)["type"] for text in ANSWERS}
    assert {f"{calls.TYPE_PREFIX}{kind}_response" for kind in CLASSES} <= kinds


COUNTS = st.integers(min_value=0, max_value=2**63 - 1)


@given(
    st.builds(
        StreamConfig,
        name=st.text(),
        subjects=st.lists(st.text()),
        retention=st.sampled_from(["limits", "interest", "workqueue"]),
        max_msgs=COUNTS,
        max_age=COUNTS,
        first_seq=st.integers(min_value=0, max_value=2**64 - 1),
        allow_direct=st.booleans(),
        metadata=st.dictionaries(st.text(), st.text()),
    )
)
def test_a_stream_survives_the_wire(config: StreamConfig) -> None:
    info = StreamInfo(config=config, created=1)
    assert decode_response(StreamInfo, encode(info)) == info


@given(
    st.builds(
        ConsumerConfig,
        name=st.text(),
        opt_start_time=st.none() | st.integers(min_value=1, max_value=2**61),
        backoff=st.lists(COUNTS),
        ack_policy=st.sampled_from(["none", "all", "explicit"]),
        metadata=st.dictionaries(st.text(), st.text()),
    )
)
def test_a_consumer_survives_the_wire(config: ConsumerConfig) -> None:
    request = CreateConsumerRequest(stream_name="S", config=config, action="create")
    assert decode_request(CreateConsumerRequest, encode(request)) == request


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_a_json_error(body: bytes) -> None:
    for text in (body, b'{"name":' + body, b'{"' + body + b'":1}'):
        try:
            decode_request(StreamConfigRequest, text)
        except JsonError:
            continue


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(StreamConfig.__struct_fields__), JSON)
def test_any_value_in_a_field_is_read_or_refused(name: str, value: Any) -> None:
    body = msgspec.json.encode({name: value})
    try:
        config = decode_request(StreamConfigRequest, body)
    except JsonError:
        return
    assert decode_request(StreamConfigRequest, encode(config)) == config


def test_markup_is_escaped_and_lost_bytes_are_marked() -> None:
    body = encode(PubAck(stream="<a>&\udcff"))
    assert body == '{"stream":"\\u003ca\\u003e\\u0026\ufffd","seq":0}'.encode()


def test_keys_match_in_any_case_and_later_ones_win() -> None:
    body = b'{"NAME":"a","Subjects":["x"],"name":"b"}'
    request = decode_request(StreamConfigRequest, body)
    assert (request.name, request.subjects) == ("b", ["x"])


def test_null_in_a_list_is_a_zero_value() -> None:
    request = decode_request(StreamConfigRequest, b'{"subjects":[null,"x"],"sources":[null]}')
    assert request == StreamConfigRequest(subjects=["", "x"], sources=[StreamSource()])
    assert decode_request(ConsumerConfig, b'{"backoff":[null]}') == ConsumerConfig(backoff=[0])


def test_null_leaves_a_field_as_it_is() -> None:
    request = decode_request(StreamConfigRequest, b'{"name":null,"max_msgs":null,"subjects":null}')
    assert request == StreamConfigRequest()
    assert decode_request(CreateConsumerRequest, b'{"config":null}') == CreateConsumerRequest()
    assert decode_request(StreamConfigRequest, b"null") == StreamConfigRequest()


def test_documents_fill_one_object() -> None:
    request = decode_request(StreamConfigRequest, b' {"name":"B"}\n{"description":"d"} ')
    assert (request.name, request.description) == ("B", "d")
    assert decode_request(StreamConfigRequest, b"") == StreamConfigRequest()


def test_unknown_fields_matter_only_to_strict_readers() -> None:
    body = b'{"name":"a","consumer_limits":{"foo":1}}'
    with pytest.raises(JsonError, match='unknown field "foo"'):
        decode_request(StreamConfigRequest, body)
    assert decode_request(StreamConfigRequest, body, strict=False).name == "a"
    assert decode_response(StreamConfig, body).name == "a"


def test_words_of_newer_servers_are_kept_in_answers_only() -> None:
    body = b'{"retention":"forever"}'
    assert decode_response(StreamConfig, body).retention == "forever"
    with pytest.raises(JsonError):
        decode_request(StreamConfigRequest, body, strict=False)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ('{"x":1}', 'json: unknown field "x"'),
        (
            '{"name":1}',
            "json: cannot unmarshal number into Go struct field StreamConfigRequest.name"
            " of type string",
        ),
        (
            '{"max_msgs":1.5}',
            "json: cannot unmarshal number 1.5 into Go struct field StreamConfigRequest.max_msgs"
            " of type int64",
        ),
        (
            '{"max_msg_size":99999999999}',
            "json: cannot unmarshal number 99999999999 into Go struct field"
            " StreamConfigRequest.max_msg_size of type int32",
        ),
        (
            '{"subjects":[1]}',
            "json: cannot unmarshal number into StreamConfigRequest.subjects.0 of type string",
        ),
        (
            '{"metadata":{"a":1}}',
            "json: cannot unmarshal number into Go struct field StreamConfigRequest.metadata.a"
            " of type string",
        ),
        ("[]", "json: cannot unmarshal array into Go value of type server.StreamConfigRequest"),
        ('{"retention":"foo"}', 'can not unmarshal "\\"foo\\""'),
        ('{"storage":5}', 'can not unmarshal "5"'),
        ('{"compression":"x"}', "unknown compression algorithm"),
        (
            '{"sources":[{"opt_start_time":"x"}]}',
            'parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"',
        ),
        ("{", "unexpected EOF"),
        ("[" * 200_000, "exceeded max depth"),
    ],
)
def test_faults_are_named_as_servers_name_them(body: str, error: str) -> None:
    with pytest.raises(JsonError) as caught:
        decode_request(StreamConfigRequest, body.encode())
    assert str(caught.value) == error


def test_an_action_is_one_of_three() -> None:
    with pytest.raises(JsonError, match='unknown consumer action: "x"'):
        decode_request(CreateConsumerRequest, b'{"action":"x"}')


def test_bytes_are_base64() -> None:
    message = calls.StoredMsg(subject="a", seq=1, hdrs=b"NATS/1.0\r\n\r\n", data=b"\0\xff", time=1)
    body = encode(message)
    assert b'"data":"AP8="' in body
    assert decode_response(calls.StoredMsg, body) == message


def test_a_consumer_without_config_has_none() -> None:
    assert b"config" not in encode(ConsumerInfo(name="c"))
