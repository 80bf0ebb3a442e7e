"""The gRPC gateway over a made-up fleet's store, and on the bus: answers, filters, tokens, TLS, failures."""

from __future__ import annotations

import asyncio
import base64
import random
import socket
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import jwt
import pytest

from pelton import connect
from pelton.plgd import Kind, aggregate_id, decode_content
from pelton.plgd.bus import EventBus
from pelton.plgd.fleet import FleetConfig, FleetRun
from pelton.plgd.gateway import (
    BlockingGatewayClient,
    ClientTls,
    GatewayClient,
    GatewayError,
    GatewayServer,
    InvalidTokenError,
    ServerTls,
    TokenVerifier,
    claimed_owner,
)
from pelton.plgd.gateway.methods import METHODS
from pelton.plgd.kinds import type_of
from pelton.plgd.store import EventStore, SqliteStore, StoreError
from pelton.plgd.wire import events_pb2 as events
from pelton.plgd.wire import gateway_pb2 as pb
from tests.certificates import Authority
from tests.peers import ServerProcess
from tests.plgd.tokens import Issuer
from tests.ways import SEED

FLEET: dict[str, Any] = {
    "devices": 9,
    "duration_s": 600,
    "seed": SEED,
    "command_interval_s": 40,
    "command_ttl_s": 5,
    "unpublish_interval_s": 900,
}
ISSUER = Issuer()
Body = Callable[[], Coroutine[Any, Any, None]]


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(body, 60))


class Fleet:
    """A store with a fleet that has two owners, and what is in it."""

    def __init__(self, path: Path, *, history: bool = True, **config: Any) -> None:
        self.path = path
        made = FleetRun(FleetConfig(**FLEET | config), keep_events=history)
        for number, device in enumerate(made.simulation.devices):
            device.owner = "ab"[number % 2]
        for _ in made.deliveries():
            pass
        self.now_ns = made.simulation.now_ns
        self.rows = sorted(
            made.aggregates(), key=lambda row: (row[0].device_id, row[0].aggregate_id)
        )
        with SqliteStore(path) as store:
            assert store.fill(self.rows) == len(self.rows)

    def of(self, owner: str) -> list[Any]:
        """The states and events of an owner."""
        return [row for row in self.rows if row[0].owner == owner]

    def devices(self, owner: str) -> list[str]:
        return sorted({state.device_id for state, _ in self.of(owner)})

    def links(self, device: str) -> Any:
        [found] = [
            state.snapshot
            for state, _ in self.rows
            if state.device_id == device and type_of(state.snapshot).kind is Kind.LINKS
        ]
        return found


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    return Fleet(tmp_path_factory.mktemp("fleet") / "store")


@asynccontextmanager
async def serving(
    path: Path | Callable[[], EventStore],
    now_ns: int = 0,
    *,
    tls: ServerTls | None = None,
    **options: Any,
) -> AsyncIterator[GatewayServer]:
    def opened() -> EventStore:
        return SqliteStore(path) if isinstance(path, Path) else path()

    verifier = options.pop("verifier", None) or TokenVerifier(ISSUER.key_set())
    async with GatewayServer(opened, verifier, clock=lambda: now_ns, **options) as server:
        await server.start(tls=tls)
        yield server


def client(server: GatewayServer, owner: str = "a", **options: Any) -> GatewayClient:
    return GatewayClient(f"127.0.0.1:{server.port}", ISSUER.token(owner), timeout_s=60, **options)


async def all_of(rows: AsyncIterator[Any]) -> list[Any]:
    return [row async for row in rows]


def key(message: Any) -> tuple[str, int]:
    own = message.resource_id if hasattr(message, "resource_id") else message
    return f"{own.device_id}{getattr(own, 'href', '')}", message.event_metadata.timestamp


