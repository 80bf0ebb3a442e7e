"""The streaming reader, called as Spark does, without a JVM."""

import time

import pytest

from pelton.client.base.models import StreamConfig
from pelton.client.sync import connect
from pelton.spark.connection import ReadError, forget_client
from pelton.spark.parsing import OptionError
from pelton.spark.reading import streaming
from pelton.spark.reading.offsets import DataLossError
from pelton.spark.reading.options import parse_options
from pelton.spark.reading.streaming import JetStreamStreamReader
from tests.peers import ServerProcess
from tests.spark.calls import places_of, run_batches, seqs_of
from tests.spark.servers import Stream

pytestmark = pytest.mark.peer


def streamer(beside, /, **given):
    return JetStreamStreamReader(beside.options(streaming=True, **given))


def test_streaming_reads_everything_once_within_the_limits(stream, monkeypatch):
    monkeypatch.setattr(streaming, "_POLL_SECONDS", 0.0)
    stream.fill(23)
    batches = run_batches(streamer(stream, startingOffsets="earliest", maxOffsetsPerTrigger=5))
    assert [len(batch) for batch in batches] == [5, 5, 5, 5, 3]
    assert [seq for batch in batches for seq in batch] == list(range(1, 24))
    assert run_batches(streamer(stream)) == []
    by_bytes = run_batches(streamer(stream, startingOffsets="earliest", maxBytesPerTrigger="1"))
    assert [len(batch) for batch in by_bytes] == [1] * 23


def test_a_subject_filter_makes_no_empty_batches(stream, monkeypatch):
    monkeypatch.setattr(streaming, "_POLL_SECONDS", 0.0)
    stream.fill(9)
    reader = streamer(stream, startingOffsets="earliest", subject=f"{stream.name.lower()}.1")
    assert run_batches(reader) == [[1, 4, 7]]
    begin = {**reader.initialOffset(), "seq": 7}
    stream.fill(0)
    assert reader.latestOffset(begin, reader.getDefaultReadLimit()) == begin


def test_available_now_ends_where_the_stream_ended_at_its_start(stream):
    stream.fill(10)
    reader = streamer(
        stream, startingOffsets="earliest", maxOffsetsPerTrigger=4, minOffsetsPerTrigger=3
    )
    reader.prepareForTriggerAvailableNow()
    stream.fill(10)
    # the last one is below the minimum: elsewhere it would wait a quarter of an hour
    assert run_batches(reader) == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]


def test_small_batches_wait_for_more(stream, monkeypatch):
    monkeypatch.setattr(streaming, "_POLL_SECONDS", 0.0)
    stream.fill(3)
    reader = streamer(stream, startingOffsets="earliest", minOffsetsPerTrigger=5)
    assert run_batches(reader) == []
    stream.fill(2)
    assert run_batches(reader) == [[1, 2, 3, 4, 5]]
    hasty = streamer(
        stream, startingOffsets="earliest", minOffsetsPerTrigger=50, maxTriggerDelay="1ms"
    )
    time.sleep(0.002)  # the delay itself, of the reader's own clock
    assert run_batches(hasty) == [[1, 2, 3, 4, 5]]


def test_an_idle_query_asks_a_few_times_a_second(stream, monkeypatch):
    looks = 0
    reader = streamer(stream)
    look = reader._look

    def counted(known):
        nonlocal looks
        looks += 1
        return look(known)

    offset = reader.initialOffset()
    monkeypatch.setattr(reader, "_look", counted)
    started = time.monotonic()
    assert reader.latestOffset(offset, reader.getDefaultReadLimit()) == offset
    waited = time.monotonic() - started
    assert waited > 0.2
    assert looks <= 8


def test_a_batch_planned_again_is_the_same(stream):
    stream.fill(10)
    reader = streamer(stream, startingOffsets="earliest", maxRecordsPerPartition=3)
    offset = reader.initialOffset()
    end = reader.latestOffset(offset, reader.getDefaultReadLimit())
    stream.fill(10)
    again = streamer(stream, startingOffsets="earliest", maxRecordsPerPartition=3)
    assert again.partitions(offset, end) == reader.partitions(offset, end)
    assert seqs_of(again, again.partitions(offset, end)) == list(range(1, 11))
    assert reader.reportLatestOffset()["seq"] == 20


