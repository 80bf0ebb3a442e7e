"""Mixed load with faults all the time, for hours: everything accounted for, nothing growing.

    python -m tests.crash.soak --hours 1 --folder /tmp/soak

Two servers are loaded with every kind of `tests.crash.kinds`: one is killed or stopped every minute or
so and started again, the other lives through all of it, so that its memory can be watched. Both have
the rest: reloads by SIGHUP, a disk that is full for seconds (when the machine lets mount one), slow
consumers, cut connections, connections that come and go. After each life, and each minute of the one
that lives on, what is there is held against what was acknowledged. Each ten seconds memory,
descriptors, threads and files are noted in the folder; `tests.crash.soak_report` makes the figures.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Any

from tests.crash import loop
from tests.crash.kinds import KINDS, Kind, Runner
from tests.crash.soak_report import Sample, report, sample_of
from tests.crash.torture import Tally, World
from tests.crash.wire import Wire, message
from tests.peers import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DISK_BYTES = 1 << 30
SAMPLE_S = 10.0
LIFE_S = (25.0, 75.0)
REST_S = 0.2  # between two steps of a kind: the load
RESUMED_S = 5.0  # after so long with room no publish is refused any more
KEEP = 2000  # messages of a stream without limits
FOLLOWERS_KEEP = 20_000  # of a mirror: more than comes between two comparisons


class Soaked(ServerProcess):
    """A server whose log is outside of its store and which reads a configuration file."""

    def prepare(self) -> None:
        self.conf = Path(self.store).parent / f"{Path(self.store).name}.conf"
        self.conf.write_text('ping_interval: "60s"\n')
        self.arguments = ["-c", str(self.conf), "--sync_interval", "always"]

    def command(self) -> list[str]:
        return [sys.executable, "-m", "tests.crash.soaked"]

    @property
    def log_path(self) -> Path:
        return Path(self.store).parent.parent / f"{Path(self.store).name}.log"


class Subject:
    """One of the servers: its load, its lives, its books."""

    def __init__(self, name: str, server: Soaked, seed: int, rest_s: float) -> None:
        self.name = name
        self.server = server
        self.rng = Random(seed)
        self.world = World(server, seed)
        self.tally = Tally()
        self.events: Counter[str] = Counter()
        self.runners: list[Persistent] = []
        self.loaded = threading.Event()
        self.error: BaseException | None = None
        self._rest_s = rest_s
        for kind in self.world.kinds:
            if hasattr(kind, "keep"):
                kind.keep = KEEP
            if hasattr(kind, "followers_keep"):
                kind.followers_keep = FOLLOWERS_KEEP

    def load(self) -> None:
        port = self.server.port
        self.runners = [Persistent(kind, port, self._rest_s) for kind in self.world.kinds]
        for runner in self.runners:
            runner.start()
        self.loaded.set()

    def halt(self) -> None:
        self.loaded.clear()
        for runner in self.runners:
            runner.halt.set()
        for runner in self.runners:
            runner.join(60)
            if runner.is_alive():
                runner.kind.fault("a client got no answer", runner.kind)
            elif runner.error is not None:
                runner.kind.fault("a client failed", repr(runner.error))
        self.runners = []

    def account(self, tell: Callable[[str], None], *, refusals: bool) -> None:
        """Compare; `refusals`: the disk was full meanwhile."""
        self.world.check()
        news = self.world.news(self.tally.rounds + 1)
        refused = news.faults["publish refused"]
        self.events["publishes refused while the disk was full"] += refused if refusals else 0
        if refusals:
            del news.faults["publish refused"]
            news.examples = [e for e in news.examples if not e.startswith("refused: ")]
        self.tally.add(news)
        if news.faults:
            tell(f"{self.name}: {dict(news.faults)}")
            for example in news.examples:
                tell("  " + example)


class Persistent(Runner):
    """A runner whose client connects again when its connection was cut."""

    def run(self) -> None:
        while not self.halt.is_set():
            super().run()
            self.halt.wait(0.2)


class Soak:
    """All of it."""

    def __init__(self, folder: Path, store: Path, seconds: float, seed: int, rest_s: float) -> None:
        self.folder = folder
        self.store = store
        self.seconds = seconds
        self.rng = Random(seed)
        self.ended = threading.Event()
        self.full = threading.Event()
        self.full_since_look: dict[str, bool] = {}
        self.began = time.time()
        self.idle_s = 20.0  # how long they are watched with nothing to do
        self.life_s = LIFE_S
        self.fill_s = (60.0, 240.0)
        self.subjects: list[Subject] = []
        self._lock = threading.Lock()
        self._log = (folder / "events.log").open("a")
        for name in ("killed", "lasting"):
            (store / name).mkdir()
            server = Soaked("pelton", store=str(store / name))
            server.prepare()
            subject = Subject(name, server, self.rng.randrange(2**32), rest_s)
            self.full_since_look[name] = False
            self.subjects.append(subject)

    def tell(self, text: str) -> None:
        with self._lock:
            self._log.write(f"{time.time() - self.began:8.1f} {text}\n")
            self._log.flush()

    def run(self) -> None:
        for subject in self.subjects:
            subject.server.start()
            subject.world.furnish()
        jobs: list[Callable[[], None]] = [
            lambda: self._lives(self.subjects[0], kill=True),
            lambda: self._lives(self.subjects[1], kill=False),
            self._sample,
            self._reload,
            self._cut,
            self._visit,
            self._dawdle,
        ]
        if self.store.is_mount():
            jobs.append(self._fill)
        threads = [threading.Thread(target=self._job, args=(job,), daemon=True) for job in jobs]
        for thread in threads:
            thread.start()
        self.ended.wait(self.seconds)
        self.ended.set()
        for thread in threads:
            thread.join(180)
            if thread.is_alive():
                self.tell("a job did not end")
        self._finish()

    def _job(self, job: Callable[[], None]) -> None:
        try:
            job()
        except Exception as exc:  # told with the rest; the soak goes on
            self.tell(f"job failed: {exc!r}")
            self.subjects[0].tally.faults[f"job failed: {exc!r}"[:100]] += 1

    # --- lives ---

    def _lives(self, subject: Subject, *, kill: bool) -> None:
        server = subject.server
        while not self.ended.is_set():
            subject.load()
            self.ended.wait(subject.rng.uniform(*self.life_s))
            if kill and not self.ended.is_set():
                with self._restarting(subject):
                    hard = subject.rng.random() < 0.8
                    server.stop(kill=hard)
                    subject.halt()
                    server.start()
                    subject.events["kill -9" if hard else "SIGTERM"] += 1
                    self._account(subject)
            else:
                with self._restarting(subject):
                    subject.halt()
                    self._account(subject)

    @contextlib.contextmanager
    def _restarting(self, subject: Subject) -> Iterator[None]:
        subject.loaded.clear()
        yield
        self.save()

    def _account(self, subject: Subject) -> None:
        full = self.full.is_set() or self.full_since_look[subject.name]
        self.full_since_look[subject.name] = self.full.is_set()
        subject.account(self.tell, refusals=full)

    def _finish(self) -> None:
        """All debts are paid; then what the servers do with nothing to do."""
        for subject in self.subjects:
            subject.world.settle()
            self._account(subject)
        time.sleep(self.idle_s / 4)
        rest: dict[str, float] = {}
        before = [sample_of(s.server, self.began, s.name) for s in self.subjects]
        time.sleep(self.idle_s)
        for subject, old in zip(self.subjects, before, strict=True):
            now = sample_of(subject.server, self.began, subject.name)
            rest[subject.name] = (now.cpu_s - old.cpu_s) / (now.at_s - old.at_s)
        self.save(rest=rest, done=True)

    def save(self, **more: Any) -> None:
        """What is known so far, for the report."""
        state = {
            "began": self.began,
            "seconds": time.time() - self.began,
            "planned_s": self.seconds,
            "full_disk": self.store.is_mount(),
            "subjects": {
                s.name: {
                    "checks": s.tally.rounds,
                    "acked": s.tally.acked,
                    "faults": dict(s.tally.faults),
                    "examples": s.tally.examples[:20],
                    "events": dict(s.events),
                }
                for s in self.subjects
            },
            **more,
        }
        with self._lock:
            (self.folder / "state.new").write_text(json.dumps(state, indent=1))
            os.replace(self.folder / "state.new", self.folder / "state.json")

    # --- what happens meanwhile ---

    def _sample(self) -> None:
        with (self.folder / "samples.jsonl").open("a") as file:
            while not self.ended.wait(SAMPLE_S):
                for subject in self.subjects:
                    if not subject.loaded.is_set():
                        continue
                    with contextlib.suppress(OSError, AttributeError):  # it is just restarting
                        sample = sample_of(subject.server, self.began, subject.name)
                        file.write(json.dumps(sample._asdict()) + "\n")
                        file.flush()
                        self._line(subject, sample)

    def _line(self, subject: Subject, sample: Sample) -> None:
        if sys.stdout.isatty():
            wrong = sum(subject.tally.faults.values())
            print(
                f"\r{sample.at_s:7.0f} s  {subject.name:8} {subject.tally.acked:,} acked, {wrong} wrong, "
                f"{sample.rss_kb / 1024:.0f} MB, {sample.fds} descriptors, {sample.files} files   ",
                end="",
                flush=True,
            )

    def _some(self) -> Subject | None:
        """One of those that are up."""
        up = [subject for subject in self.subjects if subject.loaded.is_set()]
        return self.rng.choice(up) if up else None

    def _reload(self) -> None:
        while not self.ended.wait(self.rng.uniform(15, 45)):
            subject = self._some()
            process = subject.server.process if subject else None
            if subject and process:
                text = f'ping_interval: "{self.rng.randrange(30, 90)}s"\n'
                subject.server.conf.write_text(text)  # type: ignore[attr-defined]  # a Soaked
                process.send_signal(signal.SIGHUP)
                subject.events["SIGHUP"] += 1

    def _cut(self) -> None:
        while not self.ended.wait(self.rng.uniform(1, 6)):
            subject = self._some()
            if subject is None or not subject.runners:
                continue
            kind: Kind = self.rng.choice(subject.runners).kind
            if hasattr(kind, "wire"):
                kind.wire.cut()
                subject.events["connections cut"] += 1

    def _visit(self) -> None:
        """Connections that come and go, some in the middle of a word."""
        while not self.ended.wait(self.rng.uniform(0.3, 1.5)):
            subject = self._some()
            if subject is None:
                continue
            with contextlib.suppress(OSError, RuntimeError):
                wire = Wire(subject.server.port, 5)
                wire.send(b"SUB visit.* 9\r\n" + message("visit.x", b"hello"))
                if self.rng.random() < 0.5:
                    wire.api("INFO")
                    wire.close()
                else:
                    wire.send(b"PUB PLAIN.1 5000\r\nhalf of a mess")
                    wire.cut()
                    wire.close()
                subject.events["visitors"] += 1

    def _dawdle(self) -> None:
        """Somebody subscribes to everything and does not read."""
        while not self.ended.wait(self.rng.uniform(5, 30)):
            subject = self._some()
            if subject is None:
                continue
            with contextlib.suppress(OSError):
                wire = Wire(subject.server.port, 5)
                wire._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                wire.send(b"SUB > 9\r\n")
                self.ended.wait(self.rng.uniform(3, 15))
                wire.close()
                subject.events["slow consumers"] += 1

    def _fill(self) -> None:
        """Leave no room on the disk for some seconds."""
        filler = self.store / "filler"
        while not self.ended.wait(self.rng.uniform(*self.fill_s)):
            free = os.statvfs(self.store)
            self.full_since_look = dict.fromkeys(self.full_since_look, True)
            self.full.set()
            self.tell("the disk is full")
            with filler.open("wb") as file, contextlib.suppress(OSError):
                os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize)
            self.ended.wait(self.rng.uniform(3, 12))
            filler.unlink()
            self.tell("the disk has room again")
            self.ended.wait(RESUMED_S)
            self.full_since_look = dict.fromkeys(self.full_since_look, True)
            self.full.clear()
            for subject in self.subjects:
                subject.events["full disks"] += 1


@contextlib.contextmanager
def prepared(folder: Path, seconds: float, seed: int, rest_s: float) -> Iterator[Soak]:
    """A soak with its disk; its servers are stopped at the end."""
    place = folder / "store"
    with contextlib.ExitStack() as stack:
        try:
            loop.make(folder / "disk.img", DISK_BYTES)
            stack.enter_context(loop.mounted(folder / "disk.img", place))
        except loop.NotHere as exc:
            print(f"no full disks: {exc}", flush=True)
            place.mkdir(exist_ok=True)
        soak = Soak(folder, place, seconds, seed, rest_s)
        try:
            yield soak
        finally:
            for subject in soak.subjects:
                subject.server.stop(kill=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument(
        "--rest", type=float, default=REST_S, help="seconds between steps: the load"
    )
    parser.add_argument("--folder", default="build/soak", help="samples and figures")
    told = parser.parse_args()
    folder = Path(told.folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    seed = SystemRandom().randrange(2**32) if told.seed is None else told.seed
    print(f"seed {seed}, {len(KINDS)} kinds on each server, figures in {folder}", flush=True)
    with prepared(folder, told.hours * 3600, seed, told.rest) as soak:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # servers end, the disk goes
        soak.run()
    print("\n" + report(folder))
    return 1 if any(subject.tally.faults for subject in soak.subjects) else 0


if __name__ == "__main__":
    sys.exit(main())
