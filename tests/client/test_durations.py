"""Durations and moments in the forms that people write, and the integers that the wire has."""

from __future__ import annotations

import ast
import copy
import inspect
import json
import pickle
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pelton import ConsumerConfig, Nanoseconds, Options, StreamConfig
from pelton.api import ConsumerConfig as WireConsumerConfig
from pelton.api import StreamConfig as WireStreamConfig
from pelton.api import decode_response, encode
from pelton.client.base import models
from pelton.client.base.durations import to_moment, to_nanoseconds, to_seconds
from pelton.client.base.models import StreamConsumerLimits, StreamSource
from pelton.sync import connect

if TYPE_CHECKING:
    from tests.peers import ServerProcess


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        (30, 30_000_000_000),
        (30.0, 30_000_000_000),
        (0.1, 100_000_000),
        (0, 0),
        ("30s", 30_000_000_000),
        ("1h30m", 5_400_000_000_000),
        ("250ms", 250_000_000),
        ("1ns", 1),
        ("7d", 7 * 86_400 * 10**9),
        ("1w12h", 180 * 3_600 * 10**9),
        (timedelta(days=1, microseconds=1), 86_400_000_001_000),
        (timedelta(days=40 * 365), 40 * 365 * 86_400 * 10**9),
        (Nanoseconds(7), 7),
    ],
)
def test_a_duration_is_an_integer_of_the_wire(duration: Any, expected: int) -> None:
    assert to_nanoseconds(duration) == expected
    assert ConsumerConfig(ack_wait=duration).ack_wait == expected
    assert to_seconds(duration) == pytest.approx(expected / 1e9)


@pytest.mark.parametrize(
    ("duration", "error"),
    [
        (-1, ValueError),
        ("-1s", ValueError),
        (timedelta(seconds=-1), ValueError),
        (float("nan"), ValueError),
        (float("inf"), ValueError),
        ("30", ValueError),
        ("soon", ValueError),
        (30_000_000_000, ValueError),
        (timedelta(days=300 * 365), ValueError),
        (True, TypeError),
        (None, TypeError),
        (b"30s", TypeError),
    ],
)
def test_what_is_no_duration_is_refused_with_the_name_of_its_field(
    duration: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match=r"^max_age: "):
        StreamConfig(max_age=duration)
    with pytest.raises(error, match=r"^backoff: "):
        ConsumerConfig(backoff=["1s", duration])
    with pytest.raises(error, match=r"^inactive_threshold: "):
        StreamConsumerLimits(inactive_threshold=duration)


def test_a_number_that_must_be_nanoseconds_says_what_to_write() -> None:
    with pytest.raises(ValueError, match=r"Nanoseconds\(30000000000\)"):
        ConsumerConfig(ack_wait=30_000_000_000)


SPANS = {
    StreamConfig: ("max_age", "duplicate_window", "subject_delete_marker_ttl"),
    ConsumerConfig: (
        "ack_wait",
        "max_expires",
        "idle_heartbeat",
        "inactive_threshold",
        "priority_timeout",
    ),
}


@given(st.sampled_from(sorted(SPANS, key=str)), st.integers(0, (1 << 63) - 1))
def test_a_config_of_a_config_keeps_its_durations(kind: Any, ns: int) -> None:
    spans = SPANS[kind]
    config = kind(name="N", **{span: Nanoseconds(ns) for span in spans})
    answered = decode_response(kind, encode(config))
    again = (
        answered,
        replace(config, name="N"),
        copy.copy(answered),
        pickle.loads(pickle.dumps(config)),
        kind(name="N", **{span: getattr(answered, span) for span in spans}),
    )
    assert all(each == config for each in again)
    for each in again:
        changed = replace(each, **{spans[0]: 2})
        assert getattr(changed, spans[0]) == 2_000_000_000
        assert getattr(changed, spans[1]) == ns
        assert json.loads(encode(each)) == json.loads(encode(config))


def test_what_is_assigned_counts_as_it_does_at_construction() -> None:
    config = ConsumerConfig(durable_name="c")
    config.ack_wait = "2m"  # type: ignore[assignment]  # what somebody may do
    config.inactive_threshold = 30  # type: ignore[assignment]  # what somebody may do
    config.backoff = [1, "2s"]  # type: ignore[list-item]  # what somebody may do
    said = json.loads(encode(config))
    assert said["ack_wait"] == 120_000_000_000
    assert said["inactive_threshold"] == 30_000_000_000
    assert said["backoff"] == [1_000_000_000, 2_000_000_000]
    config.ack_wait = -1  # type: ignore[assignment]  # what somebody may do
    with pytest.raises(ValueError, match="negative"):
        encode(config)


