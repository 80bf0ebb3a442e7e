"""Tables and streams are equal row by row though the job is killed: a small run, and that the
comparison would see what is wrong.

`python -m tests.spark.exact` does it with a million messages; PELTON_SEED repeats a run.
"""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.spark.exact import moments
from tests.spark.exact.checking import Row, check_copy, check_table, essence, rows_of
from tests.spark.exact.ledger import MAY, Ledger
from tests.spark.exact.moments import LANDED, UNDER_WAY, Aim
from tests.spark.exact.proof import Proof, Wanted
from tests.spark.exact.reading import Message
from tests.spark.exact.shapes import LARGE_BYTES, Shapes, digest
from tests.ways import SEED

COUNT = 300


@pytest.fixture
def ledger() -> Ledger:
    """Messages as if they had been acknowledged, one removed before and one while reading."""
    made = Ledger(Shapes(SEED))
    for number in range(1, COUNT + 1):
        stream = made.shapes(number).stream
        seq = len(made.streams[stream].numbers) + 1
        made.acked(stream, seq, number)
        made.streams[stream].times_us[seq] = 1_000_000 + number
    made.remove("EXACT_A", {5})
    made.reading = True
    made.remove("EXACT_A", {7})
    for seq in (5, 7):
        del made.streams["EXACT_A"].times_us[seq]
    return made


def row_of(ledger: Ledger, stream: str, seq: int) -> Row:
    """The row that a message must become."""
    shape = ledger.shape(stream, seq)
    time_us = ledger.stored_between_us(stream, seq)[0]
    return Row(stream, seq, shape.subject, shape.headers, digest(shape.payload), time_us)


def rows_right(ledger: Ledger) -> list[Row]:
    """What a right table has."""
    return [row_of(ledger, name, seq) for name in ledger.streams for seq in ledger.live(name)]


def test_messages_are_of_all_shapes_and_no_two_alike():
    shapes = Shapes(SEED, large_every=1000)
    made = [shapes(number) for number in range(1, 3001)]
    alike = {essence(each.subject, each.headers, digest(each.payload)) for each in made}
    assert len(alike) == len(made)
    assert {len(each.payload) for each in made} >= {0, LARGE_BYTES}
    assert any(len(values) > 1 for each in made for _, values in each.headers)
    assert any(not each.headers for each in made)
    assert len({each.subject for each in made}) > 1000


def test_a_right_table_is_right(ledger):
    rows = rows_right(ledger)
    Random(SEED).shuffle(rows)
    verdict = check_table(rows, ledger, static=True)
    assert not verdict.faults
    assert (verdict.rows, verdict.expected) == (COUNT - 2, COUNT - 2)
    # What was removed while it was read may be there, once.
    removed = row_of(ledger, *next(ledger.places(MAY)))
    assert not check_table([*rows, removed], ledger).faults
    assert check_table([*rows, removed], ledger).removed == 1
    assert dict(check_table([*rows, removed, removed], ledger).faults) == {"doubled": 1}
    assert dict(check_table([*rows, removed], ledger, static=True).faults) == {"foreign": 1}


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("subject", "exact.a.other"),
        ("headers", (("Other", ("1",)),)),
        ("digest", digest(b"other")),
        ("time_us", 5),
    ],
)
def test_a_changed_row_is_seen(ledger, column, value):
    rows = rows_right(ledger)
    at = Random(SEED).randrange(len(rows))
    rows[at] = rows[at]._replace(**{column: value})
    name = {"digest": "data", "time_us": "ts"}.get(column, column)
    assert dict(check_table(rows, ledger).faults) == {f"changed {name}": 1}


def test_missing_doubled_and_foreign_rows_are_seen(ledger):
    rows = rows_right(ledger)
    at = Random(SEED).randrange(len(rows))
    assert dict(check_table(rows[:at] + rows[at + 1 :], ledger).faults) == {"missing": 1}
    assert dict(check_table([*rows, rows[at]], ledger).faults) == {"doubled": 1}
    for stream, seq in (("EXACT_A", 5), ("EXACT_A", 10**6), ("OTHER", 1)):
        foreign = rows[at]._replace(stream=stream, seq=seq)
        assert dict(check_table([*rows, foreign], ledger).faults) == {"foreign": 1}