def test_the_calls_are_those_of_the_hub() -> None:
    assert {name: method.path for name, method in METHODS.items()} == {
        name: f"/grpcgateway.pb.GrpcGateway/{name}"
        for name in [
            "GetDevices",
            "GetDevicesMetadata",
            "GetEvents",
            "GetPendingCommands",
            "GetResourceLinks",
            "GetResources",
            "SubscribeToEvents",
        ]
    }
    ids = [
        pb.ResourceIdFilter(resource_id=events.ResourceId(device_id="d", href="/h"), etag=[b"e"])
    ]
    asked = pb.GetEventsRequest(device_id_filter=["d"], timestamp_filter=5, resource_id_filter=ids)
    assert asked.SerializeToString().hex() == "0a01641805220c0a070a0164120 22f6812 0165".replace(
        " ", ""
    )
    changed = events.ResourceChanged(status=events.OK)
    answer = pb.GetEventsResponse(resource_changed=changed)
    assert answer.SerializeToString().hex() == "22021801"
    create = pb.SubscribeToEvents.CreateSubscription(event_filter=[16], href_filter=["/h"])
    request = pb.SubscribeToEvents(create_subscription=create, correlation_id="c")
    assert request.SerializeToString().hex() == "0a070a01102 2022f68aa060163".replace(" ", "")
    metadata = events.DeviceMetadataUpdatePending(valid_until=1)
    pending = pb.PendingCommand(device_metadata_update_pending=metadata)
    assert pending.SerializeToString().hex() == "2a022801"


def test_events_are_those_of_the_owner_and_of_the_filter(fleet: Fleet, seed: int) -> None:
    rng = random.Random(seed)
    everything = [(s, m) for s, kept in fleet.rows for m in kept]

    async def body() -> None:
        async with serving(fleet.path) as server, client(server) as gateway:
            for round_ in range(12):
                devices = rng.sample(fleet.devices("a") + fleet.devices("b"), rng.randrange(3))
                resources = [
                    (s.device_id, s.snapshot.resource_id.href)
                    for s, _ in rng.sample(fleet.rows, rng.randrange(4))
                    if hasattr(s.snapshot, "resource_id")
                ]
                times = [m.event_metadata.timestamp for _, m in everything]
                after = rng.choice([0, rng.choice(times)]) if round_ else 0
                named = {aggregate_id(*each) for each in resources}
                expected = [
                    m
                    for s, m in everything
                    if s.owner == "a"
                    and m.event_metadata.timestamp > after
                    and (
                        not (devices or resources)
                        or s.device_id in devices
                        or s.aggregate_id in named
                    )
                ]
                found = await all_of(
                    gateway.events(device_ids=devices, resources=resources, after_ns=after)
                )
                assert found == expected
                texts = [device + href for device, href in resources]
                if texts:
                    request = pb.GetEventsRequest(
                        device_id_filter=devices,
                        http_resource_id_filter=texts,
                        timestamp_filter=after,
                    )
                    answers = await all_of(gateway.answers("GetEvents", request))
                    assert len(answers) == len(expected)

    run(body())


def test_without_events_the_states_come_as_a_newer_hub_gives_them(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path / "store", history=False, devices=3)

    async def body() -> None:
        async with serving(fleet.path) as server, client(server) as gateway:
            found = await all_of(gateway.events())
            assert found == [state.snapshot for state, _ in fleet.of("a")]
            last = max(message.event_metadata.timestamp for message in found)
            assert await all_of(gateway.events(after_ns=last)) == []
            assert len(await all_of(gateway.events(after_ns=last - 1))) == 1

    run(body())


