"""The simulated world: one server after the other over one disk, their clients, time, and failures.

One `Random` decides everything, so a seed is a history: the same one in every process (the trace
has a hash). The server asks for syncs, and the world ends them in any order. The process may end
within any call of the disk; calls fail; the disk fills up.

The world knows the events around a server. model.py and checks.py have the server's promises,
clients.py the requests of clients.
"""

from __future__ import annotations

import errno
import hashlib
import json
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

from pelton.core.base.disk import PyDisk
from pelton.engine.base.settings import Settings
from pelton.engine.engine import Engine
from pelton.testing.simulated_disk import Handle, PowerCut, SimDisk
from pelton.vault import Vault
from tests.core.wires import Client as Wire
from tests.core.wires import Server

from .changes import Changes

if TYPE_CHECKING:
    from collections.abc import Callable

    from pelton.core.broker.reactor import HandedSync

START_NS = 1_700_000_000_000_000_000
SECOND = 1_000_000_000
WIDE = 0.5
ALTERING = 0.5  # the part of the seeds with alterations of streams and consumers
GRADUAL = 0.3  # the part of openings during which time passes, in seeds with the wider choice
ENCRYPTED = 0.2  # the part of the seeds with an encrypted store
RESERVED = 0.3  # the part of the seeds in which the server keeps a reserve on the disk
SHORT_TURNS = 0.7  # the part of the seeds in which servers do few steps of requests in a turn
TURNS_MOST = 10_000  # a request has at most some hundred steps


class Violation(AssertionError):
    """The server broke a promise."""


class Running:
    """A sync that the server has asked for and that has not ended."""

    def __init__(self, sync: HandedSync, file: Handle, serial: int) -> None:
        self.sync = sync
        self.file = file
        self.serial = serial  # the sync covers changes up to this serial


