"""A MongoDB server for tests: a real ``mongod`` where one is installed, and a small one of ours everywhere.

Ours speaks the wire protocol to the real driver and has the commands, filters and updates that an event store uses.
What it does not know is an error, never ignored. It keeps documents as BSON, so that types are those that were sent.
"""

from __future__ import annotations

import os
import shutil
import socket
import socketserver
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import bson
from bson import Int64

from tests.ports import free_port

OP_REPLY, OP_QUERY, OP_MSG = 1, 2004, 2013
MONGOD = os.environ.get("PELTON_MONGOD") or shutil.which("mongod")
HELLO = {
    "ismaster": True,
    "isWritablePrimary": True,
    "maxBsonObjectSize": 16 << 20,
    "maxMessageSizeBytes": 48 << 20,
    "maxWriteBatchSize": 100_000,
    "minWireVersion": 0,
    "maxWireVersion": 21,
    "readOnly": False,
    "ok": 1.0,
}


class CommandError(Exception):
    """A command that fails, with its code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def values_at(document: Any, path: str) -> list[Any]:
    """The values at a dotted path, through arrays."""
    name, _, rest = path.partition(".")
    if isinstance(document, list):
        return [value for each in document for value in values_at(each, path)]
    if not isinstance(document, dict) or name not in document:
        return []
    found = document[name]
    if rest:
        return values_at(found, rest)
    return [found, *found] if isinstance(found, list) else [found]


def fits_operators(values: list[Any], asked: dict[str, Any]) -> bool:
    for operator, wanted in asked.items():
        if operator == "$in":
            ok = any(value in wanted for value in values)
        elif operator == "$gt":
            ok = any(not isinstance(v, list) and v > wanted for v in values)
        elif operator == "$lt":
            ok = any(not isinstance(v, list) and v < wanted for v in values)
        elif operator == "$exists":
            ok = bool(values) == wanted
        elif operator == "$size":
            ok = any(isinstance(value, list) and len(value) == wanted for value in values)
        else:
            raise CommandError(2, f"unknown operator {operator}")
        if not ok:
            return False
    return True


def fits(document: dict[str, Any], query: dict[str, Any]) -> bool:
    """Whether a document is asked for."""
    for path, asked in query.items():
        values = values_at(document, path)
        if isinstance(asked, dict) and asked and all(k.startswith("$") for k in asked):
            if not fits_operators(values, asked):
                return False
        elif asked not in values:
            return False
    return True


def updated(document: dict[str, Any], update: dict[str, Any]) -> dict[str, Any]:
    """A document after an update."""
    made = dict(document)
    for operator, fields in update.items():
        for name, value in fields.items():
            if operator == "$set":
                made[name] = value
            elif operator == "$unset":
                made.pop(name, None)
            elif operator == "$inc":
                made[name] = Int64(made.get(name, 0) + value)
            elif operator == "$push":
                made[name] = [*made.get(name, []), *value["$each"]]
            elif operator == "$pull":
                made[name] = [each for each in made.get(name, []) if not fits(each, value)]
            else:
                raise CommandError(9, f"unknown update {operator}")
    return made


def order_key(document: dict[str, Any], order: dict[str, int]) -> Any:
    key = []
    for path, way in order.items():
        values = [value for value in values_at(document, path) if not isinstance(value, list)]
        assert way == 1 or all(isinstance(value, int) for value in values)
        least = min(values, default=None) if way == 1 else max(values, default=0)
        key.append(least if way == 1 else -least)
    return key


class Database:
    """Collections of documents, as BSON."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.collections: dict[str, dict[Any, bytes]] = {}
        self.indexes: dict[str, list[dict[str, int]]] = {}
        self.cursors: dict[int, tuple[str, list[dict[str, Any]]]] = {}
        self.max_bytes = 16 << 20
        self.replies_until_it_fails: int | None = None

    def of(self, name: str) -> dict[Any, bytes]:
        return self.collections.setdefault(name, {})

    def documents(self, name: str, query: dict[str, Any]) -> list[dict[str, Any]]:
        return [d for d in map(bson.decode, self.of(name).values()) if fits(d, query)]

    def put(self, name: str, document: dict[str, Any], *, new: bool) -> None:
        if new and document["_id"] in self.of(name):
            raise CommandError(11000, "E11000 duplicate key error")
        data = bson.encode(document)
        if len(data) > self.max_bytes:
            raise CommandError(17419, "Resulting document after update is larger than 16777216")
        self.of(name)[document["_id"]] = data

    def run(self, command: dict[str, Any]) -> dict[str, Any]:
        """Answer a command."""
        name = next(iter(command))
        with self.lock:
            if name.lower() in ("hello", "ismaster"):
                return {**HELLO, "localTime": bson.datetime_ms.DatetimeMS(0), "connectionId": 1}
            if name in ("ping", "endSessions", "killCursors"):
                return {"ok": 1.0}
            method = getattr(self, f"on_{name.lower()}", None)
            if method is None:
                raise CommandError(59, f"no such command: '{name}'")
            space = f"{command['$db']}.{command[name]}"
            return {"ok": 1.0} | method(space, command)

    def on_createindexes(self, space: str, command: dict[str, Any]) -> dict[str, Any]:
        self.indexes.setdefault(space, []).extend(dict(i["key"]) for i in command["indexes"])
        return {}

    def on_insert(self, space: str, command: dict[str, Any]) -> dict[str, Any]:
        return self.each(command["documents"], lambda one: (self.put(space, one, new=True), 1)[1])

    def each(self, items: list[Any], work: Any) -> dict[str, Any]:
        """Do something with each of many; ``n`` is how many, writeErrors what failed first."""
        count = 0
        for place, item in enumerate(items):
            try:
                count += work(item)
            except CommandError as error:
                told = {"index": place, "code": error.code, "errmsg": str(error)}
                return {"n": count, "writeErrors": [told]}
        return {"n": count}

    def on_update(self, space: str, command: dict[str, Any]) -> dict[str, Any]:
        changed: list[Any] = []
        upserted: list[dict[str, Any]] = []

        def one(asked: dict[str, Any]) -> int:
            if (hint := asked.get("hint")) and dict(hint) not in self.indexes.get(space, []):
                raise CommandError(2, "error processing query: hint provided does not correspond")
            found = self.documents(space, asked["q"])
            if not found and asked.get("upsert"):
                self.put(space, self.changed(dict(asked["q"]), asked["u"]), new=True)
                upserted.append({"index": 0, "_id": asked["q"]["_id"]})
                return 1
            for document in found if asked.get("multi") else found[:1]:
                after = self.changed(document, asked["u"])
                if bson.encode(after) != bson.encode(document):
                    self.put(space, after, new=False)
                    changed.append(after)
            return len(found if asked.get("multi") else found[:1])

        answer = self.each(command["updates"], one) | {"nModified": len(changed)}
        return answer | ({"upserted": upserted} if upserted else {})

    def changed(self, document: dict[str, Any], update: dict[str, Any]) -> dict[str, Any]:
        if any(name.startswith("$") for name in update):
            return updated(document, update)
        return {"_id": document["_id"], **update}

    def on_findandmodify(self, space: str, command: dict[str, Any]) -> dict[str, Any]:
        found = self.documents(space, command["query"])
        before = found[0] if found else dict(command["query"])
        after = updated(before, command["update"])
        self.put(space, after, new=not found)
        return {"value": after}

    def on_delete(self, space: str, command: dict[str, Any]) -> dict[str, Any]:
        def one(asked: dict[str, Any]) -> int:
            found = self.documents(space, asked["q"])[: asked["limit"] or None]
            for document in found:
                del self.of(space)[document["_id"]]
            return len(found)

        return self.each(command["deletes"], one)

    def on_distinct(self, space: str, command: dict[str, Any]) -> dict[str, Any]:
        found = self.documents(space, command.get("query", {}))
        return {"values": sorted({v for d in found for v in values_at(d, command["key"])})}

    def on_find(self, space: str, command: dict[str, Any]) -> dict[str, Any]:
        found = self.documents(space, command.get("filter", {}))
        if order := command.get("sort"):
            found.sort(key=lambda document: order_key(document, order))
        found = found[: command.get("limit") or None]
        if wanted := command.get("projection"):
            found = [{k: v for k, v in d.items() if k == "_id" or k in wanted} for d in found]
        return self.batch(space, found, command.get("batchSize", 101), "firstBatch")

    def on_getmore(self, space: str, command: dict[str, Any]) -> dict[str, Any]:
        cursor = int(command["getMore"])
        if cursor not in self.cursors:
            raise CommandError(43, f"cursor id {cursor} not found")
        space, left = self.cursors.pop(cursor)
        return self.batch(space, left, command.get("batchSize", 1000), "nextBatch")

    def batch(self, space: str, found: list[Any], size: int, name: str) -> dict[str, Any]:
        cursor = 0
        if len(found) > size:
            cursor = len(self.cursors) + 1 + max(self.cursors, default=0)
            self.cursors[cursor] = space, found[size:]
        return {"cursor": {"id": Int64(cursor), "ns": space, name: found[:size]}}