def test_resources_links_metadata_and_devices(fleet: Fleet) -> None:
    async def body() -> None:
        async with serving(fleet.path) as server, client(server) as gateway:
            found = await all_of(gateway.resources())
            published = {
                (device, href)
                for device in fleet.devices("a")
                for href in fleet.links(device).resources
            }
            assert {
                (r.data.resource_id.device_id, r.data.resource_id.href) for r in found
            } <= published
            changed = {
                (s.device_id, s.snapshot.resource_id.href): s.snapshot.latest_resource_change
                for s, _ in fleet.of("a")
                if hasattr(s.snapshot, "latest_resource_change")
            }
            for each in found:
                name = each.data.resource_id.device_id, each.data.resource_id.href
                assert each.data == changed[name]
                assert list(each.types) == list(
                    fleet.links(name[0]).resources[name[1]].resource_types
                )
            lights = await all_of(gateway.resources(types=["core.light"]))
            assert {r.data.resource_id.href for r in lights} == {"/light/1"}
            one = lights[0].data
            text = base64.urlsafe_b64encode(one.etag).decode().rstrip("=")
            request = pb.GetResourcesRequest(
                http_resource_id_filter=[f"{one.resource_id.device_id}/light/1?etag={text}"]
            )
            [same] = await all_of(gateway.answers("GetResources", request))
            assert same.data.status == events.NOT_MODIFIED
            assert same.data.content == events.Content(coap_content_format=-1)

            links = await all_of(gateway.resource_links())
            assert [each.device_id for each in links] == fleet.devices("a")
            for each in links:
                assert {r.href: r for r in each.resources} == dict(
                    fleet.links(each.device_id).resources
                )
            metadata = await all_of(gateway.devices_metadata(device_ids=fleet.devices("b")))
            assert metadata == []
            metadata = await all_of(gateway.devices_metadata())
            assert [each.device_id for each in metadata] == fleet.devices("a")
            devices = await all_of(gateway.devices())
            assert [each.id for each in devices] == fleet.devices("a")
            for device, updated in zip(devices, metadata, strict=True):
                assert device.metadata.connection == updated.connection
                content = device.data.content
                body = decode_content(
                    content.data, content.content_type, content.coap_content_format
                )
                assert (device.name, device.model_number) == (body["n"], body["dmno"])
            online = pb.GetDevicesRequest(status_filter=[pb.GetDevicesRequest.ONLINE])
            offline = pb.GetDevicesRequest(status_filter=[pb.GetDevicesRequest.OFFLINE])
            counts = [
                len(await all_of(gateway.answers("GetDevices", q))) for q in (online, offline)
            ]
            assert sum(counts) == len(devices)

    run(body())


def test_commands_wait_until_they_expire_and_hidden_ones_are_shown_when_asked(
    tmp_path: Path,
) -> None:
    device = "00000000-0000-4000-8000-000000000001"
    fleet = Fleet(tmp_path / "store", devices=1)
    [device] = fleet.devices("a")
    light, hidden = (
        events.ResourceUpdatePending(
            resource_id=events.ResourceId(device_id=device, href=href), valid_until=until
        )
        for href, until in [("/light/1", 100), ("/vendor/secret", 0)]
    )
    twin = events.DeviceMetadataUpdatePending(device_id=device, valid_until=100, twin_enabled=False)
    with SqliteStore(fleet.path) as store:
        for state, kept in fleet.rows:
            snapshot = state.snapshot
            if hasattr(snapshot, "update_pendings"):
                del snapshot.update_pendings[:]
                snapshot.update_pendings.append(twin)
            elif hasattr(snapshot, "resource_id"):
                for field in ("create", "retrieve", "update", "delete"):
                    snapshot.ClearField(f"resource_{field}_pendings")
                if snapshot.resource_id.href == "/light/1":
                    snapshot.resource_update_pendings.append(light)
                    secret = events.ResourceStateSnapshotTaken(resource_id=hidden.resource_id)
                    secret.resource_update_pendings.append(hidden)
                    new = type(state)(
                        aggregate_id(device, "/vendor/secret"), device, "a", 0, 1, secret
                    )
                    store.fill([(new, [])])
            store.fill([(state, kept)])

    async def body() -> None:
        async with serving(fleet.path, 99) as server, client(server) as gateway:
            assert await all_of(gateway.pending_commands()) == [twin, light]
            assert await all_of(gateway.pending_commands(hidden=True)) == [twin, light, hidden]
            updates = pb.GetPendingCommandsRequest(command_filter=[2])
            [answer] = await all_of(gateway.answers("GetPendingCommands", updates))
            assert answer.resource_update_pending == light
            lights = pb.GetPendingCommandsRequest(type_filter=["core.light"])
            assert len(await all_of(gateway.answers("GetPendingCommands", lights))) == 1
        async with serving(fleet.path, 100) as server, client(server) as gateway:
            assert await all_of(gateway.pending_commands(hidden=True)) == [hidden]

    run(body())


