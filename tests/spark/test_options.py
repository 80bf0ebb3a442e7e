"""Options: every row reads what it promises, and says what is wrong in one line."""

import pickle
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.spark.parsing import OptionError
from pelton.spark.reading import options
from pelton.spark.reading.options import METADATA, ROWS, parse_options
from pelton.spark.reading.plan import COLUMNS, DEFAULT_COLUMNS
from pelton.spark.reading.positions import Position, Positions
from pelton.spark.writing import options as write_options

LATEST = Position(word="latest")
GOOD = {
    "stream": "ORDERS",
    "servers": "nats://a:1, nats://b:2",
    "user": "anna",
    "password": "secret",
    "subject": "orders.*.>",
    "startingOffsets": "earliest",
    "maxOffsetsPerTrigger": "500",
    "minOffsetsPerTrigger": "10",
    "maxTriggerDelay": "15m",
    "maxBytesPerTrigger": "64m",
    "minPartitions": "4",
    "maxRecordsPerPartition": "1000",
    "maxBytesPerPartition": "8m",
    "metadata": "true",
    "transport": "Direct",
    "includeHeaders": "TRUE",
    "failOnDataLoss": "false",
    "batchRows": "4096",
    "consumer": "my-query",
    "requestTimeout": "500ms",
    "retryTimeout": "2m",
}


def test_all_together():
    options = parse_options({name.upper(): text for name, text in GOOD.items()}, streaming=True)
    assert options.servers.urls == ("nats://a:1", "nats://b:2")
    assert options.starting_offsets == Positions(everywhere=Position(word="earliest"))
    assert options.max_trigger_delay_seconds == 900
    assert options.max_bytes_per_trigger == 64 * 2**20
    assert options.include_headers
    assert not options.fail_on_data_loss
    assert options.servers.request_timeout_seconds == 0.5
    assert pickle.loads(pickle.dumps(options)) == options


def test_secrets_are_not_shown():
    options = parse_options(GOOD, streaming=True)
    assert "secret" not in repr(options)
    assert "anna" in repr(options)
    with pytest.raises(OptionError, match=r"\*\*\*") as caught:
        parse_options({"stream": "S", "token": ""}, streaming=True)
    assert "''" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("kafka.bootstrap.servers", "option servers"),
        ("subscribe", "option stream; option subject"),
        ("subscribePattern", "option streamPattern"),
        ("kafka.group.id", "option consumer"),
        ("groupIdPrefix", "option consumer"),
        ("startingTimestamp", "goes into startingOffsets itself"),
    ],
)
def test_an_option_of_kafka_names_ours(name, instead):
    with pytest.raises(OptionError) as refused:
        parse_options({"stream": "S", name: "x"}, streaming=True)
    assert f"has no option {name!r}: " in str(refused.value)
    assert instead in str(refused.value)


def test_what_kafka_options_name_exists():
    ours = {row.name for row in (*options.ROWS, *write_options.ROWS)}
    for name, text in {**options.KAFKA, **write_options.KAFKA}.items():
        assert set(re.findall(r"option (\w+)", text)) <= ours
        assert name == name.lower()
        assert name not in {each.lower() for each in ours}


def test_unknown_option_lists_the_known_ones():
    with pytest.raises(OptionError) as caught:
        parse_options({"stream": "S", "startingOffset": "1"}, streaming=False)
    assert "'startingOffset'" in str(caught.value)
    for row in ROWS:
        assert row.name in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("stream", ""),
        ("stream", "a.b"),
        ("stream", "a b"),
        ("servers", " , "),
        ("subject", "a..b"),
        ("subject", ">.a"),
        ("startingOffsets", "0"),
        ("startingOffsets", "-5"),
        ("startingOffsets", "yesterday"),
        ("startingOffsets", "9" * 30),
        ("maxOffsetsPerTrigger", "0"),
        ("maxOffsetsPerTrigger", "1.5"),
        ("maxOffsetsPerTrigger", "\u0663"),
        ("maxBytesPerTrigger", "12 parsecs"),
        ("maxTriggerDelay", "soon"),
        ("includeHeaders", "yes"),
        ("failOnDataLoss", ""),
        ("consumer", "my query"),
        ("consumer", "a.b"),
        ("consumer", "c" * 201),
        ("minPartitions", "many"),
        ("stream", "A,,B"),
        ("stream", "A,A"),
        ("streamPattern", "A("),
        ("streamPattern", ""),
        ("subject", "a.*,"),
        ("columns", ""),
        ("columns", "seq,seq"),
        ("columns", "seq,payload"),
        ("transport", "pigeon"),
        ("pushdown", "perhaps"),
        ("pushdown", "true"),
        ("startingOffsets", "{"),
        ("startingOffsets", '{"S": 1, "S": 2}'),
        ("startingOffsets", '{"S": true}'),
        ("startingOffsets", '{"S": 0}'),
        ("startingOffsets", '{"S": {"seq": 1}}'),
        ("startingOffsets", '{"a.b": 1}'),
    ],
)
def test_bad_values_name_the_option_and_what_is_right(name, text):
    with pytest.raises(OptionError, match=rf"option {name} is .*, but must be .+"):
        parse_options({"stream": "S", name: text}, streaming=False)


