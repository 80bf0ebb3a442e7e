"""Which modules the frequent commands load: what makes a command start slowly is what is loaded for it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.peers import ServerProcess

HEAVY = (
    *("asyncio", "concurrent.futures", "multiprocessing", "unittest", "email", "http.client"),
    *("rich", "numpy", "pyarrow", "duckdb", "pyspark", "yaml", "cbor2"),
    *("pelton.client.aio", "pelton.engine", "pelton.server", "pelton.embedded"),
    *("pelton.store", "pelton.spark", "pelton.sql", "pelton.apply", "pelton.plgd"),
)
# What only commands of buckets, object stores and groups need.
BUCKETS = ("sync.objectstore", "groups", "sync.groups", "keyvalue.config")
COMMANDS = (
    "stream add NAME --subjects NAME.> --defaults",
    "pub NAME.a x",
    "stream ls",
    "stream ls --json",
    "stream info NAME",
    "stream get NAME 1",
    "consumer add NAME c --pull --defaults",
    "consumer ls NAME",
    "consumer info NAME c",
    "consumer next NAME c --raw",
    "account info",
    "rtt 1",
    "context ls",
    "bench pub NAME.b --msgs 10 --json",
    "stream rm NAME -f",
)
BUCKET_COMMANDS = ("kv ls", "object ls")
CODE = """
import contextlib, io, json, sys
from pelton.cli.__main__ import main
parts, url = json.load(sys.stdin)
found = {}
for heavy, command in ((heavy, command) for heavy, commands in parts for command in commands):
    out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(["-s", url, "--no-context", *command.split()])
    loaded = [name for name in heavy if name in sys.modules]
    if status or loaded:
        found[command] = (status, loaded, err.getvalue())
        break
json.dump(found, sys.stdout)
"""


def test_frequent_commands_load_no_more_than_they_need(peer: ServerProcess, unique: str) -> None:
    commands = [each.replace("NAME", unique) for each in COMMANDS]
    lighter = (*HEAVY, *(f"pelton.client.{name}" for name in BUCKETS))
    assert all(importlib.util.find_spec(name) for name in lighter)
    parts = ((lighter, commands), (HEAVY, BUCKET_COMMANDS))
    ran = subprocess.run(
        [sys.executable, "-c", CODE],
        input=json.dumps([parts, peer.url]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {}
