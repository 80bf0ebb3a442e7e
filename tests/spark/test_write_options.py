"""Options of the sinks: every row reads what it promises, and the reference tells all of them."""

import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.spark.buckets import kv_sink, object_sink
from pelton.spark.parsing import OptionError
from pelton.spark.writing.options import ROWS, parse_write_options, subject_pattern

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "spark-sink.md"
GOOD = {
    "stream": "ORDERS",
    "servers": "nats://a:1",
    "user": "anna",
    "password": "secret",
    "subject": "orders.{country}.x-{id}",
    "exactlyOnce": "BATCH",
    "writeId": "job-7",
    "writeEpoch": "41",
    "progressBucket": "progress",
    "progressSubject": "orders.progress",
    "atomicRows": "500",
    "onRowError": "side",
    "errorPath": "/somewhere",
    "errorSubject": "orders.refused",
    "maxInFlight": "100",
    "maxInFlightBytes": "4m",
}


def test_all_together():
    options = parse_write_options({name.upper(): text for name, text in GOOD.items()})
    assert options.exactly_once == "batch"
    assert options.subject is not None
    assert options.subject.columns == ("country", "id")
    assert options.subject.wildcards == "orders.*.*"
    assert str(options.subject) == GOOD["subject"]
    assert options.window_bytes == 4 * 2**20
    assert pickle.loads(pickle.dumps(options)) == options
    assert "secret" not in repr(options)


def test_what_spark_adds_is_passed_over():
    given = {"checkpointLocation": "/c", "queryName": "q", "subject": "a"}
    assert parse_write_options(given).exactly_once == "ids"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("subject", "a.>"),
        ("subject", "a.*.b"),
        ("subject", "a..b"),
        ("subject", "a.{}"),
        ("subject", "a.{b"),
        ("subject", ""),
        ("exactlyOnce", "twice"),
        ("writeId", "a.b"),
        ("writeEpoch", "-1"),
        ("progressBucket", "a b"),
        ("progressSubject", "a.>"),
        ("atomicRows", "1"),
        ("onRowError", "skip"),
        ("errorSubject", "*"),
        ("maxInFlight", "0"),
        ("maxInFlight", "9999999"),
        ("maxInFlightBytes", "much"),
    ],
)
def test_bad_values_name_the_option_and_what_is_right(name, text):
    with pytest.raises(OptionError, match=rf"option {name} is .*, but must be .+"):
        parse_write_options({name: text})


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"onRowError": "side"}, "say where"),
        ({"errorPath": "/x"}, "for onRowError=side"),
        ({"progressSubject": "x"}, "for exactlyOnce=batch"),
        ({"writeId": "x", "exactlyOnce": "none"}, "for exactlyOnce=ids or batch"),
        ({"writeEpoch": "7"}, "that writeId names"),
        ({"subjet": "x"}, "no option 'subjet'"),
    ],
)
def test_options_that_do_not_go_together(options, word):
    with pytest.raises(OptionError, match=word):
        parse_write_options(options)


@given(st.text(max_size=30))
def test_a_pattern_is_what_it_was_written_as_or_an_error(text):
    try:
        made = subject_pattern(text)
    except OptionError:
        return
    assert str(made) == text
    assert not {"*", ">"} & set("".join(made.parts[::2]).split("."))


@pytest.mark.parametrize(
    ("title", "rows"),
    [
        ("## Options of `jetstream`", ROWS),
        ("## Options of `jetstream_kv`", kv_sink.WRITE_ROWS),
        ("## Options of `jetstream_object`", object_sink.WRITE_ROWS),
    ],
)
def test_the_reference_names_every_option(title, rows):
    page = PAGE.read_text()
    table = page.partition(title)[2].partition("\n## ")[0]
    connection = page.partition("## Connection")[2].partition("\n## ")[0]
    documented = set()
    for text in (table, connection):
        for cell in re.findall(r"^\| (`[^|]*`) \|", text, re.MULTILINE):
            documented |= {name.strip(" `") for name in cell.split(",")}
    assert documented == {row.name for row in rows}
