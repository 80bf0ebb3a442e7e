# Made of client/aio/groups.py by tools/gen_sync.py: change that file, and run it again.
"""Partitioned consumer groups: their documents, their members, and consuming as one."""

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

from ..consume.pull import Sizes
from ..groups import (
    ELASTIC_BUCKET,
    PRIORITY_GROUP,
    STATIC_BUCKET,
    ElasticGroupConfig,
    MemberMapping,
    StaticGroupConfig,
    assignments,
    check_member,
    decode,
    filters_of,
    key_of,
    static_consumer,
    work_queue,
    work_queue_of,
)
from ..keyvalue.config import KeyValueConfig
from .locks import locked
from .members import GroupIntake, GroupUpkeep
from .operations import Operation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..base.durations import Duration
    from ..base.models import ConsumerConfig
    from ..consume.events import ConsumerEvent
    from .connection import Client
    from .jetstream import JetStream
    from .messages import Message

C = TypeVar("C", bound=StaticGroupConfig | ElasticGroupConfig)

ATTEMPTS = 20
"""How often a change is tried again when others change the group at the same time."""
MESSAGES_MAX = 100
"""Messages that a member buffers, unless it is told a number."""


class GroupMessages(Operation):
    """Messages of a member of a group without end; made by ``consume`` of a group.

    ::

        with group.consume("m1") as messages:
            for message in messages:
                message.ack()

        with group.consume("m1", handle, auto_ack=True) as messages:
            messages.run()  # until a handler calls messages.stop()
    """

    def __init__(
        self,
        group: Group[Any],
        member: str,
        callback: Callable[[Message], object] | None,
        *,
        config: ConsumerConfig | None,
        max_messages: int,
        auto_ack: bool,
        auto_extend: bool | None,
        nak_delay: Duration | None,
        on_status: Callable[[ConsumerEvent], object] | None,
    ) -> None:
        """Made by ``consume``; begins at once."""
        concurrency = 1 if auto_extend and callback is not None else None
        intake = GroupIntake(group, member, config, Sizes(max_messages=max_messages))
        super().__init__(
            GroupUpkeep(group, intake),
            callback,
            concurrency=concurrency,
            auto_ack=auto_ack,
            auto_extend=auto_extend,
            nak_delay=nak_delay,
            on_status=on_status,
        )


