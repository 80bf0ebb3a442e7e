"""Several users of two servers with the same configuration: every step is done on both, then what each
user saw is compared. For what accounts share with each other.

Replaced before comparing: what servers draw (reply subjects of services, ids) and times.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import time
from typing import TYPE_CHECKING, Any

from tests.compat.twins import PATIENCE_S, QUIET_S, Twin
from tests.peers import ServerProcess, running_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

REPLY = re.compile(rb"^_R_\.[A-Za-z0-9]+\.[A-Za-z0-9]+(\.[A-Za-z0-9]+\.T)?$")
INFO = re.compile(rb"Nats-Request-Info: ([^\r]+)\r\n")
ACK = re.compile(rb"^(\$JS\.ACK\.(?:[^.]+\.){5})\d+(\.\d+)$")
PASSING = {"rtt", "start", "id", "client_type", "nonce", "jwt"}


class User(Twin):
    """One user's connection; remembers the reply subjects of services it was asked on."""

    def __init__(self, port: int, name: str) -> None:
        self.replies: list[bytes] = []
        connect = {
            "verbose": False,
            "pedantic": False,
            "headers": True,
            "no_responders": True,
            "protocol": 1,
            "user": name,
            "pass": "pw",
            "name": f"app of {name}",
            "lang": "test",
            "version": "1",
        }
        super().__init__(port, f"CONNECT {json.dumps(connect)}\r\nPING\r\n".encode())

    def _keep(self, subject: bytes, sid: str, reply: bytes, head: bytes, body: bytes) -> None:
        if REPLY.match(reply):
            self.replies.append(reply)
            reply = b"_R_"
        if ACK.match(reply):
            self.acks.append(reply)
            reply = ACK.sub(rb"\1time\2", reply)
        super()._keep(subject, sid, reply, INFO.sub(_plain_info, head), body)
        if body.startswith(b'{"type":"io.nats.server.metric'):
            kept = self.seen[sid][-1]
            self.seen[sid][-1] = (*kept[:3], _plain_measurement(json.loads(body)))


def _plain_info(match: re.Match[bytes]) -> bytes:
    info = json.loads(match[1])
    kept = {name: value for name, value in info.items() if name not in PASSING}
    return b"Nats-Request-Info: " + json.dumps(kept).encode() + b"\r\n"


def _plain_measurement(event: Any) -> Any:
    if not isinstance(event, dict):
        return event
    passing = {*PASSING, "timestamp", "service", "system", "total"}
    return {name: _plain_measurement(each) for name, each in event.items() if name not in passing}


