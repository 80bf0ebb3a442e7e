"""Power cuts below the file system, for real: what the disk has at a moment is all that is left.

    python -m tests.crash.power --rounds 10 --server nats-server --modes always,2m

The store is an ext4 of its own in a loop-mounted file. What a server wrote and did not sync is in the
page cache of that file system and not in the file, which is the disk. In the middle of load the server
is stopped (SIGSTOP), so that no ack comes after this moment, the file is copied, and the server
killed. The copy is mounted as after a power cut (the journal is replayed), the same server is started
on it, and all that was acknowledged is compared. Needs root and loop devices.

A copy is what one moment leaves: it is made again when the device was written to meanwhile.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from random import Random, SystemRandom

from tests.crash import loop
from tests.crash.kinds import KINDS
from tests.crash.kinds.groups import Followed
from tests.crash.torture import MODES, ON_DISK, Tally, World, configure, table
from tests.peers import ServerProcess

DISK_BYTES = 512 << 20
LOAD_S = (0.3, 6.0)
LEAST = 600  # acks before the power goes, on a machine that is busy with something else
AGAIN_S = 0.3  # load on what is left, to see sequences given twice and acks that come back
MOUNT = "commit=300"  # only what somebody syncs gets to the disk soon

# Where an ack promises the page cache only, these may be; nothing else may.
PROMISED_LESS = frozenset(
    (
        "lost",
        "last sequence went back",
        "sequence reused",
        "a confirmed ack came back",
        "an ack floor went back",
        "a counter went back",
        "a removed message came back",
        "id forgotten",
        "counted twice",
        "stored twice",
        "object incomplete",
        "false duplicate",
        "from nowhere",
        "a stream or consumer is not as answered",
    )
)


def sectors(image: Path) -> tuple[str, ...]:
    """What the loop device has done so far, and what is under way."""
    losetup = shutil.which("losetup", path="/usr/sbin:/sbin:/usr/bin")
    assert losetup is not None
    said = subprocess.run([losetup, "-j", str(image)], capture_output=True, text=True, check=True)
    name = Path(said.stdout.split(":")[0]).name
    words = Path(f"/sys/block/{name}/stat").read_text().split()
    return (words[4], words[6], words[8], words[-2])


def copy_of(image: Path, to: Path) -> None:
    """The file as it is at one moment."""
    for _ in range(20):
        before = sectors(image)
        subprocess.run(["cp", "--sparse=always", str(image), str(to)], check=True)
        if sectors(image) == before and before[2] == "0":
            return
        time.sleep(0.05)
    raise loop.NotHere("the disk does not come to rest")


def cut(kind: str, mode: str, seed: int, load_s: float, *, every: bool) -> Tally:
    """One power cut; `every`: with the streams that follow others, too."""
    kinds = [k for k in KINDS if every or k is not Followed]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pelton-power-")))
        image, after = folder / "disk", folder / "after"
        loop.make(image, DISK_BYTES)
        server = Logged(kind, store=str(folder / "store"))
        configure(server, mode)
        stack.callback(server.stop, kill=True)
        with loop.mounted(image, folder / "store", MOUNT):
            server.start()
            world = World(server, seed, kinds)
            world.furnish()

            def power_fails() -> None:
                assert server.process is not None
                server.process.send_signal(signal.SIGSTOP)
                copy_of(image, after)
                server.stop(kill=True)

            world.load(load_s, power_fails, least=LEAST)
        image.unlink()
        stack.enter_context(loop.mounted(after, folder / "left"))
        server.store = str(folder / "left")
        server.start()
        world.check()
        world.load(AGAIN_S, lambda: server.stop(kill=True))
        return world.news(1)


class Logged(ServerProcess):
    """Its log is on another disk."""

    @property
    def log_path(self) -> Path:
        return Path(self.store).parent / "server.log"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.power", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="in each mode")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--server", default="pelton", help="pelton or nats-server")
    parser.add_argument("--modes", default=",".join(MODES))
    told = parser.parse_args()
    seed = SystemRandom().randrange(2**32) if told.seed is None else told.seed
    rng, rows = Random(seed), {mode: Tally() for mode in told.modes.split(",")}
    per_round: dict[str, list[str]] = {mode: [] for mode in rows}
    wrong: Counter[str] = Counter()
    for mode, tally in rows.items():
        for number in range(1, told.rounds + 1):
            own, load_s = rng.randrange(2**32), rng.uniform(*LOAD_S)
            every = mode in ON_DISK and told.server == "pelton"
            try:
                came = cut(told.server, MODES[mode], own, load_s, every=every)
            except loop.NotHere as exc:
                print(f"not possible here: {exc}")
                return 2
            print(
                f"{mode} {number}/{told.rounds} seed {own}: {load_s:.1f} s of load, "
                f"{came.acked:,} acked, {dict(came.faults) or 'nothing wrong'}",
                flush=True,
            )
            for example in came.examples[:3]:
                print("    " + example[:300], flush=True)
            per_round[mode].append(f"{came.faults['lost']:,} of {came.acked:,}")
            tally.add(came)
            promised = frozenset() if mode in ON_DISK else PROMISED_LESS
            wrong.update({k: n for k, n in came.faults.items() if k not in promised})
    print("\n" + table(rows, told.server, seed))
    for mode, losses in per_round.items():
        print(f"\nlost in each round, {mode}: " + ", ".join(losses))
    return 1 if wrong and told.server == "pelton" else 0


if __name__ == "__main__":
    sys.exit(main())
