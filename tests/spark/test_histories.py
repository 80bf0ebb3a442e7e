"""Tables with every version of each key, and deleted rows that are kept for a time: models in both formats."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pelton[iceberg]")

from pelton.spark.tables import upserts
from pelton.spark.tables.commits import Tables
from pelton.spark.tables.compaction import compact
from pelton.spark.tables.marks import Mark
from pelton.spark.tables.places import TableError
from pelton.spark.tables.upserts import merge
from tests.spark.test_formats import FORMATS, found, location
from tests.ways import length

if TYPE_CHECKING:
    from pelton.spark.tables.table import Where

SCHEMA = pa.schema([("k", pa.string()), ("j", pa.int32()), ("seq", pa.int64()), ("n", pa.int64())])
Event = tuple[str, int, int, bool]
EVENTS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(0, 1), st.integers(1, 12), st.booleans()),
    min_size=1,
    max_size=8,
    unique_by=lambda event: event[:3],
)


def put(where: Where, number: int, events: list[Event], **more: Any) -> None:
    rows = [{"k": k, "j": j, "seq": seq, "n": 100 * seq + ord(k)} for k, j, seq, _ in events]
    table = pa.Table.from_pylist(rows, SCHEMA)
    table = table.append_column("pelton delete", pa.array([event[3] for event in events]))
    merge(table, where, keys=["k", "j"], sequence="seq", mark=Mark("q", number), **more)


def versions(events: dict[tuple[str, int, int], bool]) -> list[dict[str, Any]]:
    """The rows that a history must have after these events."""
    made = []
    for (k, j, seq), deleted in events.items():
        later = [other for (ok, oj, other) in events if (ok, oj) == (k, j) and other > seq]
        end = min(later, default=None)
        made.append(
            {
                "k": k,
                "j": j,
                "seq": seq,
                "n": 100 * seq + ord(k),
                "valid_from": seq,
                "valid_to": end,
            }
            | {"is_current": end is None, "is_deleted": deleted}
        )
    return sorted(made, key=repr)


@pytest.mark.parametrize("kind", FORMATS)
def test_histories_are_those_of_a_model(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @settings(max_examples=length(15, 100), deadline=None)
    @given(st.lists(EVENTS, min_size=1, max_size=5), st.sets(st.integers(0, 4)))
    def check(batches: list[list[Event]], compacted: set[int]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            monkeypatch.setattr(upserts, "HERE", Tables())
            where = location(kind, Path(folder))
            known: dict[tuple[str, int, int], bool] = {}
            for number, events in enumerate(batches):
                for again in range(2):  # a batch that runs again changes nothing
                    put(where, number, events, history=True)
                    if again:
                        continue
                    for k, j, seq, deleted in events:
                        known.setdefault((k, j, seq), deleted)
                assert found(where) == versions(known)
                if number in compacted:
                    compact(where, 2**20)
                    assert found(where) == versions(known)

    check()


@pytest.mark.parametrize("kind", FORMATS)
def test_a_deleted_key_does_not_come_back(kind: str, tmp_path: Path) -> None:
    where = location(kind, tmp_path)

    def put_kept(number: int, now: float, *events: Event, forget: float | None = None) -> None:
        rows = [{"k": k, "j": j, "seq": seq, "n": seq} for k, j, seq, _ in events]
        table = pa.Table.from_pylist(rows, SCHEMA)
        table = table.append_column("pelton delete", pa.array([event[3] for event in events]))
        marked, _ = upserts._with_tombstones(table, now, 1)
        mark = Mark("q", number)
        merge(marked, where, keys=["k", "j"], sequence="seq", mark=mark, forget_before=forget)

    def there() -> dict[str, tuple[int, bool]]:
        return {row["k"]: (row["seq"], row["deleted_at"] is not None) for row in found(where)}

    put_kept(0, 1000.0, ("a", 0, 1, False), ("b", 0, 2, False))
    put_kept(1, 2000.0, ("a", 0, 9, True), ("c", 0, 7, True))
    assert there() == {"a": (9, True), "b": (2, False), "c": (7, True)}
    put_kept(2, 3000.0, ("a", 0, 5, False), ("c", 0, 6, False))  # older rows
    assert there() == {"a": (9, True), "b": (2, False), "c": (7, True)}
    put_kept(3, 4000.0, ("a", 0, 10, False))  # a newer one
    assert there() == {"a": (10, False), "b": (2, False), "c": (7, True)}
    compact(where, 2**20)
    put_kept(4, 9000.0, ("b", 0, 11, False), forget=2500.0)
    assert there() == {"a": (10, False), "b": (11, False)}


def test_what_a_history_refuses(tmp_path: Path) -> None:
    where = location("delta", tmp_path)
    put(where, 0, [("a", 0, 1, False)])
    with pytest.raises(TableError, match="has only the newest row of each key; a history needs"):
        put(where, 1, [("a", 0, 2, False)], history=True)
    other = location("delta", tmp_path / "other")
    put(other, 0, [("a", 0, 1, False)], history=True)
    with pytest.raises(TableError, match="has every version of each key: set history to true"):
        put(other, 1, [("a", 0, 2, False)])
    table = pa.table({"k": ["a"], "seq": [1], "valid_to": [5]})
    with pytest.raises(TableError, match="own columns valid_to; rename those"):
        merge(
            table, location("delta", tmp_path / "b"), keys=["k"], sequence="seq", mark=Mark("q", 0),
            history=True,
        )  # fmt: skip
    for arguments, said in (
        ((["n"], None, None, True), "leave out sums or history"),
        (([], "x", 5, True), "keeps deleted rows"),
        (([], None, 5, False), "without delete_when"),
    ):
        *first, history = arguments
        with pytest.raises(TableError, match=said):
            upserts.check_together(*first, history=history)
