"""Lines of any bytes through the transforms and into the tables: each line is exactly one row."""

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pelton.pipeline.logs.transforms import lines
from pelton.spark.tables import append
from tests.pipeline.test_transforms import HEADERS, MESSAGES, STORED
from tests.ways import length

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

# Each was a line that ended a run, or is close to one.
FIXED = [
    b"2026-10-16 23:04:02 -9999 is the missing value",
    b"2026-10-16 23:04:02 -1801 x",
    b"2026-10-16 23:04:02 +18:01 x",
    b"2026-10-16T23:04:02-99:99 host app[1]: x",
    b"[2026-10-16 23:04:02 +99:00] x",
    b"0000-01-01 00:00:00 x",
    b"0001-01-01 00:00:00 +1800 x",
    b"9999-12-31 23:59:59 -1800 x",
    b"9999-12-31 23:59:59.999999999 x",
    b"Feb 29 12:00:00 box cron[5]: leap",
    b"Xyz 99 99:99:99 box cron[99999999999]: x",
    b"<999>Feb 30 24:00:60 box cron[5]: x",
    b"Sep 22 04:45:01 box a: carriage\rreturn\r",
    "2026-10-16 23:04:02 next\u0085line\u2028separator\u2029".encode(),
    b"\r",
    b"\x00" * 5000,
    b"x" * 600_000,
    b"Sep 22 04:45:01 box " + b"a" * 600_000,
    b"2026-10-16 23:04:02" + b" " * 100_000 + b"\xff" * 100_000,
    b"error " * 100_000,
    b"\xed\xa0\x80\xf4\x90\x80\x80\xc0\x80",
]

_digits = st.integers(0, 99).map(lambda number: f"{number:02}")
_year = st.sampled_from(["0000", "0001", "1582", "1900", "2024", "2026", "9999"])
_day = st.builds("{}-{}-{}".format, _year, _digits, _digits)
_clock = st.builds("{}:{}:{}".format, _digits, _digits, _digits)
_fraction = st.sampled_from(["", ".5", ",123456", ".999999999", ".9999999999"])
_zone = st.one_of(
    st.sampled_from(["", "Z", "UTC", " GMT", " UTCx", "-00:00", "+14:00", "-18:00", "+1801"]),
    st.builds(
        "{}{}{}{}".format,
        st.sampled_from(["+", "-", " +", " -"]),
        _digits,
        st.sampled_from(["", ":"]),
        _digits,
    ),
)
_stamp = st.builds(
    "{}{}{}{}{}".format, _day, st.sampled_from(["T", " ", "  "]), _clock, _fraction, _zone
)
_month = st.sampled_from(["Jan", "Feb", "Dec", "Abc"])
_syslog = st.builds("{} {:>2} {}".format, _month, st.integers(0, 99), _clock)
_priority = st.one_of(st.just(""), st.integers(0, 999).map("<{}>".format))
_program = st.sampled_from(
    ["", " box a: ", " box a[77]: ", " box a[9999999999]:", " status ", "] "]
)
_shaped = st.builds(
    "{}{}{}".format,
    _priority,
    st.one_of(
        _stamp,
        _syslog,
        _stamp.map("[{}".format),
        _stamp.map("Start-Date: {}".format),
        _stamp.map("update-alternatives {}:".format),
    ),
    _program,
)
_piece = st.one_of(
    st.binary(max_size=12),
    st.sampled_from(
        [
            b"\r",
            b"\x00",
            b"\xc2\x85",
            b"\xe2\x80\xa8",
            b"error",
            b" ",
            b"\xff",
            b"\xed\xa0\x80",
            b"\xf0\x9f\x98\x80",
        ]
    ),
    st.text(max_size=8).map(lambda text: text.encode("utf-8", "surrogatepass")),
)
_rest = st.lists(_piece, max_size=4).map(b"".join)
_lines = st.one_of(
    st.builds(lambda head, rest: head.encode() + rest, _shaped, _rest),
    st.builds(
        lambda head, rest, cut: (head.encode() + rest)[cut:], _shaped, _rest, st.integers(0, 20)
    ),
    _rest,
).map(lambda line: line.replace(b"\n", b""))


class Landing:
    """The table of lines in a folder."""

    def __init__(self, folder):
        self.path = folder / "lines"
        self.last_seq = 0


def land(spark, landing, texts, zone):
    first = landing.last_seq + 1
    rows = [
        (first + at, "logs.box.x", STORED, HEADERS, bytearray(line))
        for at, line in enumerate(texts)
    ]
    messages = spark.createDataFrame(rows, MESSAGES)
    append(lines(messages, zone), first, landing.path, query_id="query")
    landing.last_seq += len(texts)
    return first


def stored(landing, first):
    table = DeltaTable(landing.path).to_pyarrow_dataset().to_table(filter=pc.field("seq") >= first)
    table.validate(full=True)
    return sorted(table.to_pylist(), key=lambda row: row["seq"])


def check(rows, texts, first):
    assert [row["seq"] for row in rows] == list(range(first, first + len(texts)))
    for row, line in zip(rows, texts, strict=True):
        whole = row["raw_bytes"] if row["raw_bytes"] is not None else row["raw"].encode()
        assert whole == line
        assert row["time"] is None or 1 <= row["time"].year <= 9999
        assert row["level"] is not None


@pytest.fixture(scope="module")
def landing(tmp_path_factory):
    return Landing(tmp_path_factory.mktemp("tables"))


@pytest.mark.parametrize("zone", ["UTC", "America/St_Johns"])
def test_lines_that_ended_a_run(spark, landing, zone):
    first = land(spark, landing, FIXED, zone)
    rows = stored(landing, first)
    check(rows, FIXED, first)
    assert rows[0]["message"] == "-9999 is the missing value"
    assert rows[0]["time"] is not None


@settings(max_examples=length(4, 40), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    texts=st.lists(_lines, min_size=200, max_size=200),
    zone=st.sampled_from(["UTC", "Europe/Berlin"]),
)
def test_each_line_is_one_row(spark, landing, texts, zone):
    first = land(spark, landing, texts, zone)
    check(stored(landing, first), texts, first)
