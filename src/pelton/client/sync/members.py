# Made of client/aio/members.py by tools/gen_sync.py: change that file, and run it again.
"""One member's messages: joins its group, follows the group's document, hands partitions over.

::

    document changes ──► other filters ──► finish what is being handled ──► delete the consumer ──► join
                                                                                                 │
    no partition: wait for the next document ◄── create the consumer ◄── other members still have them

A member that gets other partitions needs a new consumer, because the old one may be past messages of
them. Only the client with the pin deletes the old consumer, and only when its handlers have returned and
the server has their acks. The server refuses a consumer while another one has the same partitions
(10100), so no two members have one partition, and joining is tried again until it succeeds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from pelton.api import keyvalue as wire
from pelton.errors import (
    ApiError,
    ConsumerExistsError,
    ConsumerNotFoundError,
    GroupChangedError,
    PeltonError,
    ProtocolError,
    StreamNotFoundError,
)

from ..base.mailbox import RETRY_S, Interest, Mailbox
from ..base.models import ConsumerConfig, ConsumerInfo
from ..consume.arrivals import PullIntake
from ..consume.intake import Intake, raise_lasting
from ..consume.pull import Asking, Sizes, control_reply
from ..groups import (
    PRIORITY_GROUP,
    SECOND_NS,
    GroupConfig,
    decode,
    filters_of,
    member_consumer,
)
from .locks import locked
from .upkeep import OwnConsumers, Upkeep

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..base.message import BaseMessage
    from .connection import Client
    from .groups import Group
    from .jetstream import JetStream

PARTITION_TAKEN = 10100
"""Error code: another consumer of the work queue has one of the filters."""
AGAIN_S = 0.25
"""When to try again to join while others have the partitions."""
STEP_BACK_S = 0.4
"""How long a client without the pin leaves a changed consumer to the others of its member."""
ACKS_S = 1.0
"""How long the server may take to process the last acks."""
LOOK_S = 0.02
HEARTBEAT_S = 5.0
SILENCE_S = 2.5 * HEARTBEAT_S
"""How long nothing may arrive until the watch of a document begins again."""
INACTIVE_S = 30.0
_OPERATION, _MARKER = "KV-Operation", "Nats-Marker-Reason"


class DocumentWatch(Mailbox):
    """The newest version of a group's document, from a push consumer on its key.

    Only the newest version matters, so a watch that has missed something begins again with the last value.
    """

    def __init__(self, js: JetStream, bucket: str, key: str, tell: Callable[[], None]) -> None:
        """``tell`` is called when there is news, or when the watch has to begin again."""
        self.client: Client = js.client
        self._interest: Interest
        self.is_open = False
        """Whether the server's consumer is believed to be there."""
        self.news = False
        """Whether the document changed since the last ``take``."""
        self.due = math.inf
        """When to look whether anything arrived, by the client's clock."""
        self._consumers = OwnConsumers(js, wire.stream_of(bucket))
        self._subject = f"{wire.prefix_of(bucket)}{key}"
        self._tell = tell
        self._value: bytes | None = None
        self._revision = 0
        self._consumer_seq = 0
        self._attached = False

    def take(self) -> bytes | None:
        """The document now; None when there is none."""
        self.news = False
        return self._value

    @locked
    def open(self) -> None:
        """Begin, or begin again; StreamNotFoundError without the bucket."""
        # A new inbox each time: messages of the consumer before would look like a gap.
        self._detach()
        inbox = self.client.new_inbox()
        self.client._attach(inbox, self, "")
        self._attached = True
        self._consumer_seq = self._revision = 0
        config = ConsumerConfig(
            deliver_subject=inbox,
            deliver_policy="last_per_subject",
            filter_subject=self._subject,
            ack_policy="none",
            max_deliver=1,
            idle_heartbeat=HEARTBEAT_S,
            inactive_threshold=INACTIVE_S,
            mem_storage=True,
            num_replicas=1,
        )
        info = self._consumers.create(config)
        self.is_open = True
        self.due = self.client._clock() + SILENCE_S
        # Nothing waits, and nothing was delivered while the answer was on its way: there is no document.
        if not (info.num_pending or info.delivered.consumer_seq or self._consumer_seq):
            self._set(None)
        self._consumers.remove(keep=info.name)

    @locked
    def close(self) -> None:
        """End the subscription, and remove the consumer."""
        self.leave()
        self._consumers.remove()

    def leave(self) -> None:
        """End the subscription; the server removes the consumer."""
        self.is_open = False
        self._detach()

    def check(self) -> None:
        """Begin again if nothing arrived for too long."""
        if self.client._clock() >= self.due:
            self.is_open = False

    def _detach(self) -> None:
        if self._attached:
            self._attached = False
            self.client._release(self._interest)

    def _on_message(self, message: BaseMessage) -> None:
        """A version of the document, or a heartbeat."""
        self.due = self.client._clock() + SILENCE_S
        if control_reply(message) is not None:
            return
        metadata = message.metadata
        if metadata.consumer_seq != self._consumer_seq + 1:
            self.is_open = False
            self._tell()
            return
        self._consumer_seq = metadata.consumer_seq
        if metadata.stream_seq < self._revision:
            return
        self._revision = metadata.stream_seq
        # Deleted by a client (ADR-8), or expired, which the server marks itself (ADR-48).
        removed = message.header(_OPERATION) or message.header(_MARKER)
        self._set(None if removed else message.data)

    def _on_end(self) -> None:
        """The client is closed."""
        self._attached = False

    def _set(self, value: bytes | None) -> None:
        self._value = value
        self.news = True
        self._tell()