class Link:
    """One client's connection; the subject of an answer tells its request."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.wire: Wire = world.server.client()
        self.wire.send(f"SUB {name}.> 1\r\n")
        self.asked: dict[str, Callable[[bytes, bytes, str, str], None]] = {}
        self.by_sid: dict[int, Callable[[bytes, bytes, str, str], None]] = {}
        self.inboxes: set[str] = set()  # subscribed subjects for messages
        self.count = 0
        self.sent = 0  # messages, requests among them

    def send(
        self,
        subject: str,
        body: bytes = b"",
        headers: bytes = b"",
        then: Callable[[bytes, bytes, str, str], None] | None = None,
        reply: str = "",
    ) -> str:
        """Publish; `then` gets (headers, payload, reply, subject) of each answer."""
        if then is not None and not reply:
            self.count += 1
            reply = f"{self.name}.{self.world.life}.{self.count}"
        if then is not None:
            self.asked[reply] = then
        if headers:
            line = f"HPUB {subject} {reply} {len(headers)} {len(headers) + len(body)}\r\n".encode()
        else:
            line = f"PUB {subject} {reply} {len(body)}\r\n".encode()
        shown = body if subject.startswith("$JS.API.") else body[:40]
        self.world.note("send", self.name, subject, reply, headers, shown)
        self.sent += 1
        self.wire.send(line + headers + body + b"\r\n")
        self.world.counts["sent while a request waited"] += self.waits
        return reply

    @property
    def waits(self) -> bool:
        """Whether a request waits for its turn, or messages behind it that the server has not read."""
        return self.wire.connection.stalled or self.wire.connection.in_msgs < self.sent

    def api(self, call: str, body: Any = None, then: Callable[[Any], None] | None = None) -> None:
        data = json.dumps(body).encode() if body is not None else b""
        answer = None if then is None else lambda h, p, r, s: then(json.loads(p)) if p else None
        self.send(f"$JS.API.{call}", data, then=answer)

    def subscribe(
        self, subject: str, group: str, heard: Callable[[bytes, bytes, str, str], None]
    ) -> int:
        """Subscribe to a subject, with a queue group if one is named; return the sid."""
        self.count += 1
        self.wire.send(f"SUB {subject} {group} {1000 + self.count}\r\n")
        self.by_sid[1000 + self.count] = heard
        return 1000 + self.count

    def unsubscribe(self, sid: int) -> None:
        self.wire.send(f"UNSUB {sid}\r\n")

    def hear(self) -> None:
        """Read and handle the events that the server has sent."""
        data = self.wire.connection.take()
        for event in self.wire.parser.feed(data) if data else ():
            _, subject, sid, reply, headers, payload = event
            self.world.note("heard", self.name, subject, reply, headers, payload[:60])
            then = self.by_sid.get(int(str(sid))) or self.asked.get(str(subject))
            if then is not None:
                then(headers, payload, str(reply or ""), str(subject))


class World:
    """The world; run.py decides what happens in it."""

    def __init__(
        self,
        seed: int,
        wide: bool | None = None,
        altering: bool | None = None,
        reserved: bool | None = None,
        short_turns: bool | None = None,
    ) -> None:
        self.seed = seed
        self.random = Random(seed)
        # Half of the seeds take a wider choice of what may happen; the histories of the others
        # stay as they were before there was this choice.
        self.wide = Random(f"{seed} wide").random() < WIDE if wide is None else wide
        # So do the seeds in which administrators alter streams and consumers.
        draw = Random(f"{seed} altering").random()
        self.altering = draw < ALTERING if altering is None else altering
        room = Random(f"{seed} reserve")
        draw = room.random()
        self.reserve_bytes = room.choice([1500, 8000])
        if not (draw < RESERVED if reserved is None else reserved):
            self.reserve_bytes = 0
        draw = Random(f"{seed} short turns").random()
        self.short_turns = draw < SHORT_TURNS if short_turns is None else short_turns
        self.counts: Counter[str] = Counter()
        self.disk = SimDisk(random=Random(seed + 1))
        self.trace: list[str] = []
        self.hash = hashlib.sha256()
        # a second source, for later additions: other histories stay the same
        self.aside = Random(f"{seed} aside")
        sync_interval_ns = self.random.choice([0, 0, 0, 2 * SECOND])
        vault: Vault | None = None
        if self.aside.random() < ENCRYPTED:
            keys = Random(f"{seed} keys").randbytes
            vault = Vault.of(f"key {seed}", cipher="aes", random=keys)
            self.counts["seeds with an encrypted store"] += 1
        self.gradual = Random(f"{seed} gradual openings")
        self.opened_gradually = False
        self.changes = Changes(seed, vault, sync_interval_ns, changing=self.wide)
        self.counts["seeds with the wider choice"] += self.wide
        self.counts["seeds with alterations"] += self.altering
        self.counts["seeds with a reserve"] += self.reserve_bytes > 0
        self.now_ns = self.latest_ns = START_NS
        self.went_back_ns = 0  # how far the clock went back in all
        self.turns = 0
        self.intervals: set[int] = set()  # sync_interval of the servers since the last checks
        self.relaxed_once = False  # whether any server had one
        self.life = 0  # how many servers were started
        self.troubled = False  # whether the disk was told to fail during this server's life
        self.links: list[Link] = []
        self.full_next_start = False  # whether the next server starts on a full disk
        # the call of the disk within which the next server ends
        self.cut_next_start: int | None = None
        self.start()

    # --- the trace -------------------------------------------------------------------------------

    def note(self, *what: object) -> None:
        line = " ".join(w if type(w) is str else repr(w) for w in what)
        self.hash.update(line.encode("utf-8", "surrogateescape"))
        self.trace.append(line)

    def digest(self) -> str:
        """Return the digest of all events, which is the same for the same seed."""
        return self.hash.hexdigest()[:16]

    def fail(self, *what: object) -> None:
        raise Violation(" ".join(str(w) for w in what))

    # --- the server ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the next server over the content of the disk."""
        self.life += 1
        for what in self.changes.next(self.life, full=self.full_next_start):
            self.note(what)
            self.counts[what] += 1
        self.troubled = self.disk.room is not None
        self.intervals.add(self.changes.sync_interval_ns)
        self.relaxed_once |= self.changes.sync_interval_ns > 0
        self.syncs: list[Running] = []
        self.reports: list[str] = []
        self.started_ns = self.now_ns
        self.server = Server(self.now_ns, seed=self.life)
        self.reactor = self.server.reactor
        self.reactor.on_sync = self._asked_for_sync
        if self.short_turns:
            steps = Random(f"{self.seed} steps {self.life}")
            self.reactor.budget.most = steps.choice([1, 2, 5, self.reactor.budget.most])
        self.served = PyDisk(self.disk, background=True)  # the disk of this server
        self.engine = Engine(
            self.reactor,
            self.served,
            "store",
            settings=Settings(
                server_name="world",
                server_version="2.15.0",
                sync_interval_ns=self.changes.sync_interval_ns,
                segment_bytes=self.changes.segment_bytes,
                journal_bytes=self.changes.journal_bytes,
                reserve_bytes=self.reserve_bytes,
            ),
            random=Random(self.seed + self.life),
            report=self._reported,
            vault=self.changes.vault,
        )
        self.account = self.engine.add("$G", self.server.router)
        self.reactor.turn()
        self._open()
        self.links = [Link(self, f"c{n}") for n in range(3)]
        self.note("start", self.life, self.disk.serial)

    def _open(self) -> None:
        """Open the store, in some lives while time passes."""
        self.links = []
        self.opened_gradually = self.gradual.random() < GRADUAL and self.changes.changing
        if not self.opened_gradually:
            self.engine.start()
            return
        self.counts["gradual openings"] += 1
        self.engine.begin("$G")
        while self.engine.open_more():
            self.pass_time(self.gradual.choice([0, SECOND // 10, SECOND]))

    def _reported(self, line: str) -> None:
        self.note("report", line)
        self.reports.append(line)

    def _asked_for_sync(self, sync: HandedSync) -> None:
        self.note("sync", self.disk.handles[sync.handle].path)
        self.syncs.append(Running(sync, self.disk.handles[sync.handle], self.disk.serial))

    def end_sync(self, which: int = 0) -> None:
        """End one running sync, with success or as the disk was told."""
        running = self.syncs.pop(which)
        if self.disk.handles.get(running.sync.handle) is not running.file:
            self.fail("a file was closed while it was being synced:", running.file.path)
        error = 0
        try:
            self.disk.sync_upto(running.sync.handle, running.serial)
        except OSError as failure:
            error = failure.errno or errno.EIO
            self.counts["syncs of the journal of acks failed"] += "/acks." in running.file.path
        self.note("synced", running.file.path, error)
        self.counts["syncs ended later"] += 1
        running.sync.end(error)

    @property
    def passed_ns(self) -> int:
        """A clock that never goes back."""
        return self.now_ns + self.went_back_ns

    def turn(self) -> None:
        self.turns += 1
        self.reactor.turn()
        for link in self.links:
            link.hear()

    def read_all(self) -> None:
        """Let the server read everything that was sent: later requests cannot overtake it."""
        for _ in range(TURNS_MOST):
            if not any(link.waits for link in self.links):
                return
            self.turn()
        self.fail("the server does not read on")

    def settle(self) -> None:
        """Deliver everything in flight; no client sends a new request."""
        for _ in range(TURNS_MOST):
            self.turns += 1
            more = self.reactor.turn()
            while self.syncs:
                self.end_sync()
                more = True
            for link in self.links:
                if link.wire.connection.pending_bytes():
                    more = True
                    link.hear()
            if not more:
                return
        self.fail("the server does not come to rest")

    def pass_time(self, ns: int, steps: int = 1) -> None:
        for _ in range(steps):
            self.now_ns += ns // steps
            self.latest_ns = max(self.latest_ns, self.now_ns)
            self.server.clock.set(self.now_ns)
            self.engine.tick(self.now_ns)
            self.turn()

    # --- how a server ends -----------------------------------------------------------------------

    def look_for_errors(self) -> None:
        for error in self.server.errors:
            if not isinstance(error, OSError) or not self.troubled:
                raise Violation(f"an exception in the server: {error!r}") from error
        self.server.errors.clear()

    def kill(self) -> None:
        """Kill the process; its writes stay in the page cache."""
        self.counts["kills"] += 1
        self.note("kill")
        self.look_for_errors()
        self.forget_failures()
        self.disk.kill()
        self._next()

    def forget_failures(self) -> None:
        """Write the data of failed syncs that the killed server could not record.

        No later server can know of such a failure, and must not be blamed for the lost data.
        """
        for path, node in self.disk.names.items():
            folder, _, name = path.rpartition("/")
            unsure = name.endswith(".seg") and self.disk.exists(f"{folder}/unsure")
            if node.dropped and name.endswith((".seg", ".json", ".copy")) and not unsure:
                self.counts["failed syncs that nobody could know of"] += 1
                node.forget_failure(self.disk.serial)

    def cut_power(self) -> None:
        self.counts["power cuts"] += 1
        self.note("power cut", self.disk.serial)
        self.look_for_errors()
        self.disk.crash(self.random)
        self._next()

    def stop(self) -> None:
        """Stop the server cleanly."""
        self.counts["clean stops"] += 1
        self.note("stop")
        self.disk.heal()
        self.disk.cut_at = None
        self.disk.room = None
        self.settle()
        self.engine.close()
        while self.syncs:
            self.end_sync()
        self.look_for_errors()
        self.disk.kill()
        self._next()

    def _next(self) -> None:
        self.counts["reserves used"] += self.served.spent
        self.disk.room = None
        if self.full_next_start:
            self.disk.room = self.disk.used()
            self.counts["starts on a full disk"] += 1
            self.note("full")
        self.now_ns += self.random.choice([0, 1000, SECOND])
        self.latest_ns = max(self.latest_ns, self.now_ns)
        if back_ns := self.changes.step_back_ns():
            self.note("the clock goes back", back_ns)
            self.counts["clocks that went back"] += 1
            self.now_ns -= back_ns
            self.went_back_ns += back_ns
        if self.cut_next_start is not None:
            self.disk.cut_after(self.cut_next_start)
            self.cut_next_start = None
        self.start()
        self.disk.cut_at = None

    def guarded(self, act: Callable[[], None]) -> bool:
        """Do something; False: the process ended within it (`SimDisk.cut_after`)."""
        try:
            act()
        except PowerCut:
            self.counts["stopped within a call of the disk"] += 1
            return False
        return True
