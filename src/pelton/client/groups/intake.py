"""One member's messages: joins its group, follows the group's document, hands partitions over.

::

    document changes ──► other filters ──► finish what is being handled ──► delete the consumer ──► join
                                                                                                 │
    no partition: wait for the next document ◄── create the consumer ◄── other members still have them

A member that gets other partitions needs a new consumer, because the old one may be past messages of
them. Only the client with the pin deletes the old consumer, and only when its handlers have returned and
the server has their acks. The server refuses a consumer while another one has the same partitions
(10100), so no two members have one partition, and joining is tried again until it succeeds.

Does not depend on a transport; the client's clock is the only time.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from pelton.errors import (
    ApiError,
    ConsumerExistsError,
    ConsumerNotFoundError,
    GroupChangedError,
    PeltonError,
    ProtocolError,
    StreamNotFoundError,
)

from ..base.models import ConsumerInfo
from ..base.steps import RETRY_S, Until
from ..consume.intake import Intake, raise_lasting
from ..consume.pulled import PullIntake
from ..consume.requests import Asking
from .config import ElasticGroupConfig, decode
from .partitions import PRIORITY_GROUP, SECOND_NS, filters_of, member_consumer
from .watching import DocumentWatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..base.message import BaseMessage
    from ..base.models import ConsumerConfig
    from ..base.steps import Steps
    from ..consume.requests import Sizes
    from .config import GroupConfig
    from .managing import Group

PARTITION_TAKEN = 10100
"""Error code: another consumer of the work queue has one of the filters."""
AGAIN_S = 0.25
"""When to try again to join while others have the partitions."""
STEP_BACK_S = 0.4
"""How long a client without the pin leaves a changed consumer to the others of its member."""
ACKS_S = 1.0
"""How long the server may take to process the last acks."""
LOOK_S = 0.02


def never() -> bool:
    """The condition of a wait that only lets time pass."""
    return False


class GroupIntake(PullIntake):
    """The messages of a member of a group."""

    def __init__(
        self, group: Group[Any], member: str, template: ConsumerConfig | None, sizes: Sizes
    ) -> None:
        """``template`` has the fields of the consumer that the group does not decide; ValueError."""
        self._group = group
        self._member = member
        self._template = template
        self._config: GroupConfig = group.cached_config
        self._wanted = self._consumer(filters_of(self._config, member))
        ack_wait = int(self._wanted.ack_wait)
        sizes.expires_ns = min(sizes.expires_ns, max(ack_wait // 2, SECOND_NS))
        sizes.heartbeat_ns = min(sizes.heartbeat_ns, sizes.expires_ns // 2)
        info = ConsumerInfo(
            stream_name=group.consumer_stream, name=self._wanted.name, config=self._wanted
        )
        asking = Asking(self._wanted, {}, group=PRIORITY_GROUP)
        super().__init__(group._js, info, asking, sizes, "wait")
        self._document = DocumentWatch(group._js, group.bucket, group.key, self._stir)
        self._joined = False
        self._wants = False  # whether there are partitions to join for
        self._join_at = -math.inf
        self._stepped_back = False
        self._ack_wait_s = ack_wait / 1e9
        self._nudge_due = math.inf
        self._dropped: list[BaseMessage] | None = None  # during a hand-over

    def _consumer(self, filters: list[str]) -> ConsumerConfig:
        name = self._group.consumer_name(self._member)
        return member_consumer(self._template, name, filters, durable=self._group.durable)

    def begin(self) -> None:
        """Subscribe; the first turn joins."""
        Intake.begin(self)
        self.flowing = False

    # -- messages ----------------------------------------------------------------------------------

    def keep(self, message: BaseMessage) -> None:
        """Take the partition out of the subject, and add the message to the queue."""
        message.subject = message.subject.partition(".")[2]
        if self._dropped is not None:
            self._dropped.append(message)
            self.held -= 1
            return
        super().keep(message)

    def pull(self) -> bool:
        """Request messages if it is time."""
        if self._dropped is not None:
            self._stir()  # a message was handled
        return super().pull()

    def request(self, amount: int) -> bool:
        """Request messages; the server keeps the pin of a client that asks for some."""
        queued = super().request(amount)
        if queued:
            self._nudge_due = self.client._clock() + self._ack_wait_s / 3
        return queued

    def _end_taking(self) -> None:
        super()._end_taking()
        self._document.close()

    # -- turns -------------------------------------------------------------------------------------

    def after_loss(self, why: PeltonError) -> None:
        """The connection broke: look at the document again, and go on."""
        self._document._reopen()
        if self._joined:
            super().after_loss(why)

    def recovering(self, why: Exception) -> Steps[None]:
        """The consumer does not answer: join again."""
        self._doubt = None
        self._give_up()
        self._joined = False
        self._join_at = -math.inf
        yield from ()

    def _turn(self, done: Callable[[], bool], seconds: float) -> Steps[None]:
        document, clock = self._document, self.client._clock
        if not self._ending:
            document.check()
            if not document.is_open:
                yield from self._opening()
            if document.news and not self._is_ending():
                yield from self._changing(document.take())
            if self._wants and not self._joined and clock() >= self._join_at:
                yield from self._joining()
            if self._joined and clock() >= self._nudge_due:
                self.request(1)
        if self.finished:
            return
        due = min(document.due, self._nudge_due if self._joined else math.inf)
        if not document.is_open:
            due = clock() + RETRY_S
        if self._wants and not self._joined:
            due = min(due, self._join_at)

        def news() -> bool:
            return done() or document.news or not document.is_open

        waits = done if not document.is_open else news
        yield from super()._turn(waits, max(0.0, min(seconds, due - clock())))

    def _opening(self) -> Steps[None]:
        """Watch the group's document."""
        try:
            yield from self._document.opening()
        except StreamNotFoundError as error:
            self.events.emit("stream_not_found", str(error), name=self._group.bucket)
        except PeltonError as error:
            raise_lasting(error)

    # -- the document ------------------------------------------------------------------------------

    def _changing(self, value: bytes | None) -> Steps[None]:
        """Follow a new version of the document."""
        group = self._group
        if value is None:
            yield from self._leaving_for_good("the group was deleted")
            self.events.emit("group_deleted", name=self._member)
            self.stop()
            return
        try:
            config = decode(type(self._config), value)
        except ProtocolError as error:
            yield from self._leaving_for_good(str(error))
            raise GroupChangedError(group.stream, group.name, str(error)) from error
        if isinstance(config, ElasticGroupConfig) and isinstance(self._config, ElasticGroupConfig):
            same = config.fixed() == self._config.fixed()
        else:
            same = config == self._config
        if not same:
            yield from self._leaving_for_good("the configuration of the group changed")
            raise GroupChangedError(group.stream, group.name, "its configuration changed")
        self._config = group.cached_config = config
        wanted = self._consumer(filters_of(config, self._member))
        changed = wanted.filter_subjects != self._wanted.filter_subjects
        if changed and self._joined:
            yield from self._handing_over()
        self._wanted = wanted
        had, self._wants = self._wants, bool(wanted.filter_subjects)
        self._stepped_back = self._stepped_back and not changed
        if had and not self._wants:
            self.events.emit("group_left", name=self._member)

    def _leaving_for_good(self, why: str) -> Steps[None]:
        """Consume nothing more; the consumer of a static group is deleted."""
        if self._joined and self._group.durable:
            self.flowing = False
            try:
                info = yield from self._plans.consumer_info(self.stream, self.info.name)
                if _has_filters(info, self._wanted.filter_subjects):
                    yield from self._plans.delete_consumer(self.stream, self.info.name)
            except PeltonError:
                pass  # another client of this member deletes it
        self._joined = self._wants = False
        self.events.emit("reset", why)

    # -- joining -----------------------------------------------------------------------------------

    def _joining(self) -> Steps[None]:
        """Create the member's consumer, or use it if it is as it should be."""
        wanted = self._wanted
        try:
            try:
                info = yield from self._plans.create_consumer(self.stream, wanted, action="create")
            except ConsumerExistsError as error:
                found = yield from self._replacing(wanted, error)
                if found is None:
                    return
                info = found
        except ApiError as error:
            self._join_at = self.client._clock() + AGAIN_S
            if error.err_code == PARTITION_TAKEN:
                self.events.emit("group_waiting", str(error), name=self._member)
            elif isinstance(error, StreamNotFoundError):  # of a group that is being deleted
                self.events.emit("stream_not_found", str(error), name=self._wanted.name)
            else:
                raise_lasting(error)
            return
        except PeltonError as error:
            self._join_at = self.client._clock() + AGAIN_S
            raise_lasting(error)
            return
        self._joined = True
        self._stepped_back = False
        self.fit(info)
        self.flowing = True
        self._give_up()
        self.pull()
        self.events.emit("group_joined", " ".join(wanted.filter_subjects), name=self._member)

    def _replacing(
        self, wanted: ConsumerConfig, error: ConsumerExistsError
    ) -> Steps[ConsumerInfo | None]:
        """The consumer exists with another configuration: use or replace it; None to try again."""
        try:
            info = yield from self._plans.consumer_info(self.stream, wanted.name)
        except ConsumerNotFoundError:
            return None
        if _has_filters(info, wanted.filter_subjects):
            return info  # of a client with other times
        if self._group.durable:
            raise error
        now = self.client._clock()
        pinned = _pinned_client(info)
        if pinned and pinned != self.asking.pin:
            self._join_at = now + AGAIN_S  # the client with the pin replaces it
            self.events.emit("group_waiting", "another client has the pin", name=self._member)
            return None
        if not self._stepped_back:
            self._stepped_back = True
            self._join_at = now + STEP_BACK_S + (hash(self._own) % 100) / 1e3
            return None
        yield from self._deleting(wanted.name)
        return (yield from self._plans.create_consumer(self.stream, wanted, action="create"))

    def _deleting(self, name: str) -> Steps[None]:
        try:
            yield from self._plans.delete_consumer(self.stream, name)
        except ConsumerNotFoundError:
            return

    # -- handing over ------------------------------------------------------------------------------

    def _handing_over(self) -> Steps[None]:
        """Finish what is being handled, forget what is buffered, and delete the consumer."""
        self.flowing = self._joined = False
        dropped: list[BaseMessage] = list(self.queue)
        self.queue.clear()
        self.held -= len(dropped)
        self._dropped = dropped
        self._give_up()
        try:
            yield Until(self, self._is_idle, math.inf if self.extension.on else self._ack_wait_s)
            if (yield from self._has_pin()):
                yield from self._deleting(self.info.name)
            else:
                for each in dropped:
                    self.acks.give_back(each)
                self._join_at = self.client._clock() + STEP_BACK_S
        except ConsumerNotFoundError:
            pass  # another client of this member deleted it
        finally:
            self._dropped = None
            self._give_up()
            self.asking.unpin()

    def _is_idle(self) -> bool:
        """Whether no message is being handled, or the operation ends."""
        handled = self.held <= self.expected and not self.handling
        return handled or self._is_ending()

    def _has_pin(self) -> Steps[bool]:
        """Whether no other client of the member has the pin; waits until the acks are processed."""
        deadline = self.client._clock() + ACKS_S
        while True:
            info = yield from self._plans.consumer_info(self.stream, self.info.name)
            pinned = _pinned_client(info)
            if pinned and pinned != self.asking.pin:
                return False
            waiting = info.num_ack_pending > len(self._dropped or ())
            if not waiting or self.client._clock() >= deadline:
                return True
            yield Until(self, self._is_ending, LOOK_S)

    # -- the end -----------------------------------------------------------------------------------

    def _closing(self) -> Steps[None]:
        """End the subscription; with nothing left to handle, give the pin to another client."""
        self.flowing = False
        idle = not self.queue and not self.handling
        stopped = self._ending == "stop"
        connection = self.client._connection
        try:
            connection.drain(self._interest)
            if connection.connected:
                yield from self.client._flushing()
                if self._joined and self.asking.pin and idle and (stopped or self.held <= 0):
                    yield from self._plans.unpin_consumer(
                        self.stream, self.info.name, PRIORITY_GROUP
                    )
                yield from self._document.closing()
        except PeltonError:
            pass  # what was on its way is delivered again, and the pin expires
        finally:
            self._finish()


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