class Group(Generic[C]):
    """A handle of a group: what static and elastic ones have in common."""

    bucket: str
    """The bucket with the documents of all groups of this kind."""
    durable: bool
    """Whether the members' consumers stay when nobody consumes."""
    cached_config: C
    """The configuration as it was last read."""
    _kind: type[C]

    def __init__(self, js: JetStream, stream: str, name: str) -> None:
        """``stream``: whose messages the group takes; ValueError for a name that no group can have."""
        self._js = js
        self.client: Client = js.client
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

    def partitions(self) -> dict[str, list[int]]:
        """The partitions of each member, as the configuration said when it was last read."""
        return assignments(self.cached_config)

    @locked
    def step_down(self, member: str) -> None:
        """Take the pin from the client that consumes as this member: another one of the member gets it.

        ConsumerNotFoundError when nobody consumes as this member.
        """
        self._js.unpin_consumer(self.consumer_stream, self.consumer_name(member), PRIORITY_GROUP)

    @locked
    def consume(
        self,
        member: str,
        callback: Callable[[Message], object] | None = None,
        *,
        config: ConsumerConfig | None = None,
        max_messages: int = MESSAGES_MAX,
        auto_ack: bool = False,
        auto_extend: bool | None = None,
        nak_delay: Duration | None = None,
        on_status: Callable[[ConsumerEvent], object] | None = None,
    ) -> GroupMessages:
        """Consume as a member, without end: iterate over the messages, or give a callback.

        Subjects come without the partition. One message after the other is handled; of several clients with
        one member name one consumes, and another one goes on when it ends. The operation follows changes of
        an elastic group: it waits while the member has no partition.

        config: the fields of the member's consumer that the group does not decide. ``ack_wait`` (5 s)
            is also the time after which another client takes over from one that was killed; with
            ``max_ack_pending=1`` messages of a partition keep their order also when one is delivered again.
        max_messages: how many messages are requested and not handled at most. The last of them must
            be handled within the ack wait, unless the wait is extended.
        auto_ack, auto_extend, nak_delay, on_status: as for ``Consumer.consume``.

        Raises ValueError for options that contradict each other or the group. An iteration raises
        GroupChangedError when the configuration was replaced by one that a group can't change to, ConsumerExistsError,
        PermissionsViolationError, and ConnectionClosedError when the client is lost; it ends when the group is deleted.
        """
        return GroupMessages(
            self,
            member,
            callback,
            config=config,
            max_messages=max_messages,
            auto_ack=auto_ack,
            auto_extend=auto_extend,
            nak_delay=nak_delay,
            on_status=on_status,
        )

    # -- the document ------------------------------------------------------------------------------

    def _load(self) -> tuple[C, int]:
        """The configuration now, and its revision."""
        try:
            # From the leader: a change by the revision of a replica that lags behind would be refused.
            bucket = self._js.key_value(self.bucket, direct=False)
        except BucketNotFoundError:
            raise GroupNotFoundError(self.stream, self.name) from None
        entry = bucket.get(self.key)
        if entry is None:
            raise GroupNotFoundError(self.stream, self.name)
        self.cached_config = decode(self._kind, entry.data)
        return self.cached_config, entry.revision

    def _create(self, config: C) -> None:
        """Store the document of a new group; GroupExistsError for one with another configuration."""
        origin = self._js.stream_info(self.stream)
        try:
            bucket = self._js.key_value(self.bucket, direct=False)
        except BucketNotFoundError:
            replicas = origin.config.num_replicas or 1
            bucket = self._js.create_key_value(
                KeyValueConfig(bucket=self.bucket, replicas=replicas)
            )
        try:
            bucket.create(self.key, config.encode())
            self.cached_config = config
        except KeyExistsError:
            found, _ = self._load()
            if found.fixed() != config.fixed():
                raise GroupExistsError(self.stream, self.name) from None

    def _remove(self) -> None:
        """Delete the document: members stop."""
        self._load()
        bucket = self._js.key_value(self.bucket)
        bucket.delete(self.key)


class StaticGroup(Group[StaticGroupConfig]):
    """A static consumer group; made by ``JetStream.static_group`` and ``create_static_group``.

    The stream's subjects begin with the number of a partition, and the members never change. ::

        group = js.create_static_group("ORDERS", "billing", max_members=10, members=["m1", "m2"])
        with group.consume("m1") as messages:
            for message in messages:
                message.ack()
    """

    bucket = STATIC_BUCKET
    durable = True
    _kind = StaticGroupConfig

    @locked
    def config(self) -> StaticGroupConfig:
        """The configuration now; GroupNotFoundError."""
        config, _ = self._load()
        return config

    def consumer_name(self, member: str) -> str:
        """The name of a member's consumer; ValueError for a name without a partition in the group."""
        if not filters_of(self.cached_config, member):
            raise ValueError(f"{member!r} has no partition in group {self.name!r}")
        return super().consumer_name(member)

    @locked
    def active_members(self) -> list[str]:
        """The members that a client consumes as, by name; GroupNotFoundError."""
        config = self.config()
        listed = self._js.consumers(self.stream)
        # Durable consumers stay without clients; only a request that waits shows one.
        waiting = {each.name for each in listed if each.num_waiting}
        members = sorted(assignments(config))
        return [each for each in members if static_consumer(self.name, each) in waiting]

    @locked
    def delete(self) -> None:
        """Delete the group and the consumers of its members; GroupNotFoundError. Members stop."""
        # The document first: members that are still there would create their consumers again.
        self._remove()
        for member in assignments(self.cached_config):
            try:
                self._js.delete_consumer(self.stream, static_consumer(self.name, member))
            except ConsumerNotFoundError:
                continue  # it never consumed


