"""Queries about a fleet, as SQL over the tables: for the report and for notebooks.

A query takes the parameters ``$since`` and ``$until`` (µs since 1970, of the hub's clock) and, if it makes a series,
``$step`` (µs); ``$received_since`` and ``$received_until`` are bounds of the stream's clock.
Times in results are µs since 1970 too, so that no notebook needs a time zone. In a notebook::

    with open_tables(folder) as tables:
        tables.ask("slowest_devices").df()
"""

from __future__ import annotations

from dataclasses import dataclass

SHORT_SESSION_S = 300
"""A device whose connection ends within these seconds, again and again, is flapping."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query: the question that it answers, the tables that it reads, and its SQL."""

    meaning: str
    tables: tuple[str, ...]
    sql: str

    @property
    def is_series(self) -> bool:
        """Whether it takes ``$step``."""
        return "$step" in self.sql


def _during(column: str) -> str:
    return f"{column} >= make_timestamptz($since) AND {column} < make_timestamptz($until)"


def _received() -> str:
    """The stream's clock is not the hub's: without bounds, every message counts."""
    return "received >= make_timestamptz($received_since) AND received < make_timestamptz($received_until)"


GAP_TIME = "make_timestamptz(coalesce(before_ns // 1000, after_ns // 1000, epoch_us(found_at)))"
"""The hub's time of the last event before a gap, or of the one behind; at worst when the stream told of it."""


def _step_of(column: str) -> str:
    return f"$since + (epoch_us({column}) - $since) // $step * $step"


