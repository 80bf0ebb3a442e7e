# Made of client/aio/consumergroups.py by tools/gen_sync.py: change that file, and run it again.
"""Creating, opening and listing consumer groups: calls of JetStream.

What a group itself needs is loaded when there is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack, cast

from pelton.errors import BucketNotFoundError

from .locks import locked
from .management import Management

if TYPE_CHECKING:
    from ..groups import (
        ElasticGroupConfig,
        ElasticGroupFields,
        StaticGroupConfig,
        StaticGroupFields,
    )
    from .groups import ElasticGroup, StaticGroup
    from .jetstream import JetStream


class ConsumerGroups(Management):
    """The consumer groups of a JetStream."""

    @locked
    def create_static_group(
        self,
        stream: str,
        group: str,
        config: StaticGroupConfig | None = None,
        **fields: Unpack[StaticGroupFields],
    ) -> StaticGroup:
        """Create a static group of a stream; opens an existing one with the same configuration.

        Give a configuration, or its fields. GroupExistsError for another configuration, StreamNotFoundError,
        ValueError for a name that cannot be.
        """
        from ..groups import StaticGroupConfig, config_of

        handle = self._static(stream, group)
        handle._create(config_of(StaticGroupConfig, config, fields))
        return handle

    @locked
    def static_group(self, stream: str, group: str) -> StaticGroup:
        """A static group that exists; GroupNotFoundError."""
        handle = self._static(stream, group)
        handle.config()
        return handle

    @locked
    def static_group_names(self, stream: str) -> list[str]:
        """The names of a stream's static groups, in order."""
        from ..groups import STATIC_BUCKET

        return self._names_in(STATIC_BUCKET, stream)

    @locked
    def create_elastic_group(
        self,
        stream: str,
        group: str,
        config: ElasticGroupConfig | None = None,
        **fields: Unpack[ElasticGroupFields],
    ) -> ElasticGroup:
        """Create an elastic group of a stream, with the stream ``<stream>-<group>`` of its own.

        Give a configuration, or its fields. Opens an existing group with the same configuration, whatever its
        members are. GroupExistsError for another configuration, StreamNotFoundError, StreamExistsError, ValueError for
        a name that cannot be.
        """
        from ..groups import ElasticGroupConfig, config_of

        handle = self._elastic(stream, group)
        handle._create(config_of(ElasticGroupConfig, config, fields))
        return handle

    @locked
    def elastic_group(self, stream: str, group: str) -> ElasticGroup:
        """An elastic group that exists; GroupNotFoundError."""
        handle = self._elastic(stream, group)
        handle.config()
        return handle

    @locked
    def elastic_group_names(self, stream: str) -> list[str]:
        """The names of a stream's elastic groups, in order."""
        from ..groups import ELASTIC_BUCKET

        return self._names_in(ELASTIC_BUCKET, stream)

    def _static(self, stream: str, group: str) -> StaticGroup:
        from .groups import StaticGroup

        return StaticGroup(cast("JetStream", self), stream, group)

    def _elastic(self, stream: str, group: str) -> ElasticGroup:
        from .groups import ElasticGroup

        return ElasticGroup(cast("JetStream", self), stream, group)

    def _names_in(self, bucket: str, stream: str) -> list[str]:
        from ..groups import check_texts

        check_texts(stream=stream)
        try:
            handle = cast("JetStream", self).key_value(bucket)
        except BucketNotFoundError:
            return []
        keys = handle.keys(f"{stream}.*")
        return sorted(key.partition(".")[2] for key in keys)
