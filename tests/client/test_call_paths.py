"""The page about the client's code: each drawing is the way that a call takes, and what it names exists."""

from __future__ import annotations

import ast
import asyncio
import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pelton
import pelton.client
import pelton.sync

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from types import FrameType

    from tests.peers import ServerProcess

PAGE = Path(__file__).parents[2] / "docs/topics/client.md"
CLIENT = Path(pelton.client.__file__).parent
LINE = re.compile(r"^( *)(\S+\.py): (\S+)", re.MULTILINE)
LINES_MAX = 12

Step = tuple[str, str]
"""A file, relative to the client's folder, and a function in it."""


def drawings() -> dict[str, list[tuple[int, Step]]]:
    """The lines of each drawing, with their indents, by the heading above it."""
    found = {}
    for part in re.split(r"^##+ ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        heading = part.partition("\n")[0]
        for block in re.findall(r"^```text\n(.*?)^```", part, re.MULTILINE | re.DOTALL):
            assert heading not in found, f"two drawings under {heading!r}"
            found[heading] = [(len(s[0]), (s[1], s[2])) for s in LINE.findall(block)]
            assert len(found[heading]) == len(block.splitlines()), heading
    return found


DRAWINGS = drawings()


@cache
def functions_of(file: str) -> set[str]:
    """The functions and methods that a file defines."""

    def walk(body: list[ast.stmt], prefix: str) -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.ClassDef):
                yield from walk(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{prefix}{node.name}"

    return set(walk(ast.parse((CLIENT / file).read_text()).body, ""))


def missing(drawing: list[tuple[int, Step]]) -> list[str]:
    """What a drawing names that is not there."""
    return [
        f"{file}: {function}"
        for _, (file, function) in drawing
        if not (CLIENT / file).is_file() or function not in functions_of(file)
    ]


class Trace:
    """The calls of functions of the client, each with those that were running."""

    def __init__(self) -> None:
        """``with`` begins."""
        self.calls: list[tuple[Step, frozenset[Step]]] = []

    def __enter__(self) -> Trace:
        """Trace this thread."""
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        """The end."""
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and (step := _step(frame)):
            above = []
            outer = frame.f_back
            while outer is not None:
                above.append(_step(outer))
                outer = outer.f_back
            self.calls.append((step, frozenset(each for each in above if each)))

    def lacks(self, drawing: list[tuple[int, Step]]) -> str | None:
        """The first line of a drawing that did not happen after those before it, below its parent."""
        parents: list[tuple[int, Step]] = []
        calls = iter(self.calls)
        for indent, step in drawing:
            while parents and parents[-1][0] >= indent:
                parents.pop()
            above = {each for _, each in parents}
            if not any(call == step and above <= running for call, running in calls):
                return ": ".join(step)
            parents.append((indent, step))
        return None


def _step(frame: FrameType) -> Step | None:
    path = Path(frame.f_code.co_filename)
    if not path.is_relative_to(CLIENT):
        return None
    return path.relative_to(CLIENT).as_posix(), frame.f_code.co_qualname


async def answer(message: pelton.Message) -> None:
    await message.respond(b"yes")


class Calls:
    """The ten calls, as somebody makes them who has just begun."""

    def __init__(self, url: str, unique: str) -> None:
        """``prepare`` follows."""
        self.url = url
        self.name = unique
        self.nc: pelton.Client
        self.js: pelton.JetStream
        self.consumer: pelton.Consumer
        self.kv: pelton.KeyValue[bytes]

    async def prepare(self) -> None:
        """What the calls need."""
        self.nc = await pelton.connect(self.url)
        self.js = self.nc.jetstream()
        await self.js.create_stream(self.name, subjects=[f"{self.name}.>"])
        await self.js.create_consumer(self.name, durable_name="billing")
        self.consumer = await self.js.consumer(self.name, "billing")
        self.kv = await self.js.create_key_value(self.name)
        await self.kv.put("bolts", b"41")
        await self.js.publish(f"{self.name}.1", b"1")
        await self.nc.subscribe("help", callback=answer)
        await self.nc.flush()

    async def connect(self) -> None:
        await (await pelton.connect(self.url)).close()

    async def publish(self) -> None:
        await self.nc.publish("news", b"")
        await asyncio.sleep(0)  # the turn of the loop ends

    async def subscribe(self) -> None:
        news = await self.nc.subscribe("news")
        await self.nc.publish("news", b"sunny")
        async for _ in news:
            break

    async def request(self) -> None:
        await self.nc.request("help")
        await asyncio.sleep(0)  # what brought the answer ends

    async def create_stream(self) -> None:
        await self.js.create_stream(f"{self.name}-2", subjects=[f"{self.name}-2.>"])

    async def js_publish(self) -> None:
        await self.js.publish(f"{self.name}.2", b"2")

    async def fetch(self) -> None:
        assert await self.consumer.fetch(1, timeout=5)

    async def consume(self) -> None:
        async with self.consumer.consume() as messages:
            async for _ in messages:
                break

    async def ack(self) -> None:
        (message,) = await self.consumer.fetch(1, timeout=5)
        await message.ack()
        await asyncio.sleep(0)

    async def put(self) -> None:
        await self.kv.put("bolts", b"42")

    async def get(self) -> None:
        await self.kv.get("bolts")


CALLS: dict[str, Callable[[Calls], Awaitable[Any]]] = {
    "What every call has in common": Calls.request,
    "connect": Calls.connect,
    "publish": Calls.publish,
    "subscribe, and iterate": Calls.subscribe,
    "request": Calls.request,
    "js.create_stream": Calls.create_stream,
    "js.publish": Calls.js_publish,
    "consumer.fetch": Calls.fetch,
    "consumer.consume, with a loop": Calls.consume,
    "message.ack": Calls.ack,
    "kv.put": Calls.put,
    "kv.get": Calls.get,
}
BLOCKING = "Threads"


def test_every_drawing_is_tested_and_short() -> None:
    assert list(DRAWINGS) == [*CALLS, BLOCKING]
    assert max(map(len, DRAWINGS.values())) <= LINES_MAX


@pytest.mark.parametrize("heading", DRAWINGS)
def test_what_a_drawing_names_exists(heading: str) -> None:
    assert missing(DRAWINGS[heading]) == []


@pytest.mark.parametrize("heading", CALLS)
def test_a_call_takes_the_way_that_is_drawn(
    heading: str, server: ServerProcess, unique: str
) -> None:
    async def run() -> Trace:
        calls = Calls(server.url, unique)
        await calls.prepare()
        with Trace() as trace:
            await CALLS[heading](calls)
        await calls.nc.close()
        return trace

    assert asyncio.run(run()).lacks(DRAWINGS[heading]) is None


def test_a_blocking_request_takes_the_way_that_is_drawn(server: ServerProcess) -> None:
    with pelton.sync.connect(server.url) as nc:
        nc.flush()
        with Trace() as trace, pytest.raises(pelton.NoRespondersError):
            nc.request("nobody-is-there")
    assert trace.lacks(DRAWINGS[BLOCKING]) is None


def test_a_wrong_drawing_is_found() -> None:
    publish = DRAWINGS["publish"]
    trace = Trace()
    for at, (_, step) in enumerate(publish):
        trace.calls.append((step, frozenset(each for _, each in publish[:at])))
    assert trace.lacks(publish) is None
    assert trace.lacks([publish[1], publish[0]]) == "aio/backend.py: Backend.publish"
    assert trace.lacks([*publish, publish[0]]) == "aio/backend.py: Backend.publish"
    wrong = [(0, ("aio/backend.py", "Backend.publsh")), (0, ("aio/none.py", "f"))]
    assert missing(wrong) == ["aio/backend.py: Backend.publsh", "aio/none.py: f"]
