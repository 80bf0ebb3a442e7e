"""The rules of a server for streams and consumers, for plans: what breaks one is refused before the first change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pelton.api.errors import ApiError
from pelton.api.errors_generated import (
    MaximumStreamsLimitError,
    MemoryResourcesExceededError,
    StorageResourcesExceededError,
)
from pelton.engine.base.settings import NO_CAPS, StreamCaps
from pelton.engine.config import consumer_config, stream_config
from pelton.engine.sources.checks import bad_filter

if TYPE_CHECKING:
    from pelton.api import ConsumerConfig, StreamConfig
    from pelton.client.sync.jetstream import JetStream
    from pelton.engine.sources.checks import Find


class ServerRules:
    """Implements `pelton.apply.planning.Rules` with the functions of the engine, for one plan."""

    def __init__(self, jetstream: JetStream, *, prune: bool) -> None:
        """Ask for the limits of the account. `prune`: deletions may make room."""
        info, server = jetstream.account_info(), jetstream.client.server_info
        # another server may answer for another domain
        here = server.jetstream and server.domain == info.domain
        self._single = here and not server.cluster
        self._limits = None if info.tiers else info.limits
        self._counted = not prune and self._limits is not None
        self._streams = info.streams
        self._reserved = {"memory": info.reserved_memory, "file": info.reserved_storage}

    def stream(self, config: StreamConfig, now: StreamConfig | None, find: Find) -> str:
        """See Rules."""
        caps, limits = NO_CAPS, self._limits
        if limits is not None:
            memory = config.storage == "memory"
            most = limits.memory_max_stream_bytes if memory else limits.storage_max_stream_bytes
            caps = StreamCaps(limits.max_bytes_required, max(most, 0))
        try:
            config = stream_config.checked(config, find=find, caps=caps)
            if self._single:
                stream_config.check_replicas_supported(config)
            if self._counted:
                self._count(config, now)
        except ApiError as error:
            return error.description
        return bad_filter(config)

    def _count(self, config: StreamConfig, now: StreamConfig | None) -> None:
        """Raise ApiError for a stream, or reserved bytes, beyond the account's limits."""
        limits, kind = self._limits, config.storage
        assert limits is not None
        if now is None:
            if 0 < limits.max_streams <= self._streams:
                raise MaximumStreamsLimitError()
            self._streams += 1
        same = now is not None and now.storage == kind
        more = max(config.max_bytes, 0) - (max(now.max_bytes, 0) if now and same else 0)
        most = limits.max_memory if kind == "memory" else limits.max_storage
        if more > 0 and 0 <= most < self._reserved[kind] + more:
            refused = (
                MemoryResourcesExceededError if kind == "memory" else StorageResourcesExceededError
            )
            raise refused()
        self._reserved[kind] += more

    def consumer(self, config: ConsumerConfig, stream: StreamConfig) -> str:
        """See Rules."""
        try:
            if self._single:
                consumer_config.check_replicas_supported(config)
            consumer_config.check(consumer_config.with_defaults(config, stream), stream)
        except ApiError as error:
            return error.description
        return ""
