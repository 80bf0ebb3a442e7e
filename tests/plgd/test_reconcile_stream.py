"""Reconciliation of real streams: from a store and from a gateway, killed, with purges and failures."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pelton import StreamConfig, connect, sync
from pelton.errors import StreamNotFoundError
from pelton.plgd import LeadType, aggregate_id, decode, owner_id
from pelton.plgd.bus import EventBus
from pelton.plgd.fleet import Faults, FleetConfig, FleetRun
from pelton.plgd.gateway import BlockingGatewayClient, GatewayError, GatewayServer, TokenVerifier
from pelton.plgd.reconcile import (
    GatewaySource,
    Kept,
    Policy,
    Reconciler,
    Sightings,
    StoreSource,
)
from pelton.plgd.reconcile.registrations import lost_registration
from pelton.plgd.store import Aggregates, SqliteStore
from pelton.plgd.subjects import Era
from pelton.plgd.wire import events_pb2 as events
from tests.peers import ServerProcess
from tests.plgd.tokens import Issuer
from tests.ways import SEED, length, skip_other_servers

FAULTS = Faults(
    drop=0.02,
    tail_drop=0.2,
    corrupt=0.01,
    wrong_envelope=0.01,
    reorder=0.02,
    outages=((200.0, 220.0),),
)
FLEET: dict[str, Any] = {
    "devices": 6,
    "duration_s": 600,
    "seed": SEED,
    "faults": FAULTS,
    "command_interval_s": 60,
    "delete_interval_s": 1e12,
}
EVENTS = StreamConfig(name="EVENTS", subjects=["plgd.>"], storage="memory")
EVERYTHING = Policy(commands=True)


def filled(
    url: str,
    path: Path,
    *,
    history: bool = True,
    owner: str | None = None,
    registered: bool = True,
    **changes: Any,
) -> FleetRun:
    """A fleet's events in a stream, and its store in a file.

    With ``owner`` all devices are his; without ``registered`` each second registration is lost.
    """
    made = FleetRun(FleetConfig(**FLEET | changes), keep_events=history)
    for device in made.simulation.devices:
        device.owner = owner or device.owner
    deliveries = list(made.deliveries())
    joined = [each for each in deliveries if each.subject.endswith(".devicesregistered")]
    lost = set() if registered else {each.message_id for each in joined[::2]}
    deliveries = [each for each in deliveries if each.message_id not in lost]

    async def publish() -> None:
        async with connect(url) as client:
            await client.jetstream().create_stream(EVENTS)
            await EventBus(client).send_all(deliveries)

    asyncio.run(asyncio.wait_for(publish(), 60))
    with SqliteStore(path, history=history) as store:
        store.fill(made.aggregates())
    return made


def stored(client: sync.Client) -> list[tuple[str, str | None, int | None, int, str]]:
    """The events of the stream: subject, aggregate, version, time, and what kind of repair it is."""
    js = client.jetstream()
    found = []
    state = js.stream_info("EVENTS").state
    for seq in range(state.first_seq, state.last_seq + 1):
        message = js.get_message("EVENTS", seq)
        try:
            event = decode(message.subject, message.data)
        except ValueError:
            continue
        repair = message.headers.get("Pelton-Repair", "")
        found.append(
            (message.subject, event.aggregate_id, event.version, event.timestamp_ns, repair)
        )
    return found


def whole(run: FleetRun) -> set[tuple[str, int, int]]:
    """Every event that the store has."""
    return {
        (state.aggregate_id, e.event_metadata.version, e.event_metadata.timestamp)
        for state, kept in run.aggregates()
        for e in kept
    }


def test_a_stream_gets_what_it_lacks_once(server: ServerProcess, tmp_path: Path) -> None:
    run = filled(server.url, tmp_path / "store", lead=LeadType(choice="first"))
    told: list[str] = []
    with sync.connect(server.url) as client, SqliteStore(tmp_path / "store") as store:
        reconciler = Reconciler(
            client,
            StoreSource(store),
            policy=EVERYTHING,
            progress=lambda what, done, total: told.append(what),
        )
        planned = reconciler.run(repair=False)
        before = stored(client)
        report = reconciler.run()
        assert planned.summary() | {"published_events": report.published_events} == report.summary()
        assert report.published_events == report.missing > 0
        assert report.unrepaired == 0
        assert report.dead_letters == run.truth.summary()["dead_letters"]
        after = stored(client)
        assert after[: len(before)] == before
        new = after[len(before) :]
        assert {repair for *_, repair in new} == {"event"}
        assert len(new) == report.published_events
        of_devices = Counter(row[1:4] for row in after if row[1] is not None)
        assert set(of_devices) == whole(run)
        assert set(of_devices.values()) == {1}
        assert all((".leadrt" in row[0]) == (".resources." in row[0]) for row in new if row[1])
        again = reconciler.run()
        assert (again.missing, again.published_events) == (0, 0)
        assert "reading the stream" in told


@contextmanager
def gateway(path: Path, verifier: TokenVerifier) -> Iterator[int]:
    """A gateway in a thread of its own; its port."""
    ready: list[Any] = []
    started, loop = threading.Event(), asyncio.new_event_loop()

    async def serve() -> None:
        end = asyncio.Event()
        async with GatewayServer(lambda: SqliteStore(path), verifier) as server:
            ready.extend([await server.start(), end])
            started.set()
            await end.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert started.wait(60)
    try:
        yield ready[0]
    finally:
        loop.call_soon_threadsafe(ready[1].set)
        thread.join()
        loop.close()


@pytest.mark.parametrize("history", [True, False])
def test_a_gateway_gives_back_what_its_owner_lost(
    server: ServerProcess, tmp_path: Path, history: bool
) -> None:
    path, issuer = tmp_path / "store", Issuer()
    run = filled(server.url, path, history=history)
    owner = next(state.owner for state, _ in run.aggregates())
    token = issuer.token(owner)
    with sync.connect(server.url) as client:
        with gateway(path, TokenVerifier(issuer.pem())) as port:
            target = f"127.0.0.1:{port}"
            with BlockingGatewayClient(target, token) as calls:
                by_gateway = Reconciler(client, GatewaySource(calls, owner), policy=EVERYTHING)
                planned = by_gateway.run(repair=False)
                with SqliteStore(path) as store:
                    by_store = Reconciler(
                        client, StoreSource(store, owner=owner), policy=EVERYTHING
                    )
                    same = by_store.run(repair=False)
                assert [f.as_data() for f in planned.findings] == [
                    f.as_data()
                    for f in sorted(same.findings, key=lambda f: planned_order(planned, f))
                ]
                assert by_gateway.run().published_events == planned.missing - planned.unrepaired
                assert by_gateway.run().published_events == 0
                assert by_gateway.run().published_states == 0
            with BlockingGatewayClient(target, Issuer().token(owner)) as calls:
                stranger = Reconciler(client, GatewaySource(calls, owner))
                with pytest.raises(GatewayError, match="UNAUTHENTICATED"):
                    stranger.run()
        with BlockingGatewayClient(target, token, timeout_s=30) as calls:
            late = Reconciler(client, GatewaySource(calls, owner))
            with pytest.raises(GatewayError, match="UNAVAILABLE"):
                late.run()


@pytest.mark.parametrize("by_gateway", [False, True])
def test_lost_registrations_are_found_and_published(
    server: ServerProcess, tmp_path: Path, by_gateway: bool
) -> None:
    path, issuer = tmp_path / "store", Issuer()
    run = filled(server.url, path, owner="o", registered=False, faults=Faults(), devices=5)
    with ExitStack() as stack:
        client = stack.enter_context(sync.connect(server.url))
        if by_gateway:
            port = stack.enter_context(gateway(path, TokenVerifier(issuer.pem())))
            calls = BlockingGatewayClient(f"127.0.0.1:{port}", issuer.token("o"))
            source: Any = GatewaySource(stack.enter_context(calls), "o")
        else:
            source = StoreSource(stack.enter_context(SqliteStore(path)))
        reconciler = Reconciler(client, source, policy=EVERYTHING)
        planned = reconciler.run(repair=False)
        assert planned.missing == 0
        assert len(planned.registrations) == 3
        assert {each.owner for each in planned.registrations} == {"o"}
        known = {state.device_id for state, _ in run.aggregates()}
        assert {each.device_id for each in planned.registrations} <= known
        young = Reconciler(client, source, policy=Policy(grace_s=1e9))
        assert young.run().registrations == []
        report = reconciler.run()
        assert (report.published_registrations, report.published_events) == (3, 0)
        last = client.jetstream().get_message(
            "EVENTS", last_by_subject=f"plgd.owners.{owner_id('o')}.registrations.devicesregistered"
        )
        event = decode(last.subject, last.data)
        assert event.timestamp_ns == report.registrations[-1].since_ns
        assert last.headers.get_all("Pelton-Repair") == ["event"]
        assert reconciler.run().registrations == []
        # a stream that takes no registrations lacks none
        js = client.jetstream()
        js.create_stream(StreamConfig(name="OTHER", subjects=["other.>"], storage="memory"))
        assert Reconciler(client, source, stream="OTHER").run(repair=False).registrations == []
        js.delete_stream("OTHER")


@pytest.mark.parametrize(
    ("seen", "lost"),
    [
        ([], True),
        ([(10, True, "a")], False),
        ([(10, True, "b")], True),
        ([(10, True, "a"), (40, False, "a")], True),
        ([(40, False, "a"), (10, True, "a")], True),
        ([(10, True, "a"), (70, False, "a")], False),  # the source is about to forget it
    ],
)
def test_the_last_registration_counts(seen: list[tuple[int, bool, str]], lost: bool) -> None:
    second = 10**9
    message = events.DeviceMetadataUpdated(device_id="d")
    message.event_metadata.timestamp = 60 * second
    kept = Kept("m", "d", "a", message, ())
    sightings = Sightings()
    sightings.takes_registrations = True
    for time_s, registered, owner in seen:
        sightings.registration("d", owner_id(owner), time_s * second, registered=registered)
    found = lost_registration([kept], "a", sightings, 60 * second)
    assert (found is not None) == lost
    assert lost_registration([kept], "a", sightings, 59 * second) is None
    assert lost_registration([kept], "", sightings, 60 * second) is None
    sightings.begin_ns = 61 * second
    assert lost_registration([kept], "a", sightings, 60 * second) is None


def planned_order(report: Any, finding: Any) -> int:
    data = [f.as_data() for f in report.findings]
    return data.index(finding.as_data())


PROGRAM = """
import sys
from pelton import sync
from pelton.plgd.reconcile import Policy, Reconciler, StoreSource
from pelton.plgd.store import SqliteStore

