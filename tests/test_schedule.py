"""The order in which processes that share the tests get files."""

import pytest

from tests.schedule import ROOT, SHORT_S, durations, longest, table, uses_spark

LONG, SHORT = "tests/client/test_consuming_recovery.py", "tests/test_nuid.py"
LONG_WITH_SPARK, SHORT_WITH_SPARK = "tests/spark/test_holding.py", "tests/spark/test_delta.py"


def test_the_table_names_files_that_are_there() -> None:
    assert durations()
    assert [name for name in durations() if not (ROOT / name).is_file()] == []


def test_files_that_take_the_session_are_known_by_their_fixtures() -> None:
    assert [name for name in (LONG, SHORT) if uses_spark(name)] == []
    assert uses_spark(LONG_WITH_SPARK)
    assert uses_spark(SHORT_WITH_SPARK)


def test_the_longest_comes_first_and_spark_goes_where_a_jvm_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = {LONG: 100, LONG_WITH_SPARK: 90, SHORT_WITH_SPARK: 20}
    monkeypatch.setattr("tests.schedule.durations", lambda: seconds)
    waiting = [SHORT, SHORT_WITH_SPARK, LONG_WITH_SPARK, LONG]
    with_jvm: list[str] = []
    without: list[str] = []
    for order, has_jvm in ((with_jvm, True), (without, False)):
        left = list(waiting)
        while left:
            order.append(longest(left, has_jvm=has_jvm))
            left.remove(order[-1])
    assert with_jvm == [LONG, LONG_WITH_SPARK, SHORT_WITH_SPARK, SHORT]
    assert without == [LONG, SHORT, LONG_WITH_SPARK, SHORT_WITH_SPARK]


def test_a_run_leaves_the_table_of_what_it_measured() -> None:
    made = table({SHORT: 1234.4, LONG: SHORT_S - 1, "tests/test_quick.py": 0.3})
    lines = [line.split() for line in made.splitlines()]
    assert lines[0] == ["1234", SHORT]
    names = [name for _, name in lines]
    assert sorted(names) == sorted({*durations(), SHORT} - {LONG})
    assert [int(each) for each, _ in lines] == sorted(
        (int(each) for each, _ in lines), reverse=True
    )
