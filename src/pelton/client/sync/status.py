"""The events of a blocking client's connection."""

from __future__ import annotations

from ..session.status import Status, StatusBox
from .running import Iterated


class StatusEvents(Iterated[Status], StatusBox):
    """Events of a connection: ``for event in client.status()``; ends when the client is closed.

    ::

        for event in nc.status():
            print(event.kind, event.error)
    """
