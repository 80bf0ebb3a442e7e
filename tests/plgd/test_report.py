"""The report: its figures beside plain Python over the same rows, its page in a browser, its command."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.cli.__main__ import main
from pelton.plgd.fleet import Faults, FleetConfig
from pelton.plgd.report import (
    QUERIES,
    Scope,
    Tables,
    TablesError,
    measure,
    open_tables,
    render,
)
from pelton.plgd.report.charts import charts
from pelton.plgd.report.page import shown_ms, shown_seconds, shown_time
from pelton.plgd.report.sources import DAY_US, FEW_EVENTS, STEPS_MAX, step_of
from pelton.plgd.tables.schemas import TABLES
from tests.browser import needs_browser, open_page
from tests.plgd.made_tables import EPOCH, OWNERS, START, Rows, arrow, drawn, write
from tests.plgd.tables_help import Memory, messages_of
from tests.ways import length

if TYPE_CHECKING:
    from pathlib import Path

HOUR_US = 3_600_000_000
START_US = int(START.timestamp()) * 1_000_000


def us(moment: Any) -> int:
    """µs since 1970, exactly."""
    return (moment - START) // timedelta(microseconds=1) + START_US


def within(rows: list[dict[str, Any]], column: str, since: int, until: int) -> list[dict[str, Any]]:
    return [row for row in rows if since <= us(row[column]) < until]


def online_at(rows: Rows, moment: int) -> int:
    """How many sessions hold at the end of a step."""
    return sum(
        us(row["connected_at"]) < moment
        and (row["ended_at"] is None or us(row["ended_at"]) >= moment)
        for row in rows["sessions"]
    )


spans = st.tuples(st.integers(0, 5 * HOUR_US), st.integers(1, 6 * HOUR_US))


@settings(max_examples=length(8, 12), deadline=None)
@given(seed=st.integers(0, 2**32), span=st.none() | spans)
def test_figures_are_those_of_plain_python(seed: int, span: tuple[int, int] | None) -> None:
    rows = drawn(seed, devices=12)
    bounds = (None, None) if span is None else (START_US + span[0], START_US + sum(span))
    with Tables(arrow(rows)) as tables:
        figures = measure(tables, *bounds)
    since, until = figures.since_us, figures.until_us
    events = within(rows["events"], "time", since, until)
    if span is None:
        assert len(events) == len(rows["events"])
    answers = figures.rows
    assert figures.summary["events"] == len(events)
    assert figures.summary["devices"] == len({row["device_id"] for row in events})
    types = Counter(row["event_type"] for row in events)
    assert {row["event_type"]: row["events"] for row in answers["event_types"]} == types
    steps = Counter(
        (since + (us(row["time"]) - since) // figures.step_us * figures.step_us, row["kind"])
        for row in events
    )
    series = {(row["start_us"], row["kind"]): row["events"] for row in answers["events_over_time"]}
    assert series == steps

    for row in answers["online_over_time"]:
        end = min(row["start_us"] + figures.step_us, until)
        assert row["online"] == online_at(rows, end), row
    came = within(rows["sessions"], "connected_at", since, until)
    assert figures.total("online_over_time", "came") == len(came)
    ended = [row for row in rows["sessions"] if row["ended_at"] is not None]
    assert figures.total("online_over_time", "went") == len(within(ended, "ended_at", since, until))

    commands = within(rows["commands"], "issued_at", since, until)
    outcomes = Counter((row["kind"], row["outcome"]) for row in commands)
    assert {
        (row["kind"], row["outcome"]): row["commands"] for row in answers["command_outcomes"]
    } == (outcomes)
    times = [row["latency_ms"] for row in commands if row["latency_ms"] is not None]
    if times:
        assert figures.summary["command_p50_ms"] == pytest.approx(statistics.median(times))
    gaps = [
        row
        for row in rows["version_gaps"]
        if since <= (row.get("before_ns") or row["after_ns"]) // 1000 < until
    ]
    assert figures.summary["gaps"] == len(gaps)
    assert figures.summary["gaps_open"] == sum(row["closed_by"] is None for row in gaps)
    assert figures.summary["versions_missing"] == sum(row["missing"] for row in gaps)
    letters = rows["dead_letters"]
    if span is not None:
        letters = within(letters, "received", since, until)
    assert figures.summary["dead_letters"] == len(letters)


FAR = {"before": datetime(1970, 1, 1, tzinfo=UTC), "after": datetime(2199, 5, 1, tzinfo=UTC)}


def with_far_times(rows: Rows) -> Rows:
    """The rows, and an event at each time that is far off."""
    events = [rows["events"][0] | {"time": time} for time in FAR.values()]
    return rows | {"events": [*rows["events"], *events]}


def test_a_time_that_is_far_off_does_not_stretch_the_axis() -> None:
    rows = drawn(13)
    with Tables(arrow(rows)) as tables, Tables(arrow(with_far_times(rows))) as far:
        whole, found = measure(tables), measure(far)
        assert vars(found) | {"outside": whole.outside} == vars(whole)
        assert vars(found.outside) == {
            "before": 1,
            "after": 1,
            "first_us": us(FAR["before"]),
            "last_us": us(FAR["after"]),
        }
        page = render(found)
        assert "1 event before it (from 1970-01-01 00:00:00)" in page
        assert "1 event after it (up to 2199-05-01 00:00:00)" in page
        assert "event before it" not in render(whole)
        hour = measure(far, last_us=HOUR_US)
        assert (hour.until_us, hour.until_us - hour.since_us) == (whole.until_us, HOUR_US)
        assert (hour.outside.before, hour.outside.after) == (0, 1)
        asked = measure(far, us(FAR["before"]), us(FAR["after"]) + 1)
        assert asked.summary["events"] == len(rows["events"]) + 2
        assert (asked.outside.before, asked.outside.after) == (0, 0)


@settings(max_examples=length(12, 60), deadline=None)
@given(st.lists(st.integers(0, 2**52) | st.integers(START_US, START_US + HOUR_US), max_size=60))
def test_few_events_are_outside_and_far_from_all_others(times: list[int]) -> None:
    moments = [{"time": EPOCH + timedelta(microseconds=each)} for each in times]
    with Tables({"events": pa.Table.from_pylist(moments, schema=TABLES["events"].schema)}) as made:
        span = made.span()
    inside = sorted(each for each in times if span.since_us <= each < span.until_us)
    outside = span.outside
    assert len(inside) + outside.before + outside.after == len(times)
    few = 1 if len(times) >= FEW_EVENTS else 0
    assert max(outside.before, outside.after) <= few
    if outside.after:
        assert max(times) - inside[-few - 1] > DAY_US
    if outside.before:
        assert inside[few] - min(times) > DAY_US


@given(st.integers(1, 2**53))
def test_a_span_has_no_more_steps_than_a_picture_shows(span: int) -> None:
    assert span <= step_of(span) * STEPS_MAX
    smaller = [step for step in (1_000_000, 60_000_000, HOUR_US) if step < step_of(span)]
    assert all(span > step * STEPS_MAX for step in smaller)


def test_only_an_owner_or_a_device() -> None:
    rows = drawn(7)
    for scope, column, value in (
        (Scope(owner_id=OWNERS[0]), "owner_id", OWNERS[0]),
        (
            Scope(device_id=rows["events"][0]["device_id"]),
            "device_id",
            rows["events"][0]["device_id"],
        ),
    ):
        with Tables(arrow(rows), scope) as tables:
            figures = measure(tables)
        assert figures.summary["events"] == sum(row[column] == value for row in rows["events"])
        assert figures.summary["commands"] == sum(row[column] == value for row in rows["commands"])
    with Tables(arrow(rows), Scope(owner_id=OWNERS[1])) as tables:
        letters = tables.rows("dead_letters")
    mine = [row for row in rows["dead_letters"] if OWNERS[1] in row["subject"]]
    assert sum(row["messages"] for row in letters) == len(mine)
    with pytest.raises(ValueError, match="is no id"):
        Scope(owner_id="' OR true --")


def test_every_query_names_the_tables_that_it_reads() -> None:
    with Tables({}) as tables:
        for name, query in QUERIES.items():
            tables.rows(name)
            for table in TABLES.keys() - set(query.tables):
                assert f"FROM {table} " not in query.sql.replace("\n", " "), name
            assert all(f"FROM {table}" in query.sql for table in query.tables), name


def test_a_question_in_a_notebook() -> None:
    rows = drawn(5)
    with Tables(arrow(rows)) as tables:
        frame = tables.ask("events_over_time").df()
        assert frame["events"].sum() == len(rows["events"])
        assert frame["start_us"].nunique() <= STEPS_MAX
        hourly = tables.rows("events_over_time", since=START_US, step=HOUR_US)
        assert {row["start_us"] % HOUR_US for row in hourly} == {0}
        assert tables.connection.sql("SELECT count(*) FROM commands").fetchall() == [
            (len(rows["commands"]),)
        ]
        with pytest.raises(KeyError):
            tables.ask("nothing")


def test_tables_that_nothing_came_into() -> None:
    with Tables({}) as tables:
        figures = measure(tables)
        assert figures.is_empty
        assert figures.missing == sorted(TABLES)
        page = render(figures)
        assert "No event of a device fell into this time" in page
        with pytest.raises(ValueError, match="ends before"):
            measure(tables, 5, 5)


def test_durations_and_times_are_readable() -> None:
    assert [shown_seconds(each) for each in (0, 0.085, 12.5, 90, 7200, 172800, None)] == [
        *("0 ms", "85 ms", "12.5 s", "1.5 min", "2 h", "2 d", "–"),
    ]
    assert shown_ms(0.25) == "0.25 ms"
    assert shown_time(START_US) == "2026-11-20 06:00:00"


def test_a_fleet_is_told_as_it_was() -> None:
    faults = Faults(drop=0.002, duplicate=0.01, corrupt=0.005, wrong_envelope=0.005)
    config = FleetConfig(
        devices=12, duration_s=1800, seed=4, command_interval_s=120, session_s=900, faults=faults
    )
    run, messages = messages_of(config)
    memory = Memory()
    memory.run(messages)
    with Tables({name: memory.table(name) for name in TABLES}) as tables:
        figures = measure(tables)
    truth, summary = run.truth.summary(), figures.summary
    assert truth["lost"].keys() >= {"drop", "corrupt", "wrong_envelope"}
    assert summary["devices"] == 12
    letters_again = summary["dead_letters"] - truth["dead_letters"]  # a damaged message came twice
    assert summary["duplicates"] + letters_again == truth["duplicates"]
    assert summary["duplicates"] > 50
    assert summary["dead_letters"] >= truth["dead_letters"] > 50
    assert letters_again <= 2
    assert summary["events"] == truth["stored"] - sum(truth["lost"].values())
    assert 0 < summary["versions_missing"] <= sum(truth["lost"].values())
    assert 80 < summary["commands_succeeded_percent"] <= 100
    assert summary["online"] <= summary["online_most"] <= 12
    assert render(figures).count("<figure") == len(charts(figures)) >= 8


def test_control_characters_of_devices_are_escaped() -> None:
    rows = drawn(3)
    odd = "\x00\x1b[31m\x9b\ufffe\u202e<b>&\r\n\ud7ff"
    texts = 0
    for row in (row for table in rows.values() for row in table):
        for name in row.keys() & {"href", "device_id", "status"}:
            if isinstance(row[name], str):
                row[name] += odd
                texts += 1
    assert texts > 20
    with Tables(arrow(rows)) as tables:
        figures = measure(tables)
        page = render(figures)
        drawings = charts(figures)
    for chart in drawings.values():
        for svg in (chart.svg, chart.narrow):
            ElementTree.fromstring(svg)
            assert not set(svg) & set("\x00\x1b\x9b\u202e")
    assert "\x00" not in page


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables")
    write(drawn(3), path)
    return path


def test_tables_on_the_disk_say_the_same(folder: Path) -> None:
    with Tables(arrow(drawn(3))) as made, open_tables(folder) as read:
        assert measure(read).as_json() == measure(made).as_json()


def test_the_folder_of_a_pipeline(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tables").symlink_to(folder)
    with open_tables(tmp_path) as read:
        assert read.missing == []


def test_folders_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TablesError, match="no folder"):
        open_tables(tmp_path / "nothing")
    with pytest.raises(TablesError, match="no table of plgd events"):
        open_tables(tmp_path)
    log = tmp_path / "events" / "_delta_log"
    log.mkdir(parents=True)
    with pytest.raises(TablesError, match="events cannot be read"):
        open_tables(tmp_path)


def test_the_command(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "fleet.html"
    assert main(["plgd", "report", str(folder), "-o", str(page), "--title", "Fleet <1>"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{page}: ")
    assert "<h1>Fleet &lt;1&gt;</h1>" in page.read_text()
    assert [each.name for each in tmp_path.iterdir()] == ["fleet.html"]

    assert main(["plgd", "report", str(folder), "--json", "--since", "1h"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["until_us"] - found["since_us"] == HOUR_US
    assert found["summary"]["events"] > 0
    times = ["--since", "2026-11-20T07:00:00Z", "--until", "2026-11-20T08:00:00Z"]
    assert main(["plgd", "report", str(folder), "--json", *times]) == 0
    assert json.loads(capsys.readouterr().out)["since_us"] == START_US + HOUR_US
    assert main(["plgd", "report", str(folder), "-o", "-"]) == 0
    assert capsys.readouterr().out.startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["nothing"], 1, "is no folder"),
        (["--since", "2026-11-24T25:00:00Z"], 2, "is not a time"),
        (["--since", "soon"], 2, "is not a duration"),
        (["--until", "5m"], 2, "a time such as"),
        (["--owner", "a b"], 2, "is no id"),
        (["--since", "2026-11-20T08:00:00Z", "--until", "2026-11-20T07:00:00Z"], 2, "ends before"),
    ],
)
def test_what_the_command_refuses(
    folder: Path, arguments: list[str], status: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = [] if arguments[0] == "nothing" else [str(folder)]
    assert main(["plgd", "report", *place, *arguments]) == status
    assert text in capsys.readouterr().err


@needs_browser
@pytest.mark.slow
def test_the_page_in_a_browser(tmp_path: Path) -> None:
    rows = drawn(11)
    path = tmp_path / "report.html"
    with Tables(arrow(rows)) as tables:
        figures = measure(tables)
    path.write_text(render(figures, title="Fleet", source="./tables"), encoding="utf-8")
    with open_page() as page:
        page.go(path.as_uri())
        assert page.problems == []  # nothing was loaded, and no script of a device ran
        tiles = page.run("[...document.querySelectorAll('.tile')].map(t => t.innerText).join('|')")
        assert f"{figures.summary['events']:,}" in tiles
        sizes = page.run(
            "Object.fromEntries([...document.querySelectorAll('figure')].map(f =>"
            " [f.id, [f.querySelector('svg').getBoundingClientRect().width,"
            " f.querySelectorAll('[aria-label]').length]]))"
        )
        assert sizes.keys() == {
            *("online", "comings", "events", "types", "latency", "outcomes"),
            *("sync", "gaps", "gaps_over_time"),
        }
        assert all(width > 900 and marks > 0 for width, marks in sizes.values())
        # no label stands outside of its picture
        labels = (
            "[...document.querySelectorAll('figure')].flatMap(f => { const box = f.getBoundingClientRect();"
            " return [...f.querySelectorAll('text')].filter(t => { const b = t.getBoundingClientRect();"
            " return b.width && (b.left < box.left || b.right > box.right + 1); }).map(t => t.textContent) })"
        )
        assert page.run(labels) == []
        assert page.run("document.querySelectorAll('td b, td i, td script').length") == 0
        users = page.run("document.querySelector('#table-busiest_users td').innerText")
        assert users == "<i>mallory</i>"
        tip = page.run(
            "(() => { const mark = document.querySelector('#types [role=graphics-symbol][aria-label]"
            ":not([aria-roledescription=axis])');"
            " mark.dispatchEvent(new MouseEvent('mousemove', {bubbles: true, clientX: 5, clientY: 5}));"
            " return [getComputedStyle(document.getElementById('tip')).display,"
            " document.getElementById('tip').textContent]; })()"
        )
        assert tip[0] == "block"
        assert "event" in tip[1]
        counts = page.run(
            "[...document.querySelectorAll('#types .wide .mark-text.role-mark text')]"
            ".map(t => [t.getBoundingClientRect().top,"
            " Number(t.textContent.replaceAll(',', ''))]).sort((a, b) => a[0] - b[0]).map(each => each[1])"
        )
        assert len(counts) > 2
        assert counts == sorted(counts, reverse=True)  # the longest bar above
        light = page.run("getComputedStyle(document.body).backgroundColor")
        page.resize(390, 800, dark=True)
        assert page.run("document.documentElement.scrollWidth") <= 390
        assert page.run(labels) == []
        smallest = page.run(
            "Math.min(...[...document.querySelectorAll('.narrow svg')].map(s =>"
            " 13 * s.getBoundingClientRect().width / s.viewBox.baseVal.width))"
        )
        assert smallest > 8.5  # px of the letters
        assert page.run("getComputedStyle(document.body).backgroundColor") != light
        assert page.picture(whole=False).startswith(b"\x89PNG")


def test_the_made_rows_fit_the_tables() -> None:
    for name, table in arrow(drawn(1)).items():
        assert isinstance(table, pa.Table)
        assert table.schema.equals(TABLES[name].schema)
