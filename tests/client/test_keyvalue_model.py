"""A bucket beside a model of it: a dictionary of histories, through any sequence of operations."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pelton import KeyValueConfig
from pelton.errors import KeyExistsError, RevisionConflictError
from tests.client.features import knows
from tests.client.shells import SHELLS, connected
from tests.ways import length

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.peers import ServerProcess

KEYS = st.sampled_from(["a", "b", "a.x", "a.y", "b.x.y"])
VALUES = st.binary(max_size=4)
OFFSETS = st.sampled_from([None, 0, 0, 0, 1, -1])
"""How far the expected revision of a write is from the newest one; None: none is expected."""
FILTERS = st.sampled_from([(), ("a",), ("a.*",), ("*",), ("b.>", "a"), ("a.>", "a.x")])

STEP = st.one_of(
    st.tuples(st.just("put"), KEYS, VALUES),
    st.tuples(st.just("create"), KEYS, VALUES),
    st.tuples(st.just("update"), KEYS, VALUES, OFFSETS.filter(lambda each: each is not None)),
    st.tuples(st.just("delete"), KEYS, OFFSETS),
    st.tuples(st.just("purge"), KEYS, OFFSETS),
    st.tuples(st.just("many"), st.dictionaries(KEYS, st.tuples(VALUES, OFFSETS), min_size=1)),
    st.tuples(st.just("purge deletes")),
    st.tuples(st.just("look"), KEYS, FILTERS),
)


@dataclass
class Model:
    """Revisions of each key, oldest first: (revision, operation, value)."""

    history: int
    revision: int = 0
    keys: dict[str, list[tuple[int, str, bytes]]] = field(default_factory=dict)
    log: list[tuple[str, int, str, bytes]] = field(default_factory=list)

    def store(self, key: str, operation: str, value: bytes) -> int:
        self.revision += 1
        kept = [] if operation == "PURGE" else self.keys.get(key, [])
        self.keys[key] = [*kept, (self.revision, operation, value)][-self.history :]
        self.log.append((key, self.revision, operation, value))
        return self.revision

    def newest(self, key: str) -> int:
        return self.keys[key][-1][0] if self.keys.get(key) else 0

    def there(self, key: str) -> bool:
        return bool(self.keys.get(key)) and self.keys[key][-1][1] == "PUT"

    def purge_deletes(self) -> int:
        gone = [key for key, kept in self.keys.items() if kept and kept[-1][1] != "PUT"]
        return sum(len(self.keys.pop(key)) for key in gone)

    def matching(self, filters: tuple[str, ...]) -> list[str]:
        return sorted(key for key in self.keys if not filters or any(fits(key, f) for f in filters))


def fits(key: str, pattern: str) -> bool:
    """Whether a key matches a filter."""
    have, want = key.split("."), pattern.split(".")
    for n, token in enumerate(want):
        if token == ">":
            return len(have) > n
        if n >= len(have) or token not in ("*", have[n]):
            return False
    return len(have) == len(want)


@pytest.fixture(params=SHELLS)
def js(request: pytest.FixtureRequest, server: ServerProcess) -> Iterator[Any]:
    with connected(request.param, server.url) as client:
        yield client.jetstream()


def expected(model: Model, key: str, offset: int | None) -> int | None:
    """The revision that a write expects; at least 1 for those that need one."""
    return None if offset is None else max(1, model.newest(key) + offset)


def write(bucket: Any, model: Model, step: tuple[Any, ...]) -> None:
    """Carry out one step on both, and compare what they answer."""
    name, key = step[0], step[1]
    if name == "put":
        assert bucket.put(key, step[2]) == model.store(key, "PUT", step[2])
    elif name == "create" and model.there(key):
        with pytest.raises(KeyExistsError):
            bucket.create(key, step[2])
    elif name == "create":
        assert bucket.create(key, step[2]) == model.store(key, "PUT", step[2])
    elif name == "update":
        wanted = max(0, model.newest(key) + step[3])
        if wanted == model.newest(key):
            assert bucket.update(key, step[2], wanted) == model.store(key, "PUT", step[2])
        else:
            with pytest.raises(RevisionConflictError):
                bucket.update(key, step[2], wanted)
    else:
        call, operation = {"delete": (bucket.delete, "DEL"), "purge": (bucket.purge, "PURGE")}[name]
        given = expected(model, key, step[2])
        if given in (None, model.newest(key)):
            assert call(key, revision=given) == model.store(key, operation, b"")
        else:
            with pytest.raises(RevisionConflictError):
                call(key, revision=given)


def write_many(bucket: Any, model: Model, changes: dict[str, tuple[bytes, int | None]]) -> None:
    values = {key: value for key, (value, _) in changes.items()}
    wanted = {
        key: max(0, model.newest(key) + offset)
        for key, (_, offset) in changes.items()
        if offset is not None
    }
    if all(model.newest(key) == revision for key, revision in wanted.items()):
        stored = bucket.put_many(values, revisions=wanted)
        assert stored == {key: model.store(key, "PUT", value) for key, value in values.items()}
    else:
        with pytest.raises(RevisionConflictError):
            bucket.put_many(values, revisions=wanted)


def look(bucket: Any, model: Model, key: str, filters: tuple[str, ...]) -> None:
    """Compare all that can be read."""
    kept = model.keys.get(key, [])
    entry = bucket.get(key)
    assert (entry and (entry.revision, entry.value)) == (
        (kept[-1][0], kept[-1][2]) if model.there(key) else None
    )
    for revision, operation, value in kept:
        old = bucket.get(key, revision)
        assert (old and old.value) == (value if operation == "PUT" else None)
    found = [(each.revision, each.operation, each.data) for each in bucket.history(key)]
    assert found == kept
    matching = model.matching(filters)
    there = [key for key in matching if model.there(key)]
    assert bucket.keys(*filters) == there
    snapshot = bucket.snapshot(*filters)
    assert {key: each.revision for key, each in snapshot.items()} == {
        key: model.newest(key) for key in there
    }
    watch = bucket.watch(*filters)
    initial = [(each.revision, each.key) for each in watch.initial()]
    watch.stop()
    assert initial == sorted((model.newest(key), key) for key in matching)


@given(st.integers(1, 4), st.lists(STEP, max_size=12))
@settings(max_examples=length(8, 60), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_bucket_is_its_model(
    js: Any, server: ServerProcess, history: int, steps: list[tuple[Any, ...]]
) -> None:
    atomic = knows(server.kind, "allow_atomic")
    config = KeyValueConfig(
        bucket=f"M{uuid.uuid4().hex[:12]}", history=history, storage="memory", allow_atomic=atomic
    )
    bucket, model = js.create_key_value(config), Model(history)
    changes = bucket.watch()
    assert changes.initial() == []
    try:
        for step in steps:
            if step[0] == "look":
                look(bucket, model, step[1], step[2])
            elif step[0] == "many":
                if atomic:
                    write_many(bucket, model, step[1])
            elif step[0] == "purge deletes":
                assert bucket.purge_deletes(0) == model.purge_deletes()
            else:
                write(bucket, model, step)
        look(bucket, model, "a", ())
        last = model.store("end", "PUT", b"")
        assert bucket.put("end", b"") == last
        # every change that was not replaced before it was delivered, in order and once
        seen = []
        while not seen or seen[-1][1] != last:
            entry = changes.next(60)
            seen.append((entry.key, entry.revision, entry.operation, entry.data))
        assert [each for each in model.log if each in seen] == seen
        kept = {(key, *each) for key, entries in model.keys.items() for each in entries}
        assert kept <= set(seen)
    finally:
        changes.stop()
        bucket.destroy()