@pytest.mark.parametrize(
    ("given_options", "streaming", "word"),
    [
        ({}, False, "stream is missing"),
        ({"streamPattern": "S", "stream": "S"}, True, "either stream or streamPattern"),
        ({"stream": "S", "startingOffsets": '{"T": 1}'}, True, "for T, but the read is of stream"),
        ({"streamPattern": "S.*", "startingOffsets": '{"T": 1}'}, True, "streams that match"),
        ({"stream": "S", "startingOffsets": '{"S": "latest"}'}, False, "latest"),
        ({"stream": "S", "transport": "segments"}, False, "where they are"),
        ({"stream": "S", "endingOffsets": "earliest"}, False, "earliest"),
        ({"stream": "S", "startingOffsets": "latest"}, False, "latest"),
        ({"stream": "S", "consumer": "c"}, False, "consumer is for streaming"),
        ({"stream": "S", "token": "t", "user": "u"}, False, "either token"),
        ({"stream": "S", "password": "p"}, False, "without user"),
        ({"stream": "S", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, True, "more"),
    ],
)
def test_options_that_do_not_go_together(given_options, streaming, word):
    with pytest.raises(OptionError, match=word):
        parse_options(given_options, streaming=streaming)


@given(st.integers(1, 2**63 - 1))
def test_a_number_is_a_sequence_whatever_date_it_resembles(sequence):
    options = parse_options({"stream": "S", "startingOffsets": str(sequence)}, streaming=False)
    assert options.starting_offsets.of("S", LATEST) == Position(sequence=sequence)


@given(st.datetimes(datetime(1980, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)))
def test_times_in_iso_form(time):
    options = parse_options({"stream": "S", "startingOffsets": time.isoformat()}, streaming=False)
    assert options.starting_offsets.of("S", LATEST) == Position(time=time)
    assert str(options.starting_offsets.of("S", LATEST)) == time.isoformat()


def test_a_time_without_zone_is_utc():
    options = parse_options(
        {"stream": "S", "endingOffsets": "2026-10-16 23:04:01"}, streaming=False
    )
    at = datetime(2026, 10, 16, 23, 4, 1, tzinfo=UTC)
    assert options.ending_offsets == Positions(everywhere=Position(time=at))


def test_positions_by_stream():
    text = '{"ORDERS": 41, "EVENTS": "Earliest", "X": "2026-10-16T00:00:00Z", "Y": "7"}'
    options = parse_options(
        {"stream": "ORDERS,EVENTS,X,Y,Z", "startingOffsets": text}, streaming=True
    )
    given = options.starting_offsets
    assert given.of("ORDERS", LATEST) == Position(sequence=41)
    assert given.of("EVENTS", LATEST) == Position(word="earliest")
    assert given.of("X", LATEST) == Position(time=datetime(2026, 10, 16, tzinfo=UTC))
    assert given.of("Y", LATEST) == Position(sequence=7)
    assert given.of("Z", LATEST) == LATEST
    assert pickle.loads(pickle.dumps(options)) == options


def test_streams_are_named_or_match():
    several = parse_options({"stream": "A, B"}, streaming=True)
    assert several.streams == ("A", "B")
    assert not several.one_stream
    assert several.selects("B")
    assert not several.selects("C")
    pattern = parse_options({"streamPattern": "ORDERS_[A-Z]+"}, streaming=True)
    assert pattern.selects("ORDERS_EU")
    assert not pattern.selects("ORDERS_EU2")
    assert not pattern.selects("OLD_ORDERS_EU")
    assert parse_options({"stream": "A"}, streaming=True).one_stream


def test_columns():
    def names(**given):
        return parse_options({"stream": "S", **given}, streaming=False).column_names()

    assert names() == DEFAULT_COLUMNS
    assert names(includeHeaders="true") == ("stream", "seq", "subject", "ts", "headers", "data")
    assert names(metadata="true") == DEFAULT_COLUMNS + METADATA
    assert names(metadata="true", includeHeaders="true") == tuple(COLUMNS)
    assert names(columns="data, headers,seq") == ("data", "headers", "seq")


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=4))
def test_anything_gives_options_or_an_option_error(given_options):
    try:
        options = parse_options({"stream": "S", **given_options}, streaming=False)
    except OptionError:
        pass  # which is what bad options give
    else:
        assert options.streams or options.stream_pattern


def test_the_reference_names_every_option_and_its_default():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "spark-source.md").read_text()
    table = page.partition("## Options")[2].partition("\n## ")[0]
    for row in ROWS:
        assert f"`{row.name}`" in table, row.name
    documented = set(re.findall(r"^\| (`[^|]*`) \|", table, re.MULTILINE))
    names = {name.strip(" `") for cell in documented for name in cell.split(",")}
    assert names == {row.name for row in ROWS}
