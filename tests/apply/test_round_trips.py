"""What a server has, written in every dialect and applied again, changes nothing; and what a plan promises, the
server does. With random configurations, on both servers.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st

from pelton import ApiError, StreamSource
from pelton.api import ConsumerConfig, StreamConfig, decode_response, encode
from pelton.apply.executing import execute
from pelton.apply.exporting import FORMATS, export
from pelton.apply.inspecting import inspect
from pelton.apply.model import Declared, Place, Resource
from pelton.apply.planning import plan
from pelton.apply.reading import checked, read
from pelton.apply.terraform import File
from pelton.client.base.models import ConsumerConfig as ClientConsumerConfig
from pelton.client.base.models import StreamConfig as ClientStreamConfig
from tests.apply.conftest import clear
from tests.apply.strategies import consumers, streams
from tests.ways import length

if TYPE_CHECKING:
    from pelton.client.sync.jetstream import JetStream

FILES = {"json": "x.json", "yaml": "x.yaml", "tf": "x.tf", "crd": "x.yaml"}
SHARED = settings(
    max_examples=length(6, 400),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


C = TypeVar("C", StreamConfig, ConsumerConfig)
NUMBERS = count(1)


def create(jetstream: JetStream, stream: StreamConfig) -> None:
    jetstream.create_stream(decode_response(ClientStreamConfig, encode(stream)))


def declared(stream: StreamConfig, *consumers: ConsumerConfig) -> Declared:
    found = Declared([Resource("stream", stream.name, stream, Place("x", 1, 1))])
    for each in consumers:
        found.resources.append(Resource("consumer", stream.name, each, Place("x", 2, 1), "C"))
    return found


def fresh(*configs: C) -> list[C]:
    """The same with a stream's name that was not used before: the files of that may still be there."""
    name = f"S{next(NUMBERS)}"
    return [
        decode_response(
            type(each),
            encode(each)
            .replace(b'"S.', b'"%b.' % name.encode())
            .replace(b'"S"', b'"%b"' % name.encode()),
        )
        for each in configs
    ]


@given(data=st.data(), config=streams())
@SHARED
def test_an_export_applied_again_changes_nothing(
    jetstream: JetStream, data: st.DataObject, config: StreamConfig
) -> None:
    clear(jetstream)
    (config,) = fresh(config)
    consumer = data.draw(consumers(config))
    create(jetstream, config)
    jetstream.create_consumer(config.name, decode_response(ClientConsumerConfig, encode(consumer)))
    live = inspect(jetstream)
    for form in FORMATS:
        text, doubts = export(live, form)
        note(text)
        found = plan(checked(read([File(FILES[form], text)])), live)
        unsaid = [each for change in found.pending for each in change.differences]
        assert not unsaid or form in ("tf", "crd")
        assert len(doubts) == len(unsaid)
        assert {each.field for each in unsaid} <= {"allow_batched"}


@given(data=st.data(), config=streams())
@SHARED
def test_what_is_declared_is_what_the_server_then_has(
    jetstream: JetStream, data: st.DataObject, config: StreamConfig
) -> None:
    clear(jetstream)
    (config,) = fresh(config)
    wanted = declared(config, data.draw(consumers(config)))
    first = plan(wanted, inspect(jetstream))
    assert [each.action for each in first.changes] == ["create", "create"]
    assert execute(jetstream, first) == 2
    again = plan(wanted, inspect(jetstream))
    assert [each.differences for each in again.pending] == []


@given(one=streams(), other=streams())
@SHARED
def test_the_plan_knows_what_a_server_updates(
    jetstream: JetStream, one: StreamConfig, other: StreamConfig
) -> None:
    clear(jetstream)
    one, other = fresh(one, other)
    create(jetstream, one)
    found = plan(declared(other), inspect(jetstream))
    (change,) = found.changes
    assume(change.action != "keep")
    note(f"{change.action}: {change.reasons}")
    if change.action == "replace" and change.reasons != ("first_seq cannot change",):
        with pytest.raises(ApiError):
            jetstream.update_stream(decode_response(ClientStreamConfig, encode(other)))
    execute(jetstream, found)
    again = plan(declared(other), inspect(jetstream))
    assert [each.differences for each in again.pending] == []


@given(data=st.data(), config=streams())
@SHARED
def test_the_plan_knows_which_consumers_a_server_updates(
    jetstream: JetStream, data: st.DataObject, config: StreamConfig
) -> None:
    clear(jetstream)
    (config,) = fresh(config)
    one, other = data.draw(consumers(config)), data.draw(consumers(config))
    create(jetstream, config)
    jetstream.create_consumer(config.name, decode_response(ClientConsumerConfig, encode(one)))
    found = plan(declared(config, other), inspect(jetstream))
    assert found.changes[-1].action == "keep"
    change = found.changes[0]
    note(f"{change.action}: {change.reasons}")
    if change.action == "replace":
        with pytest.raises(ApiError):
            jetstream.update_consumer(
                config.name, decode_response(ClientConsumerConfig, encode(other))
            )
    execute(jetstream, found)
    again = plan(declared(config, other), inspect(jetstream))
    assert [each.differences for each in again.pending] == []


def test_consumers_that_a_server_makes_for_copies_are_none_of_the_users(
    jetstream: JetStream,
) -> None:
    jetstream.create_stream(ClientStreamConfig(name="W", subjects=["w"], retention="workqueue"))
    jetstream.create_stream(ClientStreamConfig(name="COPY", sources=[StreamSource(name="W")]))
    jetstream.publish("w", b"one")
    while not jetstream.stream_info("COPY").state.messages:
        pass
    assert [key for key in inspect(jetstream).consumers if key[0] == "W"] == []
