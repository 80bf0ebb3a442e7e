"""Our server and a nats-server side by side: raw requests to both, and answers made comparable.

`normal` takes out what two servers can not have in common (times, ids, versions); a difference that
is left is a finding. Knows nothing of what is asked.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.peers import ServerProcess, available_servers, running_server
from tests.readable import readable

if TYPE_CHECKING:
    from collections.abc import Iterator

Pair = tuple[ServerProcess, ServerProcess]
Step = tuple[str, Any]  # API call and body, or "> subject" and payload of a publish

TIME = re.compile(r"^2\d\d\d-\d\d-\d\dT[\d:.]+Z$")
STAMP = re.compile(rb"Nats-Time-Stamp: [^\r]+")
CONFIGURED = {"opt_start_time", "start_time", "pause_until"}

# Of one server only: its version and level, how many calls it has refused, its clock.
UNCOMMON = {"_nats.ver", "_nats.level", "leader", "level", "errors", "pause_remaining"}
# How far a mirror or a source is by now.
PROGRESS = {"lag", "active", "error"}
LISTED = "change to limits violates consumers: "
# What this server refuses although it is a valid request.
NOT_SUPPORTED = "not supported by this server version"


class RawClient:
    """One connection that sends requests as they are; answers as bytes, None: there is none."""

    def __init__(self, server: ServerProcess, user: str = "") -> None:
        """`user`: log in under this name with the password pw."""
        self._socket = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lines = b""
        self._count = 0
        login = b'"user":"%s","pass":"pw",' % user.encode() if user else b""
        self._socket.sendall(
            b'CONNECT {%s"verbose":false,"headers":true,"no_responders":true}\r\nSUB _I.* 1\r\n'
            % login
        )

    def send(self, subject: str, payload: bytes, header: bytes = b"") -> bytes:
        """Publish with a reply subject of its own; the reply subject."""
        self._count += 1
        reply = b"_I.%d" % self._count
        words = b"%s %s" % (subject.encode(), reply)
        if header:
            head = b"HPUB %s %d %d\r\n" % (words, len(header), len(header) + len(payload))
        else:
            head = b"PUB %s %d\r\n" % (words, len(payload))
        self._socket.sendall(head + header + payload + b"\r\n")
        return reply

    def receive(self, reply: bytes, timeout_s: float = 10) -> bytes | None:
        """The next answer under that reply subject; others are passed over."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = self._read()
            if found is not None and found[0] == reply:
                return found[1]
            if found is not None:
                continue
            left = deadline - time.monotonic()
            if left <= 0 or not readable([self._socket], left):
                return None
            got = self._socket.recv(1 << 16)
            if not got:
                return None
            self._lines += got

    def request(
        self, subject: str, payload: bytes, timeout_s: float = 10, header: bytes = b""
    ) -> bytes | None:
        """Send and wait for the answer."""
        return self.receive(self.send(subject, payload, header), timeout_s)

    def _read(self) -> tuple[bytes, bytes] | None:
        """The next message that is here as a whole: subject and content; None: there is none."""
        while True:
            line, end, rest = self._lines.partition(b"\r\n")
            if not end:
                return None
            parts = line.split()
            if parts[0] in (b"MSG", b"HMSG"):
                break
            self._lines = rest
        size = int(parts[-1])
        if len(rest) < size + 2:
            return None
        self._lines = rest[size + 2 :]
        return parts[1], rest[:size]

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


@contextlib.contextmanager
def both(*arguments: str) -> Iterator[Pair]:
    """Both servers, started with these arguments; skips where one is missing."""
    kinds = ("pelton", "nats-server")
    missing = [kind for kind in kinds if kind not in available_servers()]
    if missing:
        pytest.skip(f"not on this machine: {missing}")
    with (
        running_server(kinds[0], *arguments) as ours,
        running_server(kinds[1], *arguments) as theirs,
    ):
        yield ours, theirs


def normal(value: Any, key: str = "") -> Any:
    """The same JSON value without what two servers can not have in common."""
    if isinstance(value, dict) and "lag" in value and "active" in value:
        value = {name: value[name] for name in value if name not in PROGRESS}
    if isinstance(value, dict):
        return {name: normal(inner, name) for name, inner in value.items() if name not in UNCOMMON}
    if isinstance(value, list):
        return [normal(inner) for inner in value]
    if isinstance(value, str) and TIME.match(value) and key not in CONFIGURED:
        return "a time"
    if isinstance(value, str) and value.startswith(LISTED):
        return sorted(value.removeprefix(LISTED).split(", "))  # in no order there
    return value


def comparable(raw: bytes | None) -> Any:
    """An answer as it is compared: values, and the order of the fields; anything but JSON as it
    is.
    """
    if raw is None or not raw.startswith(b"{"):
        return raw
    ordered = json.loads(raw)
    if isinstance(ordered.get("sources"), list):
        # in no order there; how far each has come is not compared, and has no part in the order
        ordered["sources"].sort(key=lambda source: str(normal(source)))
    return normal(ordered), [*_keys(ordered)]


def _keys(value: Any) -> Iterator[str]:
    """The keys in their order, at all depths."""
    if isinstance(value, dict):
        progress = PROGRESS if "lag" in value and "active" in value else set()
        for key, inner in value.items():
            if key not in progress:
                yield key
                yield from _keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _keys(inner)


