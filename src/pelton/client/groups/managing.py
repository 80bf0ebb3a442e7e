"""Creating, changing and deleting a consumer group, as steps. Does not depend on a transport."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pelton.errors import (
    BucketNotFoundError,
    ConsumerNotFoundError,
    GroupExistsError,
    GroupNotFoundError,
    KeyExistsError,
    RevisionConflictError,
    StreamNotFoundError,
)

from ..base.message import BaseMessage
from ..base.steps import call
from ..keyvalue.config import KeyValueConfig
from .config import (
    ELASTIC_BUCKET,
    STATIC_BUCKET,
    ElasticGroupConfig,
    MemberMapping,
    StaticGroupConfig,
    check_member,
    decode,
    key_of,
    static_consumer,
    work_queue_of,
)
from .partitions import PRIORITY_GROUP, assignments, filters_of, work_queue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..base.steps import Steps
    from ..keyvalue.bucket import Bucket
    from ..session.session import Session
    from .config import GroupConfig

M = TypeVar("M", bound=BaseMessage)
ATTEMPTS = 20
"""How often a change is tried again when others change the group at the same time."""


class Group(Generic[M]):
    """A handle of a group: what static and elastic ones have in common."""

    bucket: str
    """The bucket with the documents of all groups of this kind."""
    durable: bool
    """Whether the members' consumers stay when nobody consumes."""
    _kind: type[Any]
    cached_config: GroupConfig

    def __init__(self, js: Any, stream: str, name: str) -> None:
        """``stream``: whose messages the group takes; ValueError for a name that no group can have."""
        self._js = js
        self.client: Session[M] = js.client
        """The client that it belongs to."""
        self.stream = stream
        """The name of the stream."""
        self.name = name
        """The name of the group."""
        self.key = key_of(stream, name)
        """The key of the group's document."""

    def __repr__(self) -> str:
        """Group and stream."""
        return f"<{type(self).__name__} {self.name!r} of stream {self.stream!r}>"

    @property
    def consumer_stream(self) -> str:
        """The stream that members consume from."""
        return self.stream if self.durable else work_queue_of(self.stream, self.name)

    def consumer_name(self, member: str) -> str:
        """The name of a member's consumer; ValueError for a name that no member can have."""
        check_member(member)
        return static_consumer(self.name, member) if self.durable else member

    # -- the document ------------------------------------------------------------------------------

    def _loading(self) -> Steps[tuple[Any, int]]:
        """The configuration now, and its revision."""
        try:
            bucket = yield from self._js._opening_bucket(self.bucket, direct=False)
        except BucketNotFoundError:
            raise GroupNotFoundError(self.stream, self.name) from None
        entry = yield from bucket._getting(self.key)
        if entry is None:
            raise GroupNotFoundError(self.stream, self.name)
        self.cached_config = decode(self._kind, entry.data)
        return self.cached_config, entry.revision

    def _creating(self, config: Any) -> Steps[None]:
        """Store the document of a new group; GroupExistsError for one with another configuration."""
        origin = yield from self._js._plans.stream_info(self.stream)
        try:
            bucket = yield from self._js._opening_bucket(self.bucket, direct=False)
        except BucketNotFoundError:
            replicas = origin.config.num_replicas
            bucket = yield from self._js._creating_bucket(
                KeyValueConfig(bucket=self.bucket, replicas=replicas or 1)
            )
        try:
            yield from bucket._creating(self.key, config.encode())
            self.cached_config = config
        except KeyExistsError:
            found, _ = yield from self._loading()
            if self._differs(found, config):
                raise GroupExistsError(self.stream, self.name) from None

    def _differs(self, found: Any, config: Any) -> bool:
        return bool(found != config)

    def _removing(self) -> Steps[None]:
        """Delete the document: members stop."""
        bucket: Bucket[bytes] = yield from self._js._opening_bucket(self.bucket)
        yield from bucket._deleting(self.key)

    # -- calls of both kinds -----------------------------------------------------------------------

    def _stepping_down(self, member: str) -> Steps[None]:
        """Take the pin from the client that consumes as this member: another one of the member gets it.

        ConsumerNotFoundError when nobody consumes as this member.
        """
        yield from self._js._plans.unpin_consumer(
            self.consumer_stream, self.consumer_name(member), PRIORITY_GROUP
        )

    step_down = call(_stepping_down)

    def partitions(self) -> dict[str, list[int]]:
        """The partitions of each member, as the configuration said when it was last read."""
        return assignments(self.cached_config)