def copies(rows: list[Row], ledger: Ledger) -> list[Message]:
    """What a right copy has: ids of its own, and marks of the sink."""
    made = []
    for seq, row in enumerate(rows, 1):
        shape = ledger.shape(row.stream, row.seq)
        headers = tuple(pair for pair in row.headers if pair[0] != "Nats-Msg-Id")
        named = (*headers, ("Nats-Msg-Id", (f"query:1:0:{seq}",)))
        made.append(Message(seq, f"copy.{row.subject}", named, shape.payload, seq))
    return [*made, Message(len(made) + 1, "spark.progress.COPY.q.0", (), b"{}", 1)]


def test_a_copy_is_compared_row_by_row(ledger):
    rows = rows_right(ledger)
    right = copies(rows, ledger)

    def faults(messages: list[Message]) -> dict[str, int]:
        return dict(check_copy(rows, messages, prefix="copy.").faults)

    assert faults(right) == {}
    at = Random(SEED).randrange(len(rows))
    assert faults(right[:at] + right[at + 1 :]) == {"missing": 1}
    assert faults([*right, right[at]]) == {"doubled": 1}
    for changed in (
        right[at]._replace(payload=b"other"),
        right[at]._replace(subject="copy.other"),
        right[at]._replace(headers=(("Other", ("1",)),)),
    ):
        messages = [*right[:at], changed, *right[at + 1 :]]
        assert faults(messages) == {"missing": 1, "foreign": 1}


def test_a_table_on_disk_is_read_as_it_is(ledger, tmp_path):
    rows = rows_right(ledger)
    shapes = [ledger.shape(row.stream, row.seq) for row in rows]
    headers = pa.map_(pa.string(), pa.list_(pa.string()))
    columns = {
        "stream": pa.array([row.stream for row in rows]),
        "seq": pa.array([row.seq for row in rows]),
        "subject": pa.array([row.subject for row in rows]),
        "headers": pa.array(
            [[(k, list(v)) for k, v in row.headers] or None for row in rows], headers
        ),
        "data": pa.array([shape.payload for shape in shapes], pa.binary()),
        "ts": pa.array([row.time_us for row in rows], pa.timestamp("us", "UTC")),
    }
    write_deltalake(tmp_path / "t", pa.table(columns))
    assert list(rows_of(str(tmp_path / "t"))) == rows
    assert not check_table(rows_of(str(tmp_path / "t")), ledger, static=True).faults
    # A commit that came twice.
    write_deltalake(tmp_path / "t", pa.table(columns).slice(10, 3), mode="append")
    assert dict(check_table(rows_of(str(tmp_path / "t")), ledger).faults) == {"doubled": 3}


class Copied:
    """A life, and the stream it writes into, when all that there was to write is in."""

    number, status, steady = 1, None, True

    def said(self, line: str) -> bool:
        return True

    def last_words(self) -> str:
        return ""

    def landed(self) -> int:
        return 5


@pytest.mark.parametrize("moment", [UNDER_WAY, LANDED])
@pytest.mark.timeout(60)
def test_no_kill_waits_for_a_batch_that_never_comes(tmp_path, monkeypatch, moment):
    monkeypatch.setattr(moments, "_COPIED_SECONDS", 0.05)
    for kind in ("offsets", "commits"):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "0").touch()
    step = {"name": "copy", "kind": "copy", "checkpoint": str(tmp_path)}
    for seed in range(6):  # both of those that wait for a batch more and those that do not
        aim = Aim(Copied(), step, Copied(), Random(seed), lambda: None)
        assert aim.wait(moment)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore:stream .* recognizes a message id")
def test_rows_are_there_once_though_the_job_is_killed(spark):
    """Killed once while it reads, behind the commit to the table, and once in each way to write; the life
    that goes to the end is here."""
    print(f"seed {SEED}")
    ways = ("ids", "upsert")
    wanted = Wanted(messages=3000, kills=1, write_kills=2, seed=SEED, ways=ways, joined=True)
    parts = Proof(wanted, lambda text: print(text, flush=True), spark).run()
    assert [dict(part.verdict.faults) for part in parts] == [{}, {}, {}, {}], [
        part.verdict.examples for part in parts
    ]
    assert [part.kills.total() for part in parts] == [1, 1, 1, 0]
    assert all(part.verdict.rows > 2000 for part in parts)
    assert parts[2].verdict.removed, "nothing that was read was removed while the job ran"
