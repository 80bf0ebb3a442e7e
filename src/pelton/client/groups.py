"""Partitioned consumer groups: the members of a group share the partitions of a stream.

Messages of one partition go to one member, in order. Here are the configurations with their JSON in a bucket,
the names, and which member has which partitions, without I/O; ``aio/groups.py`` has the groups themselves, and
``aio/members.py`` the messages of a member. Documents, names and consumers are those of orbit's ``pcgroups``
package, the documents byte by byte, so members of both may be in one group.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypedDict, TypeVar

import msgspec
from msgspec.structs import replace

from pelton.errors import ProtocolError

from .base.arguments import refuse
from .base.durations import Nanoseconds, to_nanoseconds
from .base.models import ConsumerConfig, StreamConfig, StreamInfo, StreamSource, SubjectTransform

STATIC_BUCKET = "static-consumer-groups"
ELASTIC_BUCKET = "elastic-consumer-groups"
PRIORITY_GROUP = "PCG"
SECOND_NS = 1_000_000_000
ACK_WAIT_NS = 5 * SECOND_NS
"""The ack wait of members that name none."""

_GROUP = re.compile(r"[A-Za-z0-9_=-]+")
_NO_MEMBER = re.compile(r"[\s.*>/\\\x00-\x1f\x7f]")
# What Go's encoder escapes in strings so that they can stand in HTML and JavaScript.
_GO_ESCAPES = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}


@dataclass(slots=True)
class MemberMapping:
    """The partitions of one member: ``MemberMapping("m1", [0, 1])``.

    Example::

        StaticGroupConfig(max_members=3, mappings=[MemberMapping("m1", [0, 1]), MemberMapping("m2", [2])])
    """

    member: str
    partitions: list[int]


@dataclass(slots=True)
class PartitioningFilter:
    """Which messages an elastic group takes, and which tokens of their subjects are the key.

    Example::

        ElasticGroupConfig(max_members=4, partitioning_filters=[PartitioningFilter("orders.*", [1])])

    filter: a subject with at least one ``*``, or ``>`` at its end.
    wildcards: the numbers, from 1, of the ``*`` that are the key; empty for the whole subject.

    ``PartitioningFilter("orders.*.*", [1])`` keeps the order of all messages with the same second token.
    """

    filter: str
    wildcards: list[int] = field(default_factory=list)


@dataclass(kw_only=True, slots=True)
class StaticGroupConfig:
    """The configuration of a static group. It never changes.

    Give members, which share the partitions evenly, or mappings. ValueError for a configuration that no
    group can have::

        StaticGroupConfig(max_members=10, members=["m1", "m2"])

    max_members: the number of partitions: the first token of every subject is a number below it.
    filters: the subjects after that token to take; empty for all. They apply to members only:
        a mapping takes whole partitions.
    members: the names of the members.
    mappings: the partitions of each member; every partition once.
    """

    max_members: int
    filters: list[str] = field(default_factory=list)
    members: list[str] = field(default_factory=list)
    mappings: list[MemberMapping] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Check the fields."""
        check_members(self.max_members, self.members, self.mappings)

    def fixed(self) -> tuple[object, ...]:
        """The fields that never change: all of them."""
        mappings = [(each.member, each.partitions) for each in self.mappings]
        return self.max_members, self.filters, self.members, mappings

    def encode(self) -> bytes:
        """The document."""
        document: dict[str, Any] = {"max_members": self.max_members}
        if self.filters:
            document["filters"] = self.filters
        return _encode(document, self.members, self.mappings)


