"""What may differ from one server to the next over the same store: how often it syncs, the sizes of
its files, its keys, and the machine's clock, which may have gone back.

Half of the seeds have such changes; the others start the same server every time.
"""

from __future__ import annotations

from random import Random

from pelton.vault import Vault

SECOND = 1_000_000_000
SEGMENT_BYTES = 4096  # the smallest size: segments are begun, compacted and removed in each run
JOURNAL_BYTES = 2000
LIVES = 6  # the keys change before one of the first servers
BACK = (SECOND // 1000, SECOND, 5 * SECOND)  # steps of a clock that goes back


class Changes:
    """The settings of each next server."""

    def __init__(
        self, seed: int, vault: Vault | None, sync_interval_ns: int, *, changing: bool
    ) -> None:
        self.seed = seed
        self.vault = vault
        self.changing = changing
        self.sync_interval_ns = sync_interval_ns
        self.segment_bytes = SEGMENT_BYTES
        self.journal_bytes = JOURNAL_BYTES
        self.random = Random(f"{seed} changes")
        # The keys change once: a key file that the disk has kept as it was opens with the previous
        # key only. They do not change on a full disk, where streams stay offline until the new
        # key files have room.
        self.new_keys_at = self.random.randint(2, LIVES) if self.random.random() < 0.4 else 0

    def next(self, life: int, *, full: bool) -> list[str]:
        """Draw the settings of the server of this life; return the names of what has changed."""
        if not self.changing or life == 1:
            return []
        random, changed = self.random, []
        if random.random() < 0.2:
            self.sync_interval_ns = random.choice([0, 2 * SECOND])
            changed.append("changes of sync_interval")
        if random.random() < 0.2:
            self.segment_bytes = random.choice([SEGMENT_BYTES, 2 * SEGMENT_BYTES])
            self.journal_bytes = random.choice([JOURNAL_BYTES, 3 * JOURNAL_BYTES])
            changed.append("changes of file sizes")
        if 0 < self.new_keys_at <= life and not full:
            self.new_keys_at = 0
            self.change_keys()
            changed.append("changes of keys")
        return changed

    def change_keys(self) -> None:
        bytes_of = Random(f"{self.seed} new keys").randbytes
        new, cipher = f"new key {self.seed}", self.random.choice(["aes", "chacha"])
        if self.vault is None:
            self.vault = Vault.of(new, cipher=cipher, random=bytes_of)
        else:
            key = self.random.choice([new, ""])  # without a key, the store is decrypted
            self.vault = Vault.of(key, f"key {self.seed}", cipher, random=bytes_of)

    def step_back_ns(self) -> int:
        """How far the clock goes back before the next server starts."""
        return self.random.choice(BACK) if self.changing and self.random.random() < 0.25 else 0