def test_a_refusal_is_told_also_while_the_request_is_written(fleet: Fleet) -> None:
    """gRPC loses the status of some such calls: one of 300 here, beside other work."""

    async def body() -> None:
        async with (
            serving(fleet.path) as server,
            GatewayClient(f"127.0.0.1:{server.port}", "") as gateway,
        ):
            for _ in range(100):
                with pytest.raises(GatewayError, match="bearer TOKEN is missing"):
                    await all_of(gateway.subscribe())

    run(body())


@pytest.mark.parametrize(
    ("token", "text"),
    [
        ("", "bearer TOKEN is missing"),
        ("nonsense", "no token"),
        (ISSUER.token(None), "no claim 'sub'"),
        (ISSUER.token("*"), "everybody"),
        (ISSUER.token(exp=int(time.time()) - 60), "expired"),
        (ISSUER.token(nbf=int(time.time()) + 10_000_000), "not yet valid"),
        (Issuer().token(), "no known key"),
        (Issuer("key-2").token(), "no key 'key-2'"),
        (jwt.encode({"sub": "a"}, None, "none"), "not valid"),
        (jwt.encode({"sub": "a"}, "s" * 64, "HS256", headers={"kid": "key-1"}), "not valid"),
    ],
)
def test_who_has_no_valid_token_gets_nothing(fleet: Fleet, token: str, text: str) -> None:
    async def body() -> None:
        async with (
            serving(fleet.path) as server,
            GatewayClient(f"127.0.0.1:{server.port}", token) as gateway,
        ):
            for rows in (gateway.events(), gateway.subscribe()):
                with pytest.raises(GatewayError, match=text) as caught:
                    await all_of(rows)
                assert caught.value.code == "UNAUTHENTICATED"

    run(body())


def test_keys_are_a_set_pem_or_a_certificate(tmp_path: Path) -> None:
    plain = Issuer(None)
    authority = Authority(tmp_path).server()
    certificate = Path(authority.cert_file).read_bytes()
    verifier = TokenVerifier(
        [ISSUER.key_set(), plain.pem(), certificate], audience="hub", issuer="i"
    )
    assert verifier.caller(plain.token("x", aud="hub", iss="i")).owner == "x"
    assert verifier.caller(ISSUER.token("y", aud=["other", "hub"], iss="i")).owner == "y"
    by_certificate = jwt.encode({"sub": "z", "aud": "hub", "iss": "i"}, authority.key, "ES256")
    assert verifier.caller(by_certificate) == ("z", None)
    for claims in ({"aud": "other", "iss": "i"}, {"aud": "hub", "iss": "j"}, {"iss": "i"}):
        with pytest.raises(InvalidTokenError):
            verifier.caller(plain.token("x", **claims))
    named = TokenVerifier(plain.pem(), owner_claim="email")
    assert named.caller(plain.token(email="a@b")).owner == "a@b"
    assert claimed_owner(plain.token("x")) == "x"
    with pytest.raises(InvalidTokenError):
        claimed_owner("x")
    for keys in ([], "text", '{"keys": []}', "{"):
        with pytest.raises(ValueError, match=r"no (public )?key"):
            TokenVerifier(keys)


def test_tls_and_client_certificates(fleet: Fleet, tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "other")
    own, user = authority.server(), authority.client("user")
    ca, other = (Path(each.ca_file).read_bytes() for each in (authority, stranger))
    pem = [Path(name).read_bytes() for name in (own.cert_file, own.key_file)]
    cert = [Path(name).read_bytes() for name in (user.cert_file, user.key_file)]

    async def body() -> None:
        async with serving(fleet.path, tls=ServerTls(*pem)) as server:
            async with client(server, tls=ClientTls(ca)) as gateway:
                assert len(await all_of(gateway.devices())) == len(fleet.devices("a"))
            async with client(server, tls=ClientTls(other)) as gateway:
                with pytest.raises(GatewayError, match="UNAVAILABLE"):
                    await all_of(gateway.devices())
        tls = ServerTls(*pem, client_ca=ca)
        async with serving(fleet.path, time.time_ns(), tls=tls) as server:
            async with client(server, tls=ClientTls(ca, *cert)) as gateway:
                assert await all_of(gateway.devices())
            async with client(server, tls=ClientTls(ca)) as gateway:
                with pytest.raises(GatewayError, match="UNAVAILABLE"):
                    await all_of(gateway.devices())

    run(body())


