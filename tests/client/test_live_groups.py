"""Consumer groups of both shells, against every server there is: order, no loss, one at a time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import defaultdict
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pelton import (
    ConsumerConfig,
    ConsumerExistsError,
    ConsumerNotFoundError,
    ElasticGroupConfig,
    GroupChangedError,
    GroupExistsError,
    GroupNotFoundError,
    MemberMapping,
    PartitioningFilter,
    StaticGroupConfig,
    StreamConfig,
    StreamNotFoundError,
    SubjectTransform,
    connect,
)
from tests.client.shells import connected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pelton import Client, ConsumerEvent, ElasticGroup, Message
    from tests.peers import ServerProcess

pytestmark = pytest.mark.needs("priority_groups")
WAIT_S = 60
"""Ends a wait for something that will never come."""
ROOT = Path(__file__).parents[2]
KEYS = 8


@pytest.fixture
def js(shell: str, server: ServerProcess) -> Iterator[Any]:
    with connected(shell, server.url) as client:
        yield client.jetstream()


def elastic(unique: str, **fields: Any) -> ElasticGroupConfig:
    filters = [PartitioningFilter(f"{unique}.*", [1])]
    return ElasticGroupConfig(max_members=4, partitioning_filters=filters, **fields)


def make_stream(js: Any, unique: str) -> None:
    js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.*"], storage="memory"))


# -- managing groups


def test_a_static_group_is_created_listed_and_deleted(js: Any, unique: str) -> None:
    config = StaticGroupConfig(max_members=2, members=["m1", "m2"])
    with pytest.raises(StreamNotFoundError):
        js.create_static_group(unique, "g", config)
    with pytest.raises(GroupNotFoundError, match="'g'"):
        js.static_group(unique, "g")
    assert js.static_group_names(unique) == []
    make_stream(js, unique)
    group = js.create_static_group(unique, "g", config)
    assert js.create_static_group(unique, "g", config).config() == config
    with pytest.raises(GroupExistsError, match="another configuration"):
        js.create_static_group(unique, "g", StaticGroupConfig(max_members=3, members=["m1"]))
    js.create_static_group(unique, "g-2", max_members=2, members=["m1", "m2"])
    with pytest.raises(TypeError, match="not both: max_members"):
        js.create_static_group(unique, "g-2", config, max_members=3)
    with pytest.raises(TypeError, match="config is a StaticGroupConfig, not ElasticGroupConfig"):
        js.create_static_group(unique, "g-2", elastic(unique))
    assert js.static_group_names(unique) == ["g", "g-2"]
    assert group.partitions() == {"m1": [0], "m2": [1]}
    assert group.active_members() == []
    with pytest.raises(ValueError, match="'m3' has no partition"):
        group.consume("m3")
    with pytest.raises(ConsumerNotFoundError):
        group.step_down("m1")
    document = js.key_value("static-consumer-groups").get(f"{unique}.g").data
    assert document == config.encode()
    group.delete()
    with pytest.raises(GroupNotFoundError):
        group.config()
    assert js.static_group_names(unique) == ["g-2"]


def test_an_elastic_group_is_created_changed_and_deleted(js: Any, unique: str) -> None:
    make_stream(js, unique)
    config = elastic(unique, max_buffered_msgs=100)
    group = js.create_elastic_group(unique, "g", config)
    assert group.add_members("b", "a") == ["b", "a"]
    assert group.add_members("c", "a") == ["b", "a", "c"]
    assert group.drop_members("b", "nobody") == ["a", "c"]
    assert js.create_elastic_group(unique, "g", config).config().members == ["a", "c"]
    with pytest.raises(GroupExistsError):
        js.create_elastic_group(unique, "g", elastic(unique))
    group.set_mappings([MemberMapping("a", [0, 3]), MemberMapping("d", [1, 2])])
    assert js.elastic_group(unique, "g").partitions() == {"a": [0, 3], "d": [1, 2]}
    for change in (group.add_members, group.drop_members):
        with pytest.raises(ValueError, match="has mappings"):
            change("a")
    with pytest.raises(ValueError, match="once"):
        group.set_mappings([MemberMapping("a", [0])])
    assert group.config().members == []
    group.delete_mappings()
    assert group.config() == config
    with pytest.raises(ValueError, match="name of a member"):
        group.add_members("a.b")
    with pytest.raises(ValueError, match="explicit"):
        group.consume("a", config=ConsumerConfig(ack_policy="none"))
    assert f"{unique}-g" in js.stream_names()
    assert js.elastic_group_names(unique) == ["g"]
    group.delete()
    assert f"{unique}-g" not in js.stream_names()
    for call in (group.delete, group.config, lambda: group.add_members("a")):
        with pytest.raises(GroupNotFoundError):
            call()


def test_two_at_a_time_may_change_a_group(server: ServerProcess, unique: str) -> None:
    async def program() -> None:
        async with connect(server.url) as client:
            js = client.jetstream()
            await js.create_stream(StreamConfig(name=unique, subjects=[unique], storage="memory"))
            names = [f"m{number}" for number in range(6)]
            await js.create_elastic_group(unique, "g", ElasticGroupConfig(max_members=9))
            handles = [await js.elastic_group(unique, "g") for _ in names]
            await asyncio.gather(
                *(handle.add_members(name) for handle, name in zip(handles, names, strict=True))
            )
            assert sorted((await handles[0].config()).members) == names
            await handles[0].delete()

    asyncio.run(program())


# -- consuming in either shell


def test_members_of_a_static_group_share_its_partitions(js: Any, unique: str) -> None:
    """The stream adds the partition; members read subjects without it."""
    transform = SubjectTransform(
        src=f"{unique}.*", dest=f"{{{{Partition(3,1)}}}}.{unique}.{{{{Wildcard(1)}}}}"
    )
    js.create_stream(
        StreamConfig(
            name=unique, subjects=[f"{unique}.*"], storage="memory", subject_transform=transform
        )
    )
    for number in range(30):
        js.publish(f"{unique}.{number % 10}", b"%d" % number)
    config = StaticGroupConfig(max_members=3, members=["m1", "m2"])
    group = js.create_static_group(unique, "g", config)
    counts = js.stream_info(unique, subjects_filter=">").state.subjects
    found: dict[str, list[int]] = defaultdict(list)
    for member, partitions in group.partitions().items():
        mine = sum(n for subject, n in counts.items() if int(subject.split(".")[0]) in partitions)
        with group.consume(member) as messages:
            for message in messages:
                assert message.subject.startswith(f"{unique}.")
                found[message.subject].append(int(message.data))
                message.ack_sync()
                mine -= 1
                if not mine:
                    break
            assert member in group.active_members()
    assert found == {f"{unique}.{key}": [key, key + 10, key + 20] for key in range(10)}
    assert set(js.consumer_names(unique)) == {"g-m1", "g-m2"}
    with pytest.raises(ConsumerExistsError):
        js.create_consumer(unique, ConsumerConfig(name="g-m1"), action="create")
    group.delete()
    assert js.consumer_names(unique) == []


def test_a_static_group_that_is_replaced_ends_its_members(js: Any, unique: str) -> None:
    make_stream(js, unique)
    js.publish(f"{unique}.1", b"")
    config = StaticGroupConfig(max_members=1, mappings=[MemberMapping("m1", [0])])
    group = js.create_static_group(unique, "g", config)
    bucket = js.key_value("static-consumer-groups")
    for document, words in (
        (StaticGroupConfig(max_members=2, members=["m1"]).encode(), "configuration changed"),
        (b"{", "not the document"),
    ):
        bucket.put(f"{unique}.g", config.encode())
        with group.consume("m1") as messages:
            bucket.put(f"{unique}.g", document)
            with pytest.raises(GroupChangedError, match=words):
                next(iter(messages))
    bucket.put(f"{unique}.g", config.encode())
    with group.consume("m1") as messages:
        group.delete()
        assert list(messages) == []
    assert js.consumer_names(unique) == []


def test_an_elastic_member_follows_the_membership(js: Any, unique: str) -> None:
    make_stream(js, unique)
    group = js.create_elastic_group(unique, "g", elastic(unique))
    kinds: list[str] = []

    def told(event: ConsumerEvent) -> None:
        kinds.append(event.type)

    with group.consume("m1", on_status=told) as messages:
        group.add_members("m1")
        arriving = iter(messages)
        for number in range(20):
            js.publish(f"{unique}.{number % 5}", b"%d" % number)
        found = defaultdict(list)
        for _ in range(20):
            message = next(arriving)
            found[message.subject].append(int(message.data))
            message.ack_sync()
        assert found == {f"{unique}.{key}": [*range(key, 20, 5)] for key in range(5)}
        group.drop_members("m1")
        js.publish(f"{unique}.1", b"later")
        group.add_members("m1")
        assert next(arriving).data == b"later"
        assert group.active_members() == ["m1"]
        group.delete()
        assert list(messages) == []
    assert kinds.count("group_deleted") == 1
    assert kinds.count("group_joined") >= 1


# -- many members


class Observed:
    """What members have handled, and that nobody handles what another one does."""

    def __init__(self, client: Client, stream: str) -> None:
        self.client = client
        self.stream = stream
        self.by_key: dict[str, list[int]] = defaultdict(list)
        self.by_member: dict[str, int] = defaultdict(int)
        self.published = [0] * KEYS
        self.events: dict[str, list[str]] = defaultdict(list)
        self.clashes: list[str] = []
        """Keys whose messages were handled by two at a time."""
        self._running: set[str] = set()
        self._changed = asyncio.Condition()

    def handler(self, member: str) -> Callable[[Message], Any]:
        async def handle(message: Message) -> None:
            key = message.subject
            if key in self._running:
                self.clashes.append(key)
            self._running.add(key)
            await asyncio.sleep(0)
            self.by_key[key].append(int(message.data))
            self.by_member[member] += 1
            self._running.discard(key)
            await message.ack_sync()
            async with self._changed:
                self._changed.notify_all()

        return handle

    def told(self, member: str) -> Callable[[ConsumerEvent], Any]:
        async def note(event: ConsumerEvent) -> None:
            self.events[member].append(event.type)
            async with self._changed:
                self._changed.notify_all()

        return note

    async def until(self, condition: Callable[[], bool]) -> None:
        async with self._changed:
            await asyncio.wait_for(self._changed.wait_for(condition), WAIT_S)

    async def publish(self, count: int) -> None:
        async with self.client.jetstream().publisher() as publisher:
            for number in range(count):
                key = number % KEYS
                await publisher.publish(f"{self.stream}.{key}", b"%d" % self.published[key])
                self.published[key] += 1

    def is_whole(self) -> bool:
        return sum(map(len, self.by_key.values())) == sum(self.published)

    def check(self) -> None:
        assert not self.clashes
        for key, count in enumerate(self.published):
            assert self.by_key[f"{self.stream}.{key}"] == [*range(count)]


async def opened(client: Client, unique: str, **fields: Any) -> ElasticGroup:
    js = client.jetstream()
    await js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.*"], storage="memory"))
    return await js.create_elastic_group(unique, "g", elastic(unique, **fields))


STRICT = ConsumerConfig(max_ack_pending=1, ack_wait=2)


def test_members_join_and_leave_while_messages_come(server: ServerProcess, unique: str) -> None:
    async def program() -> None:
        async with connect(server.url) as client, AsyncExitStack() as stack:
            group = await opened(client, unique)
            seen = Observed(client, unique)
            members = ["a", "b", "c"]
            for each in members:
                await stack.enter_async_context(
                    group.consume(
                        each, seen.handler(each), config=STRICT, on_status=seen.told(each)
                    )
                )
            for joined in (["a"], ["a", "b"], ["a", "b", "c"], ["b", "c"], ["c"], ["a", "c"]):
                present = set((await group.config()).members)
                before = {each: seen.events[each].count("group_joined") for each in joined}
                publishing = asyncio.create_task(seen.publish(40))
                await group.drop_members(*(present - set(joined)) or {"nobody"})
                await group.add_members(*joined)
                changed = [each for each in joined if each not in present]
                await seen.until(
                    lambda new=changed, had=before: all(
                        seen.events[each].count("group_joined") > had[each] for each in new
                    )
                )
                await publishing
                await seen.until(seen.is_whole)
                seen.check()
            assert set(seen.by_member) == set(members)
            await group.delete()

    asyncio.run(program())


def test_one_client_of_a_member_consumes_and_another_goes_on(
    server: ServerProcess, unique: str
) -> None:
    async def program() -> None:
        async with connect(server.url) as client, AsyncExitStack() as stack:
            group = await opened(client, unique, members=["a"])
            seen = Observed(client, unique)
            first = group.consume("a", seen.handler("first"), on_status=seen.told("first"))
            await stack.enter_async_context(first)
            await seen.publish(20)
            await seen.until(seen.is_whole)
            second = group.consume("a", seen.handler("second"), on_status=seen.told("second"))
            await stack.enter_async_context(second)
            await seen.until(lambda: "group_joined" in seen.events["second"])
            await seen.publish(20)
            await seen.until(seen.is_whole)
            assert dict(seen.by_member) == {"first": 40}
            await group.step_down("a")
            await seen.publish(20)
            await seen.until(seen.is_whole)
            first.stop()
            await seen.publish(20)
            await seen.until(seen.is_whole)
            assert seen.by_member["second"] >= 20
            seen.check()
            await group.delete()

    asyncio.run(program())


MEMBER = """
import asyncio, sys
from pelton import ConsumerConfig, connect

