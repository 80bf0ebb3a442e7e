"""Opening consumers that exist: calls of JetStream, as steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from ..base.steps import call

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..base.steps import Steps
    from ..plans.management import ManagementPlans

C = TypeVar("C")
PC = TypeVar("PC")


class Consumers(Generic[C, PC]):
    """The consumers of a JetStream; ``C`` and ``PC`` are the shell's handles of them."""

    _plans: ManagementPlans
    _consumer_type: Callable[..., C]
    _push_consumer_type: Callable[..., PC]

    def _opening_consumer(self, stream: str, name: str) -> Steps[C]:
        """A pull consumer that exists, for ``next``, ``fetch`` and ``consume``.

        Raises ConsumerNotFoundError, StreamNotFoundError, and ValueError for a push consumer.
        """
        return self._consumer_type(self, (yield from self._plans.consumer_info(stream, name)))

    def _opening_push_consumer(self, stream: str, name: str) -> Steps[PC]:
        """A push consumer that exists, for ``consume``.

        Raises ConsumerNotFoundError, StreamNotFoundError, and ValueError for a pull consumer.
        """
        return self._push_consumer_type(self, (yield from self._plans.consumer_info(stream, name)))

    consumer = call(_opening_consumer)
    push_consumer = call(_opening_push_consumer)
