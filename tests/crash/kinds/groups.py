"""What is more than one stream or one message: batches, streams that follow others, streams and
consumers that come and go.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import defaultdict
from typing import Any, ClassVar

from pelton import Options
from pelton.client.base.addresses import parse_servers
from pelton.errors import PeltonError
from pelton.sync import connect
from tests.crash.kinds.base import Kind, Publishing
from tests.crash.reading import block, number_of, read
from tests.crash.test_lifecycle import Client, Refused, Stream, settle
from tests.crash.wire import Wire, message

PATIENCE_S = 30.0


class Atomic(Kind):
    """Atomic batches: whole or not at all."""

    stream = "ATOMIC"
    config: ClassVar[dict[str, Any]] = {"allow_atomic": True, "max_msgs": 20_000}
    most = 40

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.streams = (self.stream,)
        self._number = 0
        self._first: dict[str, tuple[int, int]] = {}  # batch -> first sequence, messages
        self._fresh = 1

    def furnish(self, wire: Wire) -> None:
        config = {"name": self.stream, "subjects": [f"{self.stream}.>"], "allow_direct": True}
        wire.ok(f"STREAM.CREATE.{self.stream}", {**config, **self.config})

    def step(self) -> None:
        self._number += 1
        name, count = f"b{self._number}", self.rng.randint(1, self.most)
        out = b""
        for at in range(1, count + 1):
            lines = [b"Nats-Batch-Id: %s" % name.encode(), b"Nats-Batch-Sequence: %d" % at]
            reply = ""
            if at == count:
                lines.append(b"Nats-Batch-Commit: 1")
                reply = self.wire.inbox(f"commit.{name}")
            body = f"{name} {at} {count} ".encode().ljust(self.rng.choice((20, 300, 3000)), b".")
            out += message(f"{self.stream}.{at % 5}", body, reply, block(*lines))
        self.wire.send(out)
        deadline = time.monotonic() + 20
        while not self.gone and time.monotonic() < deadline:
            for event in self.wire.events(0.5):
                if event.subject == f"commit.{name}":
                    answer = json.loads(event.payload)
                    if "error" in answer:
                        self.refused[answer["error"]["description"]] += 1
                    else:
                        self._first[name] = (answer["seq"] - count + 1, count)
                        self.acked_total += count
                    return

    def check(self, wire: Wire) -> None:
        answer = wire.api(f"STREAM.INFO.{self.stream}")
        if "error" in answer:
            self.fault("stream gone", answer["error"])
            self.fault("lost", "all batches", sum(n for _, n in self._first.values()))
            self._first.clear()
            self.furnish(wire)
            return
        state = answer["state"]
        found = read(wire, self.stream, self._fresh, state["last_seq"])
        batches: dict[str, dict[int, int]] = defaultdict(dict)
        sizes: dict[str, int] = {}
        for seq, stored in found.items():
            name, at, count = stored.payload.split(b" ")[:3]
            batches[name.decode()][int(at)] = seq
            sizes[name.decode()] = int(count)
        for name, there in batches.items():
            if len(there) != sizes[name] and min(there.values()) > state["first_seq"]:
                self.fault("part of a batch", (name, there, sizes[name]))
        for name, (first, count) in self._first.items():
            if first >= state["first_seq"]:
                lost = [at for at in range(1, count + 1) if batches[name].get(at) != first + at - 1]
                if lost:
                    self.fault("lost", (name, first, count, lost), len(lost))
        self._first.clear()
        self._fresh = state["last_seq"] + 1


class Fast(Kind):
    """Fast-ingest batches: what flow acks spoke of is there."""

    stream = "FAST"

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.streams = (self.stream,)
        self._number = 0
        self._said: dict[str, int] = {}
        self._fresh = 1
        self._gone = False
        self._stack = contextlib.ExitStack()

    @property
    def gone(self) -> bool:
        return self._gone

    def furnish(self, wire: Wire) -> None:
        config = {"name": self.stream, "subjects": [f"{self.stream}.>"], "allow_direct": True}
        wire.ok(
            f"STREAM.CREATE.{self.stream}", {**config, "allow_batched": True, "max_msgs": 30_000}
        )

    def open(self, port: int) -> None:
        self._gone = False
        options = Options(servers=parse_servers(f"nats://127.0.0.1:{port}"), reconnect=False)
        try:
            client = self._stack.enter_context(connect(options))
        except PeltonError as exc:
            raise OSError("killed before it was reached") from exc
        self._jetstream = client.jetstream(timeout=2)
        self._port = port

    def _again(self) -> None:
        """Another connection, when the server is still there."""
        self.close()
        try:
            self.open(self._port)
        except OSError:
            self._gone = True

    def step(self) -> None:
        self._number += 1
        name, count = f"f{self._number}", self.rng.randint(1, 200)
        batch = None
        try:
            batch = self._jetstream.fast_batch(flow=20)
            for at in range(count):
                batch.publish(f"{self.stream}.f", f"{name} {at} ".encode())
            batch.commit()
        except (PeltonError, OSError):
            if batch is not None:
                self._said[name] = batch.flow.acked
            self._again()
        else:
            self._said[name] = count
        self.acked_total += self._said.get(name, 0)

    def close(self) -> None:
        with contextlib.suppress(PeltonError, OSError):  # the server is gone
            self._stack.close()

    def check(self, wire: Wire) -> None:
        answer = wire.api(f"STREAM.INFO.{self.stream}")
        if "error" in answer:
            self.fault("stream gone", answer["error"])
            self.fault("lost", "all of FAST", sum(self._said.values()))
            self._said.clear()
            self.furnish(wire)
            return
        state = answer["state"]
        found = read(wire, self.stream, self._fresh, state["last_seq"])
        there: dict[str, list[int]] = defaultdict(list)
        for seq in sorted(found):
            name, at = found[seq].payload.split(b" ")[:2]
            there[name.decode()].append(int(at))
        pushed_out = state["first_seq"] > self._fresh
        for name, count in self._said.items():
            if there[name][:count] != list(range(count)) and not pushed_out:
                lost = set(range(count)) - set(there[name])
                self.fault("lost", (name, count, there[name]), max(len(lost), 1))
        self._said.clear()
        self._fresh = state["last_seq"] + 1


class Followed(Publishing):
    """An origin with a mirror and a stream that sources it: both have each message, once."""

    stream = "ORIGIN"
    window = 32
    followers_keep = 100_000  # more than comes between two comparisons

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.streams = (self.stream, "MIRROR", "SOURCED")
        self._mirrored = 1
        self._sourced = 1
        self._numbers: list[int] = []

    def furnish(self, wire: Wire) -> None:
        super().furnish(wire)
        origin = {"name": self.stream}
        for name, field in (("MIRROR", {"mirror": origin}), ("SOURCED", {"sources": [origin]})):
            wire.api(
                f"STREAM.CREATE.{name}",
                {"name": name, "allow_direct": True, "max_msgs": self.followers_keep, **field},
            )

    def check(self, wire: Wire) -> None:
        super().check(wire)
        if self.acked:
            self._follow(wire)
            super().prune(wire, wire.ok(f"STREAM.INFO.{self.stream}")["state"])

    def prune(self, wire: Wire, state: dict[str, Any]) -> None:
        """Not before the followers are compared."""

    def _follow(self, wire: Wire) -> None:
        last = self.last
        deadline = time.monotonic() + PATIENCE_S
        while True:
            state = wire.ok("STREAM.INFO.MIRROR")["state"]
            sourced = wire.ok("STREAM.INFO.SOURCED")
            lag = sourced["sources"][0]["lag"] if sourced.get("sources") else 1
            if state["last_seq"] >= last and not lag:
                break
            if time.monotonic() > deadline:
                self.fault("a follower does not follow", (state, sourced, last))
                return
            time.sleep(0.02)
        first = self._mirrored
        origin = read(wire, self.stream, first, last)
        mirror = read(wire, "MIRROR", first, last)
        for seq in set(origin) | set(mirror):
            if origin.get(seq) != mirror.get(seq):
                self.fault("a mirror differs", (seq, origin.get(seq), mirror.get(seq)))
        self._mirrored = last + 1
        upto = wire.ok("STREAM.INFO.SOURCED")["state"]["last_seq"]
        there = read(wire, "SOURCED", self._sourced, upto)
        numbers = [_number(there[seq]) for seq in sorted(there)]
        wanted = [origin[seq].number for seq in sorted(origin)]
        if numbers != wanted:
            lost = set(wanted) - set(numbers)
            what = "lost" if lost else "a source has a message twice or in another order"
            self.fault(what, (numbers[:5], wanted[:5], len(numbers), len(wanted)), len(lost) or 1)
        self._sourced = upto + 1


def _number(stored: Any) -> int | None:
    """Of a sourced message, whose headers have its origin besides."""
    lines = stored.headers.split(b"\r\n")[1:-2]
    kept = [line for line in lines if not line.startswith(b"Nats-Stream-Source")]
    return number_of(stored.subject, block(*kept), stored.payload)


class ComeAndGo(Kind):
    """Streams and consumers are created, changed, purged and deleted: what was answered holds."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._books = {f"GO{n}": Stream() for n in range(4)}
        self.streams = tuple(self._books)

    def open(self, port: int) -> None:
        super().open(port)
        self._client = Client(port, self._books, self.rng.randrange(2**32))
        self._client._wire.close()
        self._client._wire = self.wire

    def step(self) -> None:
        name = self.rng.choice(sorted(self._books))
        with contextlib.suppress(Refused):
            self._client._change(name, self._books[name])
            self.acked_total += 1

    def close(self) -> None:
        super().close()
        for wrong in self._client.wrong:
            self.refused[str(wrong)] += 1

    def check(self, wire: Wire) -> None:
        present = set(wire.ok("STREAM.NAMES")["streams"] or [])
        others = [name for name in present if name not in self._books]
        try:
            settle(wire, self._books, others)
        except AssertionError as exc:
            self.fault("a stream or consumer is not as answered", str(exc))
            for name in present & set(self._books):
                wire.api(f"STREAM.DELETE.{name}")
            self._books.update({name: Stream() for name in self._books})


ALL: tuple[type[Kind], ...] = (Atomic, Fast, Followed, ComeAndGo)
