"""A round trip of everything that a client has, with asyncio and with blocking code, and the command line."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pelton import ConsumerConfig, KeyValueConfig, ObjectStoreConfig, StreamConfig, connect, sync

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 60.0
LARGE = bytes(range(256)) * 2000  # several chunks of an object


def program(name: str) -> str:
    """A program of this environment."""
    found = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    assert found is not None, f"{name} is not installed"
    return found


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("server")
    options = ["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", folder / "js"]
    server = subprocess.Popen([program("nats-server"), *options, "--ports_file_dir", folder])
    try:
        yield address(server, folder)
    finally:
        server.terminate()
        server.wait(PATIENCE_S)


def address(server: subprocess.Popen[bytes], folder: Path) -> str:
    """Where a server listens, when it does."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and server.poll() is None:
        for file in folder.glob("*.ports"):
            if text := file.read_text(encoding="utf-8"):
                return str(json.loads(text)["nats"][0])
        time.sleep(0.02)  # there is nothing to wait on: the server writes a file
    raise AssertionError("nats-server does not start")


def test_asyncio(url: str) -> None:
    async def everything() -> None:
        async with connect(url) as client:
            async with await client.subscribe("help") as requests:
                asked = asyncio.create_task(client.request("help", b"?"))
                async for message in requests:
                    await message.respond(b"yes")
                    break
                assert (await asked).data == b"yes"
            js = client.jetstream()
            await js.create_stream(StreamConfig(name="AIO", subjects=["aio.>"]))
            async with js.publisher() as publisher:
                for number in range(500):
                    await publisher.publish("aio.x", b"%d" % number, headers={"N": str(number)})
            await js.create_consumer("AIO", ConsumerConfig(durable_name="c"))
            consumer = await js.consumer("AIO", "c")
            got = 0
            async with consumer.consume() as messages:
                async for each in messages:
                    assert (each.data, each.headers.get_all("N")) == (b"%d" % got, [str(got)])
                    await each.ack()
                    got += 1
                    if got == 500:
                        break
            bucket = await js.create_key_value(KeyValueConfig(bucket="aio"))
            async with await bucket.watch() as watch:
                await bucket.put("key", b"value")
                async for entry in watch:
                    assert (entry.key, entry.value) == ("key", b"value")
                    break
            store = await js.create_object_store(ObjectStoreConfig(bucket="aio"))
            await store.put("large", LARGE)
            assert await store.get("large") == LARGE

    asyncio.run(asyncio.wait_for(everything(), PATIENCE_S))


def test_blocking(url: str) -> None:
    with sync.connect(url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name="BLOCK", subjects=["block.>"]))
        with js.publisher() as publisher:
            for number in range(500):
                publisher.publish("block.x", b"%d" % number)
        js.create_consumer("BLOCK", ConsumerConfig(durable_name="c"))
        got = [each.data for each in js.consumer("BLOCK", "c").fetch(500, timeout=PATIENCE_S)]
        assert got == [b"%d" % number for number in range(500)]
        bucket = js.create_key_value(KeyValueConfig(bucket="block"))
        bucket.put("key", b"value")
        entry = bucket.get("key")
        assert entry is not None
        assert entry.value == b"value"
        store = js.create_object_store(ObjectStoreConfig(bucket="block"))
        store.put("large", LARGE)
        assert store.get("large") == LARGE


def pelton(url: str, *words: str, status: int = 0) -> str:
    """What a command prints."""
    done = subprocess.run(
        [program("pelton"), *words],
        env=os.environ | {"NATS_URL": url, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def test_the_command_line(url: str, tmp_path: Path) -> None:
    pelton(url, "stream", "add", "SHELL", "--subjects", "shell.>", "--defaults")
    assert pelton(url, "pub", "-J", "shell.a", "42 bolts").startswith("stored in SHELL")
    assert "42 bolts" in pelton(url, "stream", "get", "SHELL", "1")
    assert "SHELL" in json.loads(pelton(url, "stream", "ls", "--json"))
    file = tmp_path / "file.bin"
    file.write_bytes(LARGE)
    pelton(url, "object", "add", "shell")
    pelton(url, "object", "put", "shell", str(file), "--name", "file")
    copy = tmp_path / "copy.bin"
    pelton(url, "object", "get", "shell", "file", "--output", str(copy))
    assert copy.read_bytes() == LARGE
    assert "No such command" in pelton(url, "strem", status=2)


def test_nothing_of_the_server_is_loaded() -> None:
    doors = "from pelton import connect; from pelton.sync import connect"
    code = f"import sys, pelton.cli; {doors}; print([n for n in sys.modules if n.startswith('pelton.server')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.skipif("PELTON_PURE" not in os.environ, reason="the workflow says which core is tried")
def test_the_core_is_the_one_that_is_asked_for() -> None:
    plain = os.environ["PELTON_PURE"] == "1"
    spec = sys.modules["pelton.core.protocol.wire"].__spec__
    assert spec is not None
    assert str(spec.origin).endswith(".py") == plain
