"""The consumers that a reader makes for itself, one after another, and removes.

Each has a name that the client chooses, so that it can be removed also when the answer to its creation
is lost. Knows no transport.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from penstock.errors import ApiError, NoResponders, PenstockError

if TYPE_CHECKING:
    from .jetstream import Plans
    from .models import ConsumerConfig, ConsumerInfo
    from .session import Session
    from .steps import Steps

MADE_MAX = 100
"""The most consumers of one reader that are remembered to be removed."""


class OwnConsumers:
    """Consumers of one reader on one stream."""

    def __init__(
        self, client: Session[Any], plans: Plans, stream: str, name_prefix: str = ""
    ) -> None:
        """None is made yet. Names begin with ``<name_prefix>_`` when a prefix is given."""
        self._client = client
        self._plans = plans
        self._stream = stream
        self._prefix = f"{name_prefix}_" if name_prefix else ""
        self._made: list[str] = []  # the server may have them: that in use, and doubtful ones

    def creating(self, config: ConsumerConfig) -> Steps[ConsumerInfo]:
        """Create the next consumer."""
        name = self._prefix + self._client.new_id()
        self._made.append(name)
        del self._made[:-MADE_MAX]
        try:
            return (
                yield from self._plans.create_consumer(self._stream, replace(config, name=name))
            )
        except (ApiError, NoResponders) as error:
            if not isinstance(error, ApiError) or error.code < 500:
                self._made.remove(name)  # it was not made
            raise

    def removing(self, keep: str = "") -> Steps[None]:
        """Remove every consumer but ``keep`` that the server may have.

        Ends when the connection is lost: the next call goes on. What is never removed the server removes
        itself, when it has been inactive for a while.
        """
        for name in [name for name in self._made if name != keep]:
            if not self._client.connection.connected:
                return
            try:
                yield from self._plans.delete_consumer(self._stream, name)
            except ApiError as error:
                if error.code >= 500:
                    continue
            except PenstockError:
                if not self._client.connection.connected:
                    return
                continue
            if name in self._made:
                self._made.remove(name)
