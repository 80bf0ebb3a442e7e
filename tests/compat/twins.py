"""Two servers that get the same bytes: what a bare client sees of each is compared after every step.

A step is sent to both; then both are read until what came is the same and nothing more comes, or
until the patience is over (then the difference is the finding). What comes late is compared with the
next step; a test ends with `settle`, a step that waits for it. Only what differs by nature is made
equal: times, ids that servers draw, their versions.
Messages are compared per subscription, in order; between subscriptions there is no order to compare.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import socket
import time
from typing import TYPE_CHECKING, Any

from tests.readable import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE_S = 30.0
QUIET_S = 0.03  # where nothing has come yet, the answers may be late
SETTLED_S = 0.002  # where both sent the same: what comes later than that is seen in the next step

PING = b"PING\r\n"
ASKED = "asked"  # the sid of answers to requests
CONNECT = (
    b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,'
    b'"protocol":1}\r\n'
)
TIMES = {
    "created",
    "ts",
    "last_active",
    "time",
    "first_ts",
    "last_ts",
    "timestamp",
    "id",
    "leader",
    "start",
    "pinned_ts",
}
PASSING = {"rtt", "level"}  # what depends on the server's version or the moment
DELETED = "Unacknowledged message was deleted"
ACK_SUBJECT = re.compile(rb"^(\$JS\.ACK\.(?:[^.]+\.){5})\d+(\.\d+)$")
FLOW_SUBJECT = re.compile(rb"^(\$JS\.FC\.[^.]+\.[^.]+\.).+$")
FLOW_HEADER = re.compile(rb"(Nats-Consumer-Stalled: \$JS\.FC\.[^.]+\.[^.]+\.)[^\r]+")
# a hash of the time when the origin was created
SOURCE_IDENTITY = re.compile(rb"(Nats-Stream-Source: (?:[^ \r]+ ){4}[^ \r]+) [^ \r]+\r\n")
TIME_HEADER = re.compile(rb"Nats-Time-Stamp: [^\r]+")
IDENTITY_HEADER = re.compile(rb"Nats-Stream-Identity: [^\r]+")
PIN_HEADER = re.compile(rb"Nats-Pin-Id: ([^\r]+)")
DRAWN = {"pinned_id", "pinned_client_id"}
SPANS = {"pause_remaining", "ack_time"}
NOBODY_THERE = re.compile(rb"(Nats-Subject: \$JS\.ACK\.(?:[^.]+\.){5,7})\d{18,}")


def plain(value: Any, key: str = "") -> Any:
    """A JSON value without times and versions; the answer inside an audit is looked into, too."""
    if isinstance(value, dict):
        # nats-server counts one delivery less of a message that was delivered again and deleted
        passing = PASSING | {"deliveries"} if value.get("reason") == DELETED else PASSING
        return {
            name: plain(item, name)
            for name, item in value.items()
            if not name.startswith("_nats.") and name not in passing
        }
    if isinstance(value, list):
        items = [plain(item) for item in value]
        followed = key == "sources" and all("lag" in item for item in items)
        return sorted(items, key=repr) if followed else items  # nats-server walks a map
    if key == "response" and isinstance(value, str):
        return plain(json.loads(value))
    if key == "leader":
        return "a server"
    if key in DRAWN and value:
        return "an id"
    if key in SPANS and value:
        return "a while"
    if key == "hdrs":
        return SOURCE_IDENTITY.sub(rb"\1 an-id\r\n", base64.b64decode(value))
    if key == "id" and isinstance(value, int):
        return "an id"
    if key in TIMES and isinstance(value, str) and not value.startswith("0001-"):
        return "a time"
    return value


def plain_body(body: bytes) -> Any:
    """A body as it is compared: answers of the API as values, anything else as it is."""
    if body.startswith(b'{"type":"io.nats.jetstream'):
        return plain(json.loads(body))
    return body


def plain_reply(reply: bytes) -> bytes:
    """A reply subject without what the server draws."""
    return FLOW_SUBJECT.sub(rb"\1token", ACK_SUBJECT.sub(rb"\1time\2", reply))


class Twin:
    """One connection to one server; messages are kept as (subject, reply, header, body) per sid."""

    def __init__(self, port: int, greeting: bytes = CONNECT) -> None:
        self.port = port
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.data = b""
        self.seen: dict[str, list[tuple[Any, ...]]] = {}
        self.due: dict[str, list[tuple[Any, ...]]] = {}  # what the next step compares, too
        self.acks: list[bytes] = []
        self.pins: list[bytes] = []
        self.pongs = 0
        self.awaited = 0  # the PONGs that the step under way waits for
        self.asked = (
            b""  # where the answer of the newest request goes; late ones of others are dropped
        )
        self.closed = False
        self.socket.sendall(greeting if greeting.endswith(PING) else greeting + PING)
        self.read_until(lambda: self.pongs > 0)  # the server has read the greeting now

    def send(self, data: bytes) -> None:
        """Send; a connection that the server closed is noticed when it is read."""
        with contextlib.suppress(OSError):
            self.socket.sendall(data)

    def begin(self, *, whole: bool) -> None:
        """A step begins; a PONG that the one before did not wait for is still to come."""
        self.seen, self.due = self.due, {}
        self.pongs = min(0, self.pongs - self.awaited)
        self.awaited = int(whole)

    def read(self, wait_s: float) -> bool:
        """Take what comes within so many seconds; whether anything came."""
        if self.closed or not readable([self.socket], wait_s):
            return False
        try:
            got = self.socket.recv(1 << 20)
        except OSError:
            got = b""
        self.closed = not got
        self.data += got
        while self._take():
            pass
        return bool(got)

    def read_until(self, done: Callable[[], bool]) -> None:
        """Take what comes until this holds, the server closes the connection, or patience ends."""
        deadline = time.monotonic() + PATIENCE_S
        while not (done() or self.closed) and time.monotonic() < deadline:
            self.read(0.1)

    def delete_stream(self, name: str) -> None:
        """Delete a stream, and wait until the server says that it did."""
        self.seen = {}
        self.send(f"SUB gone gone\r\nPUB $JS.API.STREAM.DELETE.{name} gone 0\r\n\r\n".encode())
        self.read_until(lambda: "gone" in self.seen)
        self.send(b"UNSUB gone\r\n")

    def _take(self) -> bool:
        line, found, rest = self.data.partition(b"\r\n")
        if not found:
            return False
        words = line.split(b" ")
        kind = words[0]
        if kind in (b"MSG", b"HMSG"):
            total = int(words[-1])
            if len(rest) < total + 2:
                return False
            head = int(words[-2]) if kind == b"HMSG" else 0
            names = words[1 : -2 if kind == b"HMSG" else -1]
            reply = names[2] if len(names) > 2 else b""
            self._keep(names[0], names[1].decode(), reply, rest[:head], rest[head:total])
            self.data = rest[total + 2 :]
            return True
        self.data = rest
        if kind == b"PING":
            self.send(b"PONG\r\n")
        elif kind == b"PONG":
            self.pongs += 1
        elif kind not in (b"INFO", b"+OK"):
            self.seen.setdefault("line", []).append((line,))
        return True

    def _keep(self, subject: bytes, sid: str, reply: bytes, head: bytes, body: bytes) -> None:
        if sid == ASKED:
            if subject != self.asked:
                return
            subject, sid = b"answer", "1"
        if reply.startswith((b"$JS.ACK.", b"$JS.FC.")):
            self.acks.append(reply)
        self.pins += PIN_HEADER.findall(head)
        head = IDENTITY_HEADER.sub(b"Nats-Stream-Identity: an id", head)
        head = PIN_HEADER.sub(b"Nats-Pin-Id: an id", head)
        head = TIME_HEADER.sub(b"Nats-Time-Stamp: time", FLOW_HEADER.sub(rb"\1token", head))
        head = NOBODY_THERE.sub(rb"\1time", head)
        self.seen.setdefault(sid, []).append(
            (plain_reply(subject), plain_reply(reply), head, plain_body(body))
        )

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


TERMINATED = b"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED."
MAX_DELIVERIES = b"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES."


def in_one_order(seen: dict[str, list[tuple[Any, ...]]]) -> dict[str, list[tuple[Any, ...]]]:
    """What was seen, with advisories that come in any order in the order of their texts.

    nats-server walks a map to find the messages whose ack wait is over, and another one to find the
    consumers of a message that is deleted. Everything else keeps its place.
    """
    ordered = {}
    for sid, messages in seen.items():
        advisories = iter(sorted((m for m in messages if is_unordered(m)), key=repr))
        ordered[sid] = [next(advisories) if is_unordered(m) else m for m in messages]
    return ordered


def is_unordered(message: tuple[Any, ...]) -> bool:
    """Whether this is an advisory of exhausted deliveries, or of a deleted message."""
    subject, body = message[0], message[-1]
    if not isinstance(subject, bytes):
        return False
    if subject.startswith(TERMINATED):
        return isinstance(body, dict) and body.get("reason") == DELETED
    return subject.startswith(MAX_DELIVERIES)


class Twins:
    """A client of both servers; also acts on what was delivered, by the place in its stream."""

    def __init__(self, ours: Twin, theirs: Twin) -> None:
        self.ours = ours
        self.theirs = theirs
        self.steps: list[str] = []
        self.made: list[str] = []  # streams, removed when the test is over
        self.inbox = False
        self.asks = 0
        self.quiet_s = SETTLED_S

    def both(
        self,
        act: Callable[[Twin], None],
        step: str,
        quiet_s: float | None = None,
        *,
        whole: bool = False,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Do it on both and compare all that came. ``whole``: the step ends with an operation's end, so
        that each server can be asked whether it has read it, however busy the machine is.
        """
        quiet_s = self.quiet_s if quiet_s is None else quiet_s
        self.steps.append(step)
        for twin in (self.ours, self.theirs):
            twin.begin(whole=whole)
            act(twin)
            if whole:
                twin.send(b"PING\r\n")
        quiet_since = time.monotonic()
        unread = whole  # that a server reads the step late is no difference
        deadline = quiet_since + (PATIENCE_S if whole else patience_s)
        while time.monotonic() < deadline:
            came = self._read()
            now = time.monotonic()
            if unread and all(twin.pongs > 0 or twin.closed for twin in (self.ours, self.theirs)):
                unread, deadline = False, now + patience_s
            if came:
                quiet_since = now
                continue
            if unread:
                continue
            enough_s = quiet_s if self.ours.seen else max(quiet_s, QUIET_S)
            if now - quiet_since >= enough_s and self._same():
                break
        self._compare()

    def _read(self) -> bool:
        """Take what comes next from any of both; whether anything came soon."""
        twins = [twin for twin in (self.ours, self.theirs) if not twin.closed]
        readable([twin.socket for twin in twins], SETTLED_S)
        came = [twin.read(0) for twin in twins]
        return any(came)

    def _same(self) -> bool:
        return in_one_order(self.ours.seen) == in_one_order(self.theirs.seen)

    def _compare(self) -> None:
        if self._same() and self.ours.closed == self.theirs.closed:
            return
        lines = ["after", *self.steps[-12:]]
        for sid in sorted({*self.ours.seen, *self.theirs.seen}):
            ours, theirs = self.ours.seen.get(sid, []), self.theirs.seen.get(sid, [])
            if ours != theirs:
                lines += [f"sid {sid}, ours:   {ours}", f"sid {sid}, theirs: {theirs}"]
        raise AssertionError("\n".join(lines))

    def say(
        self,
        data: bytes | str,
        quiet_s: float | None = None,
        *,
        whole: bool = False,
        patience_s: float = PATIENCE_S,
    ) -> dict[str, list[tuple[Any, ...]]]:
        """Send the same bytes to both; what our server answered, per sid."""
        raw = data.encode() if isinstance(data, str) else data
        self.both(
            lambda twin: twin.send(raw),
            repr(raw[:400]),
            quiet_s,
            whole=whole,
            patience_s=patience_s,
        )
        return self.ours.seen

    def ask(
        self,
        subject: str,
        body: str | bytes | dict[str, Any] = b"",
        *,
        patience_s: float = PATIENCE_S,
    ) -> Any:
        """A request of the API; the answer."""
        if isinstance(body, dict):
            body = json.dumps(body)
        raw = body.encode() if isinstance(body, str) else body
        if not self.inbox:
            self.inbox = True
            self.say(f"SUB answer 1\r\nSUB answer.* {ASKED}\r\n")
        self.asks += 1
        asked = b"answer.%d" % self.asks
        for twin in (self.ours, self.theirs):
            twin.asked = asked
        operation = b"PUB $JS.API.%s %s %d\r\n%s\r\n" % (
            subject.encode(),
            asked,
            len(raw),
            raw,
        )
        seen = self.say(operation, whole=True, patience_s=patience_s)
        # on a busy machine both may be late
        answers = seen.get("1", []) or self.say("PING\r\n", 0.5).get("1", [])
        return answers[0][3] if answers else None

    def publish(
        self, subject: str, body: str | bytes = b"", headers: str | None = None, reply: str = ""
    ) -> dict[str, list[tuple[Any, ...]]]:
        """Publish; headers as lines without their ends."""
        raw = body.encode() if isinstance(body, str) else body
        words = f"{subject} {reply}".strip().encode()
        if headers is None:
            return self.say(b"PUB %s %d\r\n%s\r\n" % (words, len(raw), raw), whole=True)
        block = b"NATS/1.0\r\n" + headers.replace("\n", "\r\n").encode() + b"\r\n\r\n"
        sizes = (len(block), len(block) + len(raw))
        return self.say(b"HPUB %s %d %d\r\n%s%s\r\n" % (words, *sizes, block, raw), whole=True)

    def answer(self, at: int, body: str, reply: str = "", *, of: str = "ack") -> None:
        """Publish to the reply subject of a delivery (by its place among those that came)."""
        raw = body.encode()

        def act(twin: Twin) -> None:
            twin.read_until(lambda: len(twin.acks) > max(at, 0))  # beside load it may still be due
            words = twin.acks[at] + (b" " + reply.encode() if reply else b"")
            twin.send(b"PUB %s %d\r\n%s\r\n" % (words, len(raw), raw))

        # nats-server lets a timer deliver again what was refused, whatever the delay is
        quiet_s = QUIET_S if body.startswith("-NAK") else None
        self.both(act, f"{of} {at} {body!r} {reply}", quiet_s, whole=True)

    def agree(
        self, subject: str, body: str | bytes | dict[str, Any] = b"", *, changes: bool = False
    ) -> Any:
        """A request for a state, asked again while the two differ: one of them may still have to count
        what it was told. The answer. What else came is compared in the end, unless the request
        ``changes`` what comes each time.
        """
        deadline = time.monotonic() + PATIENCE_S
        patience_s = QUIET_S
        while True:
            try:
                return self.ask(subject, body, patience_s=patience_s)
            except AssertionError:
                if time.monotonic() >= deadline:
                    raise
            for twin in () if changes else (self.ours, self.theirs):
                twin.due = {sid: came for sid, came in twin.seen.items() if sid != "1"}
            patience_s = min(2 * patience_s, 0.5)

    def info(self, stream: str, consumer: str) -> Any:
        """The consumer's info."""
        return self.agree(f"CONSUMER.INFO.{stream}.{consumer}")

    def wait(self, seconds: float) -> None:
        """Let time pass; what came meanwhile is compared."""
        time.sleep(seconds)
        self.say("PING\r\n", whole=True)

    def settle(self) -> None:
        """Compare what comes late, after the last step."""
        self.say("PING\r\n", QUIET_S, whole=True)


@contextlib.contextmanager
def twins(ours_port: int, theirs_port: int, greeting: bytes = CONNECT) -> Iterator[Twins]:
    """A connection to each."""
    both = Twins(Twin(ours_port, greeting), Twin(theirs_port, greeting))
    try:
        yield both
    finally:
        both.ours.close()
        both.theirs.close()
