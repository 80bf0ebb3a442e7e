"""The transport of the asyncio client, without a connection."""

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pelton.client.aio.transport import RECEIVE_BYTES, RECEIVE_BYTES_MAX, Link
from pelton.client.base.addresses import Server


class Ears:
    """Takes what a link receives."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    def _link_received(self, link: Link, data: memoryview) -> None:
        self.heard.append(bytes(data))


@given(st.lists(st.integers(1, 2 * RECEIVE_BYTES_MAX), max_size=8))
def test_the_buffer_grows_while_bytes_fill_it(sizes: list[int]) -> None:
    async def test() -> None:
        ears: Any = Ears()
        link = Link(ears, Server("127.0.0.1", 4222), tls=False)
        room = RECEIVE_BYTES
        for number, size in enumerate(sizes):
            buffer = link.get_buffer(-1)
            assert len(buffer) == room
            taken = min(size, room)
            buffer[:taken] = bytes([number]) * taken
            link.buffer_updated(taken)
            assert ears.heard[-1] == bytes([number]) * taken
            if taken == room:
                room = min(2 * room, RECEIVE_BYTES_MAX)

    asyncio.run(test())
