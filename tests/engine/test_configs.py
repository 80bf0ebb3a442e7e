"""Configuration rules, compared with nats-server 2.15.1's answers to the same requests.

The `.jsonl` files beside this one have these answers: a request, then either the error or the
configuration with all defaults.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pelton.api import ApiError, StreamConfig, decode_request, decode_response, encode
from pelton.api.calls import CreateConsumerRequest, StreamConfigRequest
from pelton.api.consumers import ConsumerConfig
from pelton.api.streams import StreamConsumerLimits
from pelton.engine.calls import consumer_calls
from pelton.engine.config import consumer_config, stream_config

HERE = Path(__file__).parent


def verdicts(name: str) -> list[Any]:
    rows = [json.loads(line) for line in (HERE / name).read_text().splitlines()]
    return [
        pytest.param(row, id=f"{n}-{json.dumps(row['request'])[:60]}") for n, row in enumerate(rows)
    ]


def outcome(judge: Callable[[], msgspec.Struct]) -> Any:
    """Return the configuration or the error as JSON values."""
    try:
        return json.loads(encode(judge()))
    except ApiError as refusal:
        return json.loads(encode(refusal.body()))


@pytest.mark.parametrize("row", verdicts("stream_verdicts.jsonl"))
def test_a_stream_is_judged_alike(row: Any) -> None:
    body = json.dumps(row["request"]).encode()
    error = row.get("error")
    if error and error["err_code"] in (10025, 10065):
        pytest.skip("judged before or after the configuration rules")
    request = decode_request(StreamConfigRequest, body)
    config = stream_config.from_request(request)

    def judge() -> StreamConfig:
        stream_config.check_create(config)
        judged = stream_config.checked(config, pedantic=request.pedantic)
        stream_config.check_replicas_supported(judged)
        return judged

    assert outcome(judge) == (error or row["config"])
    assert config == stream_config.from_request(request), "the request must stay as it was"


STREAM = StreamConfig(name="S", subjects=["s.>"], num_replicas=1)


@pytest.mark.parametrize("row", verdicts("consumer_verdicts.jsonl"))
def test_a_consumer_is_judged_alike(row: Any) -> None:
    error = row.get("error")
    if error and error["err_code"] in (10056, 10149):
        pytest.skip("judged before the configuration rules")
    tokens = row["call"].split(".")
    request = decode_request(CreateConsumerRequest, json.dumps(row["request"]).encode())

    def judge() -> ConsumerConfig:
        consumer_calls.name_of(request, tokens[1] == "DURABLE", tokens[tokens.index("S") + 1 :])
        consumer_config.check_replicas_supported(request.config)
        checked = consumer_config.with_defaults(request.config, STREAM, pedantic=request.pedantic)
        consumer_config.check(checked, STREAM)
        consumer_config.settle_threshold(checked, durable=bool(checked.durable_name))
        return checked

    assert outcome(judge) == (error or row["config"])


def test_limits_of_the_stream_are_defaults_and_caps() -> None:
    limits = StreamConsumerLimits(inactive_threshold=10**9, max_ack_pending=7)
    stream = msgspec.structs.replace(STREAM, consumer_limits=limits)
    config = consumer_config.with_defaults(ConsumerConfig(ack_policy="explicit"), stream)
    assert (config.inactive_threshold, config.max_ack_pending) == (10**9, 7)
    consumer_config.check(config, stream)
    for wrong, code in (
        (ConsumerConfig(ack_policy="explicit", max_ack_pending=9), 10121),
        (ConsumerConfig(inactive_threshold=2 * 10**9), 10153),
        (ConsumerConfig(deliver_subject="d"), 10082),
    ):
        with pytest.raises(ApiError) as caught:
            consumer_config.check(consumer_config.with_defaults(wrong, stream), stream)
        assert caught.value.err_code == code


def updated(old: dict[str, Any], new: dict[str, Any]) -> StreamConfig:
    configs = [
        stream_config.checked(
            decode_response(StreamConfig, json.dumps({"name": "V", **fields}).encode())
        )
        for fields in (old, new)
    ]
    return stream_config.check_update(*configs)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ({}, {"storage": "memory"}, "stream configuration update can not change storage type"),
        (
            {},
            {"retention": "workqueue"},
            "stream configuration update can not change retention policy to/from workqueue",
        ),
        (
            {"deny_delete": True},
            {},
            "stream configuration update can not cancel deny message deletes",
        ),
        ({"deny_purge": True}, {}, "stream configuration update can not cancel deny purge"),
        ({"sealed": True}, {}, "stream configuration update can not unseal a sealed stream"),
        (
            {},
            {"persist_mode": "async"},
            "stream configuration update can not change persist mode",
        ),
    ],
)
def test_what_can_not_change(old: dict[str, Any], new: dict[str, Any], text: str) -> None:
    with pytest.raises(ApiError) as caught:
        updated(old, new)
    assert (caught.value.err_code, caught.value.description) == (10052, text)


def test_sealing_keeps_what_is_there() -> None:
    sealed = updated({"max_age": 10**9}, {"max_age": 10**9, "sealed": True})
    assert (sealed.max_age, sealed.discard) == (0, "new")
    assert sealed.deny_delete
    assert sealed.deny_purge


@pytest.mark.parametrize(
    ("new", "text"),
    [
        ({"deliver_policy": "new"}, "deliver policy can not be updated"),
        ({"ack_policy": "all"}, "ack policy can not be updated"),
        ({"replay_policy": "original"}, "replay policy can not be updated"),
        ({"max_waiting": 3}, "max waiting can not be updated"),
        ({"deliver_subject": "d"}, "can not update pull consumer to push based"),
        ({"mem_storage": True}, "storage type can not be updated"),
    ],
    ids=str,
)
def test_what_can_not_change_in_a_consumer(new: dict[str, Any], text: str) -> None:
    base = {"durable_name": "c", "ack_policy": "explicit"}
    old_config, new_config = (
        consumer_config.with_defaults(
            decode_response(ConsumerConfig, json.dumps({**base, **fields}).encode()), STREAM
        )
        for fields in ({}, new)
    )
    with pytest.raises(ApiError) as caught:
        consumer_config.check_update(old_config, new_config, bound=False)
    assert (caught.value.err_code, caught.value.description) == (10012, text)


def test_a_bound_push_consumer_keeps_its_subject() -> None:
    old, new = (ConsumerConfig(durable_name="c", deliver_subject=to) for to in ("d", "e"))
    consumer_config.check_update(old, new, bound=False)
    with pytest.raises(ApiError) as caught:
        consumer_config.check_update(old, new, bound=True)
    assert caught.value.err_code == 10013
