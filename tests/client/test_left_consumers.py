"""Readers that make consumers for themselves leave none behind, also when answers of the server are lost."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

import pytest

from pelton import KeyValueConfig, ObjectStoreConfig, StaticGroupConfig, StreamConfig
from pelton.client.aio import members
from pelton.client.sync import members as sync_members
from pelton.errors import PeltonTimeoutError
from pelton.sync import connect
from tests.client.shells import connected, wait_for
from tests.proxies import running_proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.peers import ServerProcess

WAIT = 60


class Losing:
    """Loses answers to creations, and deletes a consumer as soon as it is there."""

    def __init__(self, admin: Any, stream: str, lost: set[int], deleted: int) -> None:
        self.answers = 0
        self._admin = admin
        self._stream = stream
        self._lost = lost
        self._deleted = deleted

    def __call__(self, operation: bytes) -> bool:
        of_stream = b'"stream_name":"%s"' % self._stream.encode() in operation
        if b"consumer_create_response" not in operation or not of_stream:
            return False
        self.answers += 1
        if self.answers == self._deleted:
            name = re.findall(rb'"name":"(\w+)"', operation)[0]
            self._admin.delete_consumer(self._stream, name.decode())
        return self.answers in self._lost


def bucket(js: Any, admin: Any) -> tuple[str, Any]:
    admin.create_key_value(KeyValueConfig(bucket="b")).put("a", b"")
    return "KV_b", js.key_value("b")


def objects(js: Any, admin: Any) -> tuple[str, Any]:
    admin.create_object_store(ObjectStoreConfig(bucket="b")).put("a", b"")
    return "OBJ_b", js.object_store("b")


def stream(js: Any, admin: Any) -> tuple[str, Any]:
    admin.create_stream(StreamConfig(name="S", subjects=["s"]))
    admin.publish("s", b"")
    return "S", js


def columns(js: Any, admin: Any) -> tuple[str, Any]:
    return stream(js, admin)


def group(js: Any, admin: Any) -> tuple[str, Any]:
    admin.create_stream(StreamConfig(name="S", subjects=["0.s"]))
    admin.create_static_group("S", "g", StaticGroupConfig(max_members=1, members=["m"]))
    admin.publish("0.s", b"")
    return "KV_static-consumer-groups", js.static_group("S", "g")


@contextlib.contextmanager
def first_of(reader: Any, make: Any) -> Iterator[Any]:
    """The first item of a reader that is open until the end of the block."""
    if make is stream:
        with reader.ordered_consumer("S").consume() as messages:
            yield next(iter(messages))
        return
    if make is columns:
        read = reader.read_columns("S", 1, 2, timeout=0.5)
        yield next(read)
        read.close()
        return
    if make is group:
        with reader.consume("m", print, auto_ack=True) as messages:
            yield messages
        return
    with reader.watch() as watch:
        yield watch.next(timeout=WAIT)


@pytest.mark.parametrize(
    "make",
    [
        bucket,
        objects,
        stream,
        columns,
        pytest.param(group, marks=pytest.mark.needs("priority_groups")),
    ],
)
@pytest.mark.timeout(180)
def test_every_consumer_is_removed(
    shell: str, own_server: ServerProcess, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first tries end with a PeltonTimeoutError, because the answer is lost; the user tries again."""
    if make is columns and shell != "blocking":
        pytest.skip("columns are for blocking code")
    for half in (members, sync_members):
        monkeypatch.setattr(half, "HEARTBEAT_S", 0.2)
        monkeypatch.setattr(half, "SILENCE_S", 0.5)
    with (
        connect(own_server.url, timeout=30) as client,
        running_proxy(own_server.port) as proxy,
        connected(shell, proxy.url, timeout=0.5, reconnect_wait=0.05) as losing,
    ):
        admin = client.jetstream()
        name, reader = make(losing.jetstream(), admin)
        loses = proxy.loses = Losing(admin, name, lost={1, 2}, deleted=3)

        def settled() -> bool:
            if make is group:  # it looks after its document while it has time to
                item.run(timeout=0.05)
            return loses.answers >= 4 and len(admin.consumer_names(name)) == 1

        while True:
            with contextlib.suppress(PeltonTimeoutError), first_of(reader, make) as item:
                assert item is not None
                wait_for(settled)
                break
        wait_for(lambda: admin.consumer_names(name) == [])
