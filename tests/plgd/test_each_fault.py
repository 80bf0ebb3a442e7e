"""Each fault alone: the tables are what the hub stored less what the fault took, and say which fault it was."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import Any

import pytest

from pelton.plgd.fleet import Faults
from tests.plgd.test_tables_truth import check, run_of, tables_of

SMALL: dict[str, Any] = {"devices": 8, "duration_s": 1200.0, "session_s": 200.0}
ALONE: dict[str, dict[str, Any]] = {
    "drop": {"drop": 0.02},
    "tail_drop": {"tail_drop": 0.3},
    "reorder": {"reorder": 0.05},
    "duplicate": {"duplicate": 0.05},
    "corrupt": {"corrupt": 0.01},
    "wrong_envelope": {"wrong_envelope": 0.01},
    "unknown_type": {"unknown_type": 0.01},
    "hidden": {"hidden": 0.5},
    "outages": {"outages": ((500.0, 530.0),)},
    "restore_at_s": {"restore_at_s": 900.0, "restore_back_s": 120.0},
}
DAMAGE = {"corrupt": "snappy", "unknown_type": "event_type"}


def test_no_fault_is_left_out() -> None:
    assert {one.name for one in fields(Faults)} - {"restore_back_s"} == set(ALONE)


@pytest.mark.parametrize("fault", ALONE)
def test_one_fault_alone_is_what_the_tables_show(fault: str) -> None:
    run, messages = run_of(seed=6, faults=Faults(**ALONE[fault]), **SMALL)
    memory = tables_of(messages, 300, late_s=30.0)
    check(memory, run)
    causes = Counter(row["cause"] for row in memory.rows("version_gaps"))
    reasons = {row["reason"] for row in memory.rows("dead_letters")}
    lost = run.truth.summary()["lost"]
    assert bool(memory.duplicates) == (fault == "duplicate")
    if fault in {"corrupt", "wrong_envelope", "unknown_type"}:
        assert causes["damaged"] > 0
        assert reasons >= {DAMAGE.get(fault, "mismatch")} or fault == "wrong_envelope"
        assert reasons
        return
    assert reasons == set()
    assert set(lost) <= {"drop", "tail", "hidden", "outage"}
    if fault == "reorder":
        assert (set(causes), run.truth.reordered > 0) == ({"late"}, True)
        assert not [row for row in memory.rows("version_gaps") if row["is_open"]]
    elif fault == "restore_at_s":
        assert causes["restore"] > 0
        assert max(row["incarnation"] for row in memory.rows("aggregates")) > 0
        arrivals = Counter(row["arrival"] for row in memory.rows("events"))
        assert arrivals["restore"] > 0
    elif fault == "duplicate":
        assert causes == {}
    else:
        assert sum(lost.values()) > 0
        assert set(causes) <= {"lost", "prefix"}
