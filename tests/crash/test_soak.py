"""Some seconds of the soak: that it runs, accounts for everything and can tell of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.soak import prepared
from tests.crash.soak_report import report, svg, trend
from tests.ways import SEED


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_short_soak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    print(f"seed {SEED}")
    monkeypatch.setattr("tests.crash.soak.SAMPLE_S", 0.5)
    with prepared(tmp_path, 7.0, SEED, 0.1) as soak:
        soak.idle_s = 1.0
        soak.life_s = (1.0, 2.0)
        soak.fill_s = (2.0, 3.0)
        soak.run()
    assert [dict(subject.tally.faults) for subject in soak.subjects] == [{}, {}], (
        tmp_path / "events.log"
    ).read_text()
    killed, lasting = soak.subjects
    assert killed.events["kill -9"] + killed.events["SIGTERM"]
    assert min(killed.tally.acked, lasting.tally.acked) > 1000
    assert "messages acknowledged" in report(tmp_path)
    assert svg(tmp_path).startswith("<svg")


def test_a_trend_is_a_straight_line_with_its_error() -> None:
    flat = trend([(x * 10.0, 100.0 + (-1) ** x) for x in range(360)])
    assert abs(flat.per_hour) < flat.error_per_hour < 1
    grows = trend([(x * 10.0, 100.0 + x + (-1) ** x) for x in range(360)])
    assert abs(grows.per_hour - 360) < 1
