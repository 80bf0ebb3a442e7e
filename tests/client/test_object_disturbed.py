"""Chunks that are lost, late or refused, as while the stream of an object store gets another leader."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from pelton import ObjectStoreConfig, PeltonTimeoutError
from pelton.testing import broker
from tests.client.everything import calling
from tests.client.shells import connected
from tests.ways import EVERY_WAY, SEED, length

if TYPE_CHECKING:
    from tests.peers import ServerProcess

NOBODY = b"NATS/1.0 503\r\n\r\n"
CHUNK = 1000
CHUNKS = 40
FAULTS_MAX = 12
ROUNDS = length(3, 60)
PATIENCE_S = 20


class BadRoad:
    """Between a client and its server: loses some chunks, holds some back, and has some refused."""

    def __init__(self, connection: Any, dice: random.Random, kinds: str) -> None:
        self.faults = 0
        self._connection = connection
        self._publish = connection.publish_chunk
        self._dice = dice
        self._kinds = kinds
        self._held: list[tuple[Any, ...]] = []

    def publish(self, *chunk: Any) -> None:
        """Take one chunk."""
        if self.faults < FAULTS_MAX and self._dice.random() < 0.2:
            self.faults += 1
            kind = self._dice.choice(self._kinds)
            if kind == "h":
                self._held.append(chunk)
            elif kind == "r":
                self._connection.publish(chunk[2], b"", "", NOBODY)
        else:
            self._publish(*chunk)
        if self._held and self._dice.random() < 0.1:
            self._publish(*self._held.pop(self._dice.randrange(len(self._held))))


@pytest.mark.parametrize(
    "kinds", ["l", "lrh", *(pytest.param(kind, marks=EVERY_WAY) for kind in "rh")]
)
def test_the_object_is_whole(
    shell: str, server: ServerProcess, unique: str, kinds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(f"{SEED} {kinds}")
    faults = 0
    with connected(shell, server.url) as client:
        js = client.jetstream()
        js.create_object_store(ObjectStoreConfig(bucket=unique, storage="memory"))
        stores: list[Any] = []
        calling(lambda: stores.append(client.jetstream(timeout=0.1).object_store(unique)))
        [store] = stores
        for _ in range(ROUNDS):
            data = dice.randbytes(CHUNK * CHUNKS - 1)
            road = BadRoad(client._connection, dice, kinds)
            with monkeypatch.context() as patch:
                patch.setattr(client._connection, "publish_chunk", road.publish)
                info = store.put("o", data, chunk_size=CHUNK, timeout=PATIENCE_S)
            assert store.get("o") == data
            stored = js.stream_info(f"OBJ_{unique}", subjects_filter="$O.*.C.>").state.subjects
            assert sum(stored.values()) == info.chunks == CHUNKS
            faults += road.faults
        js.delete_stream(f"OBJ_{unique}")
    assert faults > ROUNDS


def test_chunks_that_are_refused_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    with broker() as made, made.connect_sync() as client:
        store = client.jetstream().create_object_store(ObjectStoreConfig(bucket="b"))
        monkeypatch.setattr(
            client._connection,
            "publish_chunk",
            lambda *chunk: client._connection.publish(chunk[2], b"", "", NOBODY),
        )
        with pytest.raises(PeltonTimeoutError, match="no ack of a chunk"):
            store.put("o", b"data", timeout=0.3)
