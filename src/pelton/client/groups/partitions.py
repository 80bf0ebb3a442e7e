"""Which member has which partitions, and the streams and consumers that deliver them. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..base.durations import Nanoseconds, to_nanoseconds
from ..base.models import ConsumerConfig, StreamConfig, StreamSource, SubjectTransform
from .config import ElasticGroupConfig, PartitioningFilter, work_queue_of

if TYPE_CHECKING:
    from ..base.models import StreamInfo
    from .config import GroupConfig

PRIORITY_GROUP = "PCG"
SECOND_NS = 1_000_000_000
ACK_WAIT_NS = 5 * SECOND_NS
"""The ack wait of members that name none."""


def assignments(config: GroupConfig) -> dict[str, list[int]]:
    """The partitions of each member, in order; members beyond ``max_members`` have none.

    Every partition belongs to one member. Members in order of names have runs of the same length; the
    partitions that are left go to the first members, one each.
    """
    if config.mappings:
        return {each.member: list(each.partitions) for each in config.mappings}
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
