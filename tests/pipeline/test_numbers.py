"""Numbers of queries: what Spark's events add up to, and how they are shown. No JVM."""

import io
from types import SimpleNamespace

from rich.console import Console

from pelton.pipeline.display import Screen
from pelton.pipeline.running.counting import Counted
from pelton.pipeline.running.engine import consumer_name
from pelton.pipeline.running.numbers import Board, QueriesView, as_data, summary_table
from pelton.pipeline.running.queries import Query
from pelton.pipeline.running.supervising import NO_REASON, brief
from pelton.pipeline.running.writing import writer_name

QUERY = Query("raw", "raw", ("raw",), ("table", "bad"), True)


def progress(batch, rows, end, latest, name="shop-raw", late=()):
    source = SimpleNamespace(
        endOffset=f'{{"stream": "S", "seq": {end}, "born": "b"}}',
        latestOffset=f'{{"stream": "S", "seq": {latest}, "born": "b"}}',
    )
    return SimpleNamespace(
        progress=SimpleNamespace(
            name=name,
            id="1",
            runId="2",
            timestamp="now",
            batchId=batch,
            numInputRows=rows,
            inputRowsPerSecond=1.0,
            processedRowsPerSecond=2.0,
            batchDuration=100,
            durationMs={"addBatch": 50},
            sources=[source],
            stateOperators=[SimpleNamespace(numRowsDroppedByWatermark=each) for each in late],
            sink=SimpleNamespace(description="x"),
        )
    )


def board(told=None):
    made = Board(None if told is None else told.append)
    made.begin(QUERY, "shop-raw")
    made.started(QUERY)
    return made


def take(board, event, observed=None):
    board.take(lambda reports: reports.progress(event), observed or {})


def test_batches_add_up():
    told = []
    found = board(told)
    take(found, progress(0, 10, 10, 30))
    take(found, progress(1, 20, 30, 31), {"bad": Counted(2, {"has_id": 2})})
    take(found, progress(7, 99, 1, 1, name="somebody-else"))
    found.wrote("raw", "table", Counted(28))
    found.wrote("raw", "bad", Counted(0, {"has_id": 1, "small": 0}))
    [numbers] = found.numbers()
    assert (numbers.state, numbers.batch, numbers.batches, numbers.rows) == ("running", 1, 2, 30)
    assert numbers.lag == 1
    assert numbers.late_rows == 0
    assert numbers.streams == {"S": 30}
    assert numbers.sinks == {"table": 28, "bad": 2}
    assert numbers.rejected == {"bad": {"has_id": 3, "small": 0}}
    assert [message["query"] for message in told] == ["raw", "raw"]
    assert as_data(numbers)["sinks"] == {"table": 28, "bad": 2}


def test_rows_that_a_watermark_dropped_are_counted_and_shown():
    found = board()
    take(found, progress(0, 10, 10, 10, late=(3,)))
    take(found, progress(1, 10, 20, 20, late=(1, 2)))
    [numbers] = found.numbers()
    assert numbers.late_rows == 6
    assert as_data(numbers)["late_rows"] == 6
    assert "late 6" in shown([([numbers], "running")])
    console = Console(file=io.StringIO(), width=120)
    console.print(summary_table([numbers]))
    assert "late rows" in console.file.getvalue()


def shown(view_of, terminal=False):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=120)
    with Screen(console) as screen:
        for numbers, stage in view_of:
            screen.show(QueriesView("shop", stage, numbers))
    return console.file.getvalue()


def test_lines_come_when_something_changes():
    found = board()
    before = found.numbers()
    take(found, progress(1, 20, 30, 31))
    after = found.numbers()
    found.ended("raw", "sink bad: it is full")
    text = shown(
        [([], "starting Spark"), (before, "running"), (before, "running"), (found.numbers(), "")]
    )
    lines = text.splitlines()
    assert lines[0] == "shop: starting Spark"
    assert lines[1] == "raw: running"
    assert lines[2].startswith("raw: failed, batch 1, rows 20")
    assert lines[2].endswith("S 30; sink bad: it is full")
    assert len(lines) == 3
    assert shown([(before, ""), (after, ""), (after, "")]).count("\n") == 1


def test_a_terminal_shows_a_table_and_the_summary():
    found = board()
    take(found, progress(1, 12345, 30, 31))
    assert "12,345" in shown([(found.numbers(), "running")], terminal=True)
    console = Console(file=io.StringIO(), width=120)
    console.print(summary_table(found.numbers()))
    for word in ("12,345", "table", "bad"):
        assert word in console.file.getvalue()


def test_names_of_consumers_and_writers():
    both = Query("both", "both", ("raw", "more"), ("x",), True)
    assert consumer_name("shop", "raw", QUERY, None, alone=False) == "shop-raw"
    assert consumer_name("shop", "raw", both, None, alone=True) == "shop-both-raw"
    assert consumer_name("shop", "raw", QUERY, "mine", alone=True) == "mine"
    assert consumer_name("shop", "raw", QUERY, "mine", alone=False) == "mine-raw"
    names = {writer_name("q" * 36, "s" * length) for length in range(1, 65)}
    assert len(names) == 64
    assert max(map(len, names)) <= 64


def test_what_spark_says_of_a_query_that_failed():
    head = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception:"
    assert brief(RuntimeError(f"{head} it is full SQLSTATE: XXKST\n=== Query")) == "it is full"
    assert brief(RuntimeError(f"{head}  SQLSTATE: XXKST (no cause message)\n=== Q")) == NO_REASON


def test_the_line_of_an_error_in_python():
    trace = "Traceback (most recent call last):\n  File x, line 1\n"
    text = f"[FOREACH] died\n{trace}ValueError: first\n\nDuring it\n\n{trace}ValueError: bad luck\n\n\tat java"
    assert brief(RuntimeError(text)) == "ValueError: bad luck"


def test_the_line_of_an_error_in_java():
    text = (
        "An error occurred while calling None.org.apache.spark.sql.classic.SparkSession.\n"
        ": java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\n"
        "This stopped SparkContext was created at:\n\n\tat java"
    )
    assert brief(RuntimeError(text)) == "Cannot call methods on a stopped SparkContext."