QUERIES: dict[str, Query] = {
    "span": Query(
        "the first and the last event, and the devices, owners and hubs that they name",
        ("events",),
        """
        SELECT min(epoch_us(time)) AS first, max(epoch_us(time)) AS last, count(*) AS events,
               count(DISTINCT device_id) AS devices, count(DISTINCT owner_id) AS owners,
               count(DISTINCT nullif(hub_id, '')) AS hubs
        FROM events WHERE time >= make_timestamptz($since) AND time < make_timestamptz($until)
        """,
    ),
    "event_types": Query(
        "how many events of each type",
        ("events",),
        f"""
        SELECT kind, event_type, count(*) AS events FROM events WHERE {_during("time")}
        GROUP BY ALL ORDER BY events DESC, event_type
        """,
    ),
    "events_over_time": Query(
        "how many events of each kind in each step of time",
        ("events",),
        f"""
        SELECT {_step_of("time")} AS start_us, kind, count(*) AS events FROM events WHERE {_during("time")}
        GROUP BY ALL ORDER BY start_us, kind
        """,
    ),
    "online_over_time": Query(
        "devices that are online at the end of each step, and how many came and went in it",
        ("sessions",),
        """
        WITH marks AS (
            SELECT greatest(epoch_us(connected_at), $since) AS moment, 1 AS online,
                   CAST(epoch_us(connected_at) >= $since AS INTEGER) AS came, 0 AS went
            FROM sessions
            WHERE connected_at < make_timestamptz($until)
              AND (ended_at IS NULL OR ended_at >= make_timestamptz($since))
            UNION ALL
            SELECT greatest(epoch_us(ended_at), epoch_us(connected_at)), -1, 0, 1
            FROM sessions
            WHERE connected_at < make_timestamptz($until)
              AND ended_at >= make_timestamptz($since) AND ended_at < make_timestamptz($until)
        ), steps AS (
            SELECT unnest(generate_series(0, ($until - $since - 1) // $step)) AS step
        ), sums AS (
            SELECT (moment - $since) // $step AS step, sum(online) AS online, sum(came) AS came, sum(went) AS went
            FROM marks GROUP BY ALL
        )
        SELECT $since + step * $step AS start_us,
               CAST(sum(coalesce(online, 0)) OVER (ORDER BY step) AS BIGINT) AS online,
               CAST(coalesce(came, 0) AS BIGINT) AS came, CAST(coalesce(went, 0) AS BIGINT) AS went
        FROM steps LEFT JOIN sums USING (step) ORDER BY start_us
        """,
    ),
    "session_ends": Query(
        "how connections ended, and how long they were",
        ("sessions",),
        f"""
        SELECT coalesce(end_reason, 'online') AS reason, count(*) AS sessions,
               median(duration_s) AS median_s
        FROM sessions WHERE {_during("connected_at")} GROUP BY ALL ORDER BY sessions DESC, reason
        """,
    ),
    "flapping_devices": Query(
        f"devices with three or more connections of less than {SHORT_SESSION_S} s",
        ("sessions",),
        f"""
        SELECT device_id, count(*) AS short_sessions, median(duration_s) AS median_s,
               max(epoch_us(connected_at)) AS last_at
        FROM sessions WHERE {_during("connected_at")} AND duration_s < {SHORT_SESSION_S}
        GROUP BY ALL HAVING count(*) >= 3 ORDER BY short_sessions DESC, device_id LIMIT 10
        """,
    ),
    "offline_devices": Query(
        "devices that have been offline for the longest time",
        ("sessions",),
        """
        SELECT device_id, max(epoch_us(ended_at)) AS since, ($until - max(epoch_us(ended_at))) / 1e6 AS offline_s,
               arg_max(end_reason, ended_at) AS reason
        FROM sessions WHERE connected_at < make_timestamptz($until)
        GROUP BY device_id
        HAVING count(*) FILTER (ended_at IS NULL OR ended_at >= make_timestamptz($until)) = 0
        ORDER BY offline_s DESC, device_id LIMIT 10
        """,
    ),
    "command_outcomes": Query(
        "how commands of each kind ended",
        ("commands",),
        f"""
        SELECT kind, outcome, count(*) AS commands
        FROM commands WHERE {_during("coalesce(issued_at, finished_at)")}
        GROUP BY ALL ORDER BY kind, commands DESC, outcome
        """,
    ),
    "command_latency": Query(
        "the latency of confirmed commands: percentiles over all",
        ("commands",),
        f"""
        SELECT count(*) AS commands, quantile_cont(latency_ms, 0.5) AS p50, quantile_cont(latency_ms, 0.95) AS p95,
               quantile_cont(latency_ms, 0.99) AS p99, max(latency_ms) AS slowest
        FROM commands WHERE {_during("issued_at")} AND latency_ms IS NOT NULL
        """,
    ),
    "command_latency_over_time": Query(
        "the latency of confirmed commands in each step: percentiles",
        ("commands",),
        f"""
        SELECT {_step_of("issued_at")} AS start_us, count(*) AS commands, quantile_cont(latency_ms, 0.5) AS p50,
               quantile_cont(latency_ms, 0.95) AS p95, quantile_cont(latency_ms, 0.99) AS p99
        FROM commands WHERE {_during("issued_at")} AND latency_ms IS NOT NULL
        GROUP BY ALL ORDER BY start_us
        """,
    ),
    "command_failures": Query(
        "the statuses of commands that failed",
        ("commands",),
        f"""
        SELECT status, kind, count(*) AS commands
        FROM commands WHERE {_during("coalesce(issued_at, finished_at)")} AND outcome = 'failed'
        GROUP BY ALL ORDER BY commands DESC, status, kind LIMIT 10
        """,
    ),
    "troubled_devices": Query(
        "devices with the most commands that did not succeed",
        ("commands",),
        f"""
        SELECT device_id, count(*) AS commands,
               count(*) FILTER (outcome = 'failed') AS failed,
               count(*) FILTER (outcome IN ('expired', 'given up')) AS expired,
               quantile_cont(latency_ms, 0.95) AS p95
        FROM commands WHERE {_during("coalesce(issued_at, finished_at)")}
        GROUP BY ALL HAVING failed + expired > 0 ORDER BY failed + expired DESC, device_id LIMIT 10
        """,
    ),
    "slowest_devices": Query(
        "devices with the slowest commands, of those with at least five",
        ("commands",),
        f"""
        SELECT device_id, count(*) AS commands, quantile_cont(latency_ms, 0.5) AS p50,
               quantile_cont(latency_ms, 0.95) AS p95
        FROM commands WHERE {_during("issued_at")} AND latency_ms IS NOT NULL
        GROUP BY ALL HAVING count(*) >= 5 ORDER BY p95 DESC, device_id LIMIT 10
        """,
    ),
    "sync_outcomes": Query(
        "how synchronizations of twins ended",
        ("twin_sync",),
        f"""
        SELECT outcome, count(*) AS synchronizations FROM twin_sync WHERE {_during("syncing_at")}
        GROUP BY ALL ORDER BY synchronizations DESC, outcome
        """,
    ),
    "sync_times": Query(
        "how long it takes until a device is ready, and its twin in sync: percentiles",
        ("twin_sync",),
        f"""
        SELECT count(*) AS synchronizations, quantile_cont(sync_ms, 0.5) AS sync_p50,
               quantile_cont(sync_ms, 0.95) AS sync_p95, quantile_cont(ready_ms, 0.5) AS ready_p50,
               quantile_cont(ready_ms, 0.95) AS ready_p95
        FROM twin_sync WHERE {_during("syncing_at")} AND outcome = 'in sync'
        """,
    ),
    "sync_histogram": Query(
        "synchronizations by how long they took: ten classes in each power of ten",
        ("twin_sync",),
        f"""
        SELECT CAST(floor(log10(greatest(sync_ms, 1)) * 10) AS INTEGER) AS class, count(*) AS synchronizations
        FROM twin_sync WHERE {_during("syncing_at")} AND outcome = 'in sync' AND sync_ms IS NOT NULL
        GROUP BY ALL ORDER BY class
        """,
    ),
    "gaps": Query(
        "gaps in the versions by cause and by how they were closed: gaps, versions, versions missing still",
        ("version_gaps",),
        f"""
        SELECT cause, coalesce(closed_by, 'open') AS closed_by, count(*) AS gaps,
               CAST(sum(last_version - first_version + 1) AS BIGINT) AS versions,
               CAST(sum(missing) AS BIGINT) AS missing
        FROM version_gaps WHERE {_during(GAP_TIME)} GROUP BY ALL ORDER BY gaps DESC, cause, closed_by
        """,
    ),
    "gaps_over_time": Query(
        "gaps that were found in each step of time",
        ("version_gaps",),
        f"""
        SELECT {_step_of(GAP_TIME)} AS start_us, cause, count(*) AS gaps
        FROM version_gaps WHERE {_during(GAP_TIME)} GROUP BY ALL ORDER BY start_us, cause
        """,
    ),
    "open_gaps": Query(
        "gaps that still miss versions, the newest first",
        ("version_gaps",),
        f"""
        SELECT device_id, kind, href, first_version, last_version, missing, cause, epoch_us(found_at) AS found_at,
               state_version
        FROM version_gaps WHERE {_during(GAP_TIME)} AND missing > 0
        ORDER BY found_at DESC, aggregate_id, first_version LIMIT 50
        """,
    ),
    "dead_letters": Query(
        "messages that are no events, by reason",
        ("dead_letters",),
        f"""
        SELECT reason, count(*) AS messages, count(DISTINCT device_id) AS devices, any_value(detail) AS example
        FROM dead_letters WHERE {_received()} GROUP BY ALL ORDER BY messages DESC, reason
        """,
    ),
    "duplicates": Query(
        "how many events came more than once, and were left out",
        ("aggregates",),
        "SELECT CAST(coalesce(sum(duplicates), 0) AS BIGINT) AS duplicates FROM aggregates",
    ),
    "registrations_over_time": Query(
        "devices that came to an owner or left him in each step of time",
        ("registrations",),
        f"""
        SELECT {_step_of("time")} AS start_us, action, count(*) AS devices
        FROM registrations WHERE {_during("time")} AND device_id IS NOT NULL
        GROUP BY ALL ORDER BY start_us, action
        """,
    ),
    "busiest_users": Query(
        "who acted the most",
        ("audit",),
        f"""
        SELECT user_id, count(*) AS actions, count(DISTINCT device_id) AS devices,
               count(DISTINCT action) AS kinds
        FROM audit WHERE {_during("time")} GROUP BY ALL ORDER BY actions DESC, user_id LIMIT 10
        """,
    ),
}