class StaticGroups(Group[M]):
    """A static group: the stream has the partition as the first token of its subjects."""

    bucket = STATIC_BUCKET
    durable = True
    _kind = StaticGroupConfig
    cached_config: StaticGroupConfig
    """The configuration as it was last read."""

    def _configuring(self) -> Steps[StaticGroupConfig]:
        """The configuration now; GroupNotFoundError."""
        config: StaticGroupConfig
        config, _ = yield from self._loading()
        return config

    config = call(_configuring)

    def consumer_name(self, member: str) -> str:
        """The name of a member's consumer; ValueError for a name without a partition in the group."""
        if not filters_of(self.cached_config, member):
            raise ValueError(f"{member!r} has no partition in group {self.name!r}")
        return super().consumer_name(member)

    def _counting_active(self) -> Steps[list[str]]:
        """The members that a client consumes as, by name; GroupNotFoundError."""
        yield from self._loading()
        listed = yield from self._js._plans.consumers(self.stream)
        waiting = {each.name for each in listed if each.num_waiting}
        members = sorted(assignments(self.cached_config))
        return [each for each in members if static_consumer(self.name, each) in waiting]

    active_members = call(_counting_active)

    def _destroying(self) -> Steps[None]:
        """Delete the group and the consumers of its members; GroupNotFoundError. Members stop."""
        yield from self._loading()
        yield from self._removing()
        for member in assignments(self.cached_config):
            try:
                yield from self._js._plans.delete_consumer(
                    self.stream, static_consumer(self.name, member)
                )
            except ConsumerNotFoundError:
                continue  # it never consumed

    delete = call(_destroying)


class ElasticGroups(Group[M]):
    """An elastic group: a stream of its own copies messages, with the partition in the subject."""

    bucket = ELASTIC_BUCKET
    durable = False
    _kind = ElasticGroupConfig
    cached_config: ElasticGroupConfig
    """The configuration as it was last read."""

    def _differs(self, found: Any, config: Any) -> bool:
        return bool(found.fixed() != config.fixed())

    def _creating(self, config: Any) -> Steps[None]:
        """Store the document and create the group's stream."""
        yield from super()._creating(config)
        origin = yield from self._js._plans.stream_info(self.stream)
        yield from self._js._plans.create_stream(work_queue(origin, self.name, config))

    def _configuring(self) -> Steps[ElasticGroupConfig]:
        """The configuration now; GroupNotFoundError."""
        config: ElasticGroupConfig
        config, _ = yield from self._loading()
        return config

    config = call(_configuring)

    def _counting_active(self) -> Steps[list[str]]:
        """The members that a client consumes as, by name; GroupNotFoundError.

        A member stays in the list for its ack wait after its last client has stopped.
        """
        yield from self._loading()
        names = yield from self._js._plans.consumer_names(self.consumer_stream)
        return sorted(set(names) & set(assignments(self.cached_config)))

    active_members = call(_counting_active)

    def _updating(self, change: Callable[[ElasticGroupConfig], None]) -> Steps[None]:
        """Change the document, whatever others change meanwhile."""
        bucket: Bucket[bytes]
        for attempt in range(ATTEMPTS):
            config, revision = yield from self._loading()
            change(config)
            bucket = yield from self._js._opening_bucket(self.bucket)
            try:
                yield from bucket._updating(self.key, config.encode(), revision)
            except RevisionConflictError:
                if attempt + 1 == ATTEMPTS:
                    raise
            else:
                return

    def _adding_members(self, *names: str) -> Steps[list[str]]:
        """Add members; returns all members. ValueError for a group with mappings, GroupNotFoundError."""
        for each in names:
            check_member(each)

        def change(config: ElasticGroupConfig) -> None:
            if config.mappings:
                raise ValueError(f"group {self.name!r} has mappings: change those")
            config.members = list(dict.fromkeys([*config.members, *names]))

        yield from self._updating(change)
        return list(self.cached_config.members)

    add_members = call(_adding_members)

    def _dropping_members(self, *names: str) -> Steps[list[str]]:
        """Drop members; returns those that are left. ValueError for a group with mappings, GroupNotFoundError.

        They hand their partitions over when they have finished the message that they handle.
        """

        def change(config: ElasticGroupConfig) -> None:
            if config.mappings:
                raise ValueError(f"group {self.name!r} has mappings: change those")
            config.members = [each for each in config.members if each not in names]

        yield from self._updating(change)
        return list(self.cached_config.members)

    drop_members = call(_dropping_members)

    def _mapping(self, mappings: Sequence[MemberMapping]) -> Steps[None]:
        """Say which member has which partitions, in place of members; ValueError, GroupNotFoundError."""
        if not mappings:
            raise ValueError("no mappings: delete_mappings removes them")

        def change(config: ElasticGroupConfig) -> None:
            config.members, config.mappings = [], list(mappings)
            config.__post_init__()

        yield from self._updating(change)

    set_mappings = call(_mapping)

    def _unmapping(self) -> Steps[None]:
        """Remove the mappings: the group has no member then; GroupNotFoundError."""

        def change(config: ElasticGroupConfig) -> None:
            config.mappings = []

        yield from self._updating(change)

    delete_mappings = call(_unmapping)

    def _destroying(self) -> Steps[None]:
        """Delete the group, its stream and its consumers; GroupNotFoundError. Members stop."""
        yield from self._loading()
        yield from self._removing()
        try:
            yield from self._js._plans.delete_stream(self.consumer_stream)
        except StreamNotFoundError:
            return

    delete = call(_destroying)
