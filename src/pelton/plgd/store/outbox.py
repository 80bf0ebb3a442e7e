"""From the outbox to the stream: each event once, whatever is killed; in order unless a publish fails.

An event leaves the outbox after the stream's ack. A process that is killed in between leaves events in the outbox that
the stream has. So `Outbox.relay` first reads the stream after the last known sequence, and removes
the events that it finds there by message id. This needs no duplicate window, however long the
process was away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pelton.errors import MessageNotFoundError, PublishFailedError

from ..bus import EventBus, NoEventStreamError

if TYPE_CHECKING:
    from pelton.client.aio.connection import Client

    from .model import EventStore, Outgoing

BATCH = 500
MESSAGE_ID = "Nats-Msg-Id"


class Outbox:
    """The relay of one store into one stream. One relay may run at a time."""

    def __init__(self, store: EventStore, client: Client, stream: str = "EVENTS") -> None:
        """The stream must exist when `relay` is called."""
        self.store = store
        self.client = client
        self.stream = stream
        self.bus = EventBus(client)
        self._known = False

    async def relay(self) -> int:
        """Publish everything that waits; how many events the stream got now.

        Raises StreamNotFoundError or NoEventStreamError, and errors of the connection; nothing is lost, and
        the next call continues.
        """
        if not self._known:
            await self._take_out_what_the_stream_has()
            self._known = True
        count = 0
        while waiting := self.store.outgoing(BATCH):
            self._known = False  # until the acks are in the store
            last = await self._send(waiting)
            self.store.sent([item.number for item in waiting], last)
            self._known = True
            count += len(waiting)
        return count

    async def _send(self, waiting: list[Outgoing]) -> int:
        """Publish a batch in order; the sequence of its last event."""
        jetstream = self.client.jetstream()
        try:
            async with jetstream.publisher() as publisher:
                acks = [
                    await publisher.publish(item.subject, item.payload, msg_id=item.message_id)
                    for item in waiting
                ]
        except PublishFailedError as error:
            subject = error.failures[0][0]
            if self.stream not in await jetstream.stream_names(subject):
                raise NoEventStreamError(subject) from error
            raise
        last = 0
        for ack, item in zip(acks, waiting, strict=True):
            answer = await ack
            if answer.stream != self.stream:
                raise NoEventStreamError(item.subject)
            last = max(last, answer.seq)
        return max(last, self.store.last_seq())

    async def _take_out_what_the_stream_has(self) -> None:
        """Compare the outbox with the stream's messages after the last known sequence."""
        jetstream = self.client.jetstream()
        state = (await jetstream.stream_info(self.stream)).state
        known = self.store.last_seq()
        if state.last_seq <= known:
            # nothing new, or another stream of that name: the position begins again
            if state.last_seq < known:
                self.store.sent([], state.last_seq)
            return
        waiting = {item.message_id: item.number for item in self.store.outgoing(2**31)}
        if not waiting:
            self.store.sent([], state.last_seq)
            return
        found: list[int] = []
        seq = known + 1
        while seq <= state.last_seq:
            try:
                stored = await jetstream.get_message(self.stream, seq, next_by_subject=">")
            except MessageNotFoundError:
                break
            ids = stored.headers.get_all(MESSAGE_ID)
            found += [waiting[message_id] for message_id in ids if message_id in waiting]
            seq = stored.seq + 1
        self.store.sent(found, state.last_seq)
