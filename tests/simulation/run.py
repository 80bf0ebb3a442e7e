"""One seed: a random history of clients, servers and a disk, with checks at each restart.

outcome = run(seed)        # never raises for a broken promise: see Outcome.failure
"""

from __future__ import annotations

import errno
import traceback
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from pelton.engine.rules import message_ttl, saved_deadlines
from pelton.testing.simulated_disk import PowerCut

from . import copies
from .administering import Administering
from .altering import Altering
from .asking import Asking
from .checks import Checks
from .clients import Clients
from .expecting import Expecting
from .readers import Readers
from .world import SECOND, Violation, World

if TYPE_CHECKING:
    from collections.abc import Callable

LIVES = 4  # servers, one after the other
STEPS = 45  # steps in the life of each server
LAST_EVENTS = 40
FULL = 0.2  # the part of restarts that find a full disk
MADE_ROOM = 0.5  # the part of these that have room again before a client publishes
WIDER = 0.2  # the part of steps with one of the wider choice before them
SAVE_AFTER = 15  # messages between two saves of deadlines


@dataclass
class Outcome:
    seed: int
    digest: str
    counts: Counter[str]
    failure: str = ""
    events: list[str] = field(default_factory=list)


class Run:
    def __init__(
        self,
        seed: int,
        wide: bool | None,
        altering: bool | None,
        reserved: bool | None,
        short_turns: bool | None,
    ) -> None:
        self.world = World(seed, wide, altering, reserved, short_turns)
        self.random = self.world.random
        # a second source, so that seeds without a full disk keep their histories
        self.room = Random(f"{seed} room")
        self.aside = Random(f"{seed} alterations")
        self.clients = Clients(self.world)
        self.readers = Readers(self.clients)
        self.checks = Checks(self.world, self.clients)
        self.weights: dict[Callable[[], None], int] = {
            self.clients.publish: 30,
            self.readers.pull: 14,
            self.turn: 20,
            self.end_a_sync: 16,
            self.pass_time: 6,
            self.clients.remove: 3,
            self.readers.create: 4,
            self.clients.create_stream: 2,
            self.clients.update_stream: 1,
            self.readers.delete: 1,
            self.clients.delete_stream: 1,
            self.trouble: 1,
        }
        expecting, administering = Expecting(self.clients), Administering(self.readers)
        self.wider = [
            expecting.publish,
            expecting.publish,
            administering.pause,
            administering.update,
            administering.unpin,
        ]
        altering, asking = Altering(self.readers), Asking(self.clients)
        self.altering = [
            altering.update,
            altering.update,
            altering.reset,
            altering.update_consumer,
            asking.get,
            asking.get,
        ]
        self.acts = list(self.weights)
        self.each = list(self.weights.values())

    # --- steps -----------------------------------------------------------------------------------

    def turn(self) -> None:
        self.world.turn()

    def end_a_sync(self) -> None:
        if self.world.syncs:
            self.world.end_sync(self.random.randrange(len(self.world.syncs)))
            self.world.turn()

    def pass_time(self) -> None:
        self.world.pass_time(self.random.choice([SECOND // 10, SECOND, 4 * SECOND]), 2)

    def trouble(self) -> None:
        """Let the disk begin to fail, fill up, or work again."""
        world, random = self.world, self.random
        choice = random.random()
        if choice < 0.3:
            world.disk.room = world.disk.used() + random.randint(0, 3000)
        elif choice < 0.5:
            world.disk.room = None
            world.disk.heal()
        else:
            verb = random.choice(
                ["write", "sync", "sync", "open", "rename", "sync_dir", "unlink", "read"]
            )
            pattern = random.choice(["*", "*", "*.seg", "*/consumers/*", "*.idx*"])
            times = random.choice([1, 1, None])
            error = random.choice([errno.EIO, errno.EIO, errno.ENOSPC])
            world.disk.fail(verb, error, pattern, after=random.randint(0, 5), times=times)
            world.note("trouble", verb, pattern, times)
        world.troubled = True
        world.counts["troubles of the disk"] += 1

    def journal_trouble(self) -> None:
        """Let the sync fail that confirmed acks wait for."""
        world, aside = self.world, self.world.aside
        after, times = aside.randint(0, 3), aside.choice([1, 1, 2])
        world.disk.fail("sync", errno.EIO, "*/acks.*", after=after, times=times)
        world.note("trouble with the journal", after, times)
        world.troubled = True
        world.counts["troubles of the disk"] += 1

    def step(self) -> None:
        wide = self.clients.wide
        if self.world.wide and wide.random() < WIDER:
            wide.choice(self.wider)()
        if self.world.altering and self.aside.random() < WIDER:
            self.aside.choice(self.altering)()
        self.random.choices(self.acts, self.each)[0]()

    # --- lives -----------------------------------------------------------------------------------

    def live(self) -> None:
        """Run one server to its end."""
        world, random = self.world, self.random
        if random.random() < 0.4:
            world.disk.cut_after(random.randint(1, 400))
        if world.aside.random() < 0.15:
            self.journal_trouble()
        for _ in range(random.randint(STEPS // 2, STEPS)):
            if not world.guarded(self.step):
                break
            self.checks.note_progress()
        self.checks.note_progress()
        copies.note_absent(world, self.clients.streams)
        end = random.random()
        if end < 0.5:
            self.restart(world.cut_power, power=True)
        elif end < 0.6:
            self.flip_a_bit()
            self.restart(world.kill)
        elif (
            end < 0.8
            or world.disk.cut_at is not None
            or world.troubled
            or not world.guarded(world.stop)
        ):
            self.restart(world.kill)
        else:
            self.started()

    def flip_a_bit(self) -> None:
        """Flip a bit of a stream's segment or index file on the disk."""
        world, random = self.world, self.random
        for name, file in world.disk.names.items():
            if name.endswith((".seg", ".idx")) and file.durable and random.random() < 0.3:
                at = random.randrange(len(file.durable))
                world.note("flip", name, at)
                world.disk.flip(name, at, random.randrange(8))
                stream = self.clients.streams.get(name.split("/")[4])
                if stream is not None and name.endswith(".seg"):
                    stream.flips += 1
                return

    def restart(self, end: Callable[[], None], *, power: bool = False) -> None:
        """End the server and start the next one, which may end while it opens, and so on."""
        world = self.world
        if power:
            self.checks.power_was_cut()
        world.full_next_start = self.room.random() < FULL
        if world.full_next_start:
            self.checks.doubt_acks()
        if self.random.random() < 0.15:
            world.cut_next_start = self.random.randint(1, 60)
        while not world.guarded(end):
            world.counts["ended while opening"] += 1
            if self.random.random() < 0.5:
                end, power = world.cut_power, True
                self.checks.power_was_cut()
            else:
                end = world.kill
        self.started(power=power)

    def started(self, *, power: bool = False) -> None:
        world = self.world
        world.counts["restarts"] += 1
        self.checks.note_missing()
        copies.forget_absent(world, self.clients.streams)
        if world.full_next_start:
            world.full_next_start = False
            if self.room.random() < MADE_ROOM:
                world.disk.room = None
                world.settle()
                world.pass_time(SECOND, 4)
        clients = self.clients
        for stream in clients.ever:
            stream.server_ended()
        clients.retries = list(clients.flying.values())
        clients.flying = {}
        self.checks.all(power=power)
        self.readers.listen_again()
        self.clients.retry()

    def drain(self) -> None:
        """End all failures, and check that every owed message is delivered."""
        world = self.world
        self.readers.draining = True
        self.checks.power_was_cut()
        self.restart(world.kill)
        world.disk.room = None
        world.settle()
        for _ in range(12):
            world.pass_time(4 * SECOND + 1, 3)
            self.pull_all()
        for _ in range(2):  # for the last messages of schedules, and then for the copies of these
            self.pull_all()
        self.checks.note_progress()
        self.checks.drained()
        copies.check(world, self.clients.streams)
        world.stop()
        self.started()

    def pull_all(self) -> None:
        """Pull from each consumer until nothing comes: some have few messages unacknowledged at a
        time.
        """
        before = -1
        while before < (before := self.world.counts["deliveries"]):
            self.pull_from_each()
            if not (self.world.wide or self.world.altering):
                return

    def pull_from_each(self) -> None:
        for stream in self.clients.streams.values():
            for consumer in stream.consumers.values():
                if stream.there == consumer.there == "yes" and (
                    "deliver_subject" not in consumer.config
                ):
                    self.readers.pull_from(stream, consumer, 100)
        self.world.settle()

    def all(self) -> None:
        for _ in range(2):
            self.clients.create_stream()
            self.world.settle()
        for _ in range(2):
            self.readers.create()
        for _ in range(LIVES):
            self.live()
        self.drain()
        self.world.look_for_errors()


def run(
    seed: int,
    *,
    wide: bool | None = None,
    altering: bool | None = None,
    reserved: bool | None = None,
    short_turns: bool | None = None,
) -> Outcome:
    """Run a seed; `wide`: with the wider choice of what may happen or without it, `altering`: with
    alterations of streams and consumers or without, `reserved`: with a reserve for a full disk or
    without, `short_turns`: with few steps of requests in a turn or with the usual number (None: as
    the seed says).
    """
    before = saved_deadlines.SAVE_AFTER, message_ttl.SAVE_AFTER
    saved_deadlines.SAVE_AFTER = message_ttl.SAVE_AFTER = SAVE_AFTER
    failure = ""
    history = Run(seed, wide, altering, reserved, short_turns)
    try:
        history.all()
    except Violation as broken:
        failure = str(broken)
    except (Exception, PowerCut):
        failure = traceback.format_exc()
    finally:
        saved_deadlines.SAVE_AFTER, message_ttl.SAVE_AFTER = before
    world = history.world
    counts = world.counts + world.disk.counts
    return Outcome(seed, world.digest(), counts, failure, world.trace[-LAST_EVENTS:])
