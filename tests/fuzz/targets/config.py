"""Configuration files: any text is settings, or problems with file, line and column."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from pelton.server.config.grammar import Item, parse
from pelton.server.config.load import read_config
from pelton.server.errors import ConfigError

MAX_BYTES = 1500
WORDS = (
    b"port: ", b"listen: ", b"jetstream {", b"store_dir: ", b"max_mem: 1GB", b"authorization {", b"users: [", b"user: ", b"password: ",
    b"accounts {", b"exports: [{stream: ", b"imports: [{service: {account: A, subject: x}}]", b"permissions {", b"publish: {allow: [",
    b"leafnodes {", b"remotes: [{url: ", b"websocket {", b"tls {", b"mappings {", b"weight: 50%", b"include ", b"$VAR", b"2m", b"true",
    b"(\nblock\n)", b"# c\n", b"// c\n", b"'", b'"', b"\\x41", b"operator: ", b"resolver: MEMORY", b"no_auth_user: ", b"jetstream: enabled",
    b"cluster {", b"http: ", b"max_payload: ", b"server_tags: [", b"default_permissions {", b"allow_responses: {max: 1, expires: 1m}",
)  # fmt: skip
PLACE = re.compile(r"config:\d+:\d+")


def run(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    if "include" in text:  # which would read files of this machine
        text = text.replace("include", "included")
    try:
        tree = parse(text, "config", environ={"VAR": "5", "X": "[a, b]"}, read_include=refuse)
    except ConfigError as error:
        assert PLACE.search(str(error)), error
        return
    walk(tree.items)
    try:
        read_config(text, "config", environ={"VAR": "5"})
    except ConfigError as error:
        assert str(error)


def refuse(_file: str, path: str) -> tuple[str, str]:
    raise FileNotFoundError(2, "no such file", path)


def walk(items: dict[str, Item], depth: int = 0) -> None:
    for item in items.values():
        assert item.line >= 1
        assert item.column >= 1
        if isinstance(item.value, dict):
            walk(item.value, depth + 1)


def seeds() -> Iterable[bytes]:
    for word in WORDS:
        yield b"port: 4222\n" + word + b"\n"
    yield b'accounts { A { users: [{user: a, password: "b"}], jetstream: enabled, exports: [{service: q}] } B: {imports: [{service: {account: A, subject: q}}]}}'
    yield b"listen: 127.0.0.1:4222, http: 8222\njetstream { store_dir: /tmp/x, max_file: 10GB, sync_interval: always }\n"
    yield b"authorization { timeout: 2, users = [ {user: a, password: b, permissions: {publish: {deny: [x.>]}, subscribe: a}} ] }"
    deploy = Path(__file__).resolve().parents[3] / "deploy"
    for path in sorted(deploy.rglob("*.conf")):
        yield path.read_bytes()[:MAX_BYTES]
