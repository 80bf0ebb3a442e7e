"""Streams with a limit each: what it removed may be gone, and nothing else."""

from __future__ import annotations

import json
import time
from bisect import bisect_right, insort
from collections import defaultdict
from typing import Any, ClassVar

from tests.crash.kinds.base import Kind, Publishing, Sent
from tests.crash.reading import block, read
from tests.crash.wire import Event, Wire

SECOND = 10**9


class Plain(Publishing):
    """No limit at all."""

    stream = "PLAIN"


class Count(Publishing):
    """The newest so many messages."""

    stream = "COUNT"
    config: ClassVar[dict[str, Any]] = {"max_msgs": 300}

    def excused(self, seq: int, sent: Sent, state: dict[str, Any], now: float) -> bool:
        return seq <= max(int(state["last_seq"]), self.last) - 300

    def limits(self, state: dict[str, Any]) -> None:
        if state["messages"] > 300:
            self.fault("over its limit", state)

    def prune(self, wire: Wire, state: dict[str, Any]) -> None:
        self.drop(state["first_seq"])


class Bytes(Count):
    """The newest so many bytes."""

    stream = "BYTES"
    most = 400_000
    largest = 2200
    config: ClassVar[dict[str, Any]] = {"max_bytes": most}

    def excused(self, seq: int, sent: Sent, state: dict[str, Any], now: float) -> bool:
        full = state["bytes"] > self.most - self.largest
        return bool(full and seq < state["first_seq"])

    def limits(self, state: dict[str, Any]) -> None:
        if state["bytes"] > self.most:
            self.fault("over its limit", state)


class Compressed(Bytes):
    """Large messages in a compressed stream, so that segments are sealed and rewritten."""

    stream = "S2"
    most = 48_000_000
    largest = 600_000
    sizes = (100, 500_000)
    config: ClassVar[dict[str, Any]] = {"max_bytes": most, "compression": "s2"}
    window = 4
    read_step = 20


class Latest(Publishing):
    """The newest three of each subject."""

    stream = "LATEST"
    config: ClassVar[dict[str, Any]] = {"max_msgs_per_subject": 3}
    keep_newest = 3

    def compare(self, wire: Wire, state: dict[str, Any], first: int, last: int) -> None:
        self.sort()
        super().compare(wire, state, first, last)

    def owed(self) -> int:
        self.sort()
        return super().owed()

    def sort(self) -> None:
        """What came on each subject, by sequence."""
        self._later: dict[str, list[int]] = defaultdict(list)
        for seq in sorted(self.acked):
            self._later[self.acked[seq].subject].append(seq)

    def known(self, seq: int, stored: Any) -> None:
        if seq not in self.acked:
            insort(self._later[stored.subject], seq)
        super().known(seq, stored)

    def excused(self, seq: int, sent: Sent, state: dict[str, Any], now: float) -> bool:
        there = self._later[sent.subject]
        return len(there) - bisect_right(there, seq) >= self.keep_newest

    def limits(self, state: dict[str, Any]) -> None:
        if state["messages"] > self.keep_newest * self.subjects:
            self.fault("over its limit", state)

    def prune(self, wire: Wire, state: dict[str, Any]) -> None:
        newest: dict[str, list[int]] = defaultdict(list)
        for seq in sorted(self.acked, reverse=True):
            kept = newest[self.acked[seq].subject]
            if len(kept) < self.keep_newest:
                kept.append(seq)
            else:
                self.numbers.pop(self.acked.pop(seq).number, None)


class Age(Publishing):
    """Messages of at most two seconds."""

    stream = "AGE"
    age_s = 2.0
    slack_s = 6.0  # a removal may come so late, with starts and other work before it
    config: ClassVar[dict[str, Any]] = {"max_age": 2 * SECOND}

    def excused(self, seq: int, sent: Sent, state: dict[str, Any], now: float) -> bool:
        return now - sent.at >= self.age_s

    def compare(self, wire: Wire, state: dict[str, Any], first: int, last: int) -> None:
        before = time.time()
        super().compare(wire, state, first, last)
        for seq in [seq for seq in self.acked if first <= seq <= last]:
            # what was sent in the last moment of a life may have been stored later
            if before - self.acked[seq].at > self.age_s + self.slack_s:
                self.fault("over its age", (seq, self.acked[seq], before))

    def prune(self, wire: Wire, state: dict[str, Any]) -> None:
        self.drop(state["first_seq"])


class Lifetimes(Publishing):
    """Some messages end after a second, by their own header."""

    stream = "TTL"
    config: ClassVar[dict[str, Any]] = {"allow_msg_ttl": True}

    def next(self) -> tuple[Sent, int]:
        headers = block(b"Nats-TTL: 1s") if self.rng.random() < 0.5 else b""
        return self.made(f"TTL.{self.rng.randrange(20)}", headers), self.rng.choice(self.sizes)

    def excused(self, seq: int, sent: Sent, state: dict[str, Any], now: float) -> bool:
        return bool(sent.headers) and now - sent.at >= 1.0


