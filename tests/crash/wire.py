"""A bare client for crash tests: it sends bytes, and keeps what came back until the server died.

It waits for nothing by itself and never reconnects, so that what it holds is exactly what was said.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import time
from typing import Any, NamedTuple


class Event(NamedTuple):
    """One MSG or HMSG; `subject` is the name alone when it came to an inbox."""

    subject: str
    reply: str
    headers: bytes
    payload: bytes


class Wire:
    """One connection."""

    def __init__(self, port: int, timeout: float = 20.0) -> None:
        self.port = port
        self.gone = False
        self._timeout = timeout
        self._buffer = b""
        self._requests = 0
        self._inbox = f"_R.{os.urandom(6).hex()}."
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True}
        self.send(b"CONNECT " + json.dumps(options).encode() + b"\r\n")
        self.send(f"SUB {self._inbox}> 1\r\nPING\r\n".encode())
        while b"PONG\r\n" not in self._buffer and not self.gone:
            self._receive(timeout)
        self._buffer = self._buffer.partition(b"PONG\r\n")[2]

    def close(self) -> None:
        self._socket.close()

    def cut(self) -> None:
        """As if the network had: whoever uses it finds it gone."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def send(self, data: bytes) -> None:
        """Nothing happens when the server is gone."""
        try:
            self._socket.sendall(data)
        except OSError:
            self.gone = True

    def publish(self, subject: str, payload: bytes, reply: str = "", headers: bytes = b"") -> None:
        self.send(message(subject, payload, self.inbox(reply) if reply else "", headers))

    def inbox(self, name: str) -> str:
        """The reply subject of this connection that is called so when an answer comes."""
        return self._inbox + name

    def events(self, wait: float = 0.0) -> list[Event]:
        """What has come; waits up to so many seconds for the first."""
        until = time.monotonic() + wait
        found = self._parse()
        while not found and not self.gone:
            left = until - time.monotonic()
            self._receive(max(left, 0.0))
            found = self._parse()
            if left <= 0:
                break
        return found

    def request(self, subject: str, body: Any = b"", headers: bytes = b"") -> Any:
        """The JSON answer to one request; RuntimeError when none comes."""
        self._requests += 1
        name = f"request.{self._requests}"
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.publish(subject, payload, name, headers)
        deadline = time.monotonic() + self._timeout
        while time.monotonic() < deadline and not self.gone:
            for event in self.events(0.1):
                if event.subject == name:
                    return json.loads(event.payload) if event.payload else {}
        raise RuntimeError(f"no answer to {subject}")

    def api(self, call: str, body: Any = b"") -> Any:
        return self.request(f"$JS.API.{call}", body)

    def ok(self, call: str, body: Any = b"") -> Any:
        """The answer of an API call that must not fail."""
        answer = self.api(call, body)
        assert "error" not in answer, (call, answer)
        return answer

    def _receive(self, wait: float) -> None:
        try:
            ready = select.select([self._socket], [], [], wait)[0]
            if ready:
                data = self._socket.recv(1 << 20)
                self._buffer += data
                self.gone = self.gone or not data
        except OSError:
            self.gone = True

    def _parse(self) -> list[Event]:
        found = []
        data, at = self._buffer, 0
        while (end := data.find(b"\r\n", at)) >= 0:
            words = data[at:end].decode().split(" ")
            if words[0] not in ("MSG", "HMSG"):
                if words[0] == "PING":
                    self.send(b"PONG\r\n")
                at = end + 2
                continue
            size = int(words[-1])
            if len(data) < end + 2 + size + 2:
                break
            hlen = int(words[-2]) if words[0] == "HMSG" else 0
            plain = 4 if words[0] == "MSG" else 5
            reply = words[3] if len(words) > plain else ""
            body = data[end + 2 : end + 2 + size]
            found.append(Event(words[1].removeprefix(self._inbox), reply, body[:hlen], body[hlen:]))
            at = end + 2 + size + 2
        self._buffer = data[at:]
        return found


def message(subject: str, payload: bytes, reply: str = "", headers: bytes = b"") -> bytes:
    """PUB or HPUB as bytes."""
    to = f"{subject} {reply}" if reply else subject
    if headers:
        sizes = f"{len(headers)} {len(headers) + len(payload)}"
        return f"HPUB {to} {sizes}\r\n".encode() + headers + payload + b"\r\n"
    return f"PUB {to} {len(payload)}\r\n".encode() + payload + b"\r\n"
