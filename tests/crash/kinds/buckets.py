"""Key-value and object-store buckets, as the client libraries use them, and counters."""

from __future__ import annotations

import hashlib
import json
from typing import Any, ClassVar

from tests.crash.kinds.base import Kind, Publishing, Sent
from tests.crash.kinds.limits import Latest
from tests.crash.reading import block, payload_of, read
from tests.crash.wire import Wire, message

ROLLUP = b"Nats-Rollup: sub"


class KeyValue(Latest):
    """A bucket: puts, deletes and purges of keys, three values back."""

    stream = "KV_BUCKET"
    prefix = "$KV.BUCKET"
    config: ClassVar[dict[str, Any]] = {
        "subjects": [f"{prefix}.>"],
        "max_msgs_per_subject": 3,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "discard": "new",
        "duplicate_window": 120 * 10**9,
    }
    window = 32

    def next(self) -> tuple[Sent, int]:
        draw, headers = self.rng.random(), b""
        if draw < 0.1:
            headers = block(b"KV-Operation: DEL")
        elif draw < 0.2:
            headers = block(b"KV-Operation: PURGE", ROLLUP)
        size = 0 if headers else self.rng.choice(self.sizes)
        return self.made(f"{self.prefix}.key{self.rng.randrange(self.subjects)}", headers), size

    def sort(self) -> None:
        super().sort()
        self._purges = {seq for seq, sent in self.acked.items() if ROLLUP in sent.headers}

    def known(self, seq: int, stored: Any) -> None:
        if ROLLUP in stored.headers:
            self._purges.add(seq)
        super().known(seq, stored)

    def excused(self, seq: int, sent: Sent, state: dict[str, Any], now: float) -> bool:
        later = [other for other in self._later[sent.subject] if other > seq]
        return super().excused(seq, sent, state, now) or any(o in self._purges for o in later)


class Objects(Kind):
    """A bucket of objects in chunks: one that was put whole is whole, whatever was put after it."""

    stream = "OBJ_BUCKET"
    chunk_bytes = 32_000
    names = 4

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.streams = (self.stream,)
        self._number = 0
        self._known: dict[str, bytes] = {}  # name -> description of the newest that was answered
        self._perhaps: dict[str, set[bytes]] = {}  # descriptions that were sent after it

    def furnish(self, wire: Wire) -> None:
        wire.ok(
            f"STREAM.CREATE.{self.stream}",
            {
                "name": self.stream,
                "subjects": ["$O.BUCKET.C.>", "$O.BUCKET.M.>"],
                "allow_rollup_hdrs": True,
                "allow_direct": True,
                "discard": "new",
            },
        )

    def step(self) -> None:
        self._number += 1
        name = f"thing{self.rng.randrange(self.names)}"
        nuid = f"n{self._number}"
        digest, count = hashlib.sha256(), self.rng.randrange(1, 12)
        out, names = b"", set()
        for at in range(count):
            chunk = payload_of(self._number * 100 + at, self.chunk_bytes, nuid)
            digest.update(chunk)
            names.add(f"chunk.{nuid}.{at}")
            reply = self.wire.inbox(f"chunk.{nuid}.{at}")
            out += message(f"$O.BUCKET.C.{nuid}", chunk, reply)
        self.wire.send(out)
        while names and not self.gone:
            for event in self.wire.events(0.5):
                if event.subject in names and b'"error"' in event.payload:
                    self.refused[event.payload.decode()] += 1
                    return
                names.discard(event.subject)
        if self.gone:
            return
        text = {"nuid": nuid, "chunks": count, "digest": digest.hexdigest()}
        description = json.dumps(text).encode()
        self._perhaps.setdefault(name, set()).add(description)
        before = self._known.get(name)
        answer = self.wire.request(f"$O.BUCKET.M.{name}", description, block(ROLLUP))
        if "error" in answer:
            self.refused[str(answer)] += 1
            return
        self.acked_total += count + 1
        self._known[name] = description
        self._perhaps[name] = set()
        if before is not None:
            old = json.loads(before)["nuid"]
            self.wire.api(f"STREAM.PURGE.{self.stream}", {"filter": f"$O.BUCKET.C.{old}"})

    def check(self, wire: Wire) -> None:
        answer = wire.api(f"STREAM.INFO.{self.stream}")
        if "error" in answer:
            self.fault("stream gone", answer["error"])
            self.fault("lost", "all objects", len(self._known))
            self._known.clear()
            self._perhaps.clear()
            self.furnish(wire)
            return
        found = read(wire, self.stream, 1, answer["state"]["last_seq"], 50)
        chunks: dict[str, list[bytes]] = {}
        newest: dict[str, bytes] = {}
        for stored in found.values():
            if stored.subject.startswith("$O.BUCKET.C."):
                chunks.setdefault(stored.subject.rpartition(".")[2], []).append(stored.payload)
            else:
                newest[stored.subject.rpartition(".")[2]] = stored.payload
        for name in set(self._known) | set(self._perhaps):
            there = newest.get(name)
            sure = self._known.get(name)
            if there is None:
                if sure is not None:
                    self.fault("lost", f"object {name}")
                    del self._known[name]
                self._perhaps[name] = set()
                continue
            if there != sure and there not in self._perhaps.get(name, ()):
                self.fault("lost", f"an older object of {name}: {there!r}, not {sure!r}")
            text = json.loads(there)
            got = chunks.pop(text["nuid"], [])
            if hashlib.sha256(b"".join(got)).hexdigest() != text["digest"]:
                self.fault("object incomplete", f"object {name}: {len(got)} chunks of {text}")
            self._known[name] = there
            self._perhaps[name] = set()
        for nuid in chunks:  # of puts that a kill interrupted
            wire.api(f"STREAM.PURGE.{self.stream}", {"filter": f"$O.BUCKET.C.{nuid}"})


