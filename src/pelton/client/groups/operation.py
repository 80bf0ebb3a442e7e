"""The operation of a member: consuming from a group without end. Does not depend on a transport."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ..base.message import BaseMessage
from ..consume.operation import Operation
from ..consume.requests import Sizes
from .intake import GroupIntake

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..base.durations import Duration
    from ..base.models import ConsumerConfig
    from ..consume.events import ConsumerEvent
    from .managing import Group

M = TypeVar("M", bound=BaseMessage)

MESSAGES_MAX = 100
"""Messages that a member buffers, unless it is told a number."""


class GroupOperation(Operation[M]):
    """Messages of a member of a group."""

    def __init__(
        self,
        group: Group[M],
        member: str,
        callback: Callable[[M], object] | None = None,
        *,
        config: ConsumerConfig | None = None,
        max_messages: int = MESSAGES_MAX,
        auto_ack: bool = False,
        auto_extend: bool | None = None,
        nak_delay: Duration | None = None,
        on_event: Callable[[ConsumerEvent], object] | None = None,
    ) -> None:
        """Consume as a member, without end: iterate over the messages, or give a callback.

        Subjects come without the partition. One message after the other is handled; of several clients with
        one member name one consumes, and another one goes on when it ends. The operation follows changes of
        an elastic group: it waits while the member has no partition.

        config: the fields of the member's consumer that the group does not decide. ``ack_wait`` (5 s)
            is also the time after which another client takes over from one that was killed; with
            ``max_ack_pending=1`` messages of a partition keep their order also when one is delivered again.
        max_messages: how many messages are requested and not handled at most. The last of them must
            be handled within the ack wait, unless the wait is extended.
        auto_ack, auto_extend, nak_delay, on_event: as for ``Consumer.consume``.

        Raises ValueError for options that contradict each other or the group. An iteration raises
        GroupChangedError when the configuration was replaced by one that a group can't change to, ConsumerExistsError,
        PermissionsViolationError, and ConnectionClosedError when the client is lost; it ends when the group is deleted.
        """
        concurrency = 1 if auto_extend and callback is not None else None
        self._check(callback, concurrency, auto_ack, auto_extend, nak_delay)
        sizes = Sizes(max_messages=max_messages)
        super().__init__(
            GroupIntake(group, member, config, sizes),
            callback,
            concurrency=concurrency,
            auto_ack=auto_ack,
            auto_extend=auto_extend,
            nak_delay=nak_delay,
            on_event=on_event,
        )
