"""Every way to read a partition gives the same rows: those that a model of the stream has, whatever
was published, deleted, purged, rolled up or limited before, and while it is read.
"""

import contextlib
import os
import random
import warnings
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pelton.client.sync import connect
from pelton.core.protocol.subjects import matches
from pelton.spark.connection import ReadError, forget_client
from pelton.spark.reading import segments as files
from pelton.spark.reading.offsets import DataLossError, Range
from pelton.spark.reading.plan import COLUMNS, ReadPlan, UnfitError
from pelton.spark.reading.ranges import read_range
from pelton.spark.servers import Servers
from tests.peers import ServerProcess, available_servers, command_of, version_of
from tests.spark.models import ModelStream
from tests.ways import FULL, REASON, length

pytestmark = pytest.mark.peer

EVERYTHING = tuple(COLUMNS)
SAME = ("stream", "seq", "subject", "headers", "data", "born")
KEY = "a key for tests"
OLDER = ["older"] if command_of("older") else []
KINDS = [*available_servers((2, 9)), *OLDER]
VARIANTS = [(kind, "") for kind in KINDS]
VARIANTS += [("pelton", "compressed"), ("pelton", "encrypted")] if "pelton" in KINDS else []


class Place:
    """A running server, and the ways to read its streams."""

    def __init__(self, kind, variant, folder):
        self.kind = kind
        self.number = VARIANTS.index((kind, variant))
        arguments = []
        if variant == "encrypted":
            config = folder / "encrypted.conf"
            config.write_text(f'jetstream {{ key: "{KEY}" }}\n')
            arguments = ["-c", str(config)]
        self.compression = "s2" if variant == "compressed" else "none"
        self.process = ServerProcess(kind, arguments=arguments)
        self.process.start()
        self.transports = ["auto", "consumer", "get"]
        if version_of(kind) >= (2, 11):
            self.transports.append("direct")
        if kind == "pelton":
            self.transports.append("segments")
        self.client = connect(self.process.url)
        self.servers = Servers(urls=(self.process.url,), request_timeout_seconds=5.0)

    def stream(self, **given):
        js = self.client.jetstream()
        # nats-server 2.9 applies a limit per subject where there was none with the next message.
        heeds = version_of(self.kind) >= (2, 10)
        return ModelStream(js, compression=self.compression, heeds_first_limit=heeds, **given)

    def plan(self, model, first, last, transport="auto", **given):
        segments = self.process.store if transport == "segments" else None
        return ReadPlan(
            servers=self.servers,
            stream=model.name,
            born=model.born,
            range=Range(first, last),
            transport=transport,
            segments=segments,
            columns=given.pop("columns", SAME),
            **given,
        )

    def end(self):
        self.client.close()
        forget_client(self.servers)
        self.process.remove()


@pytest.fixture(scope="module", params=VARIANTS, ids=lambda v: "-".join(filter(None, v)))
def place(request, tmp_path_factory):
    """Each kind of server in turn."""
    os.environ["PELTON_STORE_KEY"] = KEY
    made = Place(*request.param, tmp_path_factory.mktemp("place"))
    yield made
    made.end()
    del os.environ["PELTON_STORE_KEY"]


def rows(plan):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return [row for batch in read_range(plan) for row in batch.to_pylist()]


TOKENS = st.integers(0, 4)
HEADERS = st.one_of(
    st.none(),
    st.dictionaries(
        st.sampled_from(["A", "Nats-Stream", "Nats-Sequence", "Nats-Msg-Size", "\u00e9"]),
        st.lists(st.sampled_from(["", "1", "v w", "\u00fc"]), min_size=1, max_size=3),
        min_size=1,
        max_size=3,
    ),
)
STEPS = st.one_of(
    st.tuples(st.just("publish"), TOKENS, st.binary(max_size=5), HEADERS),
    st.tuples(st.just("publish"), TOKENS, st.binary(max_size=5), HEADERS),
    st.tuples(st.just("fill"), st.integers(1, 30)),
    st.tuples(st.just("rollup"), TOKENS, st.sampled_from(["sub", "all"])),
    st.tuples(st.just("delete"), st.integers(1, 60)),
    st.tuples(st.just("delete"), st.integers(1, 60)),
    st.tuples(st.just("purge_below"), st.integers(2, 60)),  # below 1, nats-server 2.9 purges all
    st.tuples(st.just("purge_subject"), TOKENS),
    st.tuples(st.just("limit"), st.sampled_from([-1, 7]), st.sampled_from([-1, 2])),
)


