"""A reconciliation whose source or stream goes away in the middle: it waits, or ends with what to do, and goes on."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pelton import sync
from pelton.errors import StreamNotFoundError
from pelton.plgd.bus import NoEventStreamError
from pelton.plgd.fleet import Faults
from pelton.plgd.gateway import BlockingGatewayClient, GatewayError, TokenVerifier
from pelton.plgd.reconcile import GatewaySource, Reconciler, StoreSource, sources
from pelton.plgd.store import SqliteStore, StoreError, mongo
from pelton.plgd.store.mongo import MongoStore
from tests.plgd.mongods import OurMongod, running_mongod
from tests.plgd.test_reconcile_stream import EVENTS, EVERYTHING, filled, gateway, stored
from tests.plgd.tokens import Issuer
from tests.proxies import Proxy
from tests.ways import length

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.peers import ServerProcess

SMALL: dict[str, Any] = {
    "devices": 5,
    "duration_s": 120,
    "faults": Faults(drop=0.1, tail_drop=0.2),
}


class Choppy(Proxy):
    """Breaks each connection after so many bytes of its answers; None: never."""

    def __init__(self, port: int) -> None:
        self.after: int | None = None
        super().__init__(port)

    def _to_client(self, far: socket.socket, near: socket.socket) -> None:
        left = self.after
        with contextlib.suppress(OSError):
            while data := far.recv(65536):
                if left is not None and len(data) > left:
                    near.sendall(data[:left])
                    break
                left = None if left is None else left - len(data)
                near.sendall(data)
        for each in (near, far):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def choppy(port: int) -> Iterator[Choppy]:
    proxy = Choppy(port)
    try:
        yield proxy
    finally:
        proxy.close()


def by_gateway(client: sync.Client, source: GatewaySource) -> Reconciler:
    return Reconciler(client, source, policy=EVERYTHING)


def test_a_gateway_that_goes_away_in_the_middle_is_waited_for(
    server: ServerProcess, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answers break anywhere; the findings are those of a gateway that is always there."""
    monkeypatch.setattr(sources, "DEVICES_AT_ONCE", 1)
    monkeypatch.setattr(sources, "RETRY_S", 0.01)
    rng, issuer = random.Random(seed), Issuer()
    owner = "a"
    filled(server.url, tmp_path / "store", owner=owner, **SMALL)
    heard: list[str] = []

    def waiting(error: GatewayError) -> None:
        heard.append(error.code)
        proxy.after = None if rng.random() < 0.5 else rng.randrange(20_000)

    with (
        sync.connect(server.url) as client,
        gateway(tmp_path / "store", TokenVerifier(issuer.pem())) as port,
        choppy(port) as proxy,
    ):
        target, token = f"127.0.0.1:{proxy.port}", issuer.token(owner)
        with BlockingGatewayClient(target, token) as calls:
            whole = by_gateway(client, GatewaySource(calls, owner)).run(repair=False)
        assert whole.missing
        for _ in range(length(3, 20)):
            with BlockingGatewayClient(target, token) as calls:
                source = GatewaySource(calls, owner, waiting=waiting)
                rows = source.devices([])
                proxy.after = None
                next(rows)  # it has answered
                proxy.after = rng.randrange(20_000)
                proxy.cut()
                again = by_gateway(client, source).run(repair=False)
            assert [f.as_data() for f in again.findings] == [f.as_data() for f in whole.findings]
        assert heard
        assert set(heard) <= sources.PASSING
        proxy.after = 0
        with (
            BlockingGatewayClient(target, token) as calls,
            pytest.raises(GatewayError, match="UNAVAILABLE"),
        ):
            by_gateway(client, GatewaySource(calls, owner)).run()
        with BlockingGatewayClient(target, token) as calls:
            source = GatewaySource(calls, owner, patience_s=0.3)
            proxy.after = None
            rows = source.devices([])
            next(rows)
            proxy.after = 0
            proxy.cut()
            with pytest.raises(GatewayError, match="UNAVAILABLE"):
                list(rows)


