"""What a person sees: plain lines away from a terminal, a verdict at the end."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from pelton.pipeline.display import Rate
from pelton.pipeline.logs.progress import Display, Numbers, Summary


def test_rate_is_over_the_last_seconds():
    rate = Rate()
    assert rate.of(0, 0.0) == 0.0
    assert rate.of(10, 5.0) == 2.0
    assert rate.of(110, 15.0) == pytest.approx(10.0)
    assert rate.of(110, 40.0) == pytest.approx(0.0)


def test_the_rate_of_batches_that_take_longer():
    rate = Rate()
    rate.of(0, 0.0)
    shown = [rate.of(20_000 * (second // 70), float(second)) for second in range(1, 350)]
    assert shown[:69] == [0.0] * 69
    assert shown[69:] == pytest.approx([20_000 / 70] * len(shown[69:]), rel=0.05)


@given(st.integers(1, 200), st.integers(1, 9), st.integers(1, 1000))
def test_the_rate_of_a_steady_query(seconds, looks, rows):
    """Whatever a batch takes and however often it is looked at."""
    rate = Rate()
    for look in range(seconds * looks * 12):
        now = look / looks
        shown = rate.of(int(now // seconds) * rows, now)
    assert shown == pytest.approx(rows / seconds, rel=0.3)


def test_plain_lines_tell_every_number_and_only_changes():
    console = Console(file=io.StringIO(), width=40)
    with Display(console) as display:
        display.tell(Numbers("draining", 3, 1000, 900, 800, 200, 4, "shipping waits: no answer"))
        display.tell(Numbers("draining", 3, 1000, 900, 801, 199, 4, "shipping waits: no answer"))
        display.tell(Numbers("running", 3, 1000, 1000, 1000, 0, 5))
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 2
    for word in (
        "draining",
        "3 files",
        "900 lines",
        "1000 messages",
        "800 rows",
        "lag 200",
        "no answer",
    ):
        assert word in lines[0]


def test_a_terminal_shows_a_table():
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with Display(console) as display:
        display.tell(Numbers("running", 3, 12345, 900, 800, 200, 4))
    assert "12,345" in console.file.getvalue()


def summary(**changes):
    values = {"messages": 10, "rows": 10, "distinct_lines": 9, "foreign_rows": 1, "counted": 10}
    return Summary(**{**values, "drained": True, **changes})


def test_all_four_numbers_must_agree():
    assert summary().agrees
    for name in ("messages", "rows", "distinct_lines", "foreign_rows", "counted"):
        assert not summary(**{name: 8}).agrees


@pytest.mark.parametrize(
    ("changes", "word"),
    [({}, "PASS"), ({"rows": 9}, "FAIL"), ({"rows": 9, "drained": False}, "continues from here")],
)
def test_the_verdict(changes, word):
    console = Console(file=io.StringIO(), width=80)
    made = summary(programs=[("sshd", 7), ("", 3)], levels=[("info", 10)], **changes)
    made.print(console, "/somewhere/tables")
    text = console.file.getvalue()
    for wanted in (word, "sshd", "(none)", "level info", "/somewhere/tables"):
        assert wanted in text


def test_files_that_were_not_read_are_counted_and_named():
    console = Console(file=io.StringIO(), width=80)
    unread = {f"/logs/{number}.log": "too long" for number in range(25)}
    made = summary(unread={**unread, "/a\n\x1b[2J\udce9[red].log": "its name has a line end"})
    made.print(console, "/somewhere/tables")
    text = console.file.getvalue()
    assert "files not read, or in part" in text
    assert "26" in text
    assert "not read: /a\\n\\x1b[2J\\udce9[red].log: its name has a line end\n" in text
    assert "not read: 6 more" in text
    assert "PASS" in text
