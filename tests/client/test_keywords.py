"""Streams and consumers made with keywords, beside whole configurations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import pelton.testing
from pelton import ConsumerConfig, StreamConfig
from pelton.client.base.models import ConsumerFields, StreamFields
from tests.client.shells import connected

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def js(shell: str) -> Iterator[Any]:
    with pelton.testing.broker() as broker, connected(shell, broker.url) as client:
        yield client.jetstream()


@pytest.mark.parametrize(
    ("fields", "kind"), [(StreamFields, StreamConfig), (ConsumerFields, ConsumerConfig)]
)
def test_the_keywords_are_the_fields_of_the_config(fields: Any, kind: Any) -> None:
    names = {each.name for each in msgspec.structs.fields(kind)}
    assert set(fields.__annotations__) == names - {"name"}
    assert not fields.__required_keys__


def test_a_stream_and_a_consumer_of_keywords(js: Any) -> None:
    made = js.create_stream("ORDERS", subjects=["orders.>"], max_age="7d").config
    whole = StreamConfig(name="ORDERS", subjects=["orders.>"], max_age="7d")
    assert js.create_stream(whole).config == made
    assert js.update_stream("ORDERS", subjects=["orders.>", "more"]).config.max_age == 0
    assert js.create_or_update_stream("NEW", storage="memory").config.storage == "memory"
    info = js.create_consumer("ORDERS", "billing", filter_subject="orders.new", ack_wait="10s")
    assert (info.name, info.config.filter_subject) == ("billing", "orders.new")
    assert js.update_consumer("ORDERS", "billing", ack_wait="20s").config.ack_wait == 20 * 10**9
    assert js.create_consumer("ORDERS").name
    assert js.create_or_update_consumer("ORDERS", durable_name="d").config.durable_name == "d"


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (
            lambda js: js.create_stream("S", subject=["s"]),
            "no field subject: did you mean subjects",
        ),
        (lambda js: js.create_stream("S", zzz=1), r"no field zzz: see help\(StreamConfig\)"),
        (lambda js: js.create_stream(StreamConfig(name="S"), subjects=["s"]), "not both: subjects"),
        (lambda js: js.create_stream(5), "name is a name or a StreamConfig, not int"),
        (lambda js: js.create_consumer("S", "c", ackwait=1), "did you mean ack_wait"),
        (lambda js: js.create_consumer("S", StreamConfig(name="S")), "name or a ConsumerConfig"),
    ],
)
def test_a_keyword_that_is_wrong_is_told(js: Any, call: Any, hint: str) -> None:
    with pytest.raises(TypeError, match=hint):
        call(js)
    assert js.stream_names() == []