def test_a_token_that_expires_in_the_middle_is_asked_for_again(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "DEVICES_AT_ONCE", 1)
    monkeypatch.setattr(sources, "RETRY_S", 0.01)
    issuer = Issuer()
    owner = "a"
    filled(server.url, tmp_path / "store", owner=owner, **SMALL)
    old, new = issuer.token(owner, exp=int(time.time()) - 3600), issuer.token(owner)
    given = [new, new, old, old, new]  # then the last one again

    def token() -> str:
        return given.pop(0) if len(given) > 1 else given[0]

    with (
        sync.connect(server.url) as client,
        gateway(tmp_path / "store", TokenVerifier(issuer.pem())) as port,
    ):
        with BlockingGatewayClient(f"127.0.0.1:{port}", token) as calls:
            heard: list[GatewayError] = []
            source = GatewaySource(calls, owner, waiting=heard.append)
            report = by_gateway(client, source).run(repair=False)
            assert report.missing
            assert [error.code for error in heard] == ["UNAUTHENTICATED"] * 2
        with BlockingGatewayClient(f"127.0.0.1:{port}", old) as calls:
            late = by_gateway(client, GatewaySource(calls, owner))
            with pytest.raises(GatewayError, match=r"UNAUTHENTICATED.*expired"):
                late.run()


def test_mongodb_that_goes_away_in_the_middle_is_waited_for(
    server: ServerProcess, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops, or loses a connection or a cursor, anywhere; findings are those of one that stays."""
    monkeypatch.setattr(sources, "RETRY_S", 0.01)
    monkeypatch.setattr(mongo, "DOCUMENTS_AT_ONCE", 2)
    rng = random.Random(seed)
    run = filled(server.url, tmp_path / "store", history=False, **SMALL)
    with running_mongod("ours") as ours, sync.connect(server.url) as client:
        assert isinstance(ours, OurMongod)
        heard: list[str] = []

        def waiting(error: StoreError) -> None:
            heard.append(str(error))
            ours.stop()
            ours.start()
            if rng.random() < 0.5:
                ours.database.replies_until_it_fails = rng.randrange(20)

        with MongoStore.connect(ours.url, retryReads=False) as store:
            store.at_once = 3
            store.fill(run.aggregates())
            source = StoreSource(store, waiting=waiting)
            reconciler = Reconciler(client, source, policy=EVERYTHING)
            planned = reconciler.run(repair=False)
            assert planned.missing > planned.unrepaired
            before = len(stored(client))
            for _ in range(length(6, 20)):
                ours.database.replies_until_it_fails = rng.randrange(12)
                again = reconciler.run(repair=False)
                assert [f.as_data() for f in again.findings] == [
                    f.as_data() for f in planned.findings
                ]
            assert heard
            assert all(text.startswith("MongoDB: ") for text in heard)
            ours.database.replies_until_it_fails = 1
            brief = StoreSource(store, patience_s=0.3)
            with pytest.raises(StoreError, match="MongoDB: "):
                Reconciler(client, brief, policy=EVERYTHING).run()
            assert len(stored(client)) == before
            ours.database.replies_until_it_fails = None
            assert [f.as_data() for f in reconciler.run().findings] == [
                f.as_data() for f in planned.findings
            ]
            assert reconciler.run().published_events == 0


def test_a_stream_that_goes_away_before_the_repairs_is_told(
    server: ServerProcess, tmp_path: Path
) -> None:
    filled(server.url, tmp_path / "store", **SMALL)
    with sync.connect(server.url) as client, SqliteStore(tmp_path / "store") as store:
        js = client.jetstream()
        reconciler = Reconciler(client, StoreSource(store), policy=EVERYTHING)
        missing = reconciler.run(repair=False).missing
        deleting = threading.Event()

        class Deleting(StoreSource):
            """Deletes the stream behind what was compared."""

            def devices(self, seen: Any) -> Any:
                yield from super().devices(seen)
                js.delete_stream("EVENTS")
                deleting.set()

        gone = Reconciler(client, Deleting(store), policy=EVERYTHING)
        with pytest.raises(NoEventStreamError, match="pelton stream add EVENTS"):
            gone.run()
        assert deleting.is_set()
        with pytest.raises(StreamNotFoundError):
            reconciler.run()
        js.create_stream(EVENTS)  # what was there before is lost: the store has it
        report = reconciler.run()
        assert report.missing > missing
        assert reconciler.run().missing == report.unrepaired
