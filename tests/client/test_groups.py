"""Consumer groups without a server: who has which partition, and the documents byte by byte."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton import (
    ConsumerConfig,
    ElasticGroupConfig,
    GroupChangedError,
    GroupExistsError,
    GroupNotFoundError,
    MemberMapping,
    PartitioningFilter,
    ProtocolError,
    StaticGroupConfig,
    StreamConfig,
    StreamInfo,
)
from pelton.client.groups import (
    GroupConfig,
    assignments,
    decode,
    filters_of,
    key_of,
    member_consumer,
    work_queue,
)

NAMES = st.lists(st.text("abm123-_", min_size=1, max_size=4), max_size=9)
COUNTS = st.integers(1, 40)


def expected(members: list[str], count: int) -> dict[str, list[int]]:
    """The rule, partition by partition: runs of equal length, then what is left one by one."""
    names = sorted(set(members))[:count]
    found: dict[str, list[int]] = {name: [] for name in names}
    if names:
        length = count // len(names)
        for partition in range(count):
            whole = partition < length * len(names)
            at = partition // length if whole else partition - length * len(names)
            found[names[at % len(names)]].append(partition)
    return found


@st.composite
def configs(draw: st.DrawFn) -> GroupConfig:
    count = draw(COUNTS)
    members, mappings = draw(NAMES), []
    if draw(st.booleans()):
        names = draw(st.lists(st.sampled_from("abcdef"), unique=True, min_size=1, max_size=count))
        owners = [draw(st.sampled_from(names)) for _ in range(count)]
        members = []
        mappings = [MemberMapping(n, [p for p in range(count) if owners[p] == n]) for n in names]
    if draw(st.booleans()):
        filters = draw(st.lists(st.sampled_from(["a.>", "b.*", "é.<&.>"]), unique=True))
        return StaticGroupConfig(
            max_members=count, filters=filters, members=members, mappings=mappings
        )
    kinds = [
        PartitioningFilter("a.*.*", [2, 1]),
        PartitioningFilter("b.>"),
        PartitioningFilter("*"),
    ]
    return ElasticGroupConfig(
        max_members=count,
        partitioning_filters=draw(st.lists(st.sampled_from(kinds), unique_by=lambda k: k.filter)),
        max_buffered_msgs=draw(st.integers(0, 9)),
        max_buffered_bytes=draw(st.integers(0, 9)),
        members=members,
        mappings=mappings,
    )


@given(members=NAMES, count=COUNTS)
def test_members_share_all_partitions_evenly(members: list[str], count: int) -> None:
    found = assignments(StaticGroupConfig(max_members=count, members=members))
    assert found == expected(members, count)
    if members:
        assert sorted(each for mine in found.values() for each in mine) == [*range(count)]
        assert max(map(len, found.values())) - min(map(len, found.values())) <= 1


@given(config=configs())
def test_every_partition_has_one_member(config: GroupConfig) -> None:
    found = assignments(config)
    taken = [each for mine in found.values() for each in mine]
    assert len(taken) == len(set(taken))
    assert set(taken) == (set(range(config.max_members)) if found else set())
    filters = [each for name in found for each in filters_of(config, name)]
    assert len(filters) == len(set(filters))
    assert filters_of(config, "nobody-at-all") == []


@given(config=configs())
def test_a_document_is_read_as_it_was_written(config: GroupConfig) -> None:
    document = config.encode()
    assert decode(type(config), document) == config
    assert b" " not in document
    assert not {*"<>&"} & {*document.decode()}
    assert json.loads(document)["max_members"] == config.max_members


GOLDEN = [
    (
        StaticGroupConfig(max_members=4, filters=["foo.>"], members=["m1", "m2"]),
        b'{"max_members":4,"filters":["foo.\\u003e"],"members":["m1","m2"]}',
    ),
    (
        StaticGroupConfig(
            max_members=3, mappings=[MemberMapping("m1", [0, 2]), MemberMapping("m2", [1])]
        ),
        b'{"max_members":3,"member_mappings":[{"member":"m1","partitions":[0,2]},'
        b'{"member":"m2","partitions":[1]}]}',
    ),
    (
        ElasticGroupConfig(
            max_members=10,
            partitioning_filters=[PartitioningFilter("foo.*", [1]), PartitioningFilter("bar.>")],
            max_buffered_msgs=1000,
            max_buffered_bytes=2000,
            members=["m1"],
        ),
        b'{"max_members":10,"partitioning_filters":[{"filter":"foo.*","partitioning_wildcards":[1]},'
        b'{"filter":"bar.\\u003e","partitioning_wildcards":[]}],"max_buffered_msg":1000,'
        b'"max_buffered_bytes":2000,"members":["m1"]}',
    ),
    (ElasticGroupConfig(max_members=2), b'{"max_members":2,"partitioning_filters":null}'),
]


@pytest.mark.parametrize(("config", "document"), GOLDEN)
def test_documents_are_those_of_orbit(config: GroupConfig, document: bytes) -> None:
    assert config.encode() == document
    assert decode(type(config), document) == config


def test_filters_are_those_of_orbit() -> None:
    names = ["m1", "m2", "m3"]
    filters = [PartitioningFilter("foo.*.*.>", [1, 2])]

    def found(count: int, member: str) -> str:
        config = ElasticGroupConfig(max_members=count, partitioning_filters=filters, members=names)
        return " ".join(each.removesuffix(".foo.*.*.>") for each in filters_of(config, member))

    assert [found(6, each) for each in names] == ["0 1", "2 3", "4 5"]
    assert [found(7, each) for each in names] == ["0 1 6", "2 3", "4 5"]
    assert [found(8, each) for each in names] == ["0 1 6", "2 3 7", "4 5"]
    mapped = StaticGroupConfig(
        max_members=2, filters=["a.>"], mappings=[MemberMapping("m1", [1, 0])]
    )
    assert filters_of(mapped, "m1") == ["1.>", "0.>"]


def test_the_stream_of_an_elastic_group() -> None:
    origin = StreamInfo(
        config=StreamConfig(name="S", storage="memory", num_replicas=3),
    )
    config = ElasticGroupConfig(
        max_members=4,
        partitioning_filters=[PartitioningFilter("foo.*.*.>", [1, 2]), PartitioningFilter("b.*")],
        max_buffered_msgs=10,
    )
    stream = work_queue(origin, "g", config)
    assert (stream.name, stream.retention, stream.discard) == ("S-g", "workqueue", "new")
    assert (stream.storage, stream.num_replicas, stream.max_msgs) == ("memory", 3, 10)
    assert stream.allow_direct
    [source] = stream.sources
    assert [(each.src, each.dest) for each in source.subject_transforms] == [
        ("foo.*.*.>", "{{Partition(4,1,2)}}.foo.{{Wildcard(1)}}.{{Wildcard(2)}}.>"),
        ("b.*", "{{Partition(4)}}.b.{{Wildcard(1)}}"),
    ]
    [source] = work_queue(origin, "g", ElasticGroupConfig(max_members=2)).sources
    assert [(each.src, each.dest) for each in source.subject_transforms] == [
        (">", "{{Partition(2)}}.>")
    ]


def test_the_consumer_of_a_member() -> None:
    plain = member_consumer(None, "m1", ["0.>"], durable=False)
    second = 1_000_000_000
    assert (plain.name, plain.durable_name, plain.filter_subjects) == ("m1", "", ["0.>"])
    assert (plain.ack_wait, plain.inactive_threshold) == (5 * second, 5 * second)
    assert (plain.priority_groups, plain.priority_policy) == (["PCG"], "pinned_client")
    assert plain.priority_timeout == 5 * second
    quick = ConsumerConfig(ack_wait=0.1, max_ack_pending=1, filter_subject="x")
    durable = member_consumer(quick, "g-m1", ["0.>"], durable=True)
    assert (durable.durable_name, durable.max_ack_pending, durable.filter_subject) == (
        "g-m1",
        1,
        "",
    )
    assert (durable.ack_wait, durable.inactive_threshold) == (second // 10, 0)
    assert durable.priority_timeout == second
    with pytest.raises(ValueError, match="explicit"):
        member_consumer(ConsumerConfig(ack_policy="none"), "m1", ["0.>"], durable=False)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"max_members": 0}, "at least one partition"),
        ({"members": ["a"], "mappings": [MemberMapping("a", [0, 1])]}, "not both"),
        ({"members": ["a b"]}, "name of a member"),
        ({"members": [""]}, "name of a member"),
        ({"mappings": [MemberMapping("a", [0]), MemberMapping("a", [1])]}, "two mappings"),
        ({"mappings": [MemberMapping("a", [0])]}, "each partition from 0 to 1 once"),
        ({"mappings": [MemberMapping("a", [0, 0, 1])]}, "each partition from 0 to 1 once"),
        ({"mappings": [MemberMapping("a", [0, 2])]}, "each partition from 0 to 1 once"),
        ({"mappings": [MemberMapping(n, [i]) for i, n in enumerate("abc")]}, "more than max_m"),
        ({"partitioning_filters": [PartitioningFilter("")]}, "has no"),
        ({"partitioning_filters": [PartitioningFilter("a.b")]}, "has no"),
        ({"partitioning_filters": [PartitioningFilter("a.*", [1, 1])]}, "named twice"),
        ({"partitioning_filters": [PartitioningFilter("a.*", [2])]}, "names others"),
        ({"partitioning_filters": [PartitioningFilter("a.*.>", [0])]}, "names others"),
    ],
)
def test_a_configuration_that_cannot_be_says_why(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ElasticGroupConfig(**{"max_members": 2, **fields})


@pytest.mark.parametrize(
    "document", [b"", b"{}", b"[]", b'{"max_members":"2"}', b'{"max_members":1,"members":[""]}']
)
def test_a_damaged_document_is_an_error(document: bytes) -> None:
    for kind in (StaticGroupConfig, ElasticGroupConfig):
        with pytest.raises(ProtocolError, match="not the document of a group"):
            decode(kind, document)


@pytest.mark.parametrize("name", ["", "a.b", "a b", "a*", "é"])
def test_a_name_that_no_key_can_have(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a group"):
        key_of("S", name)
    with pytest.raises(ValueError, match="cannot have groups"):
        key_of(name, "g")


@pytest.mark.parametrize("kind", [GroupNotFoundError, GroupExistsError, GroupChangedError])
def test_errors_name_stream_and_group(kind: type[GroupNotFoundError]) -> None:
    error = kind("S", "g", "why")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.stream, copy.group) == (str(error), "S", "g")
    assert "'S'" in str(error)
    assert "'g'" in str(error)
