"""Services of our client and of nats.go: each finds, describes, counts and calls those of the other."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from pelton import Client, Request, ServiceConfig, ServiceError, connect
from tests.interop.probe import plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.probe import GoClient
    from tests.peers import ServerProcess

METADATA = {"region": "größe", "k": "v"}
QUEUES = {"echo": "workers", "fail": "of-its-own", "json": "deeper", "all": ""}


async def our_service(client: Client, name: str, group: str) -> Any:
    """The same service as nats.go's in tests/interop/go/services.go."""
    config = ServiceConfig(
        name=name,
        version="1.2.3",
        description="dä",
        metadata=METADATA,
        queue_group="workers",
        stats_handler=lambda stats: {"endpoint": stats.name},
    )
    service = await client.add_service(config)
    below = service.group(group)

    async def echo(request: Request) -> None:
        headers = {"Subject": request.subject, "From": service.id, **request.headers.lists()}
        await request.respond(request.data, headers=headers)

    async def fail(request: Request) -> bytes:
        raise ServiceError("409", f"not now: {request.data.decode()}", b"details")

    async def as_json(request: Request) -> bytes:
        return b'{"got":"' + request.data + b'"}'

    await below.add_endpoint("echo", echo, subject="echo.*", metadata=METADATA)
    await below.add_endpoint("fail", fail, queue_group="of-its-own")
    await below.group("deep", queue_group="deeper").add_endpoint("json", as_json)
    await below.add_endpoint("all", echo, queue_group=None)
    await client.flush()
    return service


async def their_service(go: GoClient, name: str, group: str, instance: str) -> dict[str, Any]:
    more = {"text": "dä", "metadata": METADATA, "key": "workers"}
    told: dict[str, Any] = await go("svc.add", id=instance, name=name, subject=group, **more)
    return told


async def of_all(ask: Callable[..., Any], name: str, count: int) -> Any:
    """The answers of so many instances: those of a busy machine may be late for one question."""
    while len(found := await ask(name)) < count:
        pass
    assert len(found) == count
    return found


def same_form(info: dict[str, Any]) -> dict[str, Any]:
    """An info without the instance; nats.go has null for no metadata."""
    endpoints = [{**each, "metadata": each["metadata"] or {}} for each in info["endpoints"]]
    return {**info, "id": "", "endpoints": endpoints}


def test_each_finds_and_describes_the_other(exchange: Callable[..., None], unique: str) -> None:
    async def body(client: Client, go: GoClient) -> None:
        ours = await our_service(client, unique, unique)
        theirs = await their_service(go, unique, unique, "s")
        finder = client.service_client()
        both = {ours.id, theirs["id"]}
        pings = await of_all(finder.ping, unique, 2)
        assert {each.id for each in pings} == both
        told = await go("svc.ask", text="PING", name=unique, count=2)
        assert {each["id"] for each in told} == both
        for each in told:
            assert (each["version"], each["metadata"]) == ("1.2.3", METADATA)
        infos = await go("svc.ask", text="INFO", name=unique, count=2)
        mine = next(each for each in infos if each["id"] == ours.id)
        same = next(each for each in infos if each["id"] != ours.id)
        assert same == theirs
        assert same_form(mine) == same_form(theirs)
        found = await of_all(finder.info, unique, 2)
        assert {each.id for each in found} == both
        for info in found:
            assert (info.description, info.metadata) == ("dä", METADATA)
            assert {each.name: each.queue_group for each in info.endpoints} == QUEUES
            assert {each.subject for each in info.endpoints} == {
                f"{unique}.{each}" for each in ("echo.*", "fail", "deep.json", "all")
            }
        (one,) = await finder.ping(unique, theirs["id"])
        assert one.id == theirs["id"]
        (only,) = await go("svc.ask", text="PING", name=unique, key=ours.id, count=1)
        assert only["id"] == ours.id
        assert both <= {each.id for each in await of_all(finder.ping, "", 2)}
        await ours.stop()
        await go("svc.stop", id="s")
        while await finder.ping(unique):  # nats.go drains in the background
            pass

    exchange(body)