def test_lost_messages_stop_a_query_or_are_told(stream, monkeypatch):
    monkeypatch.setattr(streaming, "_POLL_SECONDS", 0.0)
    stream.fill(20)
    strict = streamer(stream, startingOffsets="earliest")
    offset = strict.initialOffset()
    stream.js.purge_stream(stream.name, seq=11)
    with pytest.raises(DataLossError, match="begins at sequence 11"):
        strict.latestOffset(offset, strict.getDefaultReadLimit())
    lenient = streamer(stream, startingOffsets="earliest", failOnDataLoss="false")
    with pytest.warns(
        UserWarning, match="begins at sequence 11.*goes on with the messages that are left"
    ):
        end = lenient.latestOffset(offset, lenient.getDefaultReadLimit())
    assert end["from"] == 11
    partitions = lenient.partitions(offset, end)
    assert seqs_of(lenient, partitions) == list(range(11, 21))


def test_a_stream_made_again(stream, monkeypatch):
    monkeypatch.setattr(streaming, "_POLL_SECONDS", 0.0)
    stream.fill(5)
    reader = streamer(stream, startingOffsets="earliest")
    offset = reader.initialOffset()
    end = reader.latestOffset(offset, reader.getDefaultReadLimit())
    stream.js.delete_stream(stream.name)
    stream.js.create_stream(
        StreamConfig(name=stream.name, subjects=[f"{stream.name.lower()}.>"], storage="memory")
    )
    stream.fill(8)
    for call in (
        lambda: reader.latestOffset(end, reader.getDefaultReadLimit()),
        lambda: reader.partitions(offset, end),
    ):
        with pytest.raises(DataLossError, match="created again"):
            call()
    lenient = streamer(stream, startingOffsets="earliest", failOnDataLoss="false")
    with pytest.warns(UserWarning, match="created again.*goes on"):
        assert lenient.partitions(offset, end) == []
    with pytest.warns(UserWarning, match="created again.*goes on"):
        last = lenient.latestOffset(end, lenient.getDefaultReadLimit())
    partitions = lenient.partitions(end, last)
    assert seqs_of(lenient, partitions) == list(range(1, 9))
    assert lenient.latestOffset(last, lenient.getDefaultReadLimit()) == last


def test_several_streams_share_a_batch(stream, family, monkeypatch):
    monkeypatch.setattr(streaming, "_POLL_SECONDS", 0.0)
    other = family("B")
    stream.fill(20)
    other.fill(4)
    reader = streamer(
        stream,
        stream=f"{stream.name},{other.name}",
        startingOffsets="earliest",
        maxOffsetsPerTrigger=6,
    )
    batches = run_batches(reader, places_of)
    a, b = stream.name, other.name
    assert batches[0] == [(a, 1), (a, 2), (a, 3), (b, 1), (b, 2), (b, 3)]
    assert sorted(row for batch in batches for row in batch) == sorted(
        [(a, seq) for seq in range(1, 21)] + [(b, seq) for seq in range(1, 5)]
    )
    assert [len(batch) for batch in batches] == [6, 6, 6, 6]
    report = reader.reportLatestOffset()
    assert {name: offset["seq"] for name, offset in report.items()} == {a: 20, b: 4}


def test_streams_join_and_go(stream, family, monkeypatch):
    monkeypatch.setattr(streaming, "_POLL_SECONDS", 0.0)
    pattern = {"streamPattern": f"{stream.name}.*", "startingOffsets": "latest"}
    stream.fill(3)
    reader = streamer(stream, **pattern)
    limit = reader.getDefaultReadLimit()
    begin = reader.initialOffset()
    assert list(begin) == [stream.name]
    other = family("B")
    assert reader.latestOffset(begin, limit) == begin, "it joins at its first message"
    other.fill(7)
    other.js.purge_stream(other.name, seq=3)
    joined = reader.latestOffset(begin, limit)
    assert joined[other.name]["from"] == 3
    wanted = [(other.name, seq) for seq in range(3, 8)]
    assert places_of(reader, reader.partitions(begin, joined)) == wanted
    assert reader.latestOffset(joined, limit) == joined
    other.js.purge_stream(other.name, seq=5)
    with pytest.raises(DataLossError, match="begins at sequence 5; 3 and later"):
        reader.partitions(begin, joined)
    other.js.delete_stream(other.name)
    with pytest.raises(DataLossError, match=f"{other.name}, read up to 7, is not there any more"):
        reader.latestOffset(joined, limit)
    lenient = streamer(stream, **pattern, failOnDataLoss="false")
    with pytest.warns(UserWarning, match="is not there any more"):
        without = lenient.latestOffset(joined, limit)
    assert list(without) == [stream.name]
    assert lenient.partitions(joined, without) == []
    again = Stream(stream.js.client, stream.url, other.name)
    again.fill(2)
    back = lenient.latestOffset(without, limit)
    assert places_of(lenient, lenient.partitions(without, back)) == [
        (other.name, 1),
        (other.name, 2),
    ]