class Ids(Publishing):
    """Message ids: within the window nothing is stored twice, and a repeat finds the first."""

    stream = "IDS"
    config: ClassVar[dict[str, Any]] = {"duplicate_window": 120 * SECOND}

    def next(self) -> tuple[Sent, int]:
        if self.acked and self.rng.random() < 0.1:
            old = self.acked[self._recent()]
            again = self.made(old.subject, old.headers)
            return again, 100
        headers = block(b"Nats-Msg-Id: id-%d" % (self.number + 1))
        return self.made(f"IDS.{self.rng.randrange(20)}", headers), self.rng.choice(self.sizes)

    def _recent(self) -> int:
        """A sequence whose message is inside of the window."""
        fresh = [seq for seq in range(self.last, max(self.last - 50, 0), -1) if seq in self.acked]
        return self.rng.choice(fresh) if fresh else next(reversed(self.acked))

    def stored(self, sent: Sent, answer: dict[str, Any]) -> None:
        first = sent.headers == block(b"Nats-Msg-Id: id-%d" % sent.number)
        if not first and not answer.get("duplicate") and self.recent_id(sent):
            self.fault("id forgotten", (answer, sent))
        super().stored(sent, answer)

    def recent_id(self, sent: Sent) -> bool:
        """Whether the message that first had this id was surely sent within the window."""
        number = int(sent.headers.partition(b"id-")[2].partition(b"\r\n")[0])
        seq = self.numbers.get(number)
        return seq is not None and time.time() - self.acked[seq].at < 110

    def check(self, wire: Wire) -> None:
        super().check(wire)
        for seq in self.rng.sample(sorted(self.acked)[-60:], min(6, len(self.acked))):
            sent = self.acked[seq]
            if not self.recent_id(sent):
                continue
            answer = wire.request(sent.subject, b"again", sent.headers)
            if not answer.get("duplicate") or answer["seq"] != seq:
                self.fault("id forgotten", (seq, sent, answer))


class Removals(Publishing):
    """Messages deleted one by one and purged: what was answered stays gone, the rest stays."""

    stream = "GONE"
    window = 16

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.gone_for_good: dict[int, str] = {}  # sequence -> how that is known
        self._asked: dict[str, list[int]] = {}
        self._calls = 0
        self._perhaps: set[int] = set()

    def step(self) -> None:
        super().step()
        live = [seq for seq in list(self.acked)[-400:] if seq not in self._perhaps]
        if len(live) < 30:
            return
        self._calls += 1
        name = f"gone.{self._calls}"
        draw = self.rng.random()
        if draw < 0.8:
            seqs = [self.rng.choice(live)]
            body: dict[str, Any] = {"seq": seqs[0], "no_erase": self.rng.random() < 0.5}
            call = f"STREAM.MSG.DELETE.{self.stream}"
        elif draw < 0.9:
            # only what is acknowledged is certain to be below
            subject = self.acked[self.rng.choice(live)].subject
            below = live[-10]
            seqs = [s for s, sent in self.acked.items() if s < below and sent.subject == subject]
            body = {"filter": subject, "seq": below}
            call = f"STREAM.PURGE.{self.stream}"
        else:
            below = live[len(live) // 2]
            seqs = [s for s in self.acked if s < below]
            body, call = {"seq": below}, f"STREAM.PURGE.{self.stream}"
        self._asked[name] = seqs
        self._perhaps.update(seqs)
        self.wire.publish(f"$JS.API.{call}", json.dumps(body).encode(), name)

    def take(self, event: Event) -> None:
        seqs = self._asked.pop(event.subject, None)
        if seqs is None:
            super().take(event)
            return
        answer = json.loads(event.payload)
        if "error" not in answer:
            how = f"answered at {time.time():.3f}: {event.payload!r}"
            self.gone_for_good.update(dict.fromkeys(seqs, how))

    def known(self, seq: int, stored: Any) -> None:
        if seq in self.gone_for_good:
            how = self.gone_for_good.pop(seq)
            self.fault("a removed message came back", (seq, stored.subject, how, time.time()))
        super().known(seq, stored)

    def excused(self, seq: int, sent: Sent, state: dict[str, Any], now: float) -> bool:
        return seq in self._perhaps

    def check(self, wire: Wire) -> None:
        self._asked.clear()
        super().check(wire)
        for seq in self._perhaps - set(self.gone_for_good):
            if seq not in self.acked:
                self.gone_for_good[seq] = f"not there at {time.time():.3f}"
        some = sorted(self.gone_for_good)
        for seq in self.rng.sample(some, min(5, len(some))):
            for back, stored in read(wire, self.stream, seq, seq).items():
                self.known(back, stored)
        self._perhaps = {seq for seq in self._perhaps if seq in self.acked}
        kept = some[-5000] if len(some) > 5000 else 0
        self.gone_for_good = {s: how for s, how in self.gone_for_good.items() if s >= kept}


ALL: tuple[type[Kind], ...] = (
    Plain,
    Count,
    Bytes,
    Compressed,
    Latest,
    Age,
    Lifetimes,
    Ids,
    Removals,
)
