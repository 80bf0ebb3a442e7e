"""The events of a blocking client's connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..status import Status, StatusBox
from .running import Blocking, run

if TYPE_CHECKING:
    from .connection import BlockingClient


class StatusEvents(Blocking, StatusBox):
    """Events of a connection: ``for event in client.status()``; ends when the client is closed.

    ::

        for event in nc.status():
            print(event.kind, event.error)
    """

    client: BlockingClient

    def __iter__(self) -> StatusEvents:
        """Events since the call of ``status``."""
        return self

    def __next__(self) -> Status:
        """The next event; waits for it, and reads meanwhile."""
        status = run(self.client, self.taking())
        if status is None:
            raise StopIteration
        return status