class ElasticGroup(Group[ElasticGroupConfig]):
    """An elastic consumer group; made by ``JetStream.elastic_group`` and ``create_elastic_group``.

    A stream of its own copies the messages of any stream, and members come and go. ::

        filters = [PartitioningFilter("orders.*", [1])]
        group = js.create_elastic_group(
            "ORDERS", "billing", max_members=10, partitioning_filters=filters
        )
        group.add_members("m1", "m2")
        with group.consume("m1") as messages:
            for message in messages:
                message.ack()
    """

    bucket = ELASTIC_BUCKET
    durable = False
    _kind = ElasticGroupConfig

    @locked
    def config(self) -> ElasticGroupConfig:
        """The configuration now; GroupNotFoundError."""
        config, _ = self._load()
        return config

    @locked
    def active_members(self) -> list[str]:
        """The members that a client consumes as, by name; GroupNotFoundError.

        A member stays in the list for its ack wait after its last client has stopped.
        """
        config = self.config()
        names = self._js.consumer_names(self.consumer_stream)
        return sorted(set(names) & set(assignments(config)))

    @locked
    def add_members(self, *names: str) -> list[str]:
        """Add members; returns all members. ValueError for a group with mappings, GroupNotFoundError."""
        for each in names:
            check_member(each)

        def change(config: ElasticGroupConfig) -> None:
            self._check_no_mappings(config)
            config.members = list(dict.fromkeys([*config.members, *names]))

        return list(self._update(change).members)

    @locked
    def drop_members(self, *names: str) -> list[str]:
        """Drop members; returns those that are left. ValueError for a group with mappings, GroupNotFoundError.

        They hand their partitions over when they have finished the message that they handle.
        """

        def change(config: ElasticGroupConfig) -> None:
            self._check_no_mappings(config)
            config.members = [each for each in config.members if each not in names]

        return list(self._update(change).members)

    @locked
    def set_mappings(self, mappings: Sequence[MemberMapping]) -> None:
        """Say which member has which partitions, in place of members; ValueError, GroupNotFoundError."""
        if not mappings:
            raise ValueError("no mappings: delete_mappings removes them")

        def change(config: ElasticGroupConfig) -> None:
            config.members, config.mappings = [], list(mappings)
            # A dataclass checks its fields only when it is made.
            config.__post_init__()

        self._update(change)

    @locked
    def delete_mappings(self) -> None:
        """Remove the mappings: the group has no member then; GroupNotFoundError."""

        def change(config: ElasticGroupConfig) -> None:
            config.mappings = []

        self._update(change)

    @locked
    def delete(self) -> None:
        """Delete the group, its stream and its consumers; GroupNotFoundError. Members stop."""
        self._remove()
        try:
            self._js.delete_stream(self.consumer_stream)
        except StreamNotFoundError:
            return

    def _create(self, config: ElasticGroupConfig) -> None:
        """Store the document and create the group's stream."""
        # Of two callers with different configurations, the document decides before there is a stream.
        super()._create(config)
        origin = self._js.stream_info(self.stream)
        self._js.create_stream(work_queue(origin, self.name, config))

    def _update(self, change: Callable[[ElasticGroupConfig], None]) -> ElasticGroupConfig:
        """Change the document, whatever others change meanwhile; returns what it is now."""
        for attempt in range(ATTEMPTS):
            config, revision = self._load()
            change(config)
            bucket = self._js.key_value(self.bucket)
            try:
                bucket.update(self.key, config.encode(), revision)
            except RevisionConflictError:
                # Another client was faster: the change is made again to what is there now.
                if attempt + 1 == ATTEMPTS:
                    raise
            else:
                break
        return config

    def _check_no_mappings(self, config: ElasticGroupConfig) -> None:
        if config.mappings:
            raise ValueError(f"group {self.name!r} has mappings: change those")