def test_bad_filters_are_refused(fleet: Fleet) -> None:
    async def body() -> None:
        async with serving(fleet.path) as server, client(server) as gateway:
            half = pb.ResourceIdFilter(resource_id=events.ResourceId(device_id="d"))
            for request in (
                pb.GetEventsRequest(timestamp_filter=-1),
                pb.GetEventsRequest(resource_id_filter=[half]),
                pb.GetEventsRequest(http_resource_id_filter=["/light"]),
                pb.GetEventsRequest(http_resource_id_filter=["device/light?etag=a"]),
            ):
                with pytest.raises(GatewayError) as caught:
                    await all_of(gateway.answers("GetEvents", request))
                assert caught.value.code == "INVALID_ARGUMENT"

    run(body())


def test_the_blocking_client_gets_the_same(fleet: Fleet) -> None:
    async def body() -> None:
        async with serving(fleet.path) as server, client(server) as gateway:

            def blocking() -> list[Any]:
                target = f"127.0.0.1:{server.port}"
                with BlockingGatewayClient(target, lambda: ISSUER.token("a")) as calls:
                    rows = list(calls.events(device_ids=fleet.devices("a")[:2]))
                    return [rows, list(calls.resource_links()), list(calls.devices())]

            devices = fleet.devices("a")[:2]
            assert await asyncio.to_thread(blocking) == [
                await all_of(gateway.events(device_ids=devices)),
                await all_of(gateway.resource_links()),
                await all_of(gateway.devices()),
            ]

    run(body())


def test_a_store_that_fails_is_opened_again_when_it_is_back(fleet: Fleet) -> None:
    down: list[str] = []

    class Weak(SqliteStore):
        """Fails while it is down, also in the middle."""

        def events(self, aggregate_id: str, *, after: int = -1) -> Any:
            if down:
                raise StoreError(down[0])
            return super().events(aggregate_id, after=after)

    def opened() -> EventStore:
        if down:
            raise StoreError(down[0])
        return Weak(fleet.path)

    async def body() -> None:
        async with serving(opened) as server, client(server) as gateway:
            expected = await all_of(gateway.events())
            down.append("the disk is gone")
            for _ in range(2):
                with pytest.raises(GatewayError, match="the disk is gone") as caught:
                    await all_of(gateway.events())
                assert caught.value.code == "UNAVAILABLE"
            down.clear()
            assert await all_of(gateway.events()) == expected

    run(body())


def test_a_damaged_event_is_said(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path / "store", devices=1)
    with sqlite3.connect(fleet.path) as db:
        db.execute("UPDATE events SET data = x'00ff' WHERE version = 0")

    async def body() -> None:
        async with serving(fleet.path) as server, client(server) as gateway:
            with pytest.raises(GatewayError, match="damaged") as caught:
                await all_of(gateway.events())
            assert caught.value.code == "DATA_LOSS"

    run(body())


def test_nobody_listens(fleet: Fleet) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        async def body() -> None:
            verifier = TokenVerifier(ISSUER.key_set())
            async with GatewayServer(lambda: SqliteStore(fleet.path), verifier) as server:
                with pytest.raises(OSError, match="cannot listen"):
                    await server.start(f"127.0.0.1:{port}")

        run(body())

    async def nobody() -> None:
        async with GatewayClient(f"127.0.0.1:{port}", "x", timeout_s=20) as gateway:
            with pytest.raises(GatewayError, match="UNAVAILABLE"):
                await all_of(gateway.events())

    run(nobody())