class GroupIntake(PullIntake):
    """The messages of a member of a group."""

    def __init__(
        self, group: Group[Any], member: str, template: ConsumerConfig | None, sizes: Sizes
    ) -> None:
        """``template`` has the fields of the consumer that the group does not decide; ValueError."""
        self.member = member
        self._group = group
        self._template = template
        self.wanted = self.consumer_of(filters_of(group.cached_config, member))
        """The consumer that the member should have."""
        self.ack_wait_s = int(self.wanted.ack_wait) / 1e9
        # The pin ends when no request comes for the ack wait, so requests must be shorter.
        sizes.expires_ns = min(sizes.expires_ns, max(int(self.wanted.ack_wait) // 2, SECOND_NS))
        sizes.heartbeat_ns = min(sizes.heartbeat_ns, sizes.expires_ns // 2)
        stream, name = group.consumer_stream, self.wanted.name
        super().__init__(
            group.client,
            group._js.subjects.next_message(stream, name),
            ConsumerInfo(stream_name=stream, name=name, config=self.wanted),
            Asking(self.wanted, {}, group=PRIORITY_GROUP),
            sizes,
            "wait",
        )
        self.document = DocumentWatch(group._js, group.bucket, group.key, self._stir)
        self.joined = False
        self.nudge_due = math.inf
        """When to ask for a message, so that the server keeps the pin."""
        self.dropped: list[BaseMessage] | None = None
        """During a hand-over, messages that are not handled here."""

    def consumer_of(self, filters: list[str]) -> ConsumerConfig:
        """The member's consumer with these filters."""
        name = self._group.consumer_name(self.member)
        return member_consumer(self._template, name, filters, durable=self._group.durable)

    def begin(self) -> None:
        """Subscribe; the first turn joins."""
        # Not PullIntake's, which requests messages at once: there is no consumer yet.
        Intake.begin(self)
        self.flowing = False

    def keep(self, message: BaseMessage) -> None:
        """Take the partition out of the subject, and add the message to the queue."""
        message.subject = message.subject.partition(".")[2]
        if self.dropped is not None:
            # The hand-over decides what becomes of it, when it knows whether this client has the pin.
            self.dropped.append(message)
            self.held -= 1
            return
        super().keep(message)

    def pull(self) -> bool:
        """Request messages if it is time."""
        if self.dropped is not None:
            self._stir()  # a message was handled
        return super().pull()

    def request(self, amount: int) -> bool:
        """Request messages; the server keeps the pin of a client that asks for some."""
        queued = super().request(amount)
        if queued:
            self.nudge_due = self.client._clock() + self.ack_wait_s / 3
        return queued

    def after_loss(self, why: PeltonError) -> None:
        """The connection broke: look at the document again, and go on."""
        self.document.is_open = False
        if self.joined:
            super().after_loss(why)

    def is_idle(self) -> bool:
        """Whether no message is being handled, or the operation ends."""
        # More than the server owes is buffered, or being handled.
        handled = self.held <= self.expected and not self.handling
        return handled or self.is_ending()

    def _end_taking(self) -> None:
        super()._end_taking()
        self.document.leave()


class GroupUpkeep(Upkeep):
    """Follows the group's document, joins and hands over, and keeps messages coming."""

    intake: GroupIntake

    def __init__(self, group: Group[Any], intake: GroupIntake) -> None:
        """``start`` follows."""
        super().__init__(group._js, intake)
        self._group = group
        self._config: GroupConfig = group.cached_config
        self._wants = False  # whether there are partitions to join for
        self._join_at = -math.inf
        self._stepped_back = False

    def _recover(self, why: Exception) -> None:
        """The consumer does not answer: join again."""
        self.intake.doubted = None
        self.intake.give_up()
        self.intake.joined = False
        self._join_at = -math.inf

    def _turn(self, done: Callable[[], bool], seconds: float) -> None:
        """Follow the document, join, and do what every intake does."""
        document, clock = self.intake.document, self.client._clock
        if not self.intake.told:
            document.check()
            if not document.is_open:
                self._watch()
            if document.news and not self.intake.is_ending():
                self._change(document.take())
            if self._wants and not self.intake.joined and clock() >= self._join_at:
                self._join()
            if self.intake.joined and clock() >= self.intake.nudge_due:
                # ADR-42: a pinned client that requests nothing for the priority timeout loses its pin.
                self.intake.request(1)
        if self.intake.finished:
            return
        due = min(document.due, self.intake.nudge_due if self.intake.joined else math.inf)
        if not document.is_open:
            due = clock() + RETRY_S
        if self._wants and not self.intake.joined:
            due = min(due, self._join_at)

        def news() -> bool:
            return done() or document.news or not document.is_open

        # ``news`` holds while there is no watch: a turn that waits for it would end at once, and spin.
        waits = done if not document.is_open else news
        left = max(0.0, min(seconds, due - clock()))
        super()._turn(waits, left)

    def _watch(self) -> None:
        """Watch the group's document."""
        try:
            self.intake.document.open()
        except StreamNotFoundError as error:
            self.intake.events.emit("stream_not_found", str(error), name=self._group.bucket)
        except PeltonError as error:
            raise_lasting(error)

    # -- the document ------------------------------------------------------------------------------

    def _change(self, value: bytes | None) -> None:
        """Follow a new version of the document."""
        group = self._group
        if value is None:
            self._leave_for_good("the group was deleted")
            self.intake.events.emit("group_deleted", name=self.intake.member)
            self.intake.stop()
            return
        try:
            config = decode(type(self._config), value)
        except ProtocolError as error:
            self._leave_for_good(str(error))
            raise GroupChangedError(group.stream, group.name, str(error)) from error
        if config.fixed() != self._config.fixed():
            self._leave_for_good("the configuration of the group changed")
            raise GroupChangedError(group.stream, group.name, "its configuration changed")
        self._config = group.cached_config = config
        wanted = self.intake.consumer_of(filters_of(config, self.intake.member))
        changed = wanted.filter_subjects != self.intake.wanted.filter_subjects
        if changed and self.intake.joined:
            # Before ``wanted`` changes: this is about the consumer that is there.
            self._hand_over()
        self.intake.wanted = wanted
        had, self._wants = self._wants, bool(wanted.filter_subjects)
        self._stepped_back = self._stepped_back and not changed
        if had and not self._wants:
            self.intake.events.emit("group_left", name=self.intake.member)

    def _leave_for_good(self, why: str) -> None:
        """Consume nothing more; the consumer of a static group is deleted."""
        if self.intake.joined and self._group.durable:
            self.intake.flowing = False
            try:
                info = self._js.consumer_info(self.intake.stream, self.intake.info.name)
                # With other filters it belongs to a newer configuration already, and to another client.
                if _has_filters(info, self.intake.wanted.filter_subjects):
                    self._js.delete_consumer(self.intake.stream, self.intake.info.name)
            except PeltonError:
                pass  # another client of this member deletes it
        self.intake.joined = self._wants = False
        self.intake.events.emit("reset", why)

    # -- joining -----------------------------------------------------------------------------------

    def _join(self) -> None:
        """Create the member's consumer, or use it if it is as it should be."""
        wanted = self.intake.wanted
        try:
            try:
                info = self._js.create_consumer(self.intake.stream, wanted, action="create")
            except ConsumerExistsError as error:
                found = self._replace(wanted, error)
                if found is None:
                    return
                info = found
        except ApiError as error:
            self._join_at = self.client._clock() + AGAIN_S
            if error.err_code == PARTITION_TAKEN:
                self.intake.events.emit("group_waiting", str(error), name=self.intake.member)
            elif isinstance(error, StreamNotFoundError):  # of a group that is being deleted
                self.intake.events.emit(
                    "stream_not_found", str(error), name=self.intake.wanted.name
                )
            else:
                raise_lasting(error)
            return
        except PeltonError as error:
            self._join_at = self.client._clock() + AGAIN_S
            raise_lasting(error)
            return
        self.intake.joined = True
        self._stepped_back = False
        self.intake.fit(info)
        self.intake.flowing = True
        # Requests from before went to a consumer that is gone.
        self.intake.give_up()
        self.intake.pull()
        self.intake.events.emit(
            "group_joined", " ".join(wanted.filter_subjects), name=self.intake.member
        )

    def _replace(self, wanted: ConsumerConfig, error: ConsumerExistsError) -> ConsumerInfo | None:
        """The consumer exists with another configuration: use or replace it; None to try again."""
        try:
            info = self._js.consumer_info(self.intake.stream, wanted.name)
        except ConsumerNotFoundError:
            return None
        if _has_filters(info, wanted.filter_subjects):
            return info  # of a client with other times
        # A static group never changes, so a consumer with other filters is somebody else's.
        if self._group.durable:
            raise error
        now = self.client._clock()
        pinned = _pinned_client(info)
        if pinned and pinned != self.intake.asking.pin:
            self._join_at = now + AGAIN_S  # the client with the pin replaces it
            self.intake.events.emit(
                "group_waiting", "another client has the pin", name=self.intake.member
            )
            return None
        if not self._stepped_back:
            self._stepped_back = True
            # Not all at the same moment: two clients would delete in turns what the other one has just made.
            self._join_at = now + STEP_BACK_S + (hash(self.intake._own) % 100) / 1e3
            return None
        self._delete(wanted.name)
        return self._js.create_consumer(self.intake.stream, wanted, action="create")

    def _delete(self, name: str) -> None:
        try:
            self._js.delete_consumer(self.intake.stream, name)
        except ConsumerNotFoundError:
            return

    # -- handing over ------------------------------------------------------------------------------

    def _hand_over(self) -> None:
        """Finish what is being handled, forget what is buffered, and delete the consumer."""
        self.intake.flowing = self.intake.joined = False
        dropped: list[BaseMessage] = list(self.intake.queue)
        self.intake.queue.clear()
        self.intake.held -= len(dropped)
        self.intake.dropped = dropped
        self.intake.give_up()
        try:
            # as long as the ack wait is extended, nobody else gets what is being handled
            seconds = math.inf if self.intake.extension.on else self.intake.ack_wait_s
            self.client._until(self.intake, self.intake.is_idle, seconds)
            # A deleted consumer frees its messages for the next member at once; otherwise they are given back.
            if self._has_pin():
                self._delete(self.intake.info.name)
            else:
                for each in dropped:
                    self.intake.acks.give_back(each)
                self._join_at = self.client._clock() + STEP_BACK_S
        except ConsumerNotFoundError:
            pass  # another client of this member deleted it
        finally:
            self.intake.dropped = None
            self.intake.give_up()
            self.intake.asking.unpin()

    def _has_pin(self) -> bool:
        """Whether no other client of the member has the pin; waits until the acks are processed."""
        deadline = self.client._clock() + ACKS_S
        while True:
            info = self._js.consumer_info(self.intake.stream, self.intake.info.name)
            pinned = _pinned_client(info)
            if pinned and pinned != self.intake.asking.pin:
                return False
            # nats-server may answer before it has processed acks that came earlier. Deleting the consumer then
            # would deliver these messages once more, to another member.
            waiting = info.num_ack_pending > len(self.intake.dropped or ())
            if not waiting or self.client._clock() >= deadline:
                return True
            self.client._until(self.intake, self.intake.is_ending, LOOK_S)

    # -- the end -----------------------------------------------------------------------------------

    def _close(self) -> None:
        """End the subscription; with nothing left to handle, give the pin to another client."""
        self.intake.flowing = False
        idle = not self.intake.queue and not self.intake.handling
        stopped = self.intake.told == "stop"
        connection = self.client._connection
        try:
            connection.drain(self.intake._interest)
            if connection.connected:
                self.client.flush()
                # A client that still handles messages keeps the pin: the next one would overtake it.
                if (
                    self.intake.joined
                    and self.intake.asking.pin
                    and idle
                    and (stopped or self.intake.held <= 0)
                ):
                    self._js.unpin_consumer(
                        self.intake.stream, self.intake.info.name, PRIORITY_GROUP
                    )
                self.intake.document.close()
        except PeltonError:
            pass  # what was on its way is delivered again, and the pin expires
        finally:
            self.intake.finish()


def _has_filters(info: ConsumerInfo, filters: list[str]) -> bool:
    """Whether a consumer is that of a group, and has these filters."""
    config = info.config
    if config is None or PRIORITY_GROUP not in config.priority_groups:
        return False
    found = config.filter_subjects or [config.filter_subject]
    return sorted(found) == sorted(filters) and config.priority_policy == "pinned_client"


def _pinned_client(info: ConsumerInfo) -> str:
    """The id of the client that has the pin, "" for none."""
    for each in info.priority_groups:
        if each.group == PRIORITY_GROUP:
            return each.pinned_client_id
    return ""