url, path = sys.argv[1:]
with sync.connect(url) as client, SqliteStore(path) as store:
    tell = lambda what, done, total: print(what, flush=True)
    Reconciler(client, StoreSource(store), policy=Policy(commands=True), progress=tell).run()
print("end", flush=True)
"""


def test_killed_anywhere_nothing_is_doubled(
    server: ServerProcess, tmp_path: Path, seed: int, request: pytest.FixtureRequest
) -> None:
    skip_other_servers(request)
    rng = random.Random(seed)
    path = tmp_path / "store"
    run = filled(server.url, path, devices=length(8, 12), duration_s=1200, faults=Faults(drop=0.3))
    command = [sys.executable, "-c", PROGRAM, server.url, str(path)]
    kills, most = 0, length(2, 4)
    while kills < most:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2], env=dict(os.environ)
        )
        assert process.stdout is not None
        lines = iter(process.stdout.readline, b"")
        for line in lines:
            if line.startswith(b"publishing") and rng.random() < 0.6:
                process.send_signal(signal.SIGKILL)
                kills += 1
                break
            if line == b"end\n":
                kills = most
        process.wait()
        process.stdout.close()
    subprocess.run(command, check=True, cwd=Path(__file__).parents[2], stdout=subprocess.DEVNULL)
    with sync.connect(server.url) as client:
        found = Counter(row[1:4] for row in stored(client) if row[1] is not None)
    assert set(found) == whole(run)
    assert set(found.values()) == {1}


def test_no_stream_a_purged_one_and_older_subjects(server: ServerProcess, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with sync.connect(server.url) as client, SqliteStore(tmp_path / "none") as nothing:
        reconciler = Reconciler(client, StoreSource(nothing))
        with pytest.raises(StreamNotFoundError):
            reconciler.run()
    run = filled(server.url, path, hub="v2.7", faults=Faults(drop=0.02))
    with sync.connect(server.url) as client, SqliteStore(path) as store:
        js = client.jetstream()
        before = {row[:4] for row in stored(client) if row[1] is not None}
        middle = js.stream_info("EVENTS").state.last_seq // 2
        js.purge_stream("EVENTS", seq=middle)
        report = Reconciler(client, StoreSource(store), policy=EVERYTHING).run()
        counts = report.summary()
        assert counts["causes"]["retention"] > 100
        assert report.published_events == counts["repairable"] > 0
        js.purge_stream("EVENTS")
        report = Reconciler(client, StoreSource(store), policy=EVERYTHING).run()
        assert report.published_events == 0
        assert set(report.summary()["causes"]) == {"retention"}
        refill = Policy(commands=True, refill=True)
        js.delete_stream("EVENTS")  # and its memory of message ids
        js.create_stream(EVENTS)
        report = Reconciler(client, StoreSource(store), policy=refill, era=Era.RESOURCE).run()
        after = {row[:4] for row in stored(client)}
        assert {row[1:] for row in after if row[1] is not None} == whole(run)
        assert before <= after


def test_what_is_in_the_outbox_is_left_to_it(server: ServerProcess, tmp_path: Path) -> None:
    device = "00000000-0000-4000-8000-000000000001"
    id_ = events.ResourceId(device_id=device, href="/light/1")
    with sync.connect(server.url) as client, SqliteStore(tmp_path / "store") as store:
        client.jetstream().create_stream(EVENTS)
        change = Aggregates(store, era=Era.HREF).change
        for now in range(1, 4):
            content = events.Content(data=b"%d" % now)
            change(
                aggregate_id(device, "/light/1"),
                "a",
                now,
                lambda _, c=content: [events.ResourceChanged(resource_id=id_, content=c)],
            )
        first = store.outgoing()[0]
        store.sent([first.number], 0)
        report = Reconciler(client, StoreSource(store)).run()
        assert [(f.first, f.last, f.repaired) for f in report.findings] == [(0, 0, 1)]
