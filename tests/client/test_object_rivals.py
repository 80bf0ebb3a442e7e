"""Two calls that change the same objects at the same time: one is first, and no object loses its bytes."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from pelton import ObjectInfo, ObjectNotFoundError, ObjectStoreConfig, connect, sync
from pelton.errors import ObjectExistsError, PeltonError, WrongLastSequenceError
from tests.ways import SEED, length

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from pelton import ObjectStore, sync
    from tests.peers import ServerProcess

FIRST, SECOND = b"first" * 100, b"second" * 100
SCHEDULES = length(25, 300)

RIVALS: dict[str, Callable[[ObjectStore], Coroutine[Any, Any, Any]]] = {
    "delete": lambda store: store.delete("a"),
    "delete the new one": lambda store: store.delete("b"),
    "put": lambda store: store.put("a", SECOND, chunk_size=200),
    "put the new one": lambda store: store.put("b", SECOND, chunk_size=200),
    "rename": lambda store: store.update_meta("a", rename="c"),
    "rename back": lambda store: store.update_meta("b", rename="a"),
    "describe": lambda store: store.update_meta("a", description="described"),
}


@pytest.fixture
def client(server: ServerProcess) -> Iterator[sync.Client]:
    with sync.connect(server.url) as connected:
        yield connected


def by_turns(
    store: sync.ObjectStore,
    dice: random.Random,
    *begin: Callable[[ObjectStore], Coroutine[Any, Any, Any]],
) -> list[Any]:
    """Carry out calls wait by wait, whose turn it is says the dice; the result or error of each."""

    async def program() -> list[Any]:
        (url,) = store.client.servers
        async with connect(str(url)) as client:
            same = await client.jetstream().object_store(store.bucket)
            calls = [each(same) for each in begin]
            results: list[list[Any]] = [[] for _ in calls]
            while waiting := [each for each in range(len(calls)) if not results[each]]:
                turn = dice.choice(waiting)
                try:
                    future = calls[turn].send(None)
                except StopIteration as stop:
                    results[turn].append(stop.value)
                except PeltonError as error:
                    results[turn].append(error)
                else:
                    await ended(future)
            return [each[0] for each in results]

    return asyncio.run(program())


async def ended(future: Any) -> None:
    """Wait for what a call waits for."""
    if future is None:  # a turn of the loop
        await asyncio.sleep(0)
        return
    future._asyncio_future_blocking = False  # as its task would
    await asyncio.wait([future])


def contents(client: sync.Client, store: sync.ObjectStore) -> dict[str, bytes]:
    """All objects, each with its bytes; nothing else is in the stream."""
    found = store.list(show_deleted=True)
    alive = [each for each in found if not each.deleted]
    assert len({each.nuid for each in alive}) == len(alive)
    stored = client.jetstream().stream_info(f"OBJ_{store.bucket}").state.messages
    assert stored == len(found) + sum(each.chunks for each in alive)
    return {each.name: store.get(each.name) for each in alive}


@pytest.mark.parametrize("rival", RIVALS)
def test_a_rename_and_a_rival(
    client: sync.Client, server: ServerProcess, unique: str, rival: str
) -> None:
    dice = random.Random(f"{SEED} {rival}")
    js = client.jetstream()
    for number in range(SCHEDULES):
        store = js.create_object_store(
            ObjectStoreConfig(bucket=f"{unique}{number}", storage="memory")
        )
        store.put("a", FIRST, chunk_size=200)
        renamed, other = by_turns(
            store, dice, lambda store: store.update_meta("a", rename="b"), RIVALS[rival]
        )
        left = contents(client, store)
        failed = [isinstance(each, PeltonError) for each in (renamed, other)]
        assert not any(isinstance(each, WrongLastSequenceError) for each in (renamed, other))
        if rival in ("delete", "rename"):
            assert sorted(failed) == [False, True]
            gone = {"b": FIRST}, {"c": FIRST} if rival == "rename" else {}
            assert left == gone[failed[0]]
            assert isinstance((renamed, other)[failed[1]], ObjectNotFoundError)
        elif rival == "put":
            assert failed == [False, False]
            assert left in ({"a": SECOND, "b": FIRST}, {"b": SECOND})
        elif rival == "put the new one":
            assert left == ({"a": FIRST, "b": SECOND} if failed[0] else {"b": SECOND})
            assert not failed[0] or isinstance(renamed, ObjectExistsError)
        elif rival == "delete the new one":
            assert left == ({"b": FIRST} if failed[1] else {})
        else:
            assert list(left.values()) == [FIRST]
        store.destroy()


OTHERS: dict[str, Callable[[ObjectStore], Coroutine[Any, Any, Any]]] = {
    "delete": lambda store: store.delete("a"),
    "put": lambda store: store.put("a", SECOND, chunk_size=200),
    "describe": lambda store: store.update_meta("a", description="other"),
}


@pytest.mark.parametrize("rival", OTHERS)
def test_a_change_of_properties_and_a_rival(
    client: sync.Client, server: ServerProcess, unique: str, rival: str
) -> None:
    """The change is made to whatever has the name in the end, unless that is nothing."""
    dice = random.Random(f"{SEED} {rival}")
    js = client.jetstream()
    for number in range(SCHEDULES):
        store = js.create_object_store(
            ObjectStoreConfig(bucket=f"{unique}{number}", storage="memory")
        )
        store.put("a", FIRST, chunk_size=200)
        changed, other = by_turns(
            store, dice, lambda store: store.update_meta("a", metadata={"k": "v"}), OTHERS[rival]
        )
        assert not isinstance(other, PeltonError)
        if rival == "delete":
            assert contents(client, store) == {}
            assert isinstance(changed, ObjectNotFoundError | ObjectInfo)
        else:
            assert contents(client, store) == {"a": SECOND if rival == "put" else FIRST}
            assert not isinstance(changed, PeltonError)
        if rival == "describe":
            info = store.info("a")
            assert (info.metadata, info.description) == ({"k": "v"}, "other")
        store.destroy()


def test_two_links_with_one_name(client: sync.Client, server: ServerProcess, unique: str) -> None:
    dice = random.Random(SEED)
    store = client.jetstream().create_object_store(
        ObjectStoreConfig(bucket=unique, storage="memory")
    )
    target = store.put("a", FIRST)
    for number in range(SCHEDULES):
        name = f"link{number}"
        made = by_turns(
            store,
            dice,
            lambda store, name=name: store.add_link(name, target),
            lambda store, name=name: store.add_bucket_link(name, "other"),
        )
        assert not any(isinstance(each, PeltonError) for each in made)
        assert store.info(name).link is not None
    store.destroy()