def difference(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """Where two comparable answers differ, one line each."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in [*ours, *(key for key in theirs if key not in ours)]:
            yield from difference(ours.get(key), theirs.get(key), f"{path}.{key}".strip("."))
    elif isinstance(ours, tuple) and isinstance(theirs, tuple):
        yield from difference(ours[0], theirs[0], path)
        if ours[0] == theirs[0] and ours[1] != theirs[1]:
            yield f"the order of the fields: ours {ours[1]}, theirs {theirs[1]}"
    elif ours != theirs:
        yield f"{path or 'answer'}: ours {str(ours)[:300]!r}, theirs {str(theirs)[:300]!r}"


def payload_of(body: Any) -> bytes:
    """A body as bytes."""
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def refused_here(answer: Any) -> bool:
    """Whether the (comparable) answer is that the request is valid and not supported."""
    error = answer[0].get("error", {}) if isinstance(answer, tuple) else {}
    return NOT_SUPPORTED in error.get("description", "")


class Judges:
    """A client of each server: the same request to both, and the answers compared."""

    def __init__(self, pair: Pair) -> None:
        self.clients = [RawClient(server) for server in pair]
        self.drawn: list[tuple[str, str]] = []

    def ask(self, call: str, body: Any = b"") -> tuple[Any, Any]:
        """Both answers."""
        payload = payload_of(body)
        sent = [client.send(f"$JS.API.{call}", payload) for client in self.clients]
        ours, theirs = (
            comparable(client.receive(reply))
            for client, reply in zip(self.clients, sent, strict=True)
        )
        return ours, theirs

    def publish(
        self, subject: str, payload: bytes = b"", header: bytes = b"", wait_s: float = 10
    ) -> tuple[Any, Any]:
        """The same message to both; both acknowledgements."""
        sent = [client.send(subject, payload, header) for client in self.clients]
        ours, theirs = (
            client.receive(reply, wait_s) for client, reply in zip(self.clients, sent, strict=True)
        )
        return ours, theirs

    def same(self, call: str, body: Any = b"", *, unnamed: bool = False) -> bool | None:
        """Compare; whether both accepted it, None: it is not supported here. `unnamed`: each server
        draws a name.
        """
        ours, theirs = self.ask(call, body)
        while call.startswith("STREAM.CREATE.") and not_gone(ours, theirs):
            self.ask(call.replace("CREATE", "DELETE"))
            time.sleep(0.05)
            ours, theirs = self.ask(call, body)
        if unnamed:
            for answer in (ours, theirs):
                self._without_name(answer)
        if refused_here(ours):
            if "error" in theirs[0]:
                raise AssertionError(told(call, body, ours, theirs))
            return None
        if ours != theirs:
            raise AssertionError(told(call, body, ours, theirs))
        return "error" not in ours[0]

    def settle(self, stream: str) -> None:
        """Wait until both hold the same messages, as long as that takes sense: nothing says when a
        nats-server has stored what nobody asked an answer for.
        """
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            ours, theirs = self.ask(f"STREAM.INFO.{stream}")
            if ours[0]["state"]["last_seq"] == theirs[0]["state"]["last_seq"]:
                return
            time.sleep(0.01)

    def same_pages(self, call: str, body: Any) -> None:
        """Compare a request that is answered with messages, one after another."""
        payload = payload_of(body)
        sent = [client.send(f"$JS.API.{call}", payload) for client in self.clients]
        ours, theirs = (
            [*_pages(client, reply)] for client, reply in zip(self.clients, sent, strict=True)
        )
        if ours != theirs:
            raise AssertionError(f"{call} {payload!r}\nours   {ours}\ntheirs {theirs}")

    def _without_name(self, answer: Any) -> None:
        """Take out a consumer's drawn name, and remove the consumer."""
        if not isinstance(answer, tuple) or len(answer[0].get("name", "")) < 8:
            return
        self.drawn.append((answer[0]["stream_name"], answer[0]["name"]))
        answer[0]["name"] = "a drawn name"

    def forget(self) -> None:
        """Delete the consumers whose names were drawn."""
        for stream, name in self.drawn:
            self.ask(f"CONSUMER.DELETE.{stream}.{name}")
        self.drawn.clear()


def _pages(client: RawClient, reply: bytes) -> Iterator[bytes]:
    """The messages of an answer, without their times; a status or a message alone is the last."""
    while True:
        found = client.receive(reply, 2)
        if found is None:
            return
        yield STAMP.sub(b"Nats-Time-Stamp: a time", found)
        if b"Nats-Num-Pending" not in found or found.startswith(b"NATS/1.0 "):
            return


def not_gone(ours: Any, theirs: Any) -> bool:
    """Whether the folder of a stream of that name, which a nats-server removes behind its answer,
    is still in the way of a new one: it can not be made, or finds a message of before.
    """
    if not isinstance(theirs, tuple):
        return False
    if theirs[0].get("error", {}).get("description") == "error creating store for stream":
        return True
    held = [answer[0].get("state", {}).get("messages", 0) for answer in (ours, theirs)]
    return bool(held[0] == 0 and held[1] > 0)


def told(call: str, body: Any, ours: Any, theirs: Any) -> str:
    """A difference as a failing test shows it."""
    text = repr(body) if isinstance(body, bytes) else json.dumps(body)[:600]
    return "\n".join([f"{call} {text}", *difference(ours, theirs)])
