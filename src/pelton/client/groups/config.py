"""The configuration of a partitioned consumer group, and its JSON in a bucket.

The JSON has the fields, the order and the escapes of orbit's, byte by byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from pelton.errors import ProtocolError

STATIC_BUCKET = "static-consumer-groups"
ELASTIC_BUCKET = "elastic-consumer-groups"

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
            or None,
        }
        if self.max_buffered_msgs:
            document["max_buffered_msg"] = self.max_buffered_msgs
        if self.max_buffered_bytes:
            document["max_buffered_bytes"] = self.max_buffered_bytes
        return _encode(document, self.members, self.mappings)


GroupConfig: TypeAlias = StaticGroupConfig | ElasticGroupConfig


def key_of(stream: str, group: str) -> str:
    """The key of a group's document; ValueError for a name that no group can have."""
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


def decode(kind: type[GroupConfig], data: bytes) -> GroupConfig:
    """The configuration of a document; ProtocolError for other bytes."""
    try:
        found = _decoder.decode(data)
        mappings = [
            MemberMapping(each.member, each.partitions or [])
            for each in found.member_mappings or []
        ]
        if kind is StaticGroupConfig:
            return StaticGroupConfig(
                max_members=found.max_members,
                filters=found.filters or [],
                members=found.members or [],
                mappings=mappings,
            )
        return ElasticGroupConfig(
            max_members=found.max_members,
            partitioning_filters=[
                PartitioningFilter(each.filter, each.partitioning_wildcards or [])
                for each in found.partitioning_filters or []
            ],
            max_buffered_msgs=found.max_buffered_msg,
            max_buffered_bytes=found.max_buffered_bytes,
            members=found.members or [],
            mappings=mappings,
        )
    except (msgspec.MsgspecError, ValueError) as error:
        raise ProtocolError(f"not the document of a group: {error}: {data[:200]!r}") from error