class Handler(socketserver.BaseRequestHandler):
    """One connection."""

    def handle(self) -> None:
        database: Database = self.server.database  # type: ignore[attr-defined]  # our server has it
        while True:
            head = self.exactly(16)
            if head is None:
                return
            length, request_id, _, opcode = struct.unpack("<iiii", head)
            body = self.exactly(length - 16)
            if body is None:
                return
            if opcode == OP_QUERY:
                end = body.index(b"\0", 4) + 1 + 8
                answer = bson.encode(database.run({**bson.decode(body[end:]), "$db": "admin"}))
                payload = struct.pack("<iqii", 8, 0, 0, 1) + answer
                self.reply(request_id, OP_REPLY, payload)
                continue
            assert opcode == OP_MSG
            left = database.replies_until_it_fails
            if left is not None:
                if left <= 0:
                    return
                database.replies_until_it_fails = left - 1
            try:
                answer = bson.encode(database.run(command_of(body)))
            except CommandError as error:
                told = {"ok": 0.0, "code": error.code, "errmsg": str(error)}
                answer = bson.encode(told)
            self.reply(request_id, OP_MSG, b"\0\0\0\0\0" + answer)

    def reply(self, request_id: int, opcode: int, payload: bytes) -> None:
        self.request.sendall(
            struct.pack("<iiii", len(payload) + 16, 1, request_id, opcode) + payload
        )

    def exactly(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            try:
                more = self.request.recv(size - len(data))
            except OSError:
                return None
            if not more:
                return None
            data += more
        return data


def command_of(body: bytes) -> dict[str, Any]:
    """The command of an OP_MSG: a document, and sequences of documents that belong to it."""
    place = 4
    command: dict[str, Any] = {}
    while place < len(body):
        kind, place = body[place], place + 1
        [size] = struct.unpack_from("<i", body, place)
        if kind == 0:
            command = {**bson.decode(body[place : place + size]), **command}
            command = dict(sorted(command.items(), key=lambda item: isinstance(item[1], list)))
        else:
            end = body.index(b"\0", place + 4)
            rest, documents = body[end + 1 : place + size], []
            while rest:
                [length] = struct.unpack_from("<i", rest)
                documents.append(bson.decode(rest[:length]))
                rest = rest[length:]
            command[body[place + 4 : end].decode()] = documents
        place += size
    return command


class Server(socketserver.ThreadingTCPServer):
    """Ours."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int, database: Database) -> None:
        self.database = database
        super().__init__(("127.0.0.1", port), Handler)


class OurMongod:
    """Our server; it can be stopped and started again with what it has."""

    def __init__(self) -> None:
        self.database = Database()
        self.port = free_port()
        self.server: Server | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"mongodb://127.0.0.1:{self.port}/"

    def start(self) -> None:
        self.database.replies_until_it_fails = None
        self.database.cursors.clear()
        self.server = Server(self.port, self.database)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None


class RealMongod:
    """An installed mongod with a folder of its own."""

    def __init__(self, program: str) -> None:
        self.folder = tempfile.mkdtemp(prefix="pelton-mongod-")
        self.port = free_port()
        self.program = program
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"mongodb://127.0.0.1:{self.port}/"

    def start(self) -> None:
        command = [self.program, "--dbpath", self.folder, "--port", str(self.port), "--quiet"]
        self.process = subprocess.Popen(
            [*command, "--bind_ip", "127.0.0.1"], stdout=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert time.monotonic() < deadline, "mongod does not listen"
                time.sleep(0.05)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
            self.process = None


@contextmanager
def running_mongod(kind: str) -> Iterator[OurMongod | RealMongod]:
    """A server of a kind: ``ours`` or ``mongod``."""
    server = OurMongod() if kind == "ours" else RealMongod(str(MONGOD))
    try:
        yield server
    finally:
        server.stop()
        if isinstance(server, RealMongod):
            shutil.rmtree(server.folder)
