# Made of client/aio/own_consumers.py by tools/gen_sync.py: change that file, and run it again.
"""The consumers that a reader makes for itself, one after another, and removes.

Each has a name that the client chooses, so that it can be removed also when the answer to its creation
is lost. Those of a reader that was garbage collected, or that is open when its client closes, are removed
without waiting for the answer.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pelton.errors import ApiError, NoRespondersError, PeltonError, PeltonTimeoutError

from ..base.mailbox import RETRY_S
from .locks import locked

if TYPE_CHECKING:
    from pelton.api.subjects import Api

    from ..base.models import ConsumerConfig, ConsumerInfo
    from ..protocol.connection import Connection
    from .jetstream import JetStream

MADE_MAX = 100
"""The most consumers of one reader that are remembered to be removed."""
NOT_FOUND = 404


class OwnConsumers:
    """Consumers of one reader on one stream."""

    def __init__(self, js: JetStream, stream: str, name_prefix: str = "") -> None:
        """None is made yet. Names begin with ``<name_prefix>_`` when a prefix is given."""
        self.client = client = js.client
        """The client that it belongs to."""
        self._js = js
        self._stream = stream
        self._prefix = f"{name_prefix}_" if name_prefix else ""
        self._made: list[str] = []  # the server may have them: that in use, and doubtful ones
        self._unanswered: set[str] = set()  # the server may be making these only now
        client._own_consumers.add(self)
        weakref.finalize(
            self, _abandon, client._connection, js.subjects, stream, self._made
        ).atexit = False

    @locked
    def create(self, config: ConsumerConfig) -> ConsumerInfo:
        """Create the next consumer."""
        name = self._prefix + self.client.new_id()
        self._made.append(name)
        del self._made[:-MADE_MAX]
        self._unanswered.intersection_update(self._made)
        self._unanswered.add(name)
        try:
            info = self._js.create_consumer(self._stream, replace(config, name=name))
        except (ApiError, NoRespondersError) as error:
            self._unanswered.discard(name)
            if not isinstance(error, ApiError) or error.code < 500:
                self._made.remove(name)  # it was not made
            raise
        except (TypeError, ValueError):  # nothing was sent
            self._unanswered.discard(name)
            self._made.remove(name)
            raise
        self._unanswered.discard(name)
        return info

    @locked
    def remove(self, keep: str = "") -> None:
        """Remove every consumer but ``keep`` that the server may have.

        Ends when the connection is lost or the server does not answer: the next call goes on. What is never
        removed the server removes itself, when it has been inactive for a while.
        """
        for name in [name for name in self._made if name != keep]:
            if not self.client._connection.connected:
                return
            try:
                self._delete(name)
            except ApiError as error:
                if error.code >= 500:
                    continue
                if name in self._unanswered:  # asked once more later: it may still be made
                    self._unanswered.discard(name)
                    continue
            except PeltonTimeoutError:
                return
            except PeltonError:
                if not self.client._connection.connected:
                    return
                continue
            if name in self._made:
                self._made.remove(name)
            self._unanswered.discard(name)

    def give(self, name: str) -> None:
        """Somebody else removes this consumer."""
        self._made.remove(name)

    def leave(self) -> None:
        """Request the removal of every consumer that the server may have, without waiting for it."""
        connection = self.client._connection
        if connection.connected:
            for subject in _removals(self._js.subjects, self._stream, self._made):
                connection.publish(subject, b"")
            self._made.clear()

    def _delete(self, name: str) -> None:
        """Delete a consumer. nats-server may delete one first, in vain, whose creation it has just got."""
        try:
            self._js.delete_consumer(self._stream, name)
        except ApiError as error:
            if error.code != NOT_FOUND or name not in self._unanswered:
                raise
            self.client._sleep(RETRY_S)  # the creation was sent before the removal
            self._js.delete_consumer(self._stream, name)


def _removals(subjects: Api, stream: str, names: list[str]) -> list[str]:
    """The subjects of the requests that remove consumers."""
    return [subjects.consumer("DELETE", stream, name) for name in names]


def _abandon(connection: Connection, subjects: Api, stream: str, made: list[str]) -> None:
    """The reader was garbage collected: have its consumers removed."""
    if made:
        connection.abandon_requests(_removals(subjects, stream, made))
