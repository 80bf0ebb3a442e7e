"""What a client needs at run time: msgspec, and nothing of command line and server."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.peers import ServerProcess

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]

ALONE = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        first = name.partition(".")[0]
        known = first in sys.stdlib_module_names or first in ("pelton", "msgspec", "Cython")
        if not known and not first.startswith("__editable__"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""

CLIENT = """
import asyncio
from pelton import ConsumerConfig, StreamConfig, connect, sync

with sync.connect(sys.argv[1]) as nc:
    js = nc.jetstream()
    js.create_stream(StreamConfig(name=sys.argv[2], storage="memory"))
    assert js.publish(sys.argv[2], b"x").seq == 1
    assert sum(columns.count for columns in js.read_columns(sys.argv[2], 1, 2)) == 1

async def scenario():
    async with connect(sys.argv[1]) as nc:
        async with nc.jetstream().ordered_consumer(sys.argv[2]).consume() as messages:
            async for message in messages:
                return message.data

assert asyncio.run(scenario()) == b"x"
"""

SERVER = """
from pelton.server.__main__ import main
sys.exit(main(["-a", "127.0.0.1", "-p", "-1"]))
"""


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", ALONE + script, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_client_needs_msgspec_alone(server: ServerProcess, unique: str) -> None:
    done = run(CLIENT, server.url, unique)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(os.environ.get("PELTON_PURE") == "1", reason="it lacks the compiled modules")
def test_a_server_says_what_it_lacks() -> None:
    done = run(SERVER)
    assert done.returncode == 1
    assert "uvloop is not installed: pip install uvloop" in done.stderr
    assert "Traceback" not in done.stderr
    named = {each.partition(">")[0] for each in PROJECT["dependencies"] if "linux" in each}
    assert named == {"uvloop", "prometheus-client"}
