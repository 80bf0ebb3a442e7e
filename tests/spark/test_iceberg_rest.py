"""Iceberg tables in a REST catalog: made, written, raced for, and commits whose answer gets lost."""

import pytest

pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pelton[iceberg]")
from pyiceberg.exceptions import CommitStateUnknownException

from pelton.spark.iceberg.options import Address
from pelton.spark.tables.commits import Tables
from pelton.spark.tables.marks import Mark
from pelton.spark.tables.places import TableError
from tests.spark.iceberg_help import maintain, prepare, sequences, write_of
from tests.spark.rest_catalog import TOKEN, RestCatalog
from tests.spark.tables_help import SCHEMA


@pytest.fixture
def rest(tmp_path):
    started = RestCatalog(tmp_path)
    yield started
    started.close()


def address_in(rest, token=TOKEN):
    given = {"type": "rest", "uri": rest.uri, "token": token}
    return Address("rest", ("lake", "t"), tuple(sorted(given.items())))


def test_each_batch_once(rest):
    where = address_in(rest)
    assert Tables().commit(where, write_of(where, range(10), Mark("q", 0, "a")))
    assert not Tables().commit(where, write_of(where, range(10), Mark("q", 0, "b")))
    assert Tables().commit(where, write_of(where, [10], Mark("q", 1, "b")))
    assert sequences(where) == list(range(11))
    assert rest.commits == [200, 200]
    assert maintain(where).snapshots == 2


def test_a_race_is_lost_once(rest):
    where = address_in(rest)
    one, other = Tables(), Tables()
    one.commit(where, write_of(where, [0], Mark("q", 0, "a")))
    mine = write_of(where, [1], Mark("q", 1, "b"))

    def race(table):
        one.commit(where, write_of(where, [1], Mark("q", 1, "a")))
        table.commit(mine)

    with pytest.raises(TableError, match="two drivers run on one checkpoint"):
        other.once(where, mine, race)
    assert rest.commits == [200, 200, 409]
    assert sequences(where) == [0, 1]


def test_an_answer_that_gets_lost(rest):
    where = address_in(rest)
    tables, seen = Tables(), []

    def watched(table):
        try:
            table.commit(write)
        except CommitStateUnknownException as problem:
            seen.append(problem)
            raise

    write = write_of(where, [1], Mark("q", 0, "a"))
    rest.lose_answers = 1
    assert tables.once(where, write, watched)
    assert tables.commit(where, write_of(where, [2], Mark("q", 1, "a")))
    assert len(seen) == 1
    assert rest.commits == [500, 200]
    assert sequences(where) == [1, 2]


def test_columns_and_partitions(rest):
    import pyarrow as pa

    where = address_in(rest)
    tables = Tables()
    tables.commit(where, write_of(where, range(6), partition_by=("word",)))
    wider = pa.schema([*SCHEMA, ("more", pa.float64())])
    tables.commit(where, write_of(where, range(6, 9), schema=wider, merge=True))
    tables.commit(where, write_of(where, [9], overwrite=True))
    assert sequences(where) == [9]


def test_a_wrong_token_is_told_without_it(rest):
    with pytest.raises(TableError, match="cannot open the catalog") as caught:
        prepare(address_in(rest, "open-sesame"), SCHEMA)
    assert "open-sesame" not in str(caught.value)
