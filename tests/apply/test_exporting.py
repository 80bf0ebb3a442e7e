"""Every dialect says what a server has: written, read again and compared, nothing differs."""

from __future__ import annotations

import pytest
from hypothesis import example, given, note, settings
from hypothesis import strategies as st

from pelton.api import StreamConfig
from pelton.apply.assembling import wire
from pelton.apply.defaults import settled_consumer, settled_stream
from pelton.apply.exporting import FORMATS, export
from pelton.apply.inspecting import Live, LiveConsumer, LiveStream
from pelton.apply.planning import plan
from pelton.apply.reading import checked, read
from pelton.apply.terraform import File
from pelton.client.base.models import StreamConfig as ClientStreamConfig
from pelton.client.keyvalue.config import KeyValueConfig
from pelton.client.objects.models import ObjectStoreConfig
from tests.apply.strategies import consumers, streams
from tests.ways import length

FILES = {"json": "x.json", "yaml": "x.yaml", "tf": "x.tf", "crd": "x.yaml"}


@pytest.mark.parametrize("form", FORMATS)
@given(data=st.data(), config=streams())
@settings(max_examples=length(25, 1000))
def test_what_is_written_is_read_again(form, data: st.DataObject, config: StreamConfig) -> None:
    live = Live({"S": LiveStream(settled_stream(config))})
    consumer = settled_consumer(data.draw(consumers(config)), config)
    live.consumers["S", "C"] = LiveConsumer(consumer)
    text, doubts = export(live, form)
    note(text)
    found = plan(checked(read([File(FILES[form], text)])), live)
    assert [each.differences for each in found.pending] == []
    assert doubts == []


@pytest.mark.parametrize("form", FORMATS)
@given(description=st.text(r"\bfnrtu0/'$%{}" + '"\b\f\n\t#<\u2028', max_size=8))
@example(description=r"\f")  # a backslash and a letter, not a form feed
@example(description=r"\\b")
@example(description=r"\u0024{a}")
@settings(max_examples=length(100, 5000))
def test_texts_with_backslashes_are_read_again(form, description: str) -> None:
    config = StreamConfig(name="S", subjects=["S.>"], description=description)
    live = Live({"S": LiveStream(settled_stream(config))})
    text, doubts = export(live, form)
    note(text)
    found = plan(checked(read([File(FILES[form], text)])), live)
    assert [each.differences for each in found.pending] == []
    assert doubts == []


buckets = st.builds(
    KeyValueConfig,
    bucket=st.just("B"),
    description=st.sampled_from(["", "of tests"]),
    history=st.integers(1, 64),
    ttl=st.sampled_from([0, 1.5, 3600]),
    limit_marker_ttl=st.sampled_from([0, 5, 3600]),
    max_value_size=st.sampled_from([0, 1000]),
    max_bytes=st.sampled_from([0, 1 << 20]),
    storage=st.sampled_from(["file", "memory"]),
    compression=st.booleans(),
)
stores = st.builds(
    ObjectStoreConfig,
    bucket=st.just("B"),
    description=st.sampled_from(["", "of tests"]),
    ttl=st.sampled_from([0, 1.5, 3600]),
    max_bytes=st.sampled_from([0, 1 << 20]),
    storage=st.sampled_from(["file", "memory"]),
    compression=st.booleans(),
)


@pytest.mark.parametrize("form", FORMATS)
@given(bucket=buckets, store=stores)
@settings(max_examples=length(15, 1000))
def test_buckets_are_written_and_read_again(
    form, bucket: KeyValueConfig, store: ObjectStoreConfig
) -> None:
    made = (bucket.stream_config(), store.on(ClientStreamConfig(name="")))
    live = Live({each.name: LiveStream(settled_stream(wire(each))) for each in made})
    text, _ = export(live, form)
    note(text)
    found = plan(checked(read([File(FILES[form], text)])), live)
    assert [(each.title, each.differences) for each in found.pending] == []
