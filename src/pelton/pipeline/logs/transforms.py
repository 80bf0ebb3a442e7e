"""From messages to lines: functions from a DataFrame to a DataFrame, for ``.transform``.

``shipped`` splits the columns of ``format("jetstream")``, ``parsed`` parses the text of each line;
``lines`` does both, as a step of a pipeline. All use Spark's own expressions: no Python runs per row.

The shape of a line decides how it is parsed. The first shape that fits applies:

=============  ====================================================================================
syslog         ``<34>Sep 22 04:45:01 host sshd[77]: text``; no year: the most recent possible one
dpkg           ``2026-10-16 23:04:01 status installed x``
alternatives   ``update-alternatives 2026-09-22 04:45:01: run with ...``
apt            ``Start-Date: 2026-10-16  23:04:01`` and the ``Name: ...`` lines of apt's history
iso_program    ``2026-10-16T23:04:01.123456+02:00 host sshd[77]: text``
iso            ``2026-10-16 23:04:01,123 text``, also with a zone, also in brackets
=============  ====================================================================================

A line of unknown shape keeps its text in ``raw`` and has nulls for time, program and message. No
line disappears: whatever its bytes are, it is one row; bytes that are not UTF-8 are also kept in
``raw_bytes``.

Knows the headers in :mod:`pelton.pipeline.logs.names`, and nothing else about tables or shipping.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  the name the field knows it by

from pelton.pipeline.logs import names

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame

LEVELS = ("critical", "error", "warning", "notice", "info", "debug")

# The text of a line may hold any character but a newline, so "." means all of them.
_ANY = "(?s)"
_PROGRAM = r"([A-Za-z0-9_.@/()+-]+?)(?:\[([0-9]+)\])?: ?(.*)$"
_STAMP = r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]+([0-9]{2}:[0-9]{2}:[0-9]{2})"
# Offsets that exist; in "23:04:02 -9999 is missing" and "23:04:02 -12345" the number is text.
_OFFSET = "[+-](?:(?:0[0-9]|1[0-7]):?[0-5][0-9]|18:?00)"
_FRACTION_AND_ZONE = rf"(?:[.,]([0-9]{{1,9}}))?(?: ?(Z|UTC|GMT|{_OFFSET})(?![A-Za-z0-9]))?"

SYSLOG = _ANY + r"^(?:<([0-9]{1,3})>)?([A-Z][a-z]{2}) +([0-9]{1,2}) ([0-9:]{8}) [^ ]+ " + _PROGRAM
DPKG = (
    rf"{_ANY}^{_STAMP} ((?:startup|status|install|upgrade|configure|trigproc|triggered|remove|purge"
    r"|conffile|disappear) .*)$"
)
ALTERNATIVES = rf"{_ANY}^(update-alternatives) {_STAMP}: (.*)$"
APT = (
    r"^(?:(?:Start-Date|End-Date|Log started|Log ended): *" + _STAMP + r" *$"
    r"|(?:Commandline|Requested-By|Install|Reinstall|Upgrade|Downgrade|Remove|Purge|Error): )"
)
ISO_PROGRAM = rf"{_ANY}^(?:<([0-9]{{1,3}})>)?{_STAMP}{_FRACTION_AND_ZONE} [^ :\[\]]+ {_PROGRAM}"
ISO = rf"{_ANY}^\[?{_STAMP}{_FRACTION_AND_ZONE}\]?[: ]*(.*)$"

# The fields of each shape, in groups of its pattern. So the pattern is matched once for all fields. The
# message is the last field, because it may hold the separator.
_FIELDS = ("priority", "day", "clock", "fraction", "zone", "program", "pid", "message")
_SEPARATOR = "\x01"
_SHAPES = {
    "syslog": (SYSLOG, ("$1", "$2 $3", "$4", "", "", "$5", "$6", "$7")),
    "dpkg": (DPKG, ("", "$1", "$2", "", "", "dpkg", "", "$3")),
    "alternatives": (ALTERNATIVES, ("", "$2", "$3", "", "", "$1", "", "$4")),
    "apt": (APT, ("", "$1", "$2", "", "", "apt", "", "")),
    "iso_program": (ISO_PROGRAM, ("$1", "$2", "$3", "$4", "$5", "$6", "$7", "$8")),
    "iso": (ISO, ("", "$1", "$2", "$3", "$4", "", "", "$5")),
}

_SEVERITIES = ("critical", "critical", "critical", "error", "warning", "notice", "info", "debug")
# The most severe word wins, whatever the order in the line. It does not count inside a longer name
# such as libgpg-error0.
_LEVEL_WORDS = (
    ("critical", "emerg|emergency|panic|alert|crit|critical|fatal"),
    ("error", "error|errors|err|failed|failure|exception|traceback"),
    ("warning", "warn|warning|warnings"),
    ("debug", "debug|trace"),
    ("notice", "notice"),
)


def lines(messages: DataFrame, time_zone: str = "UTC") -> DataFrame:
    """Messages of the log stream as parsed lines: :func:`shipped`, then :func:`parsed`."""
    return messages.transform(shipped).transform(parsed(time_zone))


def shipped(messages: DataFrame) -> DataFrame:
    """Messages of the log stream (read with headers) as lines with their origin, and ``raw``.

    Messages that no shipper made have nulls for host, file, identity and offset.
    """

    def header(name: str) -> Column:
        values = F.try_element_at(F.col("headers"), F.lit(name))
        return F.make_valid_utf8(F.try_element_at(values, F.lit(1)))

    text = F.col("data").cast("string")
    return messages.select(
        "seq",
        "ts",
        F.make_valid_utf8("subject").alias("subject"),
        header(names.HOST_HEADER).alias("host"),
        header(names.FILE_HEADER).alias("file"),
        header(names.IDENTITY_HEADER).alias("identity"),
        header(names.OFFSET_HEADER).try_cast("long").alias("offset"),
        F.make_valid_utf8(text).alias("raw"),
        F.when(~F.is_valid_utf8(text), F.col("data")).alias("raw_bytes"),
    )


def parsed(time_zone: str = "UTC") -> Callable[[DataFrame], DataFrame]:
    """A transform that adds ``time``, ``level``, ``program``, ``pid`` and ``message``.

    It parses ``raw``. ``time_zone`` applies to times without a zone; results are in UTC. Needs
    ``raw`` and ``ts`` (when the line was stored).
    """

    def transform(lines: DataFrame) -> DataFrame:
        return (
            # A column of its own for what is used several times: otherwise Spark may compute it again.
            lines.withColumn("shape", _shape())
            .withColumn("fields", _fields())
            .withColumn("time", _time(time_zone))
            .withColumn("time", _in_range(F.col("time")))
            .withColumn("program", _field("program"))
            .withColumn("pid", _field("pid").try_cast("int"))
            .withColumn("message", _message())
            .withColumn("level", _level())
            .drop("shape", "fields")
        )

    return transform


def _shape() -> Column:
    chosen = F.lit(None).cast("string")
    for name, (pattern, _) in reversed(_SHAPES.items()):
        chosen = F.when(F.col("raw").rlike(pattern), F.lit(name)).otherwise(chosen)
    return chosen


def _fields() -> Column:
    """The fields of the line; null for a line of unknown shape."""
    chosen = F.lit(None).cast("string")
    for name, (pattern, fields) in _SHAPES.items():
        text = F.regexp_replace("raw", pattern, _SEPARATOR.join(fields))
        chosen = F.when(F.col("shape") == name, text).otherwise(chosen)
    return F.split(chosen, _SEPARATOR, len(_FIELDS))


def _field(name: str) -> Column:
    """A field of the line; null if its shape does not have it, or the text does not."""
    return F.nullif(F.get("fields", _FIELDS.index(name)), F.lit(""))


def _time(time_zone: str) -> Column:
    local = F.concat_ws(" ", _field("day"), _field("clock"))
    text = F.concat(local, F.lit("."), F.rpad(F.coalesce(_field("fraction"), F.lit("0")), 6, "0"))
    local_form = "yyyy-MM-dd HH:mm:ss.SSSSSS"
    named = F.regexp_replace(_field("zone"), "^(Z|UTC|GMT)$", "+00:00")
    named = F.regexp_replace(named, "^([+-][0-9]{2}):?([0-9]{2})$", "$1:$2")
    zoned = F.try_to_timestamp(F.concat(text, named), F.lit(f"{local_form}xxx"))
    plain = F.try_to_timestamp(text, F.lit(local_form))
    return (
        F.when(F.col("shape") == "syslog", _to_utc(_syslog_time(time_zone), time_zone))
        .when(_field("zone").isNotNull(), zoned)
        .otherwise(_to_utc(plain, time_zone))
    )


def _in_range(time: Column) -> Column:
    """The time, or null outside the years 1 to 9999, which Python and other readers do not have."""
    return F.when(F.year(time).between(1, 9999), time)


def _to_utc(local: Column, time_zone: str) -> Column:
    return F.to_utc_timestamp(local, time_zone)


def _syslog_time(time_zone: str) -> Column:
    """The local time of a line without a year.

    The year is this year, or last year if the time would otherwise be after the line was stored.
    """
    stored = F.from_utc_timestamp("ts", time_zone)

    def in_year(year: Column) -> Column:
        text = F.concat_ws(" ", year.cast("string"), _field("day"), _field("clock"))
        return F.try_to_timestamp(text, F.lit("yyyy MMM d HH:mm:ss"))

    # A day of tolerance: clocks differ, and a zone may be wrong.
    this_year = in_year(F.year(stored))
    at_latest = stored + F.expr("interval 1 day")
    return F.when(this_year <= at_latest, this_year).otherwise(in_year(F.year(stored) - 1))


def _message() -> Column:
    shape = F.col("shape")
    text = F.coalesce(_field("message"), F.lit(""))
    return F.when(shape == "apt", F.col("raw")).when(shape.isNotNull(), F.rtrim(text, F.lit("\r")))


def _level() -> Column:
    """The level: from the syslog priority, else from the most severe word of the text, else info.

    Lines that only name packages and paths are not searched for words, except for apt's own
    ``Error:``.
    """
    priority = _field("priority").try_cast("int")
    severities = F.array(*(F.lit(name) for name in _SEVERITIES))
    by_priority = F.try_element_at(severities, priority % 8 + 1)
    by_word = F.lit("info")
    text = F.coalesce("message", "raw")
    for level, words in reversed(_LEVEL_WORDS):
        by_word = F.when(
            text.rlike(rf"(?i)(?<![\w-])(?:{words})(?![\w-])"), F.lit(level)
        ).otherwise(by_word)
    shape = F.col("shape")
    return (
        F.when(by_priority.isNotNull(), by_priority)
        .when(shape.isin("dpkg", "alternatives"), F.lit("info"))
        .when(
            shape == "apt",
            F.when(F.col("raw").startswith("Error:"), F.lit("error")).otherwise("info"),
        )
        .otherwise(by_word)
    )
