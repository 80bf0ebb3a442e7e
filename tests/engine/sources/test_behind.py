"""Log lines about a mirror or source that stays behind or does not hear from its origin."""

from pathlib import Path
from typing import Any

import pytest

from pelton.api.errors import ErrorBody
from pelton.api.streams import StreamSourceInfo
from pelton.engine.sources.behind import INTERVAL_NS, BehindReport
from tests.engine.house import SECOND, House


def looks(report: BehindReport, minutes: int, begin_ns: int, **fields: Any) -> list[str]:
    """The lines of all looks within these minutes; nothing is copied."""
    info = StreamSourceInfo(name="O", **fields)
    times = range(begin_ns, begin_ns + minutes * 60 * SECOND, INTERVAL_NS)
    return [line for now in times if (line := report.look(now, info, 0))]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"lag": 7, "active": SECOND}, "7 messages are not copied"),
        ({"active": 2000 * SECOND}, "its origin was last heard from 33m20s ago"),
        ({"active": -1}, "its origin was never heard from"),
        (
            {"active": -1, "error": ErrorBody(code=404, err_code=10059, description="not found")},
            "not found",
        ),
    ],
)
def test_an_upstream_that_stands_still_is_reported_less_and_less_often(
    fields: dict[str, Any], words: str
) -> None:
    report = BehindReport("S", "O")
    found = looks(report, 6 * 60, SECOND, **fields)
    assert len(found) == 1 + 1 + 5
    assert found[0] == f"stream S: the copy of O has been behind for 1m0s; {words}"
    assert looks(report, 60, 6 * 3600 * SECOND + SECOND, active=SECOND) == [
        "stream S: the copy of O has caught up after 6h0m0s"
    ]


def test_an_upstream_that_keeps_up_with_a_busy_origin_is_not_reported() -> None:
    report = BehindReport("S", "O")
    for look in range(1, 1000):
        info = StreamSourceInfo(name="O", lag=100, active=0)
        assert report.look(look * INTERVAL_NS, info, look * 100) == ""


def test_an_origin_that_is_gone_is_reported_once_a_while(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream("S", sources=[{"name": "O"}])
    for _ in range(12):
        house.pass_time(INTERVAL_NS)
    found = [line for line in house.reports if "behind" in line]
    assert found == ["stream S: the copy of O has been behind for 1m0s; stream not found"]
    house.stream("O", subjects=["o"])
    for _ in range(3):
        house.pass_time(INTERVAL_NS)
    assert house.reports[-1].startswith("stream S: the copy of O has caught up after ")