async def main(url, stream):
    async with connect(url) as client:
        group = await client.jetstream().elastic_group(stream, "g")

        async def handle(message):
            print(message.subject, message.data.decode(), flush=True)
            if int(message.data) == 3:
                await asyncio.sleep(3600)
            await message.ack_sync()

        config = ConsumerConfig(max_ack_pending=1, ack_wait=1)
        async with group.consume("a", handle, config=config) as messages:
            await messages.run()

asyncio.run(main(*sys.argv[1:]))
"""


def test_a_killed_client_is_replaced(server: ServerProcess, unique: str) -> None:
    """It is killed while it handles a message: another one of its member gets that message."""

    async def program() -> None:
        async with connect(server.url) as client:
            group = await opened(client, unique, members=["a"])
            seen = Observed(client, unique)
            process = subprocess.Popen(
                [sys.executable, "-c", MEMBER, server.url, unique],
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
            )
            try:
                assert process.stdout is not None
                await seen.publish(KEYS * 6)
                lines: list[str] = []
                while not lines or not lines[-1].endswith(" 3"):
                    line = await asyncio.to_thread(process.stdout.readline)
                    assert line, "the member ended"
                    lines.append(line.strip())
            finally:
                process.kill()
                process.wait()
                process.stdout.close()
            for line in lines[:-1]:  # the last one was not acknowledged
                key, number = line.split()
                seen.by_key[key].append(int(number))
            config = ConsumerConfig(max_ack_pending=1, ack_wait=1)
            async with group.consume("a", seen.handler("heir"), config=config):
                await seen.until(seen.is_whole)
            seen.check()
            await group.delete()

    asyncio.run(program())


def test_a_member_goes_on_after_a_restart(own_server: ServerProcess, unique: str) -> None:
    async def program() -> None:
        async with connect(own_server.url, reconnect_wait=0.05) as client:
            js = client.jetstream()
            await js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.*"]))
            group = await js.create_elastic_group(unique, "g", elastic(unique, members=["a"]))
            seen = Observed(client, unique)
            async with group.consume("a", seen.handler("a"), config=STRICT) as messages:
                await seen.publish(20)
                await seen.until(seen.is_whole)
                await asyncio.to_thread(own_server.stop)
                await asyncio.to_thread(own_server.start)
                await seen.publish(20)
                await seen.until(seen.is_whole)
                await group.add_members("b")
                await group.drop_members("b")
                await seen.publish(20)
                await seen.until(seen.is_whole)
                assert not messages.ended
            seen.check()

    asyncio.run(program())