def changed(device: str, href: str, version: int = 0) -> Any:
    made = events.ResourceChanged(
        resource_id=events.ResourceId(device_id=device, href=href), resource_types=["core.light"]
    )
    made.event_metadata.version = version
    return made


def test_subscribers_get_the_events_that_they_want(server: ServerProcess, fleet: Fleet) -> None:
    one, two = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"
    Create = pb.SubscribeToEvents.CreateSubscription  # noqa: N806  # a class

    async def body() -> None:
        async with (
            connect(server.url) as nats,
            serving(fleet.path, client=nats) as gateway,
            client(gateway, "a") as caller,
        ):
            bus = EventBus(nats, jetstream=False)
            updated = events.DeviceMetadataUpdated(device_id=one)
            cases: list[tuple[Any, list[Any]]] = [
                (Create(), [changed(one, "/a"), changed(two, "/b"), updated]),
                (Create(device_id_filter=[one]), [changed(one, "/a"), updated]),
                (Create(href_filter=["/b"]), [changed(two, "/b"), updated]),
                (Create(device_id_filter=[one], href_filter=["/b"]), [updated]),
                (Create(http_resource_id_filter=[two + "/b"]), [changed(two, "/b")]),
                (
                    Create(event_filter=[Create.RESOURCE_CHANGED], device_id_filter=[one]),
                    [changed(one, "/a")],
                ),
                (Create(lead_resource_type_filter=["core.light"]), [updated]),
            ]
            streams = [caller.subscribe(create) for create, _ in cases]
            for stream in streams:
                first = await anext(stream)
                assert first.WhichOneof("type") == "operation_processed"
                assert (first.correlation_id, bool(first.subscription_id)) == ("1", True)
            await bus.publish(changed(one, "/secret"), owner="b")
            await nats.publish(f"plgd.owners.{'x' * 3}.devices", b"?")
            subject = bus.encoded(changed(one, "/a"), "a").subject
            await nats.publish(subject, b"\xff")
            for message in (changed(one, "/a"), changed(two, "/b"), updated):
                await bus.publish(message, owner="a")
            for stream, (_, expected) in zip(streams, cases, strict=True):
                found = [await anext(stream) for _ in expected]
                assert [getattr(e, str(e.WhichOneof("type"))) for e in found] == expected
                await stream.aclose()
            half = pb.ResourceIdFilter(resource_id=events.ResourceId(device_id="d"))
            with pytest.raises(GatewayError, match="a device id and an href"):
                await all_of(caller.subscribe(Create(resource_id_filter=[half])))

    run(body())


def test_a_call_ends_when_its_token_expires(server: ServerProcess, fleet: Fleet) -> None:
    async def body() -> None:
        async with connect(server.url) as nats, serving(fleet.path, client=nats) as gateway:
            # expired already, but within the leeway: the call begins, and ends a moment later
            token = ISSUER.token(exp=int(time.time()) - 8)
            async with GatewayClient(f"127.0.0.1:{gateway.port}", token) as caller:
                stream = caller.subscribe()
                await anext(stream)
                with pytest.raises(GatewayError, match="the token has expired") as caught:
                    await anext(stream)
                assert caught.value.code == "UNAUTHENTICATED"
            async with client(gateway) as caller:
                others = caller.subscribe()
                await anext(others)
                await EventBus(nats, jetstream=False).publish(changed("d", "/a"), owner="a")
                assert (await anext(others)).WhichOneof("type") == "resource_changed"
                await others.aclose()

    run(body())