def apply(model, step):
    what, *given = step
    if what == "publish":
        model.publish(*given)
    elif what == "fill":
        model.fill(*given)
    elif what == "rollup":
        model.publish(given[0], b"r", {"Nats-Rollup": [given[1]]})
    elif what == "delete":
        model.delete(*given)
    elif what == "purge_below":
        model.purge(seq=min(given[0], model.last + 1))
    elif what == "purge_subject":
        model.purge(token=given[0])
    else:
        model.limit(*given)


FILTERS = st.sampled_from([(), ("{}.1.x",), ("{}.*",), ("{}.0", "{}.1.>"), ("{}.>", "{}.2")])


@settings(
    max_examples=length(10, 25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data(), steps=st.lists(STEPS, min_size=3, max_size=14))
def test_rows_are_those_of_the_model(place, data, steps):
    model = place.stream()
    for step in steps:
        apply(model, step)
    first = data.draw(st.integers(1, max(1, model.last)))
    last = data.draw(st.integers(first, max(first, model.last)))
    if last > model.last:
        return
    subjects = tuple(each.format(model.prefix) for each in data.draw(FILTERS))
    batch_rows = data.draw(st.sampled_from([1, 3, 8192]))
    expected = list(
        model.rows(
            first, last, lambda subject: not subjects or any(matches(subject, p) for p in subjects)
        )
    )
    for transport in place.transports:
        plan = place.plan(model, first, last, transport, subjects=subjects, fail_on_data_loss=False)
        assert rows(replace(plan, batch_rows=batch_rows)) == expected, transport
        strict = replace(plan, fail_on_data_loss=True)
        # What lies before the stream's begin was there once.
        if model.first > first:
            with pytest.raises(DataLossError, match=f"from {first} to "):
                rows(strict)
        else:
            assert rows(strict) == expected, transport
    assert model.js.consumers(model.name) == []
    model.js.delete_stream(model.name)


def test_all_columns_and_projections_are_the_same(place):
    model = place.stream()
    model.fill(300)
    model.publish(1, b"", {"Nats-Msg-Size": ["9"], "Nats-Last-Sequence": ["1"]})
    model.publish(2, b"x" * 300_000)
    reference = None
    for transport in place.transports:
        whole = rows(place.plan(model, 1, model.last, transport, columns=EVERYTHING))
        for row in whole:
            assert (row.pop("reply") is not None) == (transport in ("auto", "consumer"))
            assert row["ts_ns"] // 1000 == row["ts"].timestamp() * 10**6 // 1
            block = 0
            if row["headers"]:
                lines = [f"{k}: {v}\r\n" for k, values in row["headers"] for v in values]
                block = len("".join(["NATS/1.0\r\n", *lines, "\r\n"]).encode())
            assert row["size"] == len(row["data"]) + block, (transport, row["seq"])
        reference = reference or whole
        assert whole == reference, transport
        for columns in (("seq",), ("size", "seq"), ("headers", "size"), ("data",)):
            plan = place.plan(model, 1, model.last, transport, columns=columns)
            found = [row for batch in read_range(plan) for row in batch.to_pylist()]
            assert found == [{name: row[name] for name in columns} for row in whole], transport


def test_times_limit_the_rows(place):
    model = place.stream()
    model.fill(50)
    times = [row["ts_ns"] for row in rows(place.plan(model, 1, 50, columns=("ts_ns",)))]
    low, high = times[10], times[40]
    wanted = [seq for seq, ns in enumerate(times, 1) if low <= ns < high]
    for transport in place.transports:
        plan = place.plan(
            model, 1, 50, transport, columns=("seq",), not_before_ns=low, not_after_ns=high
        )
        assert [row["seq"] for row in rows(plan)] == wanted, transport
        several = replace(plan, subjects=(f"{model.prefix}.0", f"{model.prefix}.>"))
        assert [row["seq"] for row in rows(several)] == wanted, transport


CHANGES = ["delete", "purge_below", "purge_subject", "publish", "rollup", "restart", "remake"]


@pytest.mark.parametrize("change", CHANGES)
def test_changes_while_it_is_read(place, change):
    """In `make test` each change on the first kind of server, and on one of the others in turn."""
    turn = 1 + CHANGES.index(change) % max(1, len(VARIANTS) - 1)
    if not FULL and place.number not in (0, turn):
        pytest.skip(REASON)
    for transport in place.transports:
        model = place.stream()
        model.fill(4000, size=500)
        before = {row["seq"]: row for row in model.rows(1, 4000)}
        reading = read_range(place.plan(model, 1, 4000, transport, batch_rows=50))
        got = next(reading).to_pylist()
        if change == "delete":
            for seq in random.Random(1).sample(range(60, 4000), 40):
                model.delete(seq)
        elif change == "purge_below":
            model.purge(seq=3900)
        elif change == "purge_subject":
            model.purge(token=1)
        elif change == "publish":
            model.fill(200)
        elif change == "rollup":
            model.publish(2, b"", {"Nats-Rollup": ["all"]})
        elif change == "restart":
            place.process.stop(kill=True)
            place.process.start()
        else:
            model.js.delete_stream(model.name)
            ModelStream(model.js, compression=place.compression, name=model.name).fill(4000)
        lost = False
        try:
            for batch in reading:
                got += batch.to_pylist()
        except DataLossError:
            lost = True
        seqs = [row["seq"] for row in got]
        assert seqs == sorted(set(seqs)), transport
        assert got == [before[seq] for seq in seqs], transport
        if change in ("delete", "purge_subject", "publish", "restart"):
            assert not lost, transport
            kept = {seq for seq in model.held if seq <= 4000}
            assert kept <= set(seqs), transport
        elif change == "remake":
            assert lost, transport
        else:
            # All was read before it was dropped, or the loss was told.
            assert lost or len(got) == 4000, transport
        with contextlib.suppress(Exception):
            model.js.delete_stream(model.name)


def test_a_partition_beyond_the_end_and_an_empty_one(place):
    model = place.stream()
    model.fill(20)
    for transport in place.transports:
        assert rows(place.plan(model, 9, 8, transport)) == []
        plan = place.plan(model, 10, 40, transport)
        with pytest.raises(DataLossError, match="ends at sequence 20"):
            rows(plan)
        lenient = rows(replace(plan, fail_on_data_loss=False))
        assert lenient == list(model.rows(10, 20)), transport


def test_a_stream_that_is_not_there(place):
    model = place.stream()
    model.fill(5)
    model.js.delete_stream(model.name)
    for transport in place.transports:
        with pytest.raises(ReadError, match=f"there is no stream {model.name}"):
            rows(place.plan(model, 1, 5, transport))


def test_another_life_of_the_stream_is_not_read(place):
    model = place.stream()
    model.fill(5)
    model.js.delete_stream(model.name)
    place.stream(name=model.name).fill(9)
    for transport in place.transports:
        with pytest.raises(DataLossError, match="deleted and created again"):
            rows(place.plan(model, 1, 5, transport))
        assert rows(place.plan(model, 1, 5, transport, fail_on_data_loss=False)) == []


def test_bytes_that_are_not_utf8_are_replaced(place):
    model = place.stream()
    block = b"NATS/1.0\r\nBad: \xff\xfe\r\nBad: ok\r\n\r\n"
    with place.client._guard:
        place.client._request(f"{model.prefix}.a", b"\xff", 5.0, block)
    for transport in place.transports:
        [row] = rows(place.plan(model, 1, 1, transport))
        assert row["headers"] == [("Bad", ["\ufffd\ufffd", "ok"])], transport
        assert row["data"] == b"\xff"


def test_streams_without_direct_gets_are_read_otherwise(place):
    js = place.client.jetstream()
    model = place.stream()
    model.config.allow_direct = False
    js.update_stream(model.config)
    model.fill(10)
    assert rows(place.plan(model, 1, 10)) == list(model.rows(1, 10))
    with pytest.warns(UserWarning, match="direct gets"):
        found = [
            row
            for batch in read_range(place.plan(model, 1, 10, "direct"))
            for row in batch.to_pylist()
        ]
    assert found == list(model.rows(1, 10))


def segments_only(place):
    if "segments" not in place.transports:
        pytest.skip("this server has no Pelton store")


def from_files(plan, monkeypatch):
    """The rows, and how many of them came from files."""
    counted = []
    read = files.read

    def counting(reading):
        for columns in read(reading):
            counted.append(columns.count)
            yield columns

    monkeypatch.setattr(files, "read", counting)
    return rows(plan), sum(counted)


def test_files_are_what_is_read(place, monkeypatch):
    segments_only(place)
    model = place.stream()
    model.fill(200, size=200_000)  # several segments
    for seq in (1, 2, 50, 120, 199):
        model.delete(seq)
    model.purge(token=3)
    for first, last in ((4, 200), (100, 101), (90, 160)):
        plan = place.plan(model, first, last, "segments")
        expected = list(model.rows(first, last))
        found, came = from_files(plan, monkeypatch)
        assert found == expected
        assert came == len(expected)
    folder = f"{place.process.store}/jetstream/$G/streams/{model.name}"
    found, came = from_files(replace(plan, segments=folder), monkeypatch)
    assert (found, came) == (expected, len(expected))
    handles = len(os.listdir("/proc/self/fd"))
    rows(plan)
    assert len(os.listdir("/proc/self/fd")) <= handles


def test_what_is_being_written_is_read_from_the_files_or_the_server(place, monkeypatch):
    segments_only(place)
    model = place.stream()
    for _ in range(30):
        model.fill(7)
        model.delete(model.last - 2)
        found = rows(place.plan(model, 1, model.last, "segments"))
        assert found == list(model.rows(1, model.last))


def told(caught):
    """The warnings for the user; what Python says of the rest of the process is not among them."""
    return [str(each.message) for each in caught if each.category is UserWarning]


def test_files_that_cannot_be_read_give_way_with_one_warning(place, tmp_path):
    segments_only(place)
    model, other = place.stream(), place.stream()
    model.fill(10)
    store = place.process.store
    elsewhere = f"{store}/jetstream/$G/streams/{other.name}"
    for folder in (str(tmp_path), f"{tmp_path}/none", elsewhere):
        plan = replace(place.plan(model, 1, 10, "segments"), segments=folder)
        with pytest.warns(UserWarning, match="folder|not in") as caught:
            found = [row for batch in read_range(plan) for row in batch.to_pylist()]
        assert found == list(model.rows(1, 10))
        assert len(told(caught)) == 1


def test_damaged_files_give_way(place):
    segments_only(place)
    model = place.stream()
    model.fill(400, size=100_000)
    [first, *_] = sorted(os.listdir(f"{place.process.store}/jetstream/$G/streams/{model.name}/log"))
    path = f"{place.process.store}/jetstream/$G/streams/{model.name}/log/{first[:20]}.seg"
    with open(path, "r+b") as file:
        file.seek(os.path.getsize(path) // 2)
        was = file.read(16)
        file.seek(-16, os.SEEK_CUR)
        file.write(bytes(byte ^ 0xFF for byte in was))
        file.flush()
        plan = place.plan(model, 1, 400, "segments")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = [
                row
                for batch in read_range(replace(plan, fail_on_data_loss=False))
                for row in batch.to_pylist()
            ]
        with contextlib.suppress(DataLossError):
            assert [row for batch in read_range(plan) for row in batch.to_pylist()] == found
        file.seek(-16, os.SEEK_CUR)
        file.write(was)
    assert "damaged" in told(caught)[0]
    # What the server cannot read either is missing, and nothing else.
    expected = list(model.rows(1, 400))
    missing = [row for row in expected if row not in found]
    assert found == [row for row in expected if row not in missing]
    assert len(missing) <= 1 + 20 * bool(place.compression != "none")


def test_an_encrypted_store_needs_its_key(place, monkeypatch):
    segments_only(place)
    model = place.stream()
    model.fill(10)
    files._folders.clear()
    if not os.path.exists(f"{place.process.store}/jetstream/$G/streams/{model.name}/key.0"):
        pytest.skip("this store is not encrypted")
    for key in ("", "another"):
        monkeypatch.setenv("PELTON_STORE_KEY", key)
        plan = place.plan(model, 1, 10, "segments")
        with pytest.warns(UserWarning, match="PELTON_STORE_KEY"):
            found = [row for batch in read_range(plan) for row in batch.to_pylist()]
        assert found == list(model.rows(1, 10))


def test_plans_that_make_no_sense_are_refused(place):
    model = place.stream()
    for wrong in (
        {"columns": ("nobody",)},
        {"transport": "mail"},
        {"batch_rows": 0},
        {"columns": ()},
    ):
        with pytest.raises(ValueError, match=r"there is no|at least one"):
            replace(place.plan(model, 1, 1), **wrong)
    with pytest.raises(ValueError, match="folder"):
        replace(place.plan(model, 1, 1), transport="segments")
    assert issubclass(UnfitError, Exception)
