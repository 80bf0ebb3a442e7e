"""One kind of use of a server: load, and what its answers oblige every later life of the server to.

A kind runs in a thread of its own while the server lives (`open`, `step` again and again, `close`)
and is held against the next life (`check`). What is wrong is counted by what it is, with the first
examples; nothing is raised, so that a run of many rounds can be told as a table, also of a server
that loses something.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from random import Random
from typing import Any, ClassVar, NamedTuple

from tests.crash.reading import Stored, block, payload_of, read
from tests.crash.wire import Event, Wire, message

OLD = 150  # so many older messages are looked at in each round
EXAMPLES = 5
PATIENCE_S = 30.0


class Sent(NamedTuple):
    """A message that was published."""

    number: int
    subject: str
    headers: bytes
    at: float  # time.time() before it was sent


class Kind:
    """Base of all: names, randomness, faults."""

    streams: tuple[str, ...] = ()

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.faults: Counter[str] = Counter()
        self.examples: list[str] = []
        self.acked_total = 0
        self.refused: Counter[str] = Counter()
        self.step_wait_s = 0.02

    def furnish(self, wire: Wire) -> None:
        """Create what is needed, once."""

    def open(self, port: int) -> None:
        """A life of the server begins."""
        self.wire = Wire(port)

    def step(self) -> None:
        """Some load. Returns soon."""

    def close(self) -> None:
        """The server is gone, or the load ends."""
        self.wire.close()

    def check(self, wire: Wire) -> None:
        """Hold a server that has just started to what its predecessors said."""

    def settle(self, wire: Wire) -> None:
        """At the very end: everything that is owed comes."""

    def fault(self, what: str, detail: object, count: int = 1) -> None:
        self.faults[what] += count
        if len(self.examples) < EXAMPLES:
            self.examples.append(f"{type(self).__name__}: {what}: {detail}"[:400])

    @property
    def gone(self) -> bool:
        return self.wire.gone


class Publishing(Kind):
    """A stream that is published to, and the ledger of what was acknowledged."""

    stream = ""
    config: ClassVar[dict[str, Any]] = {}
    window = 64
    sizes: tuple[int, ...] = (40, 100, 100, 2000)
    subjects = 20
    read_step = 500

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.streams = (self.stream,)
        self.number = 0
        self.acked: dict[int, Sent] = {}
        self.numbers: dict[int, int] = {}  # number -> sequence
        self.waiting: dict[str, Sent] = {}
        self.unanswered: dict[int, Sent] = {}
        self.denied: dict[int, Sent] = {}  # answered with an error
        self.fresh = 0  # sequences from here on are new since the last check
        self.last = 0
        self.keep = 0  # purge now and then so that about so many remain; 0: never

    def furnish(self, wire: Wire) -> None:
        config = {"name": self.stream, "subjects": [f"{self.stream}.>"], "allow_direct": True}
        wire.ok(f"STREAM.CREATE.{self.stream}", {**config, **self.config})

    # --- load ---

    def step(self) -> None:
        out = b""
        while len(self.waiting) < self.window and len(out) < 1 << 20:
            sent, size = self.next()
            name = f"ack.{sent.number}"
            self.waiting[name] = sent
            body = payload_of(sent.number, size, sent.subject, sent.headers)
            out += message(sent.subject, body, self.wire.inbox(name), sent.headers)
        self.wire.send(out)
        for event in self.wire.events(self.step_wait_s):
            self.take(event)
        self.patience()

    def patience(self) -> None:
        """Each publish is answered, with an ack or an error."""
        late = time.time() - PATIENCE_S
        oldest = next(iter(self.waiting.values()), None)
        if oldest is not None and oldest.at < late:
            old = {name: sent for name, sent in self.waiting.items() if sent.at < late}
            self.fault("publish not answered", oldest, len(old))
            for name, sent in old.items():
                del self.waiting[name]
                self.unanswered[sent.number] = sent

    def next(self) -> tuple[Sent, int]:
        """The next message and its payload's size."""
        subject = f"{self.stream}.{self.rng.randrange(self.subjects)}"
        headers = b""
        if self.rng.random() < 0.2:
            headers = block(b"Colour: %d" % self.number)
        return self.made(subject, headers), self.rng.choice(self.sizes)

    def made(self, subject: str, headers: bytes = b"") -> Sent:
        self.number += 1
        return Sent(self.number, subject, headers, time.time())

    def take(self, event: Event) -> None:
        """One event of this kind's connection."""
        sent = self.waiting.pop(event.subject, None)
        if sent is not None:
            self.answered(sent, event)

    def answered(self, sent: Sent, event: Event) -> None:
        answer = json.loads(event.payload) if event.payload else {"error": {"description": "none"}}
        if "error" in answer:
            self.refused[str(answer["error"].get("description", answer["error"]))] += 1
            self.denied[sent.number] = sent
        else:
            self.stored(sent, answer)

    def stored(self, sent: Sent, answer: dict[str, Any]) -> None:
        seq = int(answer["seq"])
        if answer.get("duplicate"):
            if self.acked.get(seq, sent).headers != sent.headers:
                self.fault("false duplicate", (answer, sent))
            return
        if seq <= self.last or seq in self.acked:
            self.fault("sequence reused", (seq, self.last, sent))
        self.last = max(seq, self.last)
        self.acked[seq] = sent
        self.numbers[sent.number] = seq
        self.acked_total += 1

    def close(self) -> None:
        for event in self.wire.events():
            self.take(event)
        self.unanswered.update({sent.number: sent for sent in self.waiting.values()})
        self.waiting.clear()
        super().close()

    # --- held to it ---

    def check(self, wire: Wire) -> None:
        answer = wire.api(f"STREAM.INFO.{self.stream}")
        if "error" in answer:
            self.fault("stream gone", answer["error"])
            self.fault("lost", f"all of {self.stream}", self.owed())
            self.forget()
            self.furnish(wire)
            return
        state = answer["state"]
        if state["last_seq"] < self.last:
            self.fault("last sequence went back", (state["last_seq"], self.last))
        self.compare(wire, state, self.fresh, max(state["last_seq"], self.last))
        if self.acked and self.fresh > 1:
            old = self.rng.choice(list(self.acked))
            self.compare(wire, state, old, min(old + OLD, self.fresh))
        self.last = max(self.last, state["last_seq"])
        self.fresh = self.last + 1
        self.unanswered.clear()
        self.denied.clear()
        self.limits(state)
        self.prune(wire, state)

    def compare(self, wire: Wire, state: dict[str, Any], first: int, last: int) -> None:
        """What is there between two sequences against what was acknowledged."""
        found = read(wire, self.stream, first, last, self.read_step)
        now = time.time()
        for seq, stored in found.items():
            self.known(seq, stored)
        missing = [seq for seq in self.acked if first <= seq <= last and seq not in found]
        for seq in missing:
            if not self.excused(seq, self.acked[seq], state, now):
                self.fault("lost", (seq, self.acked[seq], state))
            self.numbers.pop(self.acked.pop(seq).number, None)

    def known(self, seq: int, stored: Stored) -> None:
        """A message that is there: the acknowledged one, or one that was being published."""
        number = stored.number
        if number is None:
            self.fault("altered", (seq, stored.subject, stored.headers, stored.payload[:80]))
            return
        if self.numbers.get(number, seq) != seq:
            self.fault("stored twice", (seq, self.numbers[number], stored.subject))
            return
        sent = self.acked.get(seq)
        if sent is None:
            # nobody was told, but from now on it is there
            sent = self.unanswered.get(number)
            if sent is None and (sent := self.denied.pop(number, None)) is not None:
                self.fault("refused, and stored", (seq, sent))
            if sent is None:
                self.fault("from nowhere", (seq, stored.subject, number))
                return
            self.acked[seq] = sent
            self.numbers[number] = seq
        if sent.number != number:
            self.fault("sequence reused", (seq, sent, number))

    def owed(self) -> int:
        """How many messages should be there, when none is; rather too few than too many."""
        state, now = {"last_seq": self.last, "first_seq": 1 << 62, "bytes": 1 << 62}, time.time()
        return sum(not self.excused(seq, sent, state, now) for seq, sent in self.acked.items())

    def excused(self, seq: int, sent: Sent, state: dict[str, Any], now: float) -> bool:
        """Whether a message may be gone."""
        return False

    def limits(self, state: dict[str, Any]) -> None:
        """What the state says against the stream's limits."""

    def prune(self, wire: Wire, state: dict[str, Any]) -> None:
        """Forget what is gone, so that a long run does not grow; remove what is too much."""
        if self.keep and state["last_seq"] - state["first_seq"] > 2 * self.keep:
            seq = state["last_seq"] - self.keep
            if "error" not in wire.api(f"STREAM.PURGE.{self.stream}", {"seq": seq}):
                self.drop(seq)

    def drop(self, seq: int) -> None:
        """Forget all below this sequence."""
        for old in [known for known in self.acked if known < seq]:
            self.numbers.pop(self.acked.pop(old).number, None)

    def forget(self) -> None:
        self.acked.clear()
        self.numbers.clear()
        self.unanswered.clear()
        self.denied.clear()
        self.fresh = self.last = 0


class Runner(threading.Thread):
    """Loads with one kind until the server is gone, or `halt` is set."""

    def __init__(self, kind: Kind, port: int, rest_s: float = 0.0) -> None:
        super().__init__(daemon=True)
        self.kind = kind
        self.halt = threading.Event()
        self.error: BaseException | None = None
        self._port = port
        self._rest_s = rest_s

    def run(self) -> None:
        try:
            self.kind.open(self._port)
        except OSError:
            return  # killed before it was reached
        try:
            while not self.kind.gone and not self.halt.is_set():
                self.kind.step()
                if self._rest_s:
                    self.halt.wait(self._rest_s * (0.5 + self.kind.rng.random()))
        except RuntimeError as exc:  # a request without an answer: the server is gone
            if not self.kind.gone:
                self.error = exc
        except Exception as exc:  # kept for the thread that waits for this one
            self.error = exc
        finally:
            self.kind.close()
