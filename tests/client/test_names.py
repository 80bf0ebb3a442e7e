"""Every public name of an object that a program holds is in the reference: completion offers nothing else."""

from __future__ import annotations

import re
from typing import Any

import pelton.testing
from pelton import (
    ConsumerConfig,
    ElasticGroupConfig,
    KeyValueConfig,
    ObjectStoreConfig,
    PartitioningFilter,
    ServiceConfig,
    StaticGroupConfig,
    StreamConfig,
)
from tests.client.shells import connected
from tools.site.client import documented, members_of

NAMED = re.compile(r"^    ((?:\w+, )*\w+): ", re.MULTILINE)


def held(nc: Any) -> list[Any]:
    """What a program gets from a client, one of each kind."""
    js = nc.jetstream()
    js.create_stream(StreamConfig(name="S", subjects=["s.*"], allow_direct=True))
    js.create_stream(
        StreamConfig(name="N", subjects=["n"], allow_msg_counter=True, allow_direct=True)
    )
    js.create_consumer("S", ConsumerConfig(durable_name="c"))
    js.create_consumer("S", ConsumerConfig(durable_name="p", deliver_subject="d"))
    js.publish("s.a", b"1")
    bucket = js.create_key_value(KeyValueConfig(bucket="b", allow_atomic=True))
    bucket.put("k", b"1")
    store = js.create_object_store(ObjectStoreConfig(bucket="o"))
    consumer, push = js.consumer("S", "c"), js.push_consumer("S", "p")
    service = nc.add_service(ServiceConfig(name="s", version="1.0.0"))
    static = StaticGroupConfig(max_members=1, members=["m"])
    elastic = ElasticGroupConfig(
        max_members=1, partitioning_filters=[PartitioningFilter("s.*", [1])]
    )
    return [
        *(nc, nc.subscribe("x"), nc.status(), nc.service_client()),
        *(service, service.group("g"), js, js.publisher(), js.atomic_batch(), js.fast_batch()),
        *(js.counter("N"), js.ordered_consumer("S"), js.ordered_consumer("S").consume()),
        *(consumer, consumer.next(), consumer.consume(), push, push.consume()),
        *(bucket, bucket.get("k"), bucket.watch(), bucket.transaction()),
        *(store, store.watch()),
        *(js.create_static_group("S", "g", static), js.create_elastic_group("S", "e", elastic)),
    ]


def test_every_public_name_is_in_the_reference(shell: str) -> None:
    with pelton.testing.broker() as broker, connected(shell, broker.memory_url) as client:
        unknown = []
        for each in held(client):
            inner = getattr(each, "_inner", each)
            known = {*members_of(type(inner)), *documented(type(inner))}
            for names in NAMED.findall(type(inner).__doc__):
                known.update(names.split(", "))
            offered = {name for name in object.__dir__(inner) if not name.startswith("_")}
            unknown += [f"{type(inner).__name__}.{name}" for name in sorted(offered - known)]
        assert not unknown, unknown
