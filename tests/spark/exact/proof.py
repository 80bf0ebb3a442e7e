"""All of it in turn: fill, read with kills, read as a batch, write back with kills, compare."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from tests.peers import ServerProcess
from tests.spark.exact.checking import Verdict, check_copy, check_table, check_upserted, rows_of
from tests.spark.exact.cluster import Cluster
from tests.spark.exact.filling import Life, furnish, make_holes, publish
from tests.spark.exact.job import work
from tests.spark.exact.ledger import MAY, NEVER, Ledger
from tests.spark.exact.lives import Job
from tests.spark.exact.moments import LANDED, UNDER_WAY, Aim, Copy, Lake, Upserted, deck
from tests.spark.exact.reading import Line, settle, stored
from tests.spark.exact.shapes import STREAMS, Shapes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIGURATION = "max_payload: 4MB\njetstream { sync_interval: 2m }\n"
WINDOW_SECONDS = 1
"""How long the copies' streams know a message id again: less than a life takes to start."""
_TASK_BYTES = 2 * 2**20
_FILES = 20  # of a small table, before it is made
WAYS = {"ids": "copy", "batch": "copy", "write-id": "copy-batch", "upsert": "upsert"}


@dataclass(frozen=True)
class Wanted:
    """What is to be proved."""

    messages: int
    kills: int
    seed: int
    server: str = "pelton"
    ways: tuple[str, ...] = tuple(WAYS)
    """How the table is written back, one after the other; the kills are shared by them."""
    write_kills: int | None = None
    cluster: bool = False
    """On a standalone cluster; then in each life a worker is killed in mid-batch, too."""
    joined: bool = False
    """The life that ends the reading begins the writing, too: one start of a JVM less."""
    keep: str = ""


@dataclass
class Part:
    """What came of one part of the proof."""

    name: str
    verdict: Verdict = field(default_factory=Verdict)
    kills: Counter[str] = field(default_factory=Counter)
    lives: int = 0
    seconds: float = 0.0


class JobFailedError(Exception):
    """The job ended by itself, and not well."""