class Counters(Publishing):
    """Counters: a value that was answered is never lost, and none is counted twice."""

    stream = "COUNTERS"
    config: ClassVar[dict[str, Any]] = {"allow_msg_counter": True, "max_msgs_per_subject": 1}
    subjects = 5
    window = 16

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._least: dict[str, int] = {}
        self._most: dict[str, int] = {}
        self._steps: dict[str, int] = {}

    def step(self) -> None:
        out = b""
        while len(self.waiting) < self.window:
            by = self.rng.randrange(1, 10)
            sent = self.made(f"{self.stream}.{self.rng.randrange(self.subjects)}", b"")
            self.waiting[f"ack.{sent.number}"] = sent
            self._most[sent.subject] = self._most.get(sent.subject, 0) + by
            headers = block(b"Nats-Incr: +%d" % by)
            reply = self.wire.inbox(f"ack.{sent.number}")
            out += message(sent.subject, b"", reply, headers)
        self.wire.send(out)
        for event in self.wire.events(self.step_wait_s):
            self.take(event)

    def stored(self, sent: Sent, answer: dict[str, Any]) -> None:
        if answer["seq"] <= self.last:
            self.fault("sequence reused", (answer, self.last))
        self.last = answer["seq"]
        value = int(answer["val"])
        if value <= self._least.get(sent.subject, 0):
            self.fault("a counter went back", (sent, answer, self._least))
        self._least[sent.subject] = value
        self.acked_total += 1

    def check(self, wire: Wire) -> None:
        answer = wire.api(f"STREAM.INFO.{self.stream}")
        if "error" in answer:
            self.fault("stream gone", answer["error"])
            self.furnish(wire)
            self._least.clear()
            self._most.clear()
            return
        self.unanswered.clear()
        self.denied.clear()
        found = read(wire, self.stream, 1, answer["state"]["last_seq"])
        values = {m.subject: int(json.loads(m.payload)["val"]) for m in found.values()}
        for subject, most in self._most.items():
            value, least = values.get(subject, 0), self._least.get(subject, 0)
            if value < least:
                self.fault("lost", (subject, value, least))
            if value > most:
                self.fault("counted twice", (subject, value, most))
            self._least[subject] = self._most[subject] = value
        self.last = max(self.last, answer["state"]["last_seq"])


ALL: tuple[type[Kind], ...] = (KeyValue, Objects, Counters)
