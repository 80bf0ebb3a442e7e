"""What ``pelton`` and ``pelton.sync`` offer: everything a user needs, typed, and explained by ``help``."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import inspect
import re
import ssl
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import pytest

import pelton.errors
from pelton import ConnectOptions, Options, TlsOptions, connect, sync
from pelton.client.base.addresses import parse_servers
from pelton.client.protocol.options import make_options
from pelton.testing import server

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]

PROGRAM = """
import ssl
from datetime import timedelta

from pelton import (
    Client,
    Consumer,
    ConsumerConfig,
    JetStream,
    KeyValue,
    KeyValueConfig,
    KvEntry,
    Message,
    PathKeys,
    PushConsumer,
    StreamConfig,
    Subscription,
    connect,
    sync,
)

async def answer(message: Message) -> None:
    await message.respond(b"yes")
    await message.ack()

def count(message: Message) -> None:
    print(message.subject, message.metadata.stream_seq)

async def program() -> None:
    async with connect("nats://h", name="n", timeout=timedelta(seconds=1), tls=ssl.create_default_context()) as nc:
        client: Client = nc
        subscription: Subscription = await client.subscribe("a", callback=answer)
        await client.subscribe("a", callback=count)
        js: JetStream = client.jetstream()
        await js.create_consumer("S", ConsumerConfig(name="p", ack_wait="30s", backoff=[1, "2s"]))
        push: PushConsumer = await js.push_consumer("S", "p")
        async with push.consume(answer) as operation:
            await operation.run("1m")
        handle: Consumer = await js.consumer("S", "c", verify=False)
        for message in await handle.fetch(timeout="5s"):
            await message.ack()
        one: Message | None = await subscription.next("5s")
        print(one)
        await subscription.drain()
        kv: KeyValue[bytes] = await js.create_key_value("b", ttl="1h", history=5)
        kv = await js.update_key_value(KeyValueConfig(bucket="b", ttl="2h"))
        ages: KeyValue[int] = kv.typed(int)
        revision: int = await ages.create("anna", 30, ttl=timedelta(hours=1))
        found = await ages.get("anna")
        if found is not None:
            revision = await ages.update(found.key, found.value + 1, found.revision)
        async with await ages.watch("a.>", history=True) as watch:
            first: list[KvEntry[int]] = await watch.initial("5s")
            async for change in watch:
                print(change.value + 1, change.created.isoformat(), len(first), revision)
        async with kv.with_keys(PathKeys()).transaction() as several:
            several.put("/a", b"1")
        print(sum(entry.value for entry in (await ages.snapshot()).values()))

with sync.connect(timeout="5s", reconnect_wait=0.1) as nc:
    js: sync.JetStream = nc.jetstream()
    js.create_stream(StreamConfig(name="S", max_age=timedelta(hours=1), duplicate_window=60))
    pull: sync.Consumer = js.consumer("S", "c")
    with pull.consume(expires="30s") as messages:
        for each in messages:
            message: sync.Message = each
            message.ack()
    late: sync.Message | None = pull.next("5s")
    print(late)
    bucket: sync.KeyValue[bytes] = js.key_value("b")
    texts: sync.KeyValue[str] = bucket.typed(str)
    for entry in texts.watch():
        print(entry.value.upper(), texts.put_many({entry.key: "x"})[entry.key] + 1)
    print(texts.keys("a.*"), bucket.status().config.history)
"""

MISTAKES = """
from pelton import Client, ConsumerConfig, connect, sync

async def wrong(message: sync.Message) -> None: ...

async def program(nc: Client) -> None:
    await nc.subscribe("a", callback=wrong)  # arg-type
    await (await nc.jetstream().key_value("b")).put("a", "text")  # arg-type
    await (await nc.jetstream().key_value("b")).typed(int).put("a", "text")  # arg-type
    (await nc.jetstream().push_consumer("S", "p")).consume(wrong)  # arg-type
    (await nc.jetstream().consumer("S", "c")).fetch().ack()  # attr-defined
    await nc.jetstream().pull("S", "c")  # attr-defined
    connect(nmae="n")  # call-arg
    sync.connect(timeout=b"5")  # arg-type
    await nc.jetstream().create_key_value("b", histroy=5)  # call-arg
    await nc.jetstream().create_key_value("b", history="5")  # arg-type
    ConsumerConfig(ack_wait=b"5")  # arg-type
    ConsumerConfig(ack_policy="maybe")  # arg-type
"""


def checked(tmp_path: Path, program: str) -> list[str]:
    """What mypy says of a user's program, by line."""
    file = tmp_path / "program.py"
    file.write_text(program)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--no-error-summary",
            "--cache-dir",
            str(ROOT / ".mypy_cache"),
            "--no-pretty",
            str(file),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert not done.stderr
    return [
        line
        for line in done.stdout.splitlines()
        if line.startswith(str(file)) and ": error:" in line
    ]