class Proof:
    """One run; `parts` is what came of it."""

    def __init__(
        self,
        wanted: Wanted,
        told: Callable[[str], None] = print,
        spark: SparkSession | None = None,
    ) -> None:
        """With ``spark`` the lives that are not killed are on this session, not in processes."""
        self.wanted = wanted
        self._spark = spark
        self.parts: list[Part] = []
        self.ledger = Ledger(
            Shapes(wanted.seed, max(500, wanted.messages // min(200, wanted.messages // 500 + 2)))
        )
        self._told = told
        self._rng = Random(wanted.seed)
        self._folder = Path(tempfile.mkdtemp(prefix="pelton-exact-"))
        self._server = ServerProcess(wanted.server)
        self._line = Line(self._server.port)
        self._cluster: Cluster | None = None
        self._before: list[dict[str, Any]] = []
        """Steps to be done by the next life before its own."""
        self._lives = 0
        self._began = time.monotonic()

    def tell(self, text: str) -> None:
        """One line of progress."""
        self._told(f"  {time.monotonic() - self._began:7.1f} s  {text}")

    def run(self) -> list[Part]:
        """Everything; the parts say what was wrong. Raises when it could not be carried out."""
        conf = self._folder / "server.conf"
        conf.write_text(CONFIGURATION)
        self._server.arguments = ["-c", str(conf)]
        try:
            self._server.start()
            if self.wanted.cluster:
                self._cluster = Cluster(self._folder)
            self._fill()
            self._read()
            if not self.wanted.joined:
                self._judge_reading()
            self._write_back()
            if self.wanted.joined:
                self._judge_reading()
        finally:
            if self._cluster is not None:
                self._cluster.stop()
            self._server.remove()
            if self.wanted.keep:
                shutil.copytree(self._folder, self.wanted.keep, dirs_exist_ok=True)
            shutil.rmtree(self._folder, ignore_errors=True)
        return self.parts

    def _fill(self) -> None:
        furnish(self._line.wire())
        numbers = range(1, self.wanted.messages // 2 + 1)
        publish(
            self._line.wire(),
            self.ledger,
            numbers,
            lambda done: self.tell(f"{done:,} messages published"),
        )
        make_holes(self._line.wire(), self.ledger, self._rng)
        never = self.ledger.count(NEVER)
        self.tell(f"{len(numbers):,} messages published, {never:,} of them removed again")
        self.ledger.reading = True

    # -- reading ----------------------------------------------------------------------------------

    def _read(self) -> None:
        wanted = self.wanted
        batches = (4 if wanted.cluster else 2) * wanted.kills + 3
        a_batch = max(20, wanted.messages // batches)
        step = {
            "url": self._server.url,
            "streams": ",".join(STREAMS),
            "per_trigger": str(a_batch),
            "partition_rows": str(max(20, a_batch // 4)),
        }
        table = {
            **step,
            "kind": "table",
            "name": "table",
            "table": str(self._folder / "table"),
            "checkpoint": str(self._folder / "table-checkpoint"),
        }
        batch = {
            **step,
            "kind": "batch",
            "name": "batch",
            "table": str(self._folder / "batch"),
            "partition_rows": str(max(1000, wanted.messages // 8)),
        }
        streamed = Part("streams to a table, in micro-batches, killed")
        begun = time.monotonic()
        rest = range(wanted.messages // 2 + 1, wanted.messages + 1)
        life = Life(self._server.port, self.ledger, rest, 10.0 * wanted.kills, wanted.seed)
        life.start()
        lake = Lake(table["table"])

        def began() -> None:
            life.share = max(life.share, streamed.lives / wanted.kills)

        self._killed(streamed, table, lake, deck(self._rng, wanted.kills, LANDED), began)
        life.finish()
        removed = self.ledger.count(MAY)
        self.tell(f"all {wanted.messages:,} messages published; {removed:,} removed meanwhile")
        ending = [{**table, "forever": False}, batch]
        if wanted.joined:
            self._before = ending
        else:
            self._to_the_end(streamed, ending)
        streamed.seconds = time.monotonic() - begun
        self._streamed = streamed

    def _judge_reading(self) -> None:
        faults = settle(self._line.wire(), self.ledger)
        if faults:
            raise AssertionError(f"the server and what it acknowledged differ: {faults}")
        tables = [str(self._folder / name) for name in ("table", "batch")]
        self._judge(self._streamed, check_table(rows_of(tables[0]), self.ledger))
        whole = Part("streams to a table, in one batch")
        self._judge(whole, check_table(rows_of(tables[1]), self.ledger, static=True))

    # -- writing ----------------------------------------------------------------------------------

    def _write_back(self) -> None:
        wanted = self.wanted
        kills = wanted.kills if wanted.write_kills is None else wanted.write_kills
        source = str(self._folder / "table")
        files = _FILES if wanted.joined else len(DeltaTable(source).file_uris())
        for place, way in enumerate(wanted.ways):
            share = kills // len(wanted.ways) + (place < kills % len(wanted.ways))
            if way == "upsert":
                self._upsert(source, share, files)
                continue
            # A life with a worker killed first goes on for some batches before its own end.
            batches = (share + 1) * (8 if wanted.cluster else 2)
            begun = time.monotonic()
            name = f"COPY_{way.replace('-', '_').upper()}"
            once = "batch" if way == "batch" else "ids"
            step = {
                "kind": WAYS[way],
                "name": name,
                "url": self._server.url,
                "table": source,
                "stream": name,
                "once": once,
                "prefix": f"{name.lower()}.",
                "files_per_trigger": str(max(1, files // batches)),
                # A small batch is to have several tasks, too, on as many workers.
                "task_bytes": str(_TASK_BYTES),
            }
            if WAYS[way] == "copy":
                step["checkpoint"] = str(self._folder / f"{name}-checkpoint")
            else:
                step["write_id"] = f"exact-{wanted.seed}"
            self._make_copy(name, once)
            part = Part(f"the table to a stream, {way}, killed")
            copy = Copy(self._server.port, name, once)
            self._killed(part, step, copy, deck(self._rng, share, UNDER_WAY), lambda: None)
            self._to_the_end(part, [{**step, "forever": False}])
            part.seconds = time.monotonic() - begun
            messages = stored(self._line.wire(), name)
            self._judge(part, check_copy(rows_of(source), messages, prefix=step["prefix"]))
            self._line.wire().ok(f"STREAM.DELETE.{name}")

    def _upsert(self, source: str, kills: int, files: int) -> None:
        """The table into an Iceberg table that counts the rows of each key."""
        folder = self._folder / "upserted"
        folder.mkdir()
        catalog = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}",
        }
        begun = time.monotonic()
        step = {
            "kind": "upsert",
            "name": "upsert",
            "table": source,
            "upserted": "exact.counts",
            "catalog": catalog,
            "files_per_trigger": str(max(1, files // (2 * kills + 6))),
            "checkpoint": str(self._folder / "upsert-checkpoint"),
        }
        part = Part("the table to an Iceberg table, upserts, killed")
        watched = Upserted(step["upserted"], catalog)
        self._killed(part, step, watched, deck(self._rng, kills, LANDED), lambda: None)
        self._to_the_end(part, [{**step, "forever": False}])
        part.seconds = time.monotonic() - begun
        found = load_catalog("default", **catalog).load_table(step["upserted"]).scan().to_arrow()
        self._judge(part, check_upserted(rows_of(source), found.to_pylist()))

    def _make_copy(self, name: str, once: str) -> None:
        subjects = [f"{name.lower()}.>", f"spark.progress.{name}.>"]
        config: dict[str, Any] = {
            "name": name,
            "subjects": subjects,
            "allow_direct": True,
            "duplicate_window": WINDOW_SECONDS * 10**9,
        }
        if once == "batch":
            config["allow_atomic"] = True
        self._line.wire().ok(f"STREAM.CREATE.{name}", config)

    # -- lives ------------------------------------------------------------------------------------

    def _job(self, steps: list[dict[str, Any]]) -> Job:
        self._lives += 1
        master = "local[2,4]" if self._cluster is None else self._cluster.url
        return Job(self._folder, self._lives, master, [*self._before, *steps])

    def _killed(
        self,
        part: Part,
        step: dict[str, Any],
        watched: Lake | Copy | Upserted,
        moments: Iterable[str],
        began: Callable[[], None],
    ) -> None:
        """A life for each moment, ended there."""
        for moment in moments:
            job = self._job([{**step, "forever": True}])
            part.lives += 1
            workers = self._rng.random() < 0.5
            aim = Aim(job, step, watched, self._rng, began)
            try:
                if self._cluster is not None and aim.wait(UNDER_WAY):
                    self._cluster.kill_worker(self._rng)
                    part.kills["a worker"] += 1
                    self.tell(f"life {job.number} of {step['name']}: a worker killed")
                if not aim.wait(moment):
                    if job.status == 0 and step["kind"] == "copy-batch":
                        self.tell(f"life {job.number} of {step['name']}: over before {moment}")
                        part.kills["over before"] += 1
                        return
                    raise JobFailedError(f"life {job.number} ended: {job.last_words()}")
                job.kill(workers=workers)
                if job.said(f"began {step['name']}"):
                    self._before = []
                met = aim.met()
            finally:
                job.kill()
            part.kills[met] += 1
            left = "" if workers else ", workers left"
            self.tell(
                f"life {job.number} of {step['name']}: killed after"
                f" {time.monotonic() - job.started:.1f} s, {moment} meant, met: {met}{left}"
            )

    def _to_the_end(self, part: Part, steps: list[dict[str, Any]]) -> None:
        part.lives += 1
        if self._spark is not None:
            time.sleep(WINDOW_SECONDS)  # the window itself is what must pass
            work(self._spark, [*self._before, *steps])
            self._before = []
            return
        job = self._job(steps)
        try:
            while job.status is None:
                time.sleep(0.1)
            if job.status != 0:
                raise JobFailedError(f"life {job.number} ended: {job.last_words()}")
            self._before = []
        finally:
            job.kill()
        took = time.monotonic() - job.started
        names = " and ".join(step["name"] for step in steps)
        self.tell(f"life {job.number} of {names}: to the end in {took:.1f} s")

    def _judge(self, part: Part, verdict: Verdict) -> None:
        part.verdict = verdict
        self.parts.append(part)
        wrong = dict(verdict.faults) or "nothing wrong"
        self.tell(f"{part.name}: {verdict.rows:,} rows, {wrong}")
        for example in verdict.examples:
            self.tell(f"    {example}")


def table_of(parts: Iterable[Part], wanted: Wanted) -> str:
    """Markdown."""
    lines = [
        f"| {wanted.server}, {wanted.messages:,} messages | killed | rows | wrong |",
        "|---|---|--:|---|",
    ]
    for part in parts:
        kills = ", ".join(f"{count} {what}" for what, count in part.kills.most_common())
        found = part.verdict.faults
        rows = f"{part.verdict.rows:,}"
        if part.verdict.removed:
            rows += f", {part.verdict.removed:,} of them since removed"
        wrong = ", ".join(f"{count:,} {kind}" for kind, count in sorted(found.items()))
        lines.append(f"| {part.name} | {kills or '-'} | {rows} | {wrong or 'none'} |")
    return "\n".join([*lines, "", f"seed {wanted.seed}"])
