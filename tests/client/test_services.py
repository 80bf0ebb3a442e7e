"""Services in both shells, against every server there is, and with the services of nats-py."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import nats
import nats.micro
import pytest

from pelton import (
    CallbackFailedError,
    ConnectionClosedError,
    EndpointInfo,
    EndpointStats,
    InvalidSubjectError,
    NoRespondersError,
    ProtocolError,
    Request,
    ServiceConfig,
    ServiceError,
    ServiceInfo,
    ServicePing,
    ServiceStats,
    connect,
    sync,
)
from pelton.client.services import decode, encode
from tests.client.shells import connected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.peers import ServerProcess


class Sum(msgspec.Struct):
    a: int
    b: int


def add(request: Any) -> bytes:
    wanted = request.json(Sum)
    return b"%d" % (wanted.a + wanted.b)


def fail(request: Any) -> None:
    if request.data == b"known":
        raise ServiceError("404", "no\nsuch thing", b"data")
    if request.data == b"told":
        request.error("500", "told", headers=request.headers)
        return
    raise KeyError("secret")


def echo(request: Any) -> None:
    request.respond(request.data, headers={"Subject": request.subject, **request.headers.lists()})


def wrong(_: Any) -> Any:
    return "text"


class Running:
    """A service of either shell that answers in a thread of its own, with the names of its test."""

    def __init__(self, shell: str, url: str, name: str) -> None:
        self.shell, self.url, self.name = shell, url, name
        self.errors: list[Exception] = []
        self.service: Any = None
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.config = ServiceConfig(
            name=name,
            version="1.2.3-rc.1+5",
            description="for a test",
            metadata={"k": "v"},
            stats_handler=lambda stats: {"of": stats.name},
        )

    @property
    def end(self) -> str:
        """The subject of the request that stops it."""
        return f"{self.name}.end.{self.service.id}"

    def work(self) -> None:
        if self.shell == "blocking":
            self.block()
        else:
            asyncio.run(self.wait())

    def block(self) -> None:
        with (
            sync.connect(self.url) as client,
            client.add_service(self.config) as service,
        ):
            self.service = service
            self.endpoints(service, False)

            @service.endpoint("end", subject=self.end)
            def end(_: sync.Request) -> bytes:
                service.stop()
                return b"stopped"

            client.flush()
            self.ready.set()
            service.run()
            self.errors.append(client.last_error or Exception("none"))

    async def wait(self) -> None:
        async with (
            connect(self.url, on_error=self.errors.append) as client,
            await client.add_service(self.config) as service,
        ):
            self.service = service
            self.endpoints(service, True)

            @service.endpoint("end", subject=self.end)
            async def end(_: Request) -> bytes:
                await service.stop()
                return b"stopped"

            await client.flush()
            self.ready.set()
            await service.run()

    def endpoints(self, service: Any, awaited: bool) -> None:
        async def add_later(request: Any) -> bytes:
            await asyncio.sleep(0)
            return add(request)

        group = service.group(self.name).group("v1", queue_group="other")
        group.endpoint("add", metadata={"unit": "1"})(add_later if awaited else add)
        for name, handler in (("fail", fail), ("echo", echo), ("wrong", wrong)):
            group.endpoint(name, queue_group=None)(handler)


@contextmanager
def running(shell: str, url: str, name: str) -> Iterator[Running]:
    one = Running(shell, url, name)
    one.thread.start()
    assert one.ready.wait(60)
    try:
        yield one
    finally:
        with sync.connect(url) as client:
            if not one.service.stopped:
                client.request(one.end, timeout=60)
        one.thread.join(60)


@pytest.fixture
def service(shell: str, server: ServerProcess, unique: str) -> Iterator[Running]:
    with running(shell, server.url, unique) as one:
        yield one


def test_requests_are_answered(service: Running, shell: str, server: ServerProcess) -> None:
    name = service.name
    with connected(shell, server.url) as client:
        services = client.service_client()
        assert services.request(f"{name}.v1.add", b'{"a":1,"b":2}').data == b"3"
        answer = services.request(f"{name}.v1.echo", b"hello", headers={"A": ["1", "2"]})
        assert answer.data == b"hello"
        assert answer.headers.lists() == {"Subject": [f"{name}.v1.echo"], "A": ["1", "2"]}
        for data, code, text, payload in (
            (b"known", "404", "no such thing", b"data"),
            (b"told", "500", "told", b""),
            (b"x", "500", "internal error", b""),
        ):
            with pytest.raises(ServiceError) as failed:
                services.request(f"{name}.v1.fail", data)
            error = failed.value
            assert (error.code, error.description, error.data) == (code, text, payload)
        with pytest.raises(ServiceError, match="400: the request is not as expected"):
            services.request(f"{name}.v1.add", b'{"a":"x"}')
        with pytest.raises(ServiceError, match="500"):
            services.request(f"{name}.v1.wrong")
        answer = client.request(f"{name}.v1.fail", b"told", headers={"More": ["x", "y"]})
        assert answer.header("Nats-Service-Error-Code") == "500"
        assert answer.header("Nats-Service-Error") == "told"
        assert answer.headers.get_all("More") == ["x", "y"]
        client.publish(f"{name}.v1.add", b'{"a":1,"b":2}')
        client.flush()
        expected = {
            "add": (3, 1),
            "fail": (4, 4),
            "echo": (1, 0),
            "wrong": (1, 1),
            "end": (0, 0),
        }
        counted: dict[str, tuple[int, int]] = {}
        while counted != expected:  # nobody tells when the message without a reply is handled
            (stats,) = services.stats(name, service.service.id)
            counted = {each.name: (each.num_requests, each.num_errors) for each in stats.endpoints}
            assert all(counted[each] <= expected[each] for each in expected), counted
        assert client.request(service.end).data == b"stopped"
    service.thread.join(60)
    kinds = {type(error) for error in service.errors}
    assert CallbackFailedError in kinds
    failed_ones = [error for error in service.errors if isinstance(error, CallbackFailedError)]
    assert any(isinstance(error.__cause__, KeyError | TypeError) for error in failed_ones)


def test_services_are_found(service: Running, shell: str, server: ServerProcess) -> None:
    name, ours = service.name, service.service
    with running(shell, server.url, name) as second, connected(shell, server.url) as client:
        services = client.service_client()
        pings = services.ping(name)
        assert {each.id for each in pings} == {ours.id, second.service.id}
        assert {each.id for each in services.ping()} >= {ours.id, second.service.id}
        (ping,) = services.ping(name, ours.id)
        assert (ping.name, ping.version, ping.metadata) == (name, "1.2.3-rc.1+5", {"k": "v"})
        (info,) = services.info(name, ours.id)
        assert (info.description, info.metadata) == ("for a test", {"k": "v"})
        assert [(each.name, each.subject, each.queue_group) for each in info.endpoints] == [
            ("add", f"{name}.v1.add", "other"),
            ("fail", f"{name}.v1.fail", ""),
            ("echo", f"{name}.v1.echo", ""),
            ("wrong", f"{name}.v1.wrong", ""),
            ("end", service.end, "q"),
        ]
        assert info.endpoints[0].metadata == {"unit": "1"}
        assert info == ours.info()
        for _ in range(20):
            services.request(f"{name}.v1.add", b'{"a":1,"b":2}')
        stats = services.stats(name)
        first = [each.endpoints[0] for each in stats]
        assert sum(each.num_requests for each in first) == 20
        assert all(each.data == {"of": "add"} for each in first)
        for each in first:
            if each.num_requests:
                average = each.processing_time_ns // each.num_requests
                assert each.average_processing_time_ns == average > 0
        assert all(abs((each.started - datetime.now(UTC)).total_seconds()) < 3600 for each in stats)
        ours.reset()
        (after,) = services.stats(name, ours.id)
        assert (after.endpoints[0].num_requests, after.endpoints[0].name) == (0, "add")
        assert services.ping(f"{name}-nobody") == []
        assert services.stats(name, "nobody") == []
        with pytest.raises(ValueError, match="name of the service"):
            services.ping(service_id=ours.id)


def test_a_stopped_service_answers_no_more(
    service: Running, shell: str, server: ServerProcess
) -> None:
    with connected(shell, server.url) as client:
        assert client.request(service.end).data == b"stopped"
        service.thread.join(60)
        assert service.service.stopped
        with pytest.raises(NoRespondersError):
            client.request(f"{service.name}.v1.echo")
        assert client.service_client().ping(service.name) == []
        with pytest.raises(RuntimeError, match="is stopped"):
            service.service.group("x")._add("y", echo)


def test_a_service_goes_on_after_a_restart(shell: str, own_server: ServerProcess) -> None:
    with running(shell, own_server.url, "again") as one:
        own_server.stop()
        own_server.start()
        with connected(shell, own_server.url) as client:
            found = []
            while not found:  # until the service has a connection
                found = client.service_client().ping("again", max_wait=1)
            assert found[0].id == one.service.id
            assert client.request("again.v1.echo", b"x").data == b"x"


def test_mistakes_are_told(shell: str, server: ServerProcess, unique: str) -> None:
    with connected(shell, server.url) as client:
        for wrong_one in (
            {"name": "a b", "version": "1.0.0"},
            {"name": "", "version": "1.0.0"},
            {"name": "a", "version": "1.0"},
            {"name": "a", "version": "01.0.0"},
            {"name": "a", "version": "1.0.0", "queue_group": "a b"},
        ):
            with pytest.raises(ValueError, match=r"name|version|queue group"):
                ServiceConfig(**wrong_one)
        with pytest.raises(TypeError, match="metadata"):
            ServiceConfig(name="a", version="1.0.0", metadata={"a": 1})  # type: ignore[dict-item]  # the mistake
        with pytest.raises(TypeError, match="ServiceConfig"):
            client.add_service({"name": "a"})
        service = client.add_service(ServiceConfig(name=unique, version="0.0.1"))
        service.add_endpoint("one", echo, subject=f"{unique}.*.x")
        with pytest.raises(ValueError, match="already"):
            service.add_endpoint("two", echo, subject=f"{unique}.*.x")
        for name in ("", "a.b", "a b", "*"):
            with pytest.raises(ValueError, match="endpoint name"):
                service.add_endpoint(name, echo)
        with pytest.raises(TypeError, match="not callable"):
            service.add_endpoint("two", b"")
        for prefix in ("", "a b", "a..b", "a.>"):
            with pytest.raises(InvalidSubjectError):
                service.group(prefix)
        with pytest.raises(InvalidSubjectError):
            service.add_endpoint("two", echo, subject="a b")
        service.stop()
        service.stop()
        assert service.stopped


def test_a_blocking_service_takes_functions(server: ServerProcess, unique: str) -> None:
    async def later(_: Any) -> bytes:
        return b""

    with sync.connect(server.url) as client:
        service = client.add_service(ServiceConfig(name=unique, version="0.0.1"))
        with pytest.raises(TypeError, match="is a coroutine function"):
            service.add_endpoint("one", later)  # type: ignore[arg-type]  # the mistake
        service.run(timeout=0.01)
        client.close()
        assert service.stopped
        service.run()
        service.stop()


def test_a_service_of_a_lost_client_says_so(own_server: ServerProcess) -> None:
    async def run() -> None:
        async with connect(own_server.url, reconnect=False) as client:
            service = await client.add_service(ServiceConfig(name="a", version="0.0.1"))
            own_server.stop()
            with pytest.raises(ConnectionClosedError):
                await service.run()
            await service.stop()

    asyncio.run(run())


def test_nats_py_calls_our_service(service: Running, server: ServerProcess) -> None:
    name = service.name

    async def run() -> None:
        client = await nats.connect(server.url)
        try:
            answer = await client.request(f"{name}.v1.add", b'{"a":1,"b":2}')
            assert answer.data == b"3"
            answer = await client.request(f"{name}.v1.fail", b"known")
            assert answer.headers is not None
            assert answer.headers["Nats-Service-Error-Code"] == "404"
            body = json.loads((await client.request(f"$SRV.PING.{name}")).data)
            ping = nats.micro.service.ServicePing.from_dict(body)
            assert (ping.name, ping.id, ping.type) == (
                name,
                service.service.id,
                "io.nats.micro.v1.ping_response",
            )
            body = json.loads((await client.request(f"$SRV.INFO.{name}")).data)
            info = nats.micro.service.ServiceInfo.from_dict(body)
            assert (info.endpoints[0].name, info.endpoints[0].queue_group) == ("add", "other")
            body = json.loads((await client.request(f"$SRV.STATS.{name}.{ping.id}")).data)
            stats = nats.micro.service.ServiceStats.from_dict(body)
            assert (stats.endpoints[0].num_requests, stats.endpoints[1].num_errors) == (1, 1)
        finally:
            await client.close()

    asyncio.run(run())


def test_we_call_a_service_of_nats_py(shell: str, server: ServerProcess, unique: str) -> None:
    async def answer(request: nats.micro.request.Request) -> None:
        if request.data == b"bad":
            await request.respond_error("400", "bad request")
        else:
            await request.respond(request.data.upper())

    def call() -> None:
        with connected(shell, server.url) as client:
            services = client.service_client()
            assert services.request(f"{unique}.upper", b"hello").data == b"HELLO"
            with pytest.raises(ServiceError, match="400: bad request"):
                services.request(f"{unique}.upper", b"bad")
            (ping,) = services.ping(unique)
            assert (ping.version, ping.metadata) == ("1.0.0", {"k": "v"})
            (info,) = services.info(unique, ping.id)
            assert [(each.name, each.subject) for each in info.endpoints] == [
                ("upper", f"{unique}.upper")
            ]
            (stats,) = services.stats(unique)
            assert stats.endpoints[0].num_requests == 2
            assert stats.started.tzinfo is not None

    async def run() -> None:
        client = await nats.connect(server.url)
        try:
            theirs = await nats.micro.add_service(
                client, name=unique, version="1.0.0", metadata={"k": "v"}
            )
            group = theirs.add_group(name=unique)
            await group.add_endpoint(name="upper", handler=answer)
            await client.flush()
            await asyncio.to_thread(call)
            await theirs.stop()
        finally:
            await client.close()

    asyncio.run(run())


IDENTITY: dict[str, Any] = {"name": "s", "id": "I", "version": "1.0.0", "metadata": {"k": "v"}}
HEAD = b'{"name":"s","id":"I","version":"1.0.0","metadata":{"k":"v"},'
GO_PING = HEAD + b'"type":"io.nats.micro.v1.ping_response"}'
GO_INFO = HEAD + (
    b'"type":"io.nats.micro.v1.info_response","description":"d","endpoints":'
    b'[{"name":"e","subject":"g.e","queue_group":"q","metadata":{"f":"1"}}]}'
)
GO_STATS = HEAD + (
    b'"type":"io.nats.micro.v1.stats_response","started":"2026-11-23T12:00:00.123456Z","endpoints":'
    b'[{"name":"e","subject":"g.e","queue_group":"q","num_requests":2,"num_errors":1,'
    b'"last_error":"500:x","processing_time":10,"average_processing_time":5,"data":{"n":1}},'
    b'{"name":"f","subject":"f","queue_group":"","num_requests":0,"num_errors":0,"last_error":"",'
    b'"processing_time":0,"average_processing_time":0}]}'
)
STATS = ServiceStats(
    **IDENTITY,
    started=datetime(2026, 11, 23, 12, 0, 0, 123456, UTC),
    endpoints=[
        EndpointStats(
            name="e",
            subject="g.e",
            queue_group="q",
            num_requests=2,
            num_errors=1,
            last_error="500:x",
            processing_time_ns=10,
            average_processing_time_ns=5,
            data={"n": 1},
        ),
        EndpointStats(name="f", subject="f"),
    ],
)


@pytest.mark.parametrize(
    ("golden", "value"),
    [
        (GO_PING, ServicePing(**IDENTITY)),
        (
            GO_INFO,
            ServiceInfo(
                **IDENTITY,
                description="d",
                endpoints=[
                    EndpointInfo(name="e", subject="g.e", queue_group="q", metadata={"f": "1"})
                ],
            ),
        ),
        (GO_STATS, STATS),
    ],
)
def test_the_json_is_that_of_nats_go(golden: bytes, value: Any) -> None:
    assert encode(value) == golden
    assert decode(golden, type(value)) == value


def test_the_json_of_others_is_read() -> None:
    written = (
        b'{"name":"s","id":"I","version":"1.0.0","metadata":null,"type":"io.nats.micro.v1.info_response",'
        b'"description":"","endpoints":[{"name":"e","subject":"e","queue_group":"q","metadata":null}]}'
    )
    info = decode(written, ServiceInfo)
    assert (info.metadata, info.endpoints[0].metadata) == ({}, {})
    nanoseconds = GO_STATS.replace(b"123456Z", b"123456789Z")
    assert decode(nanoseconds, ServiceStats).started.year == 2026
    for wrong_one in (b"", b"[]", b'{"name":1}', b"{"):
        with pytest.raises(ProtocolError, match="not the answer of a service"):
            decode(wrong_one, ServicePing)
