"""The events of an asyncio client's connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..status import Status, StatusBox
from .running import Awaited, run

if TYPE_CHECKING:
    from .connection import Client


class StatusEvents(Awaited, StatusBox):
    """Events of a connection: ``async for event in client.status()``; ends when the client is closed.

    ::

        async for event in nc.status():
            print(event.kind, event.error)
    """

    client: Client

    def __aiter__(self) -> StatusEvents:
        """Events since the call of ``status``."""
        return self

    async def __anext__(self) -> Status:
        """The next event."""
        status = await run(self.client, self.taking())
        if status is None:
            raise StopAsyncIteration
        return status