def test_each_calls_the_other_and_counts(exchange: Callable[..., None], unique: str) -> None:
    async def body(client: Client, go: GoClient) -> None:
        ours = await our_service(client, f"{unique}-py", f"{unique}-py")
        theirs = await their_service(go, f"{unique}-go", f"{unique}-go", "s")
        caller = client.service_client()
        body = bytes(range(256)) * 100
        headers = {"A": ["1", "2"], "size": ["größe"]}  # nats.go sends no other letters in names
        answer = await caller.request(f"{unique}-go.echo.x", body, headers=headers)
        assert (answer.data, answer.header("From")) == (body, theirs["id"])
        assert {name: answer.headers.get_all(name) for name in headers} == headers
        told = await go("svc.request", subject=f"{unique}-py.echo.x", value=body, headers=headers)
        assert (plain(told["data"]), told["headers"]["From"]) == (body, [ours.id])
        assert {name: told["headers"][name] for name in headers} == headers
        for _ in range(3):
            with pytest.raises(ServiceError, match="not now: ä") as refused:
                await caller.request(f"{unique}-go.fail", "ä".encode())
            assert (refused.value.code, refused.value.data) == ("409", b"details")
            told = await go("svc.request", subject=f"{unique}-py.fail", value="ä".encode())
            assert told["headers"]["Nats-Service-Error"] == ["not now: ä"]
            assert told["headers"]["Nats-Service-Error-Code"] == ["409"]
            assert plain(told["data"]) == b"details"
        answer = await caller.request(f"{unique}-go.deep.json", b"z")
        told = await go("svc.request", subject=f"{unique}-py.deep.json", value=b"z")
        assert answer.data == plain(told["data"]) == b'{"got":"z"}'
        await compare_stats(client, go, unique)
        ours.reset()
        await go("svc.reset", id="s")
        (mine,) = await go("svc.ask", text="STATS", name=f"{unique}-py", count=1)
        (other,) = await caller.stats(f"{unique}-go", theirs["id"])
        assert not any(each["num_requests"] for each in mine["endpoints"])
        assert not any(each.num_requests for each in other.endpoints)
        await ours.stop()
        await go("svc.stop", id="s")

    exchange(body)


async def compare_stats(client: Client, go: GoClient, unique: str) -> None:
    """The figures of one as the other reads them: those of both services are alike."""
    (mine,) = await go("svc.ask", text="STATS", name=f"{unique}-py", count=1)
    (other,) = await of_all(client.service_client().stats, f"{unique}-go", 1)
    assert {each["name"]: each["num_requests"] for each in mine["endpoints"]} == {
        "echo": 1,
        "fail": 3,
        "json": 1,
        "all": 0,
    }
    for our, their in zip(mine["endpoints"], other.endpoints, strict=True):
        assert (our["name"], our["num_requests"], our["num_errors"], our["last_error"]) == (
            their.name,
            their.num_requests,
            their.num_errors,
            their.last_error,
        )
        assert our["data"] == their.data == {"endpoint": their.name}
        assert our["queue_group"] == their.queue_group == QUEUES[their.name]
        if our["num_requests"]:
            assert min(our["processing_time"], their.processing_time_ns) > 0
            assert min(our["average_processing_time"], their.average_processing_time_ns) > 0
    failed = next(each for each in other.endpoints if each.name == "fail")
    assert (failed.num_errors, failed.last_error) == (3, "409:not now: ä")
    now = datetime.now(other.started.tzinfo)
    assert 0 <= (now - other.started).total_seconds() < 600
    assert 0 <= (now - datetime.fromisoformat(mine["started"])).total_seconds() < 600


def test_a_queue_group_is_shared(
    server: ServerProcess, exchange: Callable[..., None], unique: str
) -> None:
    """Of two instances in one group one answers each request; without a group both do."""

    async def body(client: Client, go: GoClient) -> None:
        # in a connection of its own: a service and its caller would share one
        async with connect(server.url) as serving:
            ours = await our_service(serving, unique, unique)
            theirs = await their_service(go, unique, unique, "s")
            caller = client.service_client()
            taken: Counter[str | None] = Counter()
            for _ in range(60):
                taken[(await caller.request(f"{unique}.echo.x")).header("From")] += 1
            assert taken.keys() == {ours.id, theirs["id"]}
            answers = client.request_many(f"{unique}.all", b"", max_messages=2)
            assert {each.header("From") async for each in answers} == taken.keys()
            stats = await of_all(caller.stats, unique, 2)
            counts = {each.id: each.endpoints[0].num_requests for each in stats}
            assert counts == taken
            await ours.stop()
            await go("svc.stop", id="s")

    exchange(body)