def test_one_stream_that_goes_and_comes_again(stream, monkeypatch):
    monkeypatch.setattr(streaming, "_POLL_SECONDS", 0.0)
    stream.fill(3)
    reader = streamer(stream, startingOffsets="earliest", failOnDataLoss="false")
    limit = reader.getDefaultReadLimit()
    begin = reader.latestOffset(reader.initialOffset(), limit)
    stream.js.delete_stream(stream.name)
    with pytest.warns(UserWarning, match="is not there any more"):
        without = reader.latestOffset(begin, limit)
    assert without == {}
    assert reader.partitions(begin, without) == []
    assert reader.latestOffset(without, limit) == without
    Stream(stream.js.client, stream.url, stream.name).fill(2)
    back = reader.latestOffset(without, limit)
    assert (back["stream"], back["seq"], back["from"]) == (stream.name, 2, 1)
    assert seqs_of(reader, reader.partitions(without, back)) == [1, 2]


def test_a_pattern_that_matches_nothing_yet(stream, family, monkeypatch):
    monkeypatch.setattr(streaming, "_POLL_SECONDS", 0.0)
    reader = streamer(stream, streamPattern=f"{stream.name}_B.*")
    begin = reader.initialOffset()
    assert begin == {}
    assert reader.latestOffset(begin, reader.getDefaultReadLimit()) == {}
    other = family("B")
    other.fill(2)
    end = reader.latestOffset(begin, reader.getDefaultReadLimit())
    assert seqs_of(reader, reader.partitions(begin, end)) == [1, 2]


def test_checkpoints_of_other_selections(stream, family, monkeypatch):
    monkeypatch.setattr(streaming, "_POLL_SECONDS", 0.0)
    stream.fill(5)
    other = family("B")
    other.fill(2)
    one = streamer(stream, startingOffsets=4)
    begin = one.initialOffset()
    assert begin == {"stream": stream.name, "seq": 3, "born": begin["born"]}
    both = streamer(stream, stream=f"{stream.name},{other.name}")
    limit = both.getDefaultReadLimit()
    end = both.latestOffset(begin, limit)
    assert places_of(both, both.partitions(begin, end)) == [
        *[(stream.name, 4), (stream.name, 5)],
        *[(other.name, 1), (other.name, 2)],
    ]
    with pytest.raises(DataLossError, match="or not asked for"):
        one.latestOffset(end, limit)
    elsewhere = streamer(stream, stream=other.name)
    with pytest.raises(ValueError, match=f"is of {stream.name}, not of stream {other.name}"):
        elsewhere.latestOffset(begin, limit)
    with pytest.raises(ValueError, match="not an offset of the jetstream source"):
        one.latestOffset({"partition-0": 5}, limit)


def test_a_batch_that_an_earlier_version_planned(stream):
    """Its end does not say where it begins when the stream was made again."""
    stream.fill(5)
    reader = streamer(stream, startingOffsets="earliest", failOnDataLoss="false")
    begin = {**reader.initialOffset(), "seq": 9, "born": "2020-01-01T00:00:00Z"}
    end = {**reader.initialOffset(), "seq": 4}
    assert seqs_of(reader, reader.partitions(begin, end)) == [1, 2, 3, 4]


def test_missing_streams_fail_at_once(stream):
    reader = streamer(stream, stream="NOBODY")
    with pytest.raises(ReadError, match="there is no stream NOBODY"):
        reader.initialOffset()


