"""The headers of received messages: a mapping of first values, which keeps all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton import Headers
from pelton.client.base.message import encode_header_map, publish_headers
from pelton.client.objects.models import ObjectInfo, check_properties
from pelton.core.protocol.wire import decode_headers

if TYPE_CHECKING:
    from tests.peers import ServerProcess

from tests.client.shells import connected

NAMES = st.text("abcXYZ-", min_size=1, max_size=8)
VALUES = st.lists(st.text("xyz 019", max_size=8).map(str.strip), min_size=1, max_size=3)


@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_a_mapping_of_first_values_that_keeps_all(values: dict[str, list[str]]) -> None:
    headers = Headers(values)
    assert dict(headers) == {name: each[0] for name, each in values.items()}
    assert headers.lists() == values
    assert [headers.get_all(name) for name in values] == list(values.values())
    assert len(headers) == len(values)
    assert bool(headers) is bool(values)
    assert ("none" in headers, headers.get("none"), headers.get_all("none")) == (False, None, [])
    with pytest.raises(KeyError):
        headers["none"]
    sent = encode_header_map(headers)
    assert (decode_headers(sent)[2] if sent else {}) == values
    stored = publish_headers(headers, msg_id="1")
    assert decode_headers(stored)[2] == values | {"Nats-Msg-Id": ["1"]}
    headers.get_all("a").append("no")
    headers.lists().clear()
    assert headers.lists() == values


def test_headers_are_passed_on_whole(shell: str, server: ServerProcess, unique: str) -> None:
    with connected(shell, server.url) as client, client.subscribe(unique) as subscription:
        client.publish(unique, headers={"Kind": ["a", "b"], "One": "1"})
        message: Any = subscription.next(5)
        assert message.headers["Kind"] == message.header("Kind") == "a"
        client.publish(unique, headers=message.headers)
        assert subscription.next(5).headers.get_all("Kind") == ["a", "b"]
        found = check_properties(
            ObjectInfo(name="o", bucket="b", nuid="n"), headers=message.headers
        )
        assert found.headers["Kind"] == ["a", "b"]
        client.publish(unique, b"none")
        assert not subscription.next(5).headers