def test_a_moment_is_a_datetime_with_its_zone_or_text_or_nanoseconds() -> None:
    noon = 1_700_000_000_000_000_000
    for moment in (
        noon,
        datetime.fromtimestamp(noon // 10**9, UTC),
        datetime.fromtimestamp(noon // 10**9, timezone(timedelta(hours=5))),
        "2023-11-14T22:13:20Z",
        "2023-11-15T03:13:20+05:00",
    ):
        assert to_moment(moment) == noon
        assert ConsumerConfig(pause_until=moment).pause_until == noon
        assert StreamSource(opt_start_time=moment).opt_start_time == noon
        assert b'"2023-11-14T22:13:20Z"' in encode(ConsumerConfig(opt_start_time=moment))
    for wrong in (datetime(2023, 11, 14), "yesterday"):  # what is refused
        with pytest.raises(ValueError, match=r"^opt_start_time: "):
            ConsumerConfig(opt_start_time=wrong)


def test_durations_of_options_come_in_every_form() -> None:
    options = Options(timeout="250ms", ping_interval=timedelta(minutes=2))  # type: ignore[arg-type]  # what somebody may do
    assert (options.timeout, options.ping_interval) == (0.25, 120.0)


def test_consumers_acknowledge_unless_told_otherwise() -> None:
    assert ConsumerConfig().ack_policy == "explicit"
    assert ConsumerConfig(durable_name="c").ack_policy == "explicit"
    assert ConsumerConfig(ack_policy="none").ack_policy == "none"


@pytest.mark.parametrize(
    ("kind", "base"), [(StreamConfig, WireStreamConfig), (ConsumerConfig, WireConsumerConfig)]
)
def test_a_config_has_the_fields_of_the_wire_in_their_order(kind: Any, base: Any) -> None:
    assert kind.__struct_fields__ == base.__struct_fields__


@pytest.mark.parametrize(
    "name",
    ["StreamConfig", "ConsumerConfig", "StreamSource", "StreamConsumerLimits"],
)
def test_type_checkers_and_help_see_every_field(name: str) -> None:
    kind = getattr(models, name)
    tree = ast.parse(inspect.getsource(models))
    definition = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    checked = next(
        node
        for node in ast.walk(definition)
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    )
    named = [each.arg for each in checked.args.kwonlyargs]
    if checked.args.kwarg is not None:  # the keywords of a TypedDict, which create calls take, too
        fields = name.replace("Config", "Fields")
        assert ast.unparse(checked.args.kwarg.annotation) == f"Unpack[{fields}]"
        named += getattr(models, fields).__annotations__
    assert sorted(named) == sorted(kind.__struct_fields__)
    signature = inspect.signature(kind)
    assert tuple(signature.parameters) == kind.__struct_fields__
    assert "Annotated" not in str(signature)
    for default, argument in zip(checked.args.kw_defaults, checked.args.kwonlyargs, strict=True):
        assert default is not None
        value = ast.literal_eval(default)
        assert value is ... or value == signature.parameters[argument.arg].default


@pytest.mark.parametrize(
    "name",
    [
        "StreamConfig",
        "ConsumerConfig",
        "StreamSource",
        "StreamConsumerLimits",
        "StreamInfo",
        "ConsumerInfo",
    ],
)
def test_help_explains_every_field(name: str) -> None:
    kind = getattr(models, name)
    lines = inspect.getdoc(kind).splitlines()
    explained = [line.partition(":")[0] for line in lines if line[:1].islower() and ":" in line]
    assert tuple(each for each in explained if each in kind.__struct_fields__) == (
        kind.__struct_fields__
    )


def test_servers_understand_what_was_written(server: ServerProcess, unique: str) -> None:
    with connect(server.url) as nc:
        js = nc.jetstream()
        made = js.create_stream(
            StreamConfig(name=unique, storage="memory", max_age="1h", duplicate_window=60)
        )
        assert made.config.max_age == 3_600_000_000_000
        assert made.config.duplicate_window == 60_000_000_000
        changed = js.update_stream(replace(made.config, max_age=timedelta(hours=2)))
        assert changed.config.max_age == 7_200_000_000_000
        assert changed.config.duplicate_window == 60_000_000_000
        consumer = js.create_consumer(unique, ConsumerConfig(durable_name="c", ack_wait=45))
        assert consumer.config is not None
        assert consumer.config.ack_wait == 45_000_000_000
        assert consumer.config.ack_policy == "explicit"
        again = js.update_consumer(unique, replace(consumer.config, max_deliver=5))
        assert again.config is not None
        assert (again.config.ack_wait, again.config.max_deliver) == (45_000_000_000, 5)
        assert [type(info.config) for info in js.streams(unique)] == [StreamConfig]
        assert [type(info.config) for info in js.consumers(unique)] == [ConsumerConfig]
        js.delete_stream(unique)
