"""Partitioned consumer groups, for blocking code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.steps import made
from ..groups.managing import ElasticGroups, StaticGroups
from ..groups.operation import GroupOperation
from .consuming import _Operation
from .messages import Message
from .running import Blocking

if TYPE_CHECKING:
    from .connection import Client


class GroupMessages(_Operation, GroupOperation[Message]):
    """Messages of a member of a group without end; made by ``consume`` of a group.

    ::

        with group.consume("m1") as messages:
            for message in messages:
                message.ack()

        with group.consume("m1", handle, auto_ack=True) as messages:
            messages.run()  # until a handler calls messages.stop()
    """

    client: Client


class StaticGroup(Blocking, StaticGroups[Message]):
    """A static consumer group; made by ``JetStream.static_group`` and ``create_static_group``.

    The stream's subjects begin with the number of a partition, and the members never change. ::

        config = StaticGroupConfig(max_members=10, members=["m1", "m2"])
        group = js.create_static_group("ORDERS", "billing", config)
        with group.consume("m1") as messages:
            for message in messages:
                message.ack()
    """

    client: Client

    consume = made(GroupMessages)


class ElasticGroup(Blocking, ElasticGroups[Message]):
    """An elastic consumer group; made by ``JetStream.elastic_group`` and ``create_elastic_group``.

    A stream of its own copies the messages of any stream, and members come and go. ::

        config = ElasticGroupConfig(
            max_members=10, partitioning_filters=[PartitioningFilter("orders.*", [1])]
        )
        group = js.create_elastic_group("ORDERS", "billing", config)
        group.add_members("m1", "m2")
        with group.consume("m1") as messages:
            for message in messages:
                message.ack()
    """

    client: Client

    consume = made(GroupMessages)
