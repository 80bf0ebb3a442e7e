"""A log that has lost messages goes on: what is removed later is never reported as lost.

A walk of appends, removals, purges, maintenance and openings over small segments. Every few steps the
disk loses a segment, or damages a message. The model knows what is stored and what is lost.
"""

from __future__ import annotations

import random

import pytest

from pelton.core.log import maintenance
from pelton.core.log.log import Log
from tests.core import damage
from tests.core.damage import Shelf
from tests.ways import SEED, length

STEPS = 120


class Walk:
    """One log, the disk that it is on, and what must be in it."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)
        self.shelf = Shelf()
        self.log: Log = damage.open_log(self.shelf)
        self.stored: dict[int, bytes] = {}
        self.lost: set[int] = set()
        self.damages = 0

    def run(self) -> None:
        for _ in range(STEPS):
            self.random.choices(
                [
                    self.add,
                    self.remove,
                    self.purge,
                    self.limit,
                    self.maintain,
                    self.reopen,
                    self.lose,
                ],
                [30, 12, 1, 4, 8, 8, 3],
            )[0]()
        self.reopen()

    def add(self) -> None:
        for _ in range(self.random.randrange(1, 12)):
            body = b"x" * self.random.choice([10, 200, 1300])
            self.stored[
                self.log.add(self.log.last_seq + 1, f"s.{self.random.randrange(3)}", body)
            ] = body
        if self.random.random() < 0.5:
            self.log.fsync()

    def remove(self) -> None:
        low = self.random.choice(sorted(self.stored) or [1])
        for seq in range(low, low + self.random.choice([1, 1, 8])):
            if maintenance.delete(self.log, seq, erase=self.random.random() < 0.1):
                del self.stored[seq]

    def purge(self) -> None:
        end = self.random.randrange(self.log.first_seq, self.log.last_seq + 2)
        maintenance.purge(self.log, end)
        self.stored = {seq: body for seq, body in self.stored.items() if seq >= end}
        self.lost = {seq for seq in self.lost if seq >= end}

    def limit(self) -> None:
        """What a limit of messages does: remove the oldest."""
        for seq in sorted(self.stored)[: -self.random.randrange(1, 20)]:
            assert maintenance.delete(self.log, seq)
            del self.stored[seq]

    def maintain(self) -> None:
        self.log.fsync()
        while maintenance.maintain(self.log):
            pass

    def reopen(self) -> None:
        self.log.fsync()
        if self.random.random() < 0.5:
            maintenance.close(self.log)
        self.log = damage.open_log(self.shelf)
        self.check()

    def lose(self) -> None:
        """Close the log, take a segment away or damage a message, open it."""
        self.log.fsync()
        maintenance.close(self.log)
        paths = sorted(name for name in self.shelf.files if name.endswith(".seg"))[:-1]
        if paths and self.random.random() < 0.5:
            path = self.random.choice(paths)
            del self.shelf.files[path]
            self.shelf.files.pop(path.replace(".seg", ".idx"), None)
        elif paths:
            path = self.random.choice(paths)
            messages = [
                piece
                for piece in damage.pieces(bytes(self.shelf.files[path]))
                if piece.kind == damage.MESSAGE
            ]
            if messages:
                start = self.random.choice(messages).start
                self.shelf.files[path][start + 35] ^= 0x55
                self.shelf.files.pop(path.replace(".seg", ".idx"), None)
        self.damages += 1
        self.log = damage.open_log(self.shelf)
        gone = self.stored.keys() - damage.everything(self.log).keys()
        # A segment that is gone may have had the records of removals: what these named is back, or counts as lost, too.
        self.lost = damage.lost_of(self.log)
        assert gone <= self.lost
        for seq in gone:
            del self.stored[seq]
        back = damage.everything(self.log).keys() - self.stored.keys()
        self.stored |= {seq: damage.everything(self.log)[seq].payload for seq in back}
        self.check()

    def check(self) -> None:
        found = {seq: message.payload for seq, message in damage.everything(self.log).items()}
        assert found == self.stored
        assert damage.lost_of(self.log) == self.lost


@pytest.mark.parametrize("turn", range(length(15, 600)))
def test_what_is_removed_after_a_loss_is_not_reported_as_lost(turn: int) -> None:
    Walk(f"{SEED} losses {turn}").run()
