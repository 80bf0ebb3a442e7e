"""What ``pelton.client`` offers: everything a user needs, typed, and explained by ``help``."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pelton.client
import pelton.errors
from pelton.client import ConnectOptions, Options, TlsOptions, connect, connect_blocking
from pelton.client.base.addresses import parse_servers
from pelton.client.base.steps import Awaits, Blocks
from pelton.client.protocol.options import make_options
from pelton.testing import server

ROOT = Path(__file__).parents[2]

PROGRAM = """
import ssl
from datetime import timedelta

from pelton.client import (
    BlockingJetStream, BlockingKeyValue, BlockingMessage, KeyValue, KeyValueConfig, KvEntry, PathKeys,
    BlockingPullConsumer, Client, ConsumerConfig, JetStream,
    Message, PullConsumer, StreamConfig, Subscription, connect, connect_blocking,
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
        await js.subscribe("S", ConsumerConfig(ack_wait="30s", backoff=[1, "2s"]), callback=answer)
        handle: PullConsumer = js.pull("S", "c")
        for message in await handle.fetch(timeout="5s"):
            await message.ack()
        await subscription.drain()
        kv: KeyValue[bytes] = await js.create_key_value(KeyValueConfig(bucket="b", ttl="1h"))
        ages: KeyValue[int] = kv.typed(int)
        revision: int = await ages.create("anna", 30, ttl=timedelta(hours=1))
        found = await ages.get("anna")
        if found is not None:
            revision = await ages.update(found.key, found.value + 1, found.revision)
        async with ages.watch("a.>", history=True) as watch:
            first: list[KvEntry[int]] = await watch.initial("5s")
            async for change in watch:
                print(change.value + 1, change.created.isoformat(), len(first), revision)
        async with kv.with_keys(PathKeys()).transaction() as several:
            several.put("/a", b"1")
        print(sum(entry.value for entry in (await ages.snapshot()).values()))

with connect_blocking(timeout="5s", reconnect_wait=0.1) as nc:
    js: BlockingJetStream = nc.jetstream()
    js.create_stream(StreamConfig(name="S", max_age=timedelta(hours=1), duplicate_window=60))
    pull: BlockingPullConsumer = js.pull("S", "c")
    for each in pull.messages(expires="30s"):
        message: BlockingMessage = each
        message.ack()
    bucket: BlockingKeyValue[bytes] = js.key_value("b")
    texts: BlockingKeyValue[str] = bucket.typed(str)
    for entry in texts.watch():
        print(entry.value.upper(), texts.put_many({entry.key: "x"})[entry.key] + 1)
    print(texts.keys("a.*"), bucket.status().config.history)
"""

MISTAKES = """
from pelton.client import BlockingMessage, Client, ConsumerConfig, connect, connect_blocking

async def wrong(message: BlockingMessage) -> None: ...

async def program(nc: Client) -> None:
    await nc.subscribe("a", callback=wrong)  # arg-type
    await (await nc.jetstream().key_value("b")).put("a", "text")  # arg-type
    await (await nc.jetstream().key_value("b")).typed(int).put("a", "text")  # arg-type
    await nc.jetstream().subscribe("S", callback=wrong)  # arg-type
    connect(nmae="n")  # call-arg
    connect_blocking(timeout=b"5")  # arg-type
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
    for name in pelton.client.__all__:
        assert getattr(pelton.client, name) is not None
    assert set(pelton.client.__all__) <= set(dir(pelton.client))
    errors = {
        name
        for name, value in vars(pelton.errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert errors <= set(pelton.client.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        getattr(pelton.client, "Nonsense")  # noqa: B009  # mypy knows that there is none


def test_each_shell_has_the_same_names() -> None:
    blocking = {
        name.removeprefix("Blocking")
        for name in pelton.client.__all__
        if name.startswith("Blocking")
    }
    assert blocking <= set(pelton.client.__all__)
    assert {
        "Client",
        "JetStream",
        "Message",
        "ObjectStore",
        "Publisher",
        "PullConsumer",
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


@pytest.mark.parametrize("shell", [connect, connect_blocking])
def test_options_that_would_be_ignored_are_errors(shell: Any) -> None:
    """All of it is known before a server is looked for."""
    with pytest.raises(TypeError, match="there is no option nmae"):
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


@pytest.mark.parametrize(
    "kind",
    [
        each
        for name in pelton.client.__all__
        if isinstance(each := getattr(pelton.client, name), type)
        and issubclass(each, Awaits | Blocks)
    ],
    ids=lambda kind: kind.__name__,
)
def test_a_prompt_offers_calls_and_not_the_steps_behind_them(kind: type[Any]) -> None:
    offered = set(dir(kind.__new__(kind)))
    calls = {name for name in dir(kind) if inspect.isfunction(inspect.getattr_static(kind, name))}
    hidden = calls - offered
    assert {"__dir__", "__class__"} <= offered
    for name in calls:
        returns = str(inspect.signature(getattr(kind, name)).return_annotation)
        assert (name in hidden) == returns.startswith(("Steps[", "Plan[", "Flow[")), name


def test_a_prompt_offers_each_name_once() -> None:
    async def names() -> list[str]:
        async with server() as client:
            return dir(client.jetstream())

    offered = asyncio.run(names())
    assert {"publish", "create_stream", "timeout"} <= set(offered)
    assert not {"publishing", "storing", "creating_bucket"} & set(offered)
    assert len(offered) == len(set(offered))


def test_a_plain_with_is_told_what_to_write() -> None:
    with pytest.raises(TypeError, match=r"async with connect.*with connect_blocking"):
        connect().__enter__()  # type: ignore[attr-defined]  # checkers say it themselves