class Cast:
    """The same users at both servers."""

    def __init__(self, ours: int, theirs: int, names: list[str]) -> None:
        self.ports = (ours, theirs)
        self.pairs = {name: (User(ours, name), User(theirs, name)) for name in names}
        self.steps: list[str] = []
        self.processes: list[ServerProcess] = []
        self.path: Path | None = None

    def reload(self, config: str) -> None:
        """Give both servers another configuration, and wait until they have it."""
        assert self.path is not None
        self.path.write_text(f"server_name: S\n{config}")
        before = [_reloads(each) for each in self.processes]
        for each in self.processes:
            assert each.process is not None
            each.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + PATIENCE_S
        while [_reloads(each) for each in self.processes] != [count + 1 for count in before]:
            assert time.monotonic() < deadline, [
                each.log_path.read_text()[-1000:] for each in self.processes
            ]
            time.sleep(0.02)
        self.steps.append("reload")

    def close(self) -> None:
        for pair in self.pairs.values():
            for user in pair:
                user.close()

    def add(self, name: str, shown: str = "") -> None:
        """One more connection of a user, under a name of its own."""
        self.pairs[shown or name] = (User(self.ports[0], name), User(self.ports[1], name))

    def both(
        self, name: str, act: Callable[[User], None], step: str, answer: str = ""
    ) -> dict[str, Any]:
        """Let a user act at both, ending with PING; what each user of ours saw, when it is the same at theirs.

        ``answer``: the subscription on which the user's question is answered at least by one of them.
        """
        self.steps.append(f"{name}: {step}")
        for pair in self.pairs.values():
            for user in pair:
                user.seen, user.pongs = {}, 0
        acting = self.pairs[name]
        for user in acting:
            act(user)
        deadline = time.monotonic() + PATIENCE_S
        quiet_since = time.monotonic()
        while time.monotonic() < deadline:
            came = [user.read(0.001) for pair in self.pairs.values() for user in pair]
            now = time.monotonic()
            if any(came):
                quiet_since = now
            elif (
                now - quiet_since >= QUIET_S
                and all(user.pongs or user.closed for user in acting)
                and (not answer or any(answer in user.seen for user in acting))
                and self._same()
            ):
                return {name: pair[0].seen for name, pair in self.pairs.items()}
        raise AssertionError("\n".join(["after", *self.steps[-12:], *self._differences()]))

    def _same(self) -> bool:
        return all(
            ours.seen == theirs.seen and ours.closed == theirs.closed
            for ours, theirs in self.pairs.values()
        )

    def _differences(self) -> Iterator[str]:
        for name, (ours, theirs) in self.pairs.items():
            if (ours.seen, ours.closed) != (theirs.seen, theirs.closed):
                yield f"{name}, ours:   {ours.seen} {'closed' if ours.closed else ''}"
                yield f"{name}, theirs: {theirs.seen} {'closed' if theirs.closed else ''}"

    def say(self, name: str, data: str | bytes, answer: str = "") -> dict[str, Any]:
        """The user sends these lines, and a PING; `answer` as in `both`."""
        raw = data.encode() if isinstance(data, str) else data
        if raw and not raw.endswith(b"\r\n"):
            raw += b"\r\n"
        return self.both(name, lambda user: user.send(raw + b"PING\r\n"), repr(raw), answer)

    def publish(
        self, name: str, subject: str, body: str = "", reply: str = "", headers: str = ""
    ) -> dict[str, Any]:
        """The user publishes; headers as lines without their ends."""
        words = f"{subject} {reply}".strip()
        if not headers:
            return self.say(name, f"PUB {words} {len(body)}\r\n{body}\r\n")
        block = "NATS/1.0\r\n" + headers.replace("\n", "\r\n") + "\r\n\r\n"
        size = len(block) + len(body)
        return self.say(name, f"HPUB {words} {len(block)} {size}\r\n{block}{body}\r\n")

    def answer(self, name: str, body: str, at: int = -1, reply: str = "") -> dict[str, Any]:
        """The user answers a service request (the newest, or by its place)."""

        def act(user: User) -> None:
            words = user.replies[at] + (b" " + reply.encode() if reply else b"")
            user.send(b"PUB %s %d\r\n%s\r\nPING\r\n" % (words, len(body), body.encode()))

        return self.both(name, act, f"answers {body!r} {reply}")

    def acknowledge(self, name: str, subject: str = "", at: int = -1) -> dict[str, Any]:
        """The user acknowledges the newest delivery; `subject` is put before the ack subject."""

        def act(user: User) -> None:
            user.send(b"PUB %s%s 4\r\n+ACK\r\nPING\r\n" % (subject.encode(), user.acks[at]))

        return self.both(name, act, "acknowledges")

    def wait(self, seconds: float) -> None:
        """Let time pass at both servers, which have clocks of their own."""
        time.sleep(seconds)

    def api(self, name: str, call: str, body: Any = b"", prefix: str = "$JS.API") -> Any:
        """A request of the JetStream API by a user; the answer."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        data = b"SUB answer 9999\r\nPUB %s.%s answer %d\r\n%s\r\n" % (
            prefix.encode(),
            call.encode(),
            len(raw),
            raw,
        )
        seen = self.say(name, data, "9999")[name].get("9999", [])
        self.say(name, "UNSUB 9999\r\n")
        return seen[0][3] if seen else None


def _reloads(process: ServerProcess) -> int:
    return process.log_path.read_text().count("Reloaded server configuration")


@contextlib.contextmanager
def cast(config: str, folder: Path, names: list[str]) -> Iterator[Cast]:
    """Both servers with this configuration, and these users; all have the password `pw`."""
    path = folder / "server.conf"
    path.write_text(f"server_name: S\n{config}")
    arguments = ("-c", str(path))
    with (
        running_server("pelton", *arguments) as ours,
        running_server("nats-server", *arguments) as theirs,
    ):
        both = Cast(ours.port, theirs.port, names)
        both.processes, both.path = [ours, theirs], path
        try:
            yield both
        finally:
            both.close()