def test_nothing_is_skipped_while_a_batch_waits_for_more(stream, monkeypatch):
    monkeypatch.setattr(streaming, "_POLL_SECONDS", 0.0)
    stream.fill(20)
    reader = streamer(
        stream, startingOffsets="earliest", minOffsetsPerTrigger=5, failOnDataLoss="false"
    )
    limit = reader.getDefaultReadLimit()
    offset = reader.latestOffset(reader.initialOffset(), limit)
    assert offset["seq"] == 20
    again = Stream(stream.js.client, stream.url, stream.name)
    again.fill(3)
    with pytest.warns(UserWarning, match="created again"):
        moved = reader.latestOffset(offset, limit)
    assert (moved["seq"], moved["from"]) == (0, 1)
    assert reader.partitions(offset, moved) == []
    assert reader.latestOffset(moved, limit) == moved
    again.fill(2)
    end = reader.latestOffset(moved, limit)
    assert seqs_of(reader, reader.partitions(moved, end)) == [1, 2, 3, 4, 5]


def test_an_ending_is_for_runs_that_end(stream, monkeypatch):
    monkeypatch.setattr(streaming, "_POLL_SECONDS", 0.0)
    stream.fill(10)
    endless = streamer(stream, startingOffsets="earliest", endingOffsets=5)
    with pytest.raises(OptionError, match="this query has no end"):
        endless.latestOffset(endless.initialOffset(), endless.getDefaultReadLimit())
    ending = streamer(stream, startingOffsets="earliest", endingOffsets=5)
    ending.prepareForTriggerAvailableNow()
    assert run_batches(ending) == [[1, 2, 3, 4, 5]]


def test_streams_that_come_during_a_run_that_ends_are_for_the_next_one(stream, family, monkeypatch):
    monkeypatch.setattr(streaming, "_POLL_SECONDS", 0.0)
    stream.fill(2)
    reader = streamer(stream, streamPattern=f"{stream.name}.*", startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    begin = reader.initialOffset()
    family("B").fill(2)
    end = reader.latestOffset(begin, reader.getDefaultReadLimit())
    assert list(end) == [stream.name]
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end


def test_what_was_seen_to_hold_nothing_may_go(stream, monkeypatch):
    """With a filter the offset stays behind; messages dropped there are no loss."""
    monkeypatch.setattr(streaming, "_POLL_SECONDS", 0.0)
    stream.fill(9)
    head = stream.name.lower()
    reader = streamer(stream, startingOffsets="earliest", subject=f"{head}.rare,{head}.seldom")
    limit = reader.getDefaultReadLimit()
    begin = reader.initialOffset()
    assert reader.latestOffset(begin, limit) == begin
    stream.js.purge_stream(stream.name, seq=8)
    assert reader.latestOffset(begin, limit) == begin
    stream.js.publish(f"{head}.rare", b"x")
    end = reader.latestOffset(begin, limit)
    assert (end["seq"], end["from"]) == (10, 8)
    assert seqs_of(reader, reader.partitions(begin, end)) == [10]
    unseen = streamer(stream, startingOffsets="earliest", subject=f"{head}.rare")
    with pytest.raises(DataLossError, match="begins at sequence 8; 1 and later"):
        unseen.latestOffset(begin, limit)


def test_an_offset_is_moved_over_what_holds_nothing(stream, monkeypatch):
    monkeypatch.setattr(streaming, "_POLL_SECONDS", 0.0)
    stream.fill(9)
    reader = streamer(stream, startingOffsets="earliest", subject=f"{stream.name.lower()}.rare")
    limit = reader.getDefaultReadLimit()
    begin = reader.initialOffset()
    assert reader.latestOffset(begin, limit) == begin
    monkeypatch.setattr(streaming, "_MOVE_ON_SECONDS", 0.0)
    moved = reader.latestOffset(begin, limit)
    assert (moved["seq"], moved["from"]) == (9, 10)
    assert reader.partitions(begin, moved) == []
    assert reader.latestOffset(moved, limit) == moved


def test_partitions_by_bytes_follow_from_the_offsets(stream, monkeypatch):
    monkeypatch.setattr(streaming, "_POLL_SECONDS", 0.0)
    stream.fill(20, size=1000)
    given = {"startingOffsets": "earliest", "maxBytesPerPartition": "5k"}
    reader = streamer(stream, **given)
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, reader.getDefaultReadLimit())
    parts = reader.partitions(begin, end)
    assert 4 <= len(parts) <= 7
    stream.fill(200)  # small ones, which change the mean
    assert streamer(stream, **given).partitions(begin, end) == parts
    assert seqs_of(reader, parts) == list(range(1, 21))