@dataclass(kw_only=True, slots=True)
class ElasticGroupConfig:
    """The configuration of an elastic group. Only members and mappings change.

    ValueError for a configuration that no group can have::

        ElasticGroupConfig(max_members=10, partitioning_filters=[PartitioningFilter("orders.*", [1])])

    max_members: the number of partitions, and of members that have one.
    partitioning_filters: which messages the group takes, and their keys; empty for all messages,
        with the whole subject as the key.
    max_buffered_msgs: messages that wait in the group's own stream at most; 0 for no limit.
    max_buffered_bytes: bytes that wait there at most; 0 for no limit.
    members: the names of the members, which share the partitions evenly.
    mappings: the partitions of each member instead; every partition once.
    """

    max_members: int
    partitioning_filters: list[PartitioningFilter] = field(default_factory=list)
    max_buffered_msgs: int = 0
    max_buffered_bytes: int = 0
    members: list[str] = field(default_factory=list)
    mappings: list[MemberMapping] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Check the fields."""
        for each in self.partitioning_filters:
            _check_filter(each)
        check_members(self.max_members, self.members, self.mappings)

    def fixed(self) -> tuple[object, ...]:
        """The fields that never change."""
        filters = [(each.filter, each.wildcards) for each in self.partitioning_filters]
        return self.max_members, filters, self.max_buffered_msgs, self.max_buffered_bytes

    def encode(self) -> bytes:
        """The document."""
        document: dict[str, Any] = {
            "max_members": self.max_members,
            "partitioning_filters": [
                {"filter": each.filter, "partitioning_wildcards": each.wildcards}
                for each in self.partitioning_filters
            ]
            # Go writes null for an empty slice, and the documents are the same byte by byte.
            or None,
        }
        if self.max_buffered_msgs:
            document["max_buffered_msg"] = self.max_buffered_msgs
        if self.max_buffered_bytes:
            document["max_buffered_bytes"] = self.max_buffered_bytes
        return _encode(document, self.members, self.mappings)


GroupConfig: TypeAlias = StaticGroupConfig | ElasticGroupConfig
C = TypeVar("C", bound=StaticGroupConfig | ElasticGroupConfig)


class StaticGroupFields(TypedDict, total=False):
    """The fields of StaticGroupConfig."""

    max_members: int
    filters: list[str]
    members: list[str]
    mappings: list[MemberMapping]


class ElasticGroupFields(TypedDict, total=False):
    """The fields of ElasticGroupConfig."""

    max_members: int
    partitioning_filters: list[PartitioningFilter]
    max_buffered_msgs: int
    max_buffered_bytes: int
    members: list[str]
    mappings: list[MemberMapping]


def config_of(kind: type[C], config: C | None, fields: Any) -> C:
    """The given configuration, or one with these fields; TypeError for both."""
    if config is None:
        return kind(**fields)
    if fields:
        raise TypeError(f"give a config or its fields, not both: {', '.join(fields)}")
    if not isinstance(config, kind):
        refuse("config", f"a {kind.__name__}", config)
    return config


def check_texts(**values: object) -> None:
    """Raise TypeError for the first argument that is not text."""
    for name, value in values.items():
        if not isinstance(value, str):
            refuse(name, "text", value)


def key_of(stream: str, group: str) -> str:
    """The key of a group's document; ValueError for a name that no group can have."""
    check_texts(stream=stream, group=group)
    if not _GROUP.fullmatch(group):
        raise ValueError(
            f"{group!r} cannot be the name of a group: use letters, digits, -, _ and ="
        )
    if not _GROUP.fullmatch(stream):
        raise ValueError(
            f"a stream named {stream!r} cannot have groups: its name cannot be in a key"
        )
    return f"{stream}.{group}"


def work_queue_of(stream: str, group: str) -> str:
    """The stream of an elastic group's own."""
    return f"{stream}-{group}"


def static_consumer(group: str, member: str) -> str:
    """The consumer of a static group's member."""
    return f"{group}-{member}"


def check_member(name: str) -> None:
    """Raise ValueError unless a consumer can have the name of this member."""
    check_texts(member=name)
    if not name or _NO_MEMBER.search(name):
        raise ValueError(
            f"{name!r} cannot be the name of a member: it has no blanks and none of . * > / \\"
        )


def check_members(
    max_members: int, members: Sequence[str], mappings: Sequence[MemberMapping]
) -> None:
    """Raise ValueError unless members or mappings share so many partitions."""
    if not isinstance(max_members, int):
        raise TypeError(f"max_members is a whole number, not {max_members!r}")
    if isinstance(members, str) or not isinstance(members, Sequence):
        raise TypeError(f"members is a list of names, not {members!r}")
    if max_members < 1:
        raise ValueError(f"a group has at least one partition: max_members is {max_members}")
    if members and mappings:
        raise ValueError("give members or mappings, not both")
    for name in [*members, *(each.member for each in mappings)]:
        check_member(name)
    if not mappings:
        return
    names = [each.member for each in mappings]
    if len(set(names)) < len(names):
        raise ValueError("a member has two mappings")
    if len(mappings) > max_members:
        raise ValueError(f"{len(mappings)} mappings are more than max_members: {max_members}")
    if sorted(each for mapping in mappings for each in mapping.partitions) != [*range(max_members)]:
        raise ValueError(f"mappings have each partition from 0 to {max_members - 1} once")


def _check_filter(each: PartitioningFilter) -> None:
    tokens = each.filter.split(".")
    stars = tokens.count("*")
    if not each.filter or not (stars or tokens[-1] == ">"):
        raise ValueError(f"the filter {each.filter!r} has no * and does not end with >")
    if len(set(each.wildcards)) < len(each.wildcards):
        raise ValueError(f"a wildcard is named twice: {each.wildcards}")
    if any(not 1 <= number <= stars for number in each.wildcards):
        raise ValueError(f"the filter {each.filter!r} has {stars} *: {each.wildcards} names others")


# -- partitions ------------------------------------------------------------------------------------


def assignments(config: GroupConfig) -> dict[str, list[int]]:
    """The partitions of each member, in order; members beyond ``max_members`` have none.

    Every partition belongs to one member. Members in order of names have runs of the same length; the
    partitions that are left go to the first members, one each.
    """
    if config.mappings:
        return {each.member: list(each.partitions) for each in config.mappings}
    # By name, so that every member computes the same shares without asking another one.
    members = sorted(set(config.members))[: config.max_members]
    if not members:
        return {}
    length = config.max_members // len(members)
    found = {name: list(range(at * length, (at + 1) * length)) for at, name in enumerate(members)}
    for name, left in zip(members, range(len(members) * length, config.max_members), strict=False):
        found[name].append(left)
    return found


