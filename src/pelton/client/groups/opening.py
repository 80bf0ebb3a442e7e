"""Creating, opening and listing consumer groups: calls of JetStream, as steps.

What a group itself needs is loaded when there is one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pelton.errors import BucketNotFoundError

from ..base.steps import call

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..base.steps import Steps
    from .config import ElasticGroupConfig, StaticGroupConfig
    from .managing import ElasticGroups, StaticGroups

SG = TypeVar("SG", bound="StaticGroups[Any]")
EG = TypeVar("EG", bound="ElasticGroups[Any]")


class ConsumerGroups(ABC, Generic[SG, EG]):
    """The consumer groups of a JetStream."""

    @abstractmethod
    def _group_types(self) -> tuple[Callable[..., SG], Callable[..., EG]]:
        """The classes of the shell's handles, which are loaded for the first one."""

    def _static(self, stream: str, group: str) -> SG:
        """A handle of a static group; ValueError for a name that cannot be."""
        return self._group_types()[0](self, stream, group)

    def _elastic(self, stream: str, group: str) -> EG:
        """A handle of an elastic group; ValueError for a name that cannot be."""
        return self._group_types()[1](self, stream, group)

    def _creating_static(self, stream: str, group: str, config: StaticGroupConfig) -> Steps[SG]:
        """Create a static group of a stream; opens an existing one with the same configuration.

        GroupExistsError for another configuration, StreamNotFoundError, ValueError for a name that cannot be.
        """
        handle = self._static(stream, group)
        yield from handle._creating(config)
        return handle

    create_static_group = call(_creating_static)

    def _opening_static(self, stream: str, group: str) -> Steps[SG]:
        """A static group that exists; GroupNotFoundError."""
        handle = self._static(stream, group)
        yield from handle._loading()
        return handle

    static_group = call(_opening_static)

    def _creating_elastic(self, stream: str, group: str, config: ElasticGroupConfig) -> Steps[EG]:
        """Create an elastic group of a stream, with the stream ``<stream>-<group>`` of its own.

        Opens an existing one with the same configuration, whatever its members are. GroupExistsError for another
        configuration, StreamNotFoundError, StreamExistsError, ValueError for a name that cannot be.
        """
        handle = self._elastic(stream, group)
        yield from handle._creating(config)
        return handle

    create_elastic_group = call(_creating_elastic)

    def _opening_elastic(self, stream: str, group: str) -> Steps[EG]:
        """An elastic group that exists; GroupNotFoundError."""
        handle = self._elastic(stream, group)
        yield from handle._loading()
        return handle

    elastic_group = call(_opening_elastic)

    def _naming_static(self, stream: str) -> Steps[list[str]]:
        """The names of a stream's static groups, in order."""
        from .config import STATIC_BUCKET

        return (yield from self._naming(STATIC_BUCKET, stream))

    static_group_names = call(_naming_static)

    def _naming_elastic(self, stream: str) -> Steps[list[str]]:
        """The names of a stream's elastic groups, in order."""
        from .config import ELASTIC_BUCKET

        return (yield from self._naming(ELASTIC_BUCKET, stream))

    elastic_group_names = call(_naming_elastic)

    def _naming(self: Any, bucket: str, stream: str) -> Steps[list[str]]:
        try:
            handle = yield from self._opening_bucket(bucket)
        except BucketNotFoundError:
            return []
        keys = yield from handle._listing(f"{stream}.*")
        return sorted(key.partition(".")[2] for key in keys)
