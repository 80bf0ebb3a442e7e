"""Two calls that change the same objects at the same time: one is first, and no object loses its bytes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from pelton.client import ObjectInfo, ObjectNotFoundError, ObjectStoreConfig, connect_blocking
from pelton.client.sync.running import run
from pelton.errors import ObjectExistsError, PeltonError, WrongLastSequenceError
from tests.ways import SEED, length

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pelton.client import BlockingClient, BlockingObjectStore
    from pelton.client.base.steps import Step, Steps
    from tests.peers import ServerProcess

FIRST, SECOND = b"first" * 100, b"second" * 100
SCHEDULES = length(25, 300)

RIVALS: dict[str, Callable[[BlockingObjectStore], Steps[Any]]] = {
    "delete": lambda store: store._deleting("a"),
    "delete the new one": lambda store: store._deleting("b"),
    "put": lambda store: store._putting("a", SECOND, chunk_size=200),
    "put the new one": lambda store: store._putting("b", SECOND, chunk_size=200),
    "rename": lambda store: store._updating_meta("a", rename="c"),
    "rename back": lambda store: store._updating_meta("b", rename="a"),
    "describe": lambda store: store._updating_meta("a", description="described"),
}


@pytest.fixture
def client(server: ServerProcess) -> Iterator[BlockingClient]:
    with connect_blocking(server.url) as connected:
        yield connected


def one_step(steps: Steps[Any], answer: list[Any], results: list[Any]) -> Steps[None]:
    """Carry out the next step of a call; its result is added when it ends."""
    try:
        step: Step = steps.throw(answer[0]) if answer[1] else steps.send(answer[0])
    except StopIteration as stop:
        results.append(stop.value)
        return
    except PeltonError as error:
        results.append(error)
        return
    try:
        answer[:] = [(yield step), False]
    except PeltonError as error:
        answer[:] = [error, True]


def by_turns(client: BlockingClient, dice: random.Random, *calls: Steps[Any]) -> list[Any]:
    """Carry out calls step by step, whose turn it is says the dice; the result or error of each."""
    answers: list[list[Any]] = [[None, False] for _ in calls]
    results: list[list[Any]] = [[] for _ in calls]
    while waiting := [each for each in range(len(calls)) if not results[each]]:
        turn = dice.choice(waiting)
        run(client, one_step(calls[turn], answers[turn], results[turn]))
    return [each[0] for each in results]


def contents(client: BlockingClient, store: BlockingObjectStore) -> dict[str, bytes]:
    """All objects, each with its bytes; nothing else is in the stream."""
    found = store.list(show_deleted=True)
    alive = [each for each in found if not each.deleted]
    assert len({each.nuid for each in alive}) == len(alive)
    stored = client.jetstream().stream_info(f"OBJ_{store.bucket}").state.messages
    assert stored == len(found) + sum(each.chunks for each in alive)
    return {each.name: store.get(each.name) for each in alive}


@pytest.mark.parametrize("rival", RIVALS)
def test_a_rename_and_a_rival(
    client: BlockingClient, server: ServerProcess, unique: str, rival: str
) -> None:
    dice = random.Random(f"{SEED} {rival}")
    js = client.jetstream()
    for number in range(SCHEDULES):
        store = js.create_object_store(
            ObjectStoreConfig(bucket=f"{unique}{number}", storage="memory")
        )
        store.put("a", FIRST, chunk_size=200)
        calls = store._updating_meta("a", rename="b"), RIVALS[rival](store)
        renamed, other = by_turns(client, dice, *calls)
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


OTHERS: dict[str, Callable[[BlockingObjectStore], Steps[Any]]] = {
    "delete": lambda store: store._deleting("a"),
    "put": lambda store: store._putting("a", SECOND, chunk_size=200),
    "describe": lambda store: store._updating_meta("a", description="other"),
}


@pytest.mark.parametrize("rival", OTHERS)
def test_a_change_of_properties_and_a_rival(
    client: BlockingClient, server: ServerProcess, unique: str, rival: str
) -> None:
    """The change is made to whatever has the name in the end, unless that is nothing."""
    dice = random.Random(f"{SEED} {rival}")
    js = client.jetstream()
    for number in range(SCHEDULES):
        store = js.create_object_store(
            ObjectStoreConfig(bucket=f"{unique}{number}", storage="memory")
        )
        store.put("a", FIRST, chunk_size=200)
        calls = store._updating_meta("a", metadata={"k": "v"}), OTHERS[rival](store)
        changed, other = by_turns(client, dice, *calls)
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


def test_two_links_with_one_name(
    client: BlockingClient, server: ServerProcess, unique: str
) -> None:
    dice = random.Random(SEED)
    store = client.jetstream().create_object_store(
        ObjectStoreConfig(bucket=unique, storage="memory")
    )
    target = store.put("a", FIRST)
    for number in range(SCHEDULES):
        name = f"link{number}"
        calls = store._linking(name, target), store._linking_bucket(name, "other")
        assert not any(isinstance(each, PeltonError) for each in by_turns(client, dice, *calls))
        assert store.info(name).link is not None
    store.destroy()
