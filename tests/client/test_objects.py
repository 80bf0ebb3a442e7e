"""Object stores in both shells, against every server there is."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pelton import (
    ApiError,
    BucketExistsError,
    BucketNotFoundError,
    LinkNotFollowedError,
    ObjectDamagedError,
    ObjectExistsError,
    ObjectLink,
    ObjectNotFoundError,
    ObjectReplacedError,
    ObjectStoreConfig,
)
from pelton.sync import connect
from tests.client.shells import connected
from tests.ways import SEED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.peers import ServerProcess

BLOB = random.Random(SEED).randbytes(400_000)  # four chunks of 128 KiB, the last one is short


@pytest.fixture
def js(shell: str, server: ServerProcess) -> Iterator[Any]:
    with connected(shell, server.url) as client:
        yield client.jetstream()


@pytest.fixture
def store(js: Any, unique: str) -> Iterator[Any]:
    store = js.create_object_store(ObjectStoreConfig(bucket=unique, storage="memory"))
    yield store
    if unique in js.object_store_names():
        store.destroy()


def messages(store: Any) -> int:
    """How many messages the stream has: chunks, and one about each object."""
    count: int = store.status().stream_info.state.messages
    return count


def test_objects_come_back_as_they_were(store: Any, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(BLOB)
    pieces = [BLOB[at : at + 33_333] for at in range(0, len(BLOB), 33_333)]
    with source.open("rb") as file:
        contents = [
            BLOB,
            bytearray(BLOB),
            memoryview(BLOB),
            source,
            file,
            io.BytesIO(BLOB),
            iter(pieces),
        ]
        for number, content in enumerate(contents):
            told: list[tuple[int, int | None]] = []
            info = store.put(
                f"o{number}", content, progress=lambda *done, told=told: told.append(done)
            )
            assert (info.size, info.chunks, info.chunk_size) == (len(BLOB), 4, 128 * 1024)
            assert told[-1] == (len(BLOB), len(BLOB))
            assert told == sorted(told)
            assert store.get(f"o{number}") == BLOB
    assert messages(store) == len(contents) * 5
    told = []
    info = store.get_file("o0", target, progress=lambda *done: told.append(done))
    assert target.read_bytes() == BLOB
    assert info.name == "o0"
    assert told[-1] == (len(BLOB), len(BLOB))
    buffer = io.BytesIO()
    store.get_file("o0", buffer)
    assert buffer.getvalue() == BLOB
    assert [len(chunk) for chunk in store.chunks("o0")] == [131072, 131072, 131072, 6784]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["source", "target"]


@pytest.mark.parametrize(("size", "chunk_size"), [(0, None), (1, None), (11, 1), (12, 4), (13, 4)])
def test_small_objects(store: Any, size: int, chunk_size: int | None) -> None:
    blob = BLOB[:size]
    info = store.put("o", blob, chunk_size=chunk_size)
    assert info.chunks == -(-size // (chunk_size or 128 * 1024))
    assert store.get("o") == blob
    assert b"".join(store.chunks("o")) == blob
    assert messages(store) == info.chunks + 1


def test_properties_and_their_changes(store: Any) -> None:
    made = store.put(
        "a/b c.ä",
        BLOB,
        description="text",
        headers={"One": "1", "Two": ["2", "3"]},
        metadata={"k": "v"},
    )
    info = store.info("a/b c.ä")
    assert info.mtime_ns > 1_700_000_000 * 10**9
    assert (made.mtime_ns, made.nuid, made.digest) == (0, info.nuid, info.digest)
    assert (info.description, info.metadata) == ("text", {"k": "v"})
    assert info.headers == {"One": ["1"], "Two": ["2", "3"]}
    changed = store.update_meta("a/b c.ä", description="other")
    assert (changed.description, changed.metadata) == ("other", {"k": "v"})
    store.put("taken", b"1")
    with pytest.raises(ObjectExistsError, match="'taken'"):
        store.update_meta("a/b c.ä", rename="taken")
    store.delete("taken")
    renamed = store.update_meta("a/b c.ä", rename="taken", metadata={})
    assert store.get("taken") == BLOB
    assert store.info("taken").metadata == renamed.metadata == {}
    with pytest.raises(ObjectNotFoundError):
        store.info("a/b c.ä")
    with pytest.raises(ObjectNotFoundError):
        store.update_meta("never", description="x")


def test_an_earlier_object_leaves_nothing(store: Any) -> None:
    store.put("o", BLOB)
    assert messages(store) == 5
    store.put("o", b"new")
    assert store.get("o") == b"new"
    assert messages(store) == 2
    store.delete("o")
    assert messages(store) == 1
    for call in (store.get, store.delete, store.info, lambda name: list(store.chunks(name))):
        with pytest.raises(ObjectNotFoundError, match="has no object 'o'"):
            call("o")
    gone = store.info("o", show_deleted=True)
    assert (gone.deleted, gone.size, gone.chunks, gone.digest) == (True, 0, 0, "")
    store.put("o", b"again")
    assert [info.name for info in store.list()] == ["o"]
    assert messages(store) == 2


def test_lists(store: Any) -> None:
    assert store.list() == []
    for name in ("a", "b", "c"):
        store.put(name, name.encode())
    store.delete("b")
    assert [info.name for info in store.list()] == ["a", "c"]
    assert [info.name for info in store.list(show_deleted=True)] == ["a", "c", "b"]
    assert store.status().stream_info.state.consumer_count == 0


def test_links(js: Any, store: Any, unique: str) -> None:
    other = js.create_object_store(ObjectStoreConfig(bucket=f"{unique}-2", storage="memory"))
    try:
        target = other.put("target", BLOB)
        link = store.add_link("link", target)
        assert link.link == ObjectLink(f"{unique}-2", "target")
        assert store.get("link") == BLOB
        assert b"".join(store.chunks("link")) == BLOB
        assert store.info("link").link == link.link
        store.put("here", b"here")
        store.add_link("link", store.info("here"))
        assert store.get("link") == b"here"
        with pytest.raises(ObjectExistsError):
            store.add_link("here", target)
        with pytest.raises(ValueError, match="is a link itself"):
            store.add_link("second", store.info("link"))
        other.delete("target")
        gone = other.info("target", show_deleted=True)
        with pytest.raises(ValueError, match="is deleted"):
            store.add_link("second", gone)
        whole = store.add_bucket_link("whole", f"{unique}-2")
        assert whole.link == ObjectLink(f"{unique}-2", "")
        with pytest.raises(LinkNotFollowedError, match="open that with object_store"):
            store.get("whole")
        other.add_link("target", store.info("here"))
        store.add_link("chain", store.info("here"))
        store.update_meta("here", rename="there")
        store.add_link("here", store.info("there"))
        with pytest.raises(LinkNotFollowedError, match="is a link itself"):
            store.get("chain")
        store.delete("chain")
        store.put("link", b"an object now")
        assert store.get("link") == b"an object now"
    finally:
        other.destroy()


def test_watching(store: Any) -> None:
    store.put("a", b"1")
    store.put("b", b"1")
    store.delete("b")
    told: list[Any] = []
    with store.watch() as watcher, store.watch(updates_only=True) as updates:
        for each in watcher:
            told.append((each.name, each.deleted, each.mtime_ns > 0))
            if watcher.caught_up:
                break
        assert told == [("a", False, True), ("b", True, True)]
        assert watcher.next(timeout=0.01) is None
        store.put("c", b"2")
        store.update_meta("c", description="new")
        assert watcher.next(timeout=30).name == "c"
        assert watcher.next(timeout=30).description == "new"
        assert updates.next(timeout=30).name == "c"
    with store.watch(ignore_deletes=True, include_history=True) as watcher:
        assert [each.name for each in watcher.initial()] == ["a", "c"]
        watcher.stop()
        assert list(watcher) == []
    with pytest.raises(ValueError, match="not both"):
        store.watch(include_history=True, updates_only=True)
    assert store.status().stream_info.state.consumer_count == 0


def test_watching_an_empty_bucket(store: Any) -> None:
    with store.watch() as watcher:
        assert watcher.initial() == []
        store.put("a", b"1")
        assert watcher.next(30).name == "a"


def test_a_damaged_object_is_not_returned(store: Any, js: Any, unique: str, tmp_path: Path) -> None:
    info = store.put("o", BLOB)
    stream = f"OBJ_{unique}"
    subject = f"$O.{unique}.C.{info.nuid}"
    second = js.get_message(stream, 2, next_by_subject=subject)
    js.delete_message(stream, second.seq)
    target = tmp_path / "target"
    target.write_bytes(b"before")
    for get in (
        lambda: store.get("o"),
        lambda: store.get_file("o", target),
        lambda: list(store.chunks("o")),
    ):
        with pytest.raises(ObjectDamagedError, match="is damaged"):
            get()
    js.publish(subject, second.data)  # now in another order
    with pytest.raises(ObjectDamagedError, match="do not have the digest"):
        store.get_file("o", target)
    js.publish(subject, b"more")
    with pytest.raises(ObjectDamagedError):
        store.get_file("o", target)
    assert target.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [target]
    js.publish(f"$O.{unique}.M.eA==", b"not JSON")
    with pytest.raises(ObjectDamagedError, match="does not describe"):
        store.info("x")
    assert [each.name for each in store.list()] == ["o"]
    store.put("x", b"1")
    assert store.get("x") == b"1"


def test_an_object_that_is_replaced_while_it_is_read(store: Any, server: ServerProcess) -> None:
    with connect(server.url) as client:
        writer = client.jetstream().object_store(store.bucket)
        store.put("o", BLOB, chunk_size=2**18)
        chunks = store.chunks("o")
        assert next(chunks) == BLOB[: 2**18]
        big = b"x" * (20 * 2**20)
        store.put("o", big)
        done = 0

        def replace(bytes_done: int, _: int | None) -> None:
            nonlocal done
            if not done:
                writer.put("o", b"the new one")
            done = bytes_done

        assert store.get("o", progress=replace) == b"the new one"
        store.put("o", big)
        chunks = store.chunks("o")
        next(chunks)
        writer.put("o", b"the new one")
        with pytest.raises(ObjectReplacedError, match="read it again"):
            list(chunks)


def test_two_writers_of_a_name_leave_one_object(store: Any, server: ServerProcess) -> None:
    with connect(server.url) as client:
        second = client.jetstream().object_store(store.bucket)

        def pieces() -> Iterator[bytes]:
            yield BLOB
            second.put("o", b"in between" * 50_000)
            yield BLOB

        store.put("o", pieces())
        assert second.get("o") == BLOB * 2
        assert messages(store) == store.info("o").chunks + 1


def test_buckets(js: Any, unique: str) -> None:
    config = ObjectStoreConfig(
        bucket=unique,
        description="d",
        ttl="1h",
        max_bytes=10**6,
        storage="memory",
        compression=True,
        metadata={"k": "v"},
    )
    store = js.create_object_store(config)
    js.create_object_store(config)
    status = store.status()
    assert (status.bucket, status.description, status.ttl) == (unique, "d", 3600 * 10**9)
    assert (status.max_bytes, status.storage, status.compressed) == (10**6, "memory", True)
    assert (status.replicas, status.sealed, status.size) == (1, False, 0)
    assert status.metadata["k"] == "v"
    made = status.stream_info.config
    assert made.subjects == [f"$O.{unique}.C.>", f"$O.{unique}.M.>"]
    assert (made.discard, made.allow_rollup_hdrs, made.allow_direct) == ("new", True, True)
    with pytest.raises(BucketExistsError):
        js.create_object_store(ObjectStoreConfig(bucket=unique))
    js.update_object_store(ObjectStoreConfig(bucket=unique, description="e", storage="memory"))
    status = js.object_store(unique).status()
    assert (status.description, status.max_bytes, status.ttl) == ("e", -1, 0)
    assert unique in js.object_store_names()
    assert unique in [each.bucket for each in js.object_stores()]
    js.delete_object_store(unique)
    for call in (js.object_store, js.delete_object_store):
        with pytest.raises(BucketNotFoundError):
            call(unique)
    with pytest.raises(BucketNotFoundError):
        js.update_object_store(ObjectStoreConfig(bucket=unique))


def test_a_configuration_is_a_name_and_fields_or_an_object(js: Any, unique: str) -> None:
    store = js.create_object_store(unique, description="d", storage="memory", max_bytes=10**6)
    status = store.status()
    assert (status.description, status.storage, status.max_bytes) == ("d", "memory", 10**6)
    js.update_object_store(unique, storage="memory", max_bytes=10**5)
    status = store.status()
    assert (status.description, status.max_bytes) == ("", 10**5)
    for call in (js.create_object_store, js.update_object_store):
        with pytest.raises(TypeError, match="no field max_byte: did you mean max_bytes"):
            call(unique, max_byte=1)
        with pytest.raises(TypeError, match="not both: max_bytes, ttl"):
            call(ObjectStoreConfig(bucket=unique), max_bytes=1, ttl=5)
        with pytest.raises(TypeError, match="bucket is a name or a ObjectStoreConfig"):
            call(5)
        with pytest.raises(ValueError, match="replicas"):
            call(unique, replicas=9)
    store.destroy()


def test_a_sealed_bucket_changes_no_more(store: Any) -> None:
    store.put("o", BLOB)
    assert store.seal().sealed
    before = messages(store)
    for call in (
        lambda: store.put("new", BLOB),
        lambda: store.delete("o"),
        lambda: store.update_meta("o", description="x"),
    ):
        with pytest.raises(ApiError, match="sealed"):
            call()
    assert (store.get("o"), messages(store)) == (BLOB, before)
    store.destroy()


def test_a_stream_without_direct_get(js: Any, store: Any, unique: str) -> None:
    info = js.stream_info(f"OBJ_{unique}")
    info.config.allow_direct = False
    js.update_stream(info.config)
    store.put("o", BLOB)
    assert store.get("o") == BLOB
    assert store.info("o").chunks == 4


def test_mistakes_are_told_before_anything_is_sent(js: Any, store: Any, tmp_path: Path) -> None:
    for name in ("", "x" * 2049):
        for call in (store.get, store.delete, store.info, lambda name: store.put(name, b"")):
            with pytest.raises(ValueError, match="bytes of UTF-8"):
                call(name)
    for content, text in (
        ("text", r"text\.encode"),
        (io.StringIO("text"), "binary mode"),
        (12, "content is bytes, .*, not int"),
    ):
        with pytest.raises(TypeError, match=text):
            store.put("o", content)
    with pytest.raises(TypeError, match="must be bytes"):
        store.put("o", iter(["text"]))
    for size in (0, -1, 2**30):
        with pytest.raises(ValueError, match="chunk_size"):
            store.put("o", b"", chunk_size=size)
    with pytest.raises(TypeError, match="headers"):
        store.put("o", b"", headers={"a": [1]})
    with pytest.raises(TypeError, match="metadata"):
        store.put("o", b"", metadata={"a": 1})
    with pytest.raises(TypeError, match="ObjectInfo"):
        store.add_link("o", "p")
    with pytest.raises(TypeError, match="binary mode"):
        store.get_file("o", io.StringIO())
    for bucket in ("", "a.b", "a b", "x" * 252, "*"):
        with pytest.raises(ValueError, match="bucket name"):
            js.object_store(bucket)
    with pytest.raises(FileNotFoundError):
        store.put("o", Path("/nowhere/at/all"))
    with pytest.raises(IsADirectoryError, match=f"directory: '{tmp_path}'$"):
        store.get_file("o", tmp_path)
    assert messages(store) == 0


def test_a_delete_leaves_what_was_put_meanwhile(
    server: ServerProcess, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(server.url) as client:
        store = client.jetstream().create_object_store(
            ObjectStoreConfig(bucket=unique, storage="memory")
        )
        store.put("o", BLOB)
        second = client.jetstream().object_store(unique)
        look = store._stream.look

        def look_and_put(*args: Any, **options: Any) -> Any:
            found = look(*args, **options)
            if second.info("o").size == len(BLOB):
                second.put("o", BLOB + b"later")
            return found

        monkeypatch.setattr(store._stream, "look", look_and_put)
        store.delete("o")
        assert store.get("o") == BLOB + b"later"
        assert messages(store) == store.info("o").chunks + 1
        store.destroy()
