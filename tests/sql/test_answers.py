"""Answers over tables that take filters equal those over a plain copy of the messages, in every source."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pelton.sql import connect, open_store
from pelton.sql.selection import Selection
from tests.peers import available_servers, running_server
from tests.sql.sources import BORN, SUBJECTS, answers, in_folder, in_server, unpushed
from tests.ways import SEED, length

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.sql import Database
    from tests.sql.sources import Stored


@contextlib.contextmanager
def folder_source(path: Path, pick: random.Random) -> Iterator[tuple[Database, list[Stored]]]:
    stored = in_folder(path, pick)
    with open_store(str(path)) as database:
        yield database, stored


@pytest.fixture(scope="module", params=["folder", *available_servers()])
def filled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Database, list[Stored]]]:
    pick = random.Random(SEED)
    if request.param == "folder":
        with folder_source(tmp_path_factory.mktemp("store"), pick) as made:
            yield made
        return
    with running_server(request.param) as server:
        stored = in_server(server.url, pick)
        with connect(server.url) as database:
            yield database, stored


def condition(pick: random.Random, stored: list[Stored], depth: int = 0) -> str:
    """A random condition: such as are pushed, such as are not, and mixtures."""
    some = pick.choice(stored)
    operator = pick.choice(("=", "<>", "<", "<=", ">", ">="))
    seq = pick.choice((some.seq, some.seq + 1, -1, 0, 2**62 + 1, 2**63 - 1))
    time = f"make_timestamptz({some.ts_ns // 1000 + pick.choice((-1, 0, 0, 1))})"
    subject = pick.choice((some.subject, *SUBJECTS, "M.*", "M.>", "", "M.", "a b", "nobody"))
    text = "'" + subject.replace("'", "''") + "'"
    several = ", ".join(
        "'" + pick.choice(SUBJECTS).replace("'", "''") + "'" for _ in range(pick.randint(1, 4))
    )
    numbers = ", ".join(str(pick.choice(stored).seq) for _ in range(pick.randint(1, 5)))
    simple = (
        f"seq {operator} {seq}",
        f"{seq} {operator} seq",
        f"ts {operator} {time}",
        f"ts_ns {operator} {some.ts_ns}",
        f"subject {operator} {text}",
        f"subject IN ({several})",
        f"subject NOT IN ({several})",
        f"seq IN ({numbers})",
        f"ts BETWEEN {time} AND {time} + INTERVAL 2 MICROSECOND",
        "headers IS NOT NULL",
        "text IS NULL",
        "subject LIKE 'M.a%'",
        "data = 'text'::BLOB",
        "text = '{\"n\":1}'",
        "ts < 'infinity'::TIMESTAMPTZ",
        "seq IS NULL",
        "NULL",
        "seq % 3 = 1",
    )
    if depth > 2 or pick.random() < 0.3:
        return pick.choice(simple)
    left, right = (condition(pick, stored, depth + 1) for _ in range(2))
    return pick.choice(
        (f"({left} AND {right})", f"({left} AND {right})", f"({left} OR {right})", f"NOT ({left})")
    )


COLUMNS = (
    "seq, ts, subject, headers, data, text, ts_ns",
    "seq",
    "seq, subject",
    "count(*)",
    "subject, count(*)",
    "seq, text, headers",
    "max(ts)",
    "data",
)


def test_pushed_filters_change_no_answer(filled: tuple[Database, list[Stored]]) -> None:
    database, stored = filled
    pick = random.Random(SEED)
    with unpushed(stored) as reference:
        for _ in range(length(25, 1500)):
            where = condition(pick, stored)
            columns = pick.choice(COLUMNS)
            group = " GROUP BY ALL" if columns.startswith("subject,") else ""
            query = f"SELECT {columns} FROM M WHERE {where}{group}"
            assert answers(database, query) == answers(reference, query), (SEED, query)


def test_the_scans_of_a_query_end_at_the_same_sequence(
    filled: tuple[Database, list[Stored]],
) -> None:
    database, stored = filled
    query = "SELECT count(*) AS n FROM M a JOIN M b USING (seq) WHERE a.subject = b.subject"
    assert database.rows(query).read_all().to_pylist() == [{"n": len(stored)}]
    assert len({each[0] for each in database.scans.selections}) == 1


def test_a_table_with_a_pattern_has_what_matches(filled: tuple[Database, list[Stored]]) -> None:
    database, stored = filled
    name = stored[0].subject.partition(".")[0]
    query = f'SELECT seq FROM "M:{name}.a.*" ORDER BY seq'
    found = database.rows(query).read_all().column("seq").to_pylist()
    assert found == [each.seq for each in stored if each.subject.startswith(f"{name}.a.")]
    same = f"SELECT seq FROM M WHERE subject_matches(subject, '{name}.a.*') ORDER BY seq"
    assert database.rows(same).read_all().column("seq").to_pylist() == found


def test_a_limit_ends_the_read(filled: tuple[Database, list[Stored]]) -> None:
    database, _ = filled
    assert database.rows("SELECT seq FROM M LIMIT 3").read_all().num_rows == 3


@pytest.mark.parametrize("kind", available_servers())
def test_reading_takes_nothing_from_a_work_queue(kind: str) -> None:
    with running_server(kind) as server:
        stored = in_server(server.url, random.Random(SEED), 50, retention="workqueue")
        with connect(server.url) as database:
            for _ in range(2):
                assert database.query("SELECT count(*) FROM M").fetchall() == [(len(stored),)]
            assert database.query("SELECT * FROM consumers").fetchall() == []


def test_only_the_segments_concerned_are_read(tmp_path: Path) -> None:
    stored = in_folder(tmp_path, random.Random(1), 2000)
    segments = len(list((tmp_path / "jetstream/$G/streams/M/log").glob("*.seg")))
    assert segments > 20
    with open_store(str(tmp_path)) as database:

        def read(where: str) -> int:
            database.rows(f"SELECT * FROM M WHERE {where}").read_all()
            return database.scans.rows_read

        middle = stored[len(stored) // 2]
        assert read("true") == len(stored)
        assert read(f"seq = {middle.seq}") == 1
        assert read(f"seq BETWEEN {middle.seq} AND {middle.seq + 9}") <= 10
        same = sum(each.ts_ns // 1000 == middle.ts_ns // 1000 for each in stored)
        assert read(f"ts = make_timestamptz({middle.ts_ns // 1000})") == same
        assert read(f"subject = '{middle.subject}'") == sum(
            each.subject == middle.subject for each in stored
        )
        assert read("subject = 'nobody' AND seq < 100") == 0


@pytest.mark.parametrize(
    ("where", "selection"),
    [
        ("seq >= 5 AND seq < 9", Selection(first=5, stop=9)),
        ("seq IN (3, 7)", Selection(first=3, stop=8)),
        ("subject = 'a' OR subject = 'b'", Selection(subjects=("a", "b"))),
        ("subject IN ('a', 'b', 'c')", Selection(subjects=("a", "b", "c"))),
        ("subject = 'a' AND (seq = 1 OR seq = 4)", Selection(1, 5, subjects=("a",))),
        (
            "ts = make_timestamptz(7)",
            Selection(since_ns=7000, until_ns=8000),
        ),
        ("ts_ns > 7", Selection(since_ns=8)),
        ("subject = 'a' OR seq > 1", Selection()),
        ("subject = 'm.*'", Selection()),
    ],
)
def test_a_filter_becomes_a_selection(where: str, selection: Selection, tmp_path: Path) -> None:
    """Also finds out whether this pyarrow's expressions can still be read."""
    in_folder(tmp_path, random.Random(1), 5)
    with open_store(str(tmp_path)) as database:
        database.rows(f"SELECT * FROM M WHERE {where}").read_all()
        ((_, found),) = database.scans.selections
        assert found == selection


def test_times_are_utc(tmp_path: Path) -> None:
    stored = in_folder(tmp_path, random.Random(1), 1)
    with open_store(str(tmp_path)) as database:
        (row,) = database.query("SELECT ts, epoch_ns(ts) // 1000 FROM M").fetchall()
        assert row[1] == stored[0].ts_ns // 1000
        assert stored[0].ts_ns >= BORN