def test_a_server_that_is_restarted_while_a_query_runs(server):
    own = ServerProcess(server.kind)
    own.start()
    try:
        with connect(own.url) as client:
            stream = Stream(client, own.url, "R", storage="file")
            stream.fill(10)
        reader = JetStreamStreamReader(
            stream.options(streaming=True, startingOffsets="earliest", requestTimeout="2s")
        )
        limit = reader.getDefaultReadLimit()
        begin = reader.initialOffset()
        own.stop(kill=True)
        own.start()
        end = reader.latestOffset(begin, limit)
        assert end["seq"] == 10
        own.stop(kill=True)
        own.start()
        parts = reader.partitions(begin, end)
        own.stop(kill=True)
        own.start()
        assert seqs_of(reader, parts) == list(range(1, 11))
        own.stop(kill=True)
        hasty = JetStreamStreamReader(
            stream.options(streaming=True, retryTimeout="300ms", requestTimeout="1s")
        )
        with pytest.raises(ReadError, match="cannot connect"):
            hasty.initialOffset()
        forget_client(stream.options().servers)
    finally:
        own.remove()


def test_wrong_credentials_fail_at_once(server):
    own = ServerProcess(server.kind, arguments=["--user", "anna", "--pass", "right"])
    own.start()
    try:
        for given in ({}, {"user": "anna", "password": "wr0ng"}):
            options = parse_options(
                {"servers": own.url, "stream": "S", "retryTimeout": "1h", **given}, streaming=True
            )
            with pytest.raises(ReadError, match=r"cannot connect.*uthorization") as caught:
                JetStreamStreamReader(options).initialOffset()
            assert "wr0ng" not in str(caught.value)
        right = parse_options(
            {"servers": own.url, "stream": "S", "user": "anna", "password": "right"},
            streaming=True,
        )
        with pytest.raises(ReadError, match="there is no stream S"):
            JetStreamStreamReader(right).initialOffset()
        forget_client(right.servers)
    finally:
        own.remove()


def test_what_a_user_may_not_ask_is_an_error_in_time(server):
    own = ServerProcess(server.kind)
    own.arguments = ["-c", own.store + "/narrow.conf"]
    with open(own.store + "/narrow.conf", "w") as config:
        config.write(
            "authorization { users [ { user: anna, password: pw, permissions: {"
            ' publish: ["$JS.API.STREAM.INFO.OPEN"], subscribe: ["_INBOX.>"] } } ] }\n'
        )
    own.start()
    try:
        for given, text in (
            ({"stream": "OPEN"}, "there is no stream OPEN"),
            ({"stream": "CLOSED"}, r"stream CLOSED: .*ermissions.*STREAM\.INFO\.CLOSED"),
            ({"streamPattern": ".*"}, r"list of streams: .*ermissions.*STREAM\.LIST"),
        ):
            login = {"user": "anna", "password": "pw", "requestTimeout": "1s"}
            options = parse_options({"servers": own.url, **login, **given}, streaming=True)
            with pytest.raises(ReadError, match=text) as caught:
                JetStreamStreamReader(options).initialOffset()
            assert "\n" not in str(caught.value)
            forget_client(options.servers)
    finally:
        own.remove()


def test_many_streams_with_a_little_each(stream, family, monkeypatch):
    monkeypatch.setattr(streaming, "_POLL_SECONDS", 0.0)
    for number in range(20):
        family(f"{number:02}").fill(3)
    reader = streamer(stream, streamPattern=f"{stream.name}_.*", startingOffsets="earliest")
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, reader.getDefaultReadLimit())
    parts = reader.partitions(begin, end)
    assert len(parts) <= 20
    assert len(places_of(reader, parts)) == 60
    assert len(set(places_of(reader, parts))) == 60
