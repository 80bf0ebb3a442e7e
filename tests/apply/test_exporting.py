"""Every dialect says what a server has: written, read again and compared, nothing differs."""

from __future__ import annotations

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from penstock.api import StreamConfig
from penstock.apply.defaults import settled_consumer, settled_stream
from penstock.apply.exporting import FORMATS, export
from penstock.apply.inspecting import Live, LiveConsumer, LiveStream
from penstock.apply.planning import plan
from penstock.apply.reading import checked, read
from penstock.apply.terraform import File
from tests.apply.strategies import consumers, streams
from tests.ways import length

FILES = {"json": "x.json", "yaml": "x.yaml", "tf": "x.tf", "crd": "x.yaml"}


@pytest.mark.parametrize("form", FORMATS)
@given(data=st.data(), config=streams())
@settings(max_examples=length(60, 1000))
def test_what_is_written_is_read_again(form, data: st.DataObject, config: StreamConfig) -> None:
    live = Live({"S": LiveStream(settled_stream(config))})
    consumer = settled_consumer(data.draw(consumers(config)), config)
    live.consumers["S", "C"] = LiveConsumer(consumer)
    text, doubts = export(live, form)
    note(text)
    found = plan(checked(read([File(FILES[form], text)])), live)
    assert [each.differences for each in found.pending] == []
    assert doubts == []
