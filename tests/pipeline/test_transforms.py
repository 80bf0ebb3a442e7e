"""Lines of every known shape, and of none, through the transforms in one Spark job."""

from datetime import UTC, datetime

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pelton.pipeline.logs.transforms import lines as lines_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

MESSAGES = StructType(
    [
        StructField("seq", LongType()),
        StructField("subject", StringType()),
        StructField("ts", TimestampType()),
        StructField("headers", MapType(StringType(), ArrayType(StringType()))),
        StructField("data", BinaryType()),
    ]
)
STORED = datetime(2026, 11, 20, 18, 0, 30, tzinfo=UTC)


def at(*parts):
    return datetime(*parts, tzinfo=UTC)


LINE_ITSELF = object()  # stands for a message that is the whole line
# line, (time, level, program, pid, message)
KNOWN = [
    (
        "Sep 22 04:45:01 box sshd[77]: Accepted key",
        (at(2026, 9, 22, 4, 45, 1), "info", "sshd", 77, "Accepted key"),
    ),
    (
        "Dec  2 04:45:01 box kernel: [1.5] usb: failed to start",
        (at(2025, 12, 2, 4, 45, 1), "error", "kernel", None, "[1.5] usb: failed to start"),
    ),
    (
        "<34>Oct 11 22:14:15 box su: 'su root' failed",
        (at(2026, 10, 11, 22, 14, 15), "critical", "su", None, "'su root' failed"),
    ),
    (
        "<191>Oct 11 22:14:15 box su: error, they say",
        (at(2026, 10, 11, 22, 14, 15), "debug", "su", None, "error, they say"),
    ),
    ("Feb 29 12:00:00 box cron[5]: leap", (None, "info", "cron", 5, "leap")),
    (
        "2026-10-16 23:04:01 status installed libgpg-error0:amd64 1.46-1",
        (
            at(2026, 10, 16, 23, 4, 1),
            "info",
            "dpkg",
            None,
            "status installed libgpg-error0:amd64 1.46-1",
        ),
    ),
    (
        "2026-10-16 23:04:01 startup archives unpack",
        (at(2026, 10, 16, 23, 4, 1), "info", "dpkg", None, "startup archives unpack"),
    ),
    (
        "update-alternatives 2026-09-22 04:45:01: run with --install /usr/bin/awk",
        (
            at(2026, 9, 22, 4, 45, 1),
            "info",
            "update-alternatives",
            None,
            "run with --install /usr/bin/awk",
        ),
    ),
    (
        "Start-Date: 2025-06-24  12:34:56",
        (at(2025, 6, 24, 12, 34, 56), "info", "apt", None, LINE_ITSELF),
    ),
    (
        "Log started: 2025-05-20  01:00:00",
        (at(2025, 5, 20, 1, 0, 0), "info", "apt", None, LINE_ITSELF),
    ),
    ("Install: libgpg-error0:amd64 (1.46-1)", (None, "info", "apt", None, LINE_ITSELF)),
    (
        "Error: Sub-process /usr/bin/dpkg returned an error code (1)",
        (None, "error", "apt", None, LINE_ITSELF),
    ),
    (
        "2026-10-16T23:04:01.123456+02:00 box systemd[1]: Started it.",
        (at(2026, 10, 16, 21, 4, 1, 123456), "info", "systemd", 1, "Started it."),
    ),
    (
        "2026-10-16T23:04:01Z box app: WARNING: low disk",
        (at(2026, 10, 16, 23, 4, 1), "warning", "app", None, "WARNING: low disk"),
    ),
    (
        "2026-10-16 23:04:01,5 CRITICAL all is lost",
        (at(2026, 10, 16, 23, 4, 1, 500000), "critical", None, None, "CRITICAL all is lost"),
    ),
    (
        "2026-10-16 23:04:01.123 UTC [77] LOG:  database system is ready",
        (
            at(2026, 10, 16, 23, 4, 1, 123000),
            "info",
            None,
            None,
            "[77] LOG:  database system is ready",
        ),
    ),
    (
        "[2026-10-16 23:04:01 +0130] error in debug mode",
        (at(2026, 10, 16, 21, 34, 1), "error", None, None, "error in debug mode"),
    ),
    ("2026-10-16 23:04:01", (at(2026, 10, 16, 23, 4, 1), "info", None, None, "")),
    ("2026-99-99 23:04:01 no such day", (None, "info", None, None, "no such day")),
    ("Traceback (most recent call last):", (None, "error", None, None, None)),
    ("error-free terrors", (None, "info", None, None, None)),
    ("", (None, "info", None, None, None)),
    ("   ", (None, "info", None, None, None)),
    ("(Reading database ... 5%", (None, "info", None, None, None)),
]


def header(**values):
    return {name.replace("_", "-"): [value] for name, value in values.items()}


HEADERS = header(
    Log_Host="box", Log_File="/var/log/x.log", Log_Identity="1-2-3-a-0", Log_Offset="7"
)


def through(spark, lines, headers=HEADERS, zone="UTC"):
    rows = [
        (seq + 1, "logs.box.x", STORED, headers, bytearray(line)) for seq, line in enumerate(lines)
    ]
    messages = spark.createDataFrame(rows, MESSAGES)
    return lines_of(messages, zone)


def test_every_shape(spark):
    rows = through(spark, [line.encode() for line, _ in KNOWN]).orderBy("seq").collect()
    for row, (line, wanted) in zip(rows, KNOWN, strict=True):
        time = row.time.replace(tzinfo=UTC) if row.time else None
        wanted = tuple(line if value is LINE_ITSELF else value for value in wanted)
        assert (time, row.level, row.program, row.pid, row.message) == wanted, line
        assert row.raw == line
        assert row.raw_bytes is None
        assert (row.host, row.file, row.identity, row.offset) == (
            "box",
            "/var/log/x.log",
            "1-2-3-a-0",
            7,
        )


def test_times_without_a_zone_are_local_ones(spark):
    lines = [b"2026-07-01 12:00:00 x", b"Jul 1 12:00:00 box a: b", b"2026-07-01T12:00:00Z box a: b"]
    rows = through(spark, lines, zone="Europe/Berlin").orderBy("seq").collect()
    assert [row.time.hour for row in rows] == [10, 10, 12]


def test_bytes_that_are_no_text_are_kept(spark):
    rows = through(spark, [b"caf\xe9 \x00\xff", b"\xff\xfe"]).orderBy("seq").collect()
    assert [bytes(row.raw_bytes) for row in rows] == [b"caf\xe9 \x00\xff", b"\xff\xfe"]
    assert rows[0].raw == "caf\ufffd \x00\ufffd"
    assert rows[0].level == "info"


@pytest.mark.parametrize("headers", [None, {}, header(Log_Offset="not a number"), {"Log-Host": []}])
def test_messages_that_no_shipper_made_are_rows_too(spark, headers):
    [row] = through(spark, [b"Sep 22 04:45:01 box a: b"], headers).collect()
    assert (row.host, row.file, row.offset) == (None, None, None)
    assert row.program == "a"
