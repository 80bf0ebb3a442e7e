"""Buckets of both shells, against every server there is."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from pelton import (
    Base64Keys,
    KeyValueConfig,
    PathKeys,
    StreamConfig,
    StreamSource,
    SubjectTransform,
)
from pelton.errors import (
    BadBucketError,
    BucketExistsError,
    BucketNotFoundError,
    ConnectionClosedError,
    InvalidKeyError,
    InvalidValueError,
    KeyExistsError,
    NotEnabledError,
    NoValueError,
    RevisionConflictError,
)
from tests.client.features import knows
from tests.client.shells import connected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.peers import ServerProcess

WAIT = 60
"""Ends a wait for something that will never come."""


@pytest.fixture
def js(shell: str, server: ServerProcess) -> Iterator[Any]:
    with connected(shell, server.url) as client:
        yield client.jetstream()


@pytest.fixture
def bucket(js: Any, unique: str, server: ServerProcess) -> Iterator[Any]:
    config = KeyValueConfig(
        bucket=unique,
        history=5,
        storage="memory",
        limit_marker_ttl=60 if knows(server.kind, "subject_delete_marker_ttl") else 0,
        allow_atomic=knows(server.kind, "allow_atomic"),
    )
    yield js.create_key_value(config)
    js.delete_key_value(unique)


def plain(entries: list[Any]) -> list[tuple[Any, ...]]:
    return [(entry.key, entry.revision, entry.operation, entry.data) for entry in entries]


# -- buckets


def test_buckets_are_created_changed_listed_and_deleted(js: Any, unique: str) -> None:
    with pytest.raises(BucketNotFoundError, match=unique):
        js.key_value(unique)
    with pytest.raises(BucketNotFoundError, match=unique):
        js.update_key_value(KeyValueConfig(bucket=unique))
    config = KeyValueConfig(bucket=unique, history=3, storage="memory", ttl="1h", description="d")
    first = js.create_key_value(config)
    assert (first.bucket, first.stream) == (unique, f"KV_{unique}")
    first.put("a", b"1")
    assert js.create_key_value(config).get("a").data == b"1"
    with pytest.raises(BucketExistsError, match="update it"):
        js.create_key_value(KeyValueConfig(bucket=unique, history=4, storage="memory"))
    changed = KeyValueConfig(bucket=unique, history=4, storage="memory", max_bytes=10**6)
    assert js.update_key_value(changed).get("a").data == b"1"
    status = js.key_value(unique).status()
    assert (status.config.history, status.config.max_bytes, status.values) == (4, 10**6, 1)
    assert status.config.ttl == 0
    js.create_or_update_key_value(KeyValueConfig(bucket=unique, history=5, storage="memory"))
    js.create_or_update_key_value(KeyValueConfig(bucket=f"{unique}2", storage="memory"))
    js.create_stream(StreamConfig(name=f"KV_{unique}3", subjects=[unique], storage="memory"))
    assert {unique, f"{unique}2"} <= set(js.key_value_names())
    listed = {each.bucket: each for each in js.key_values()}
    assert (listed[unique].history, listed[f"{unique}2"].history) == (5, 1)
    assert f"{unique}3" not in listed
    with pytest.raises(BadBucketError, match="does not store"):
        js.key_value(f"{unique}3")
    js.delete_stream(f"KV_{unique}3")
    js.key_value(f"{unique}2").destroy()
    js.delete_key_value(unique)
    assert not {unique, f"{unique}2"} & set(js.key_value_names())
    for gone in (
        lambda: js.delete_key_value(unique),
        first.destroy,
        first.status,
        lambda: first.get("a"),
        lambda: first.get("a", 1),
        lambda: first.put("a", b"1"),
        lambda: first.create("a", b"1"),
        lambda: first.delete("a"),
        first.keys,
        lambda: first.history("a"),
        first.snapshot,
        first.purge_deletes,
    ):
        with pytest.raises(BucketNotFoundError, match=unique):
            gone()


# -- one key


def test_a_key_and_its_revisions(bucket: Any) -> None:
    assert bucket.get("a.b") is None
    first = bucket.put("a.b", b"1")
    second = bucket.update("a.b", b"2", first)
    bucket.put("a.c", b"")
    entry = bucket.get("a.b")
    assert (entry.key, entry.value, entry.revision, entry.operation) == ("a.b", b"2", second, "PUT")
    assert (entry.bucket, entry.deleted, entry.delta) == (bucket.bucket, False, 0)
    assert bucket.get("a.c").value == b""
    old = bucket.get("a.b", first)
    assert (old.value, old.created <= entry.created) == (b"1", True)
    assert bucket.get("a.c", first) is None
    assert bucket.get("a.b", 999) is None
    with pytest.raises(RevisionConflictError, match=r"'a\.b'.*not at revision 1") as refused:
        bucket.update("a.b", b"3", first)
    assert (refused.value.key, refused.value.revision) == ("a.b", first)
    for call in (bucket.delete, bucket.purge):
        with pytest.raises(RevisionConflictError):
            call("a.b", revision=first)
    marker = bucket.delete("a.b", revision=second)
    assert bucket.get("a.b") is None
    assert bucket.get("a.b", marker) is None
    assert plain(bucket.history("a.b")) == [
        ("a.b", first, "PUT", b"1"),
        ("a.b", second, "PUT", b"2"),
        ("a.b", marker, "DEL", b""),
    ]
    purged = bucket.purge("a.b")
    assert plain(bucket.history("a.b")) == [("a.b", purged, "PURGE", b"")]


def test_create_takes_the_place_of_a_marker_only(bucket: Any) -> None:
    assert bucket.create("k", b"1") == 1
    with pytest.raises(KeyExistsError, match=r"'k'.*exists"):
        bucket.create("k", b"2")
    bucket.delete("k")
    assert bucket.create("k", b"3") == 3
    bucket.purge("k")
    assert bucket.create("k", b"4") == 5
    assert bucket.get("k").value == b"4"
    with pytest.raises(RevisionConflictError):
        bucket.update("k", b"5", 0)
    assert bucket.update("new", b"1", 0) == 6


def test_mistakes_are_found_before_anything_is_sent(bucket: Any) -> None:
    for call in (
        lambda: bucket.get("a..b"),
        lambda: bucket.put("a b", b""),
        lambda: bucket.create("*", b""),
        lambda: bucket.update(".a", b"", 1),
        lambda: bucket.delete("a."),
        lambda: bucket.purge(">"),
        lambda: bucket.keys("a*"),
        lambda: bucket.history("a..b"),
        lambda: bucket.watch("a.*", "*.b"),
        lambda: bucket.put_many({"": b""}),
        lambda: bucket.transaction().put("ä", b""),
    ):
        with pytest.raises(InvalidKeyError):
            call()
    for wrong in (
        lambda: bucket.put("a", "text"),
        lambda: bucket.update("a", b"", "1"),
        lambda: bucket.delete("a", revision=True),
    ):
        with pytest.raises(TypeError):
            wrong()
    for bad in (
        lambda: bucket.update("a", b"", -1),
        lambda: bucket.delete("a", revision=0),
        lambda: bucket.get("a", -1),
        lambda: bucket.create("a", b"", ttl=0.5),
        lambda: bucket.watch(history=True, updates_only=True),
        lambda: bucket.watch(from_revision=0),
        lambda: bucket.put_many({"a": b""}, revisions={"b": 1}),
    ):
        with pytest.raises(ValueError, match=r"revision|lifetime|one of"):
            bad()
    assert bucket.status().revision == 0


@pytest.mark.needs("subject_delete_marker_ttl")
def test_lifetimes(js: Any, unique: str) -> None:
    bucket = js.create_key_value(
        KeyValueConfig(bucket=unique, storage="memory", limit_marker_ttl=5)
    )
    bucket.put("stays", b"1")
    with bucket.watch(updates_only=True) as watch:
        bucket.create("short", b"1", ttl=1)
        assert watch.next(WAIT).key == "short"
        entry = watch.next(WAIT)
        assert (entry.key, entry.operation, entry.marker_reason) == ("short", "PURGE", "MaxAge")
    assert bucket.get("short") is None
    assert bucket.keys() == ["stays"]
    bucket.create("short", b"2")
    purged = bucket.purge("stays", ttl=60)
    info = js.get_message(bucket.stream, purged)
    assert info.headers.get_all("Nats-TTL") == ["1m0s"]
    without = js.create_key_value(KeyValueConfig(bucket=f"{unique}x", storage="memory"))
    for call in (lambda: without.create("a", b"", ttl=5), lambda: without.purge("a", ttl=5)):
        with pytest.raises(NotEnabledError, match="limit_marker_ttl"):
            call()
    js.update_key_value(
        KeyValueConfig(bucket=f"{unique}x", storage="memory", limit_marker_ttl="5s")
    )
    assert without.create("a", b"", ttl=5) == 1  # the same handle notices
    without.destroy()
    bucket.destroy()


# -- many keys


def test_keys_and_history_with_filters(bucket: Any) -> None:
    for key in ("eu.a", "eu.b", "us.a", "us.b.c", "x"):
        bucket.put(key, key.encode())
    bucket.delete("eu.b")
    assert bucket.keys() == ["eu.a", "us.a", "us.b.c", "x"]
    assert bucket.keys("eu.>") == ["eu.a"]
    assert bucket.keys("*.a") == ["eu.a", "us.a"]
    assert bucket.keys("us.>", "x", "us.a") == ["us.a", "us.b.c", "x"]
    assert bucket.keys("none.*") == []
    assert [entry.key for entry in bucket.history("eu.*")] == ["eu.a", "eu.b", "eu.b"]
    assert [entry.size for entry in bucket.history("us.b.c", without_values=True)] == [6]
    assert len(bucket.history()) == 6


def test_a_snapshot_is_the_state_as_of_its_revision(bucket: Any) -> None:
    assert dict(bucket.snapshot()) == {}
    for n in range(20):
        bucket.put(f"k{n % 7}", b"%d" % n)
    bucket.delete("k3")
    snapshot = bucket.snapshot()
    assert snapshot.revision == 21
    assert {key: entry.value for key, entry in snapshot.items()} == {
        "k0": b"14",
        "k1": b"15",
        "k2": b"16",
        "k4": b"18",
        "k5": b"19",
        "k6": b"13",
    }
    assert set(bucket.snapshot("k1", "k3", "other")) == {"k1"}


def test_deletes_are_purged_when_they_are_old(bucket: Any) -> None:
    for key in ("a", "b", "c"):
        bucket.put(key, b"1")
        bucket.put(key, b"2")
    bucket.delete("a")
    bucket.purge("b")
    assert bucket.purge_deletes() == 2  # the values before the young marker of a
    assert [entry.operation for entry in bucket.history("a", "b")] == ["DEL", "PURGE"]
    assert bucket.purge_deletes(older_than=0) == 2
    assert bucket.history("a", "b") == []
    assert len(bucket.history("c")) == 2


@pytest.mark.needs("allow_atomic")
def test_several_keys_at_once(bucket: Any) -> None:
    assert bucket.put_many({}) == {}
    assert bucket.put_many({"a": b"1", "b": b"2"}) == {"a": 1, "b": 2}
    with pytest.raises(RevisionConflictError, match="one of the keys"):
        bucket.put_many({"a": b"x", "c": b"x"}, revisions={"a": 9})
    with pytest.raises(RevisionConflictError, match="'a'"):
        bucket.put_many({"a": b"x"}, revisions={"a": 9})
    assert bucket.put_many({"a": b"3", "c": b"4"}, revisions={"a": 1, "c": 0}) == {"a": 3, "c": 4}
    bucket.delete("c")
    with bucket.transaction() as change:
        change.update("a", b"5", 3)
        change.purge("b")
        change.create("c", b"6", ttl=60)
        change.put("d", b"7")
        with pytest.raises(ValueError, match="changed twice"):
            change.put("a", b"")
        assert bucket.get("a").value == b"3"
    assert change.revisions == {"a": 6, "b": 7, "c": 8, "d": 9}
    assert {key: entry.data for key, entry in bucket.snapshot().items()} == {
        "a": b"5",
        "c": b"6",
        "d": b"7",
    }
    with pytest.raises(ValueError, match="is over"):
        change.put("e", b"")
    with pytest.raises(ValueError, match="is over"):
        change.commit()
    change = bucket.transaction()
    change.delete("a")
    change.create("c", b"8")
    with pytest.raises(KeyExistsError, match="'c'"):
        change.commit()
    change = bucket.transaction()
    with pytest.raises(ZeroDivisionError):
        abandon(change)
    with pytest.raises(ValueError, match="is over"):
        change.commit()
    assert bucket.get("a").value == b"5"


def abandon(change: Any) -> None:
    with change:
        change.delete("a")
        raise ZeroDivisionError


def test_a_bucket_without_transactions_says_so(js: Any, unique: str) -> None:
    bucket = js.create_key_value(KeyValueConfig(bucket=unique, storage="memory"))
    with pytest.raises(NotEnabledError, match=r"allow_atomic.*2\.12"):
        bucket.put_many({"a": b"1"})
    assert bucket.status().values == 0
    bucket.destroy()


# -- watches


def test_a_watch_tells_values_from_updates(bucket: Any) -> None:
    bucket.put("a", b"1")
    bucket.put("a", b"2")
    bucket.put("b", b"3")
    bucket.delete("b")
    bucket.put("x.y", b"4")
    with bucket.watch() as watch:
        assert not watch.caught_up
        assert plain(watch.initial()) == [
            ("a", 2, "PUT", b"2"),
            ("b", 4, "DEL", b""),
            ("x.y", 5, "PUT", b"4"),
        ]
        assert watch.caught_up
        assert watch.initial() == []
        bucket.put("a", b"5")
        entry = watch.next(WAIT)
        assert (entry.revision, entry.is_update, entry.value) == (6, True, b"5")
    loop = bucket.watch("a", "x.>", ignore_deletes=True)
    found = list(islice(loop, 2))
    assert [(entry.key, entry.is_update, entry.delta) for entry in found] == [
        ("x.y", False, 1),
        ("a", False, 0),
    ]
    assert loop.caught_up
    bucket.delete("a")
    bucket.put("other", b"")
    bucket.put("x.z", b"6")
    assert [entry.key for entry in islice(loop, 1)] == ["x.z"]
    loop.stop()
    loop.stop()
    assert list(loop) == []
    with pytest.raises(ConnectionClosedError, match="stopped"):
        loop.next()


def test_where_a_watch_begins(bucket: Any) -> None:
    with bucket.watch(updates_only=True) as watch:
        for n in range(4):
            bucket.put("a", b"%d" % n)
        assert watch.initial() == []
        assert [entry.is_update for entry in islice(watch, 4)] == [True] * 4
        assert watch.next(0.01) is None
    with bucket.watch(history=True) as watch:
        assert [entry.value for entry in watch.initial()] == [b"0", b"1", b"2", b"3"]
    with bucket.watch(from_revision=3) as watch:
        assert [entry.value for entry in watch.initial()] == [b"2", b"3"]
    with bucket.watch(from_revision=9) as watch:
        assert watch.initial() == []
    with bucket.watch("a", without_values=True) as watch:
        (entry,) = watch.initial()
        assert (entry.key, entry.size, entry.data) == ("a", 1, b"")
        with pytest.raises(NoValueError, match="not delivered"):
            _ = entry.value


def test_a_watch_of_an_empty_bucket(bucket: Any) -> None:
    with bucket.watch() as watch:
        assert watch.initial() == []
        bucket.put("a", b"1")
        assert watch.next(WAIT).is_update


def test_a_watch_loses_nothing_when_its_consumer_is_deleted(js: Any, bucket: Any) -> None:
    for n in range(5):
        bucket.put(f"k{n}", b"%d" % n)
    with bucket.watch() as watch:
        found = [watch.next(WAIT) for _ in range(2)]
        (name,) = js.consumer_names(bucket.stream)
        js.delete_consumer(bucket.stream, name)
        found += watch.initial(WAIT)
        assert [entry.key for entry in found] == ["k0", "k1", "k2", "k3", "k4"]
        for n in range(5, 12):
            for name in js.consumer_names(bucket.stream):
                js.delete_consumer(bucket.stream, name)
            bucket.put("k", b"%d" % n)
            assert watch.next(WAIT).value == b"%d" % n
    assert js.consumer_names(bucket.stream) == []


def test_the_watch_of_a_bucket_that_is_deleted_ends(js: Any, unique: str) -> None:
    bucket = js.create_key_value(KeyValueConfig(bucket=unique, storage="memory"))
    watch = bucket.watch()
    assert watch.initial() == []
    bucket.destroy()
    for _ in range(2):
        with pytest.raises(BucketNotFoundError, match=unique):
            watch.next(WAIT)
    watch.stop()


def test_a_watch_ends_with_its_client(shell: str, server: ServerProcess, unique: str) -> None:
    with connected(shell, server.url) as client:
        bucket = client.jetstream().create_key_value(
            KeyValueConfig(bucket=unique, storage="memory")
        )
        bucket.put("a", b"1")
        watch = bucket.watch()
        assert [entry.key for entry in watch.initial()] == ["a"]
        client.close()
        assert list(watch) == []
    with connected(shell, server.url) as client:
        client.jetstream().delete_key_value(unique)


# -- codecs


@dataclass
class Device:
    name: str
    port: int = 0


@pytest.mark.needs("allow_atomic")
def test_a_typed_bucket(bucket: Any) -> None:
    devices = bucket.typed(Device)
    revision = devices.put("a", Device("oven", 7))
    assert bucket.get("a").data == b'{"name":"oven","port":7}'
    assert devices.get("a").value == Device("oven", 7)
    assert devices.update("a", Device("fan"), revision) == 2
    assert [entry.value for entry in devices.history("a")] == [Device("oven", 7), Device("fan")]
    with pytest.raises(InvalidValueError, match="cannot be stored"):
        devices.put("a", {"name": 5})
    bucket.put("b", b"not json")
    with devices.watch() as watch:
        good, bad = watch.initial()
        assert good.value == Device("fan")
        with pytest.raises(InvalidValueError, match="holds an invalid value"):
            _ = bad.value
        devices.put("c", Device("lamp"))
        assert watch.next(WAIT).value == Device("lamp")
    assert devices.put_many({"d": Device("x"), "e": Device("y")}) == {"d": 5, "e": 6}
    assert bucket.typed(dict[str, int], "msgpack").put("f", {"a": 1}) == 7
    assert bucket.get("f").data == b"\x81\xa1a\x01"


def test_codecs_of_keys(bucket: Any) -> None:
    texts = bucket.with_keys(Base64Keys())
    texts.put("Bücher.größe 1", b"1")
    texts.put("Bücher.x", b"2")
    assert texts.get("Bücher.größe 1").key == "Bücher.größe 1"
    assert texts.keys("Bücher.*") == ["Bücher.größe 1", "Bücher.x"]
    assert set(texts.snapshot()) == {"Bücher.größe 1", "Bücher.x"}
    (stored, _) = bucket.keys()
    assert stored.isascii()
    texts.delete("Bücher.x")
    assert texts.purge_deletes(0) == 2
    bucket.purge(stored)
    paths = bucket.with_keys(PathKeys()).typed(str)
    paths.put("/users/anna", "1")
    assert [entry.key for entry in paths.history("/users/*")] == ["/users/anna"]
    assert bucket.keys("_root_.>") == ["_root_.users.anna"]
    assert paths.get("/users/anna/").value == "1"
    bucket.put("_-", b"")
    with pytest.raises(InvalidKeyError, match="cannot be decoded"):
        texts.keys()


# -- origins


def test_a_mirror_reads_here_and_writes_there(js: Any, bucket: Any, unique: str) -> None:
    bucket.put("a", b"1")
    leader = js.key_value(unique, direct=False)
    for name, mirror in (
        (f"{unique}m", unique),
        (
            f"{unique}t",
            StreamSource(
                name=unique,
                subject_transforms=[
                    SubjectTransform(src=f"$KV.{unique}.>", dest=f"$KV.{unique}t.>")
                ],
            ),
        ),
    ):
        copy = js.create_key_value(KeyValueConfig(bucket=name, storage="memory", mirror=mirror))
        with copy.watch("a") as watch:
            while watch.next(WAIT).value != b"1":
                pass  # what the mirror had when the watch began
            revision = copy.put("a", b"2")
            assert leader.get("a").revision == revision
            assert watch.next(WAIT).value == b"2"
            assert copy.update("a", b"1", revision) == revision + 1
        assert name in js.key_value_names()
        assert js.key_value(name).status().config.mirror.name == f"KV_{unique}"
        copy.destroy()


def test_sources_become_keys_of_the_bucket(js: Any, bucket: Any, unique: str) -> None:
    config = KeyValueConfig(bucket=f"{unique}s", storage="memory", sources=[unique])
    collected = js.create_key_value(config)
    with collected.watch() as watch:
        bucket.put("a", b"1")
        assert watch.next(WAIT).key == "a"
    collected.put("own", b"2")
    assert collected.keys() == ["a", "own"]
    assert collected.get("a").value == b"1"
    collected.destroy()


def test_reads_through_the_leader(js: Any, bucket: Any) -> None:
    revision = bucket.put("a", b"1")
    bucket.put("b", b"2")
    leader = js.key_value(bucket.bucket, direct=False)
    assert leader.get("a", timeout=WAIT).value == b"1"
    assert leader.get("a", revision).created == bucket.get("a").created
    assert leader.get("a", revision + 1) is None
    assert leader.get("none") is None
    bucket.delete("a")
    assert leader.get("a") is None