def test_a_call_has_bounded_memory(server: ServerProcess, fleet: Fleet) -> None:
    async def body() -> None:
        async with (
            connect(server.url) as nats,
            serving(fleet.path, client=nats) as gateway,
            client(gateway) as caller,
        ):
            call = caller.stubs["SubscribeToEvents"](metadata=caller.metadata())

            async def answer(**request: Any) -> Any:
                await call.write(pb.SubscribeToEvents(**request))
                return (await call.read()).operation_processed.error_status

            status = pb.Event.OperationProcessed.ErrorStatus
            large = {"device_id_filter": ["x" * 1000] * 300}
            given = [
                (await answer(create_subscription=large, correlation_id=str(n))).code
                for n in range(6)
            ]
            assert given == [status.OK] * 3 + [status.ERROR] * 3
            long = await answer(create_subscription={}, correlation_id="x" * 2_000_000)
            assert (long.code, "1024 bytes" in long.message) == (status.ERROR, True)
            gone = await answer(cancel_subscription={"subscription_id": "y" * 2_000_000})
            assert (gone.code, len(gone.message) < 200) == (status.NOT_FOUND, True)
            assert (
                await answer(create_subscription={}, correlation_id="é" * 500)
            ).code == status.OK
            await call.done_writing()
            assert await call.read() is grpc.aio.EOF

    run(body())


def test_subscriptions_are_cancelled_and_the_bus_may_go(
    server: ServerProcess, fleet: Fleet
) -> None:
    async def body() -> None:
        async with (
            connect(server.url) as nats,
            serving(fleet.path, client=nats) as gateway,
            client(gateway) as caller,
        ):
            call = caller.stubs["SubscribeToEvents"](metadata=caller.metadata())
            create = pb.SubscribeToEvents(create_subscription={}, correlation_id="1")
            await call.write(create)
            first = await call.read()
            name = first.subscription_id
            for wanted, kinds in [
                (name, ["subscription_canceled", "operation_processed"]),
                (name, ["operation_processed"]),
            ]:
                request = pb.SubscribeToEvents(correlation_id="2")
                request.cancel_subscription.subscription_id = wanted
                await call.write(request)
                answers = [await call.read() for _ in kinds]
                assert [each.WhichOneof("type") for each in answers] == kinds
                assert {each.correlation_id for each in answers} == {"2"}
            not_found = pb.Event.OperationProcessed.ErrorStatus.NOT_FOUND
            assert answers[0].operation_processed.error_status.code == not_found
            await call.write(pb.SubscribeToEvents())
            neither = await call.read()
            assert "neither" in neither.operation_processed.error_status.message
            await call.done_writing()
            assert await call.read() is grpc.aio.EOF

            for broken in (True, False):
                stream = caller.subscribe()
                await anext(stream)
                status = nats.status()
                if broken:
                    server.stop()
                    server.start()
                else:
                    await nats.close()
                with pytest.raises(GatewayError, match="bus is lost") as caught:
                    await anext(stream)
                assert caught.value.code == "UNAVAILABLE"
                ends = ("reconnected", "closed")
                assert (await anext(e.type async for e in status if e.type in ends)) in ends
        async with serving(fleet.path) as gateway, client(gateway) as caller:
            with pytest.raises(GatewayError, match="no bus") as caught:
                await all_of(caller.subscribe())
            assert caught.value.code == "UNIMPLEMENTED"

    run(body())


def test_a_client_certificate_is_checked_at_each_call(fleet: Fleet, tmp_path: Path) -> None:
    """A TLS session may be resumed after the certificate has expired, and a connection may be older."""
    authority = Authority(tmp_path)
    own, user = authority.server(), authority.client("user")
    ca = Path(authority.ca_file).read_bytes()
    pem = [Path(name).read_bytes() for name in (own.cert_file, own.key_file)]
    cert = [Path(name).read_bytes() for name in (user.cert_file, user.key_file)]

    async def body() -> None:
        now_ns, tls = time.time_ns(), ServerTls(*pem, client_ca=ca)
        async with (
            serving(fleet.path, now_ns, tls=tls) as server,
            client(server, tls=ClientTls(ca, *cert)) as gateway,
        ):
            assert await all_of(gateway.devices())
            for days in (-3, 3):
                server.clock = lambda days=days: now_ns + days * 86_400 * 10**9
                with pytest.raises(GatewayError, match="not valid now") as caught:
                    await all_of(gateway.devices())
                assert caught.value.code == "UNAUTHENTICATED"
            server.clock = lambda: now_ns
            assert await all_of(gateway.devices())

    run(body())