def test_a_program_is_typed_and_its_mistakes_are_found(tmp_path: Path) -> None:
    assert checked(tmp_path, PROGRAM) == []
    found = {
        (int(line.split(":")[1]), line.rpartition("[")[2].rstrip("]"))
        for line in checked(tmp_path, MISTAKES)
    }
    expected = {
        (number, line.rpartition("# ")[2])
        for number, line in enumerate(MISTAKES.splitlines(), 1)
        if "# " in line
    }
    assert found == expected


def test_everything_is_importable_from_one_place() -> None:
    for door in (pelton, sync):
        for name in vars(door)["__all__"]:
            assert getattr(door, name) is not None
        assert set(vars(door)["__all__"]) <= set(dir(door))
    errors = {
        name
        for name, value in vars(pelton.errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert errors <= set(dir(pelton))
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        getattr(pelton, "Nonsense")  # noqa: B009  # mypy knows that there is none


def test_each_shell_has_the_same_names() -> None:
    blocking = set(vars(sync)["__all__"])
    assert blocking - {"ColumnReader"} <= set(vars(pelton)["__all__"])
    asyncio = {
        name
        for name in vars(pelton)["__all__"]
        if getattr(getattr(pelton, name), "__module__", "").startswith("pelton.client.aio")
    }
    assert asyncio - {"Callback"} <= blocking
    assert {
        "connect",
        "Client",
        "JetStream",
        "Message",
        "ObjectStore",
        "Publisher",
        "Consumer",
        "Subscription",
    } <= blocking


def test_the_options_of_connect_are_those_of_options() -> None:
    fields = {field.name for field in dataclasses.fields(Options)}
    assert ConnectOptions.__optional_keys__ == fields - {"servers", "tls"} | {"context"}


@pytest.mark.parametrize("kind", [Options, TlsOptions])
def test_help_explains_every_option(kind: Any) -> None:
    lines = (inspect.getdoc(kind) or "").splitlines()
    for field in dataclasses.fields(kind):
        assert any(line.startswith(f"{field.name}: ") for line in lines), field.name


def context() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@pytest.mark.parametrize("shell", [connect, sync.connect])
def test_options_that_would_be_ignored_are_errors(shell: Any) -> None:
    """All of it is known before a server is looked for."""
    with pytest.raises(TypeError, match="there is no option nmae: did you mean name"):
        shell(nmae="n")
    with pytest.raises(TypeError, match="come to on_status"):
        shell(on_eror=print)
    with pytest.raises(TypeError, match="not both: name"):
        shell(Options(), name="n")
    with pytest.raises(TypeError, match="not both: tls"):
        shell(Options(), tls=TlsOptions())
    for wrong in (
        {"password": "p"},
        {"authenticator": lambda nonce: {}, "jwt": "j"},
        {"creds": "c", "nkey": "n"},
        {"token": "t", "user": "u"},
    ):
        with pytest.raises(ValueError, match=r"give|given"):
            shell(**wrong)
    with pytest.raises(ValueError, match="key_file is given without cert_file"):
        TlsOptions(key_file="k")
    with pytest.raises(ValueError, match="not both"):
        shell(Options(tls=TlsOptions(ca_file="ca.pem")), tls=context())


def test_a_context_beside_options_is_used() -> None:
    given = context()
    options = Options(
        servers=parse_servers("nats://h"), tls=TlsOptions(hostname="name", first=True)
    )
    assert make_options(options, given, {}) == (options, given)
    plain, used = make_options(Options(), given, {})
    assert (plain.tls, used) == (TlsOptions(), given)  # TLS is wanted, then
    assert make_options("nats://h", None, {"name": "n"})[0].name == "n"


def settings() -> Iterator[tuple[type[Any], type[Any]]]:
    """The keywords of a configuration, and its class."""
    for path in sorted((ROOT / "src/pelton/client").rglob("*.py")):
        for name in re.findall(
            r"^class (\w+)Fields\(TypedDict", path.read_text("utf-8"), re.MULTILINE
        ):
            words = path.relative_to(ROOT / "src").with_suffix("").parts
            module = importlib.import_module(".".join(words))
            yield getattr(module, f"{name}Fields"), getattr(pelton, f"{name}Config")


@pytest.mark.parametrize(("fields", "kind"), list(settings()))
def test_the_keywords_of_a_configuration_are_its_fields(fields: type[Any], kind: type[Any]) -> None:
    known = get_type_hints(kind)
    for name in ("bucket", "name", "durable_name"):
        if name not in get_type_hints(fields):  # it is an argument of its own
            known.pop(name, None)
    assert get_type_hints(fields) == known
    assert not vars(fields)["__required_keys__"]


def test_a_prompt_offers_each_name_once() -> None:
    async def names() -> list[str]:
        async with server() as client:
            return dir(client.jetstream())

    offered = asyncio.run(names())
    assert {"publish", "create_stream", "timeout"} <= set(offered)
    assert not {"publishing", "storing", "creating_bucket"} & set(offered)
    assert len(offered) == len(set(offered))


def test_a_plain_with_is_told_what_to_write() -> None:
    with pytest.raises(TypeError, match=r"async with connect.*with pelton.sync.connect"):
        connect().__enter__()  # type: ignore[attr-defined]  # checkers say it themselves