def filters_of(config: GroupConfig, member: str) -> list[str]:
    """The filters of a member's consumer; empty for a name that has no partition."""
    mine = assignments(config).get(member, [])
    if config.mappings:
        return [f"{each}.>" for each in mine]
    if isinstance(config, ElasticGroupConfig):
        subjects = [each.filter for each in config.partitioning_filters]
    else:
        subjects = config.filters
    return [f"{each}.{subject}" for subject in subjects or [">"] for each in mine]


def member_consumer(
    template: ConsumerConfig | None, name: str, filters: list[str], *, durable: bool
) -> ConsumerConfig:
    """The consumer of a member: one client at a time has its pin.

    ``template`` has the other fields. A consumer that is not durable is gone when no client of the member
    has asked for ``ack_wait``. ValueError for an ack policy other than explicit in an elastic group.
    """
    template = template or ConsumerConfig()
    if not durable and template.ack_policy != "explicit":
        raise ValueError("members of an elastic group need the ack policy 'explicit'")
    ack_wait = int(to_nanoseconds(template.ack_wait)) or ACK_WAIT_NS
    return replace(
        template,
        name=name,
        durable_name=name if durable else "",
        ack_wait=Nanoseconds(ack_wait),
        # The same time for both: a client that was killed frees its pin and, at last, its partitions.
        inactive_threshold=template.inactive_threshold if durable else Nanoseconds(ack_wait),
        filter_subject="",
        filter_subjects=filters,
        priority_groups=[PRIORITY_GROUP],
        priority_policy="pinned_client",
        priority_timeout=Nanoseconds(max(ack_wait, SECOND_NS)),
    )


def work_queue(origin: StreamInfo, group: str, config: ElasticGroupConfig) -> StreamConfig:
    """The stream of an elastic group's own: it copies messages with their partition in the subject."""
    filters = config.partitioning_filters or [PartitioningFilter(">")]
    transforms = [
        SubjectTransform(src=each.filter, dest=_destination(each, config.max_members))
        for each in filters
    ]
    stream = origin.config.name
    return StreamConfig(
        name=work_queue_of(stream, group),
        retention="workqueue",
        discard="new",
        storage=origin.config.storage,
        num_replicas=origin.config.num_replicas,
        max_msgs=config.max_buffered_msgs,
        max_bytes=config.max_buffered_bytes,
        sources=[StreamSource(name=stream, subject_transforms=transforms)],
        allow_direct=True,
    )


def _destination(partitioning: PartitioningFilter, count: int) -> str:
    """The destination of the transform: the partition, then the subject itself."""
    tokens = partitioning.filter.split(".")
    number = 0
    for at, token in enumerate(tokens):
        if token == "*":
            number += 1
            tokens[at] = f"{{{{Wildcard({number})}}}}"
    arguments = ",".join(str(each) for each in [count, *partitioning.wildcards])
    return f"{{{{Partition({arguments})}}}}.{'.'.join(tokens)}"


# -- documents -------------------------------------------------------------------------------------


def _encode(document: dict[str, Any], members: list[str], mappings: list[MemberMapping]) -> bytes:
    if members:
        document["members"] = members
    if mappings:
        document["member_mappings"] = [
            {"member": each.member, "partitions": each.partitions} for each in mappings
        ]
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    return text.translate(_GO_ESCAPES).encode()


class _Mapping(msgspec.Struct):
    member: str = ""
    partitions: list[int] | None = None


class _Filter(msgspec.Struct):
    filter: str = ""
    partitioning_wildcards: list[int] | None = None


class _Document(msgspec.Struct):
    max_members: int = 0
    filters: list[str] | None = None
    partitioning_filters: list[_Filter] | None = None
    max_buffered_msg: int = 0
    max_buffered_bytes: int = 0
    members: list[str] | None = None
    member_mappings: list[_Mapping] | None = None


_decoder = msgspec.json.Decoder(_Document)


def decode(kind: type[C], data: bytes) -> C:
    """The configuration of a document; ProtocolError for other bytes."""
    try:
        # Lists may be null: Go writes that for an empty one.
        found = _decoder.decode(data)
        fields: dict[str, Any] = {
            "max_members": found.max_members,
            "members": found.members or [],
            "mappings": [
                MemberMapping(each.member, each.partitions or [])
                for each in found.member_mappings or []
            ],
        }
        if issubclass(kind, StaticGroupConfig):
            return kind(**fields, filters=found.filters or [])
        return kind(
            **fields,
            partitioning_filters=[
                PartitioningFilter(each.filter, each.partitioning_wildcards or [])
                for each in found.partitioning_filters or []
            ],
            max_buffered_msgs=found.max_buffered_msg,
            max_buffered_bytes=found.max_buffered_bytes,
        )
    except (msgspec.MsgspecError, ValueError) as error:
        raise ProtocolError(f"not the document of a group: {error}: {data[:200]!r}") from error
