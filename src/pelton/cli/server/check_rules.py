"""Rules of health over the answers of servers, without any connection.

Thresholds of 0 are not set. Streams and consumers may name their own in their metadata, as
``io.nats.monitor.lag-critical``; those of the caller go first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pelton.api.times import format_duration, parse_duration
from pelton.cli.server.check_report import Metric, Report

if TYPE_CHECKING:
    from pelton.api.streams import PeerInfo
    from pelton.client.base.models import AccountInfo, ConsumerInfo, StreamInfo

METADATA = "io.nats.monitor."
SECOND_NS = 1_000_000_000
Limits = Mapping[str, int]
"""Thresholds by name, as options are called; durations in nanoseconds."""

_DURATIONS = frozenset(
    {"seen-critical", "peer-seen-critical", "last-delivery-critical", "last-ack-critical"}
)


def with_metadata(given: Mapping[str, int | None], metadata: Mapping[str, str]) -> dict[str, int]:
    """The thresholds: those given, else those of the metadata, else 0. ValueError."""
    found = {}
    for name, value in given.items():
        if value is None and (text := metadata.get(METADATA + name)) is not None:
            try:
                value = parse_duration(text) if name in _DURATIONS else int(text)
            except ValueError:
                raise ValueError(f'metadata {METADATA}{name}: "{text}" is no threshold') from None
        found[name] = value or 0
    return found


def _ago(ns: int) -> str:
    return format_duration(ns - ns % 1_000_000) if ns >= 1_000_000 else f"{ns / 1000:.0f}us"


def connection(report: Report, measured_ns: Limits, limits: Limits) -> None:
    """The times of connecting ("connect"), of a ping ("rtt"), and of a message ("req")."""
    words = {
        "connect": ("connect_time", "connected in", "Time taken to connect to the server"),
        "rtt": ("rtt", "rtt", "Time of a ping"),
        "req": ("request_time", "round trip took", "Time of a message from here to here"),
    }
    for name, (metric, text, help_) in words.items():
        took = measured_ns[name]
        warning, critical = limits[f"{name}-warn"], limits[f"{name}-critical"]
        seconds = Metric(
            metric, took / SECOND_NS, help_, "s", warning / SECOND_NS, critical / SECOND_NS
        )
        report.above(
            seconds,
            f"{text} {_ago(took)}",
            warning=warning / SECOND_NS,
            critical=critical / SECOND_NS,
        )


def stream(report: Report, info: StreamInfo, limits: Limits) -> None:
    """A stream: peers, messages, subjects, sources, its mirror."""
    _peers(report, info, limits)
    count, low, lowest = info.state.messages, limits["msgs-warn"], limits["msgs-critical"]
    if low or lowest:
        text = f"{count} messages"
        kind = report.critical if count <= lowest else report.warning if count <= low else report.ok
        kind.append(text)
    report.metrics.append(Metric("messages", count, "Messages in the stream", "", low, lowest))
    subjects = info.state.num_subjects or 0
    warning, critical = limits["subjects-warn"], limits["subjects-critical"]
    report.between(
        Metric("subjects", subjects, "Subjects in the stream", "", warning, critical),
        f"{subjects} subjects",
        warning=warning,
        critical=critical,
    )
    _sources(report, info, limits)


def _sources(report: Report, info: StreamInfo, limits: Limits) -> None:
    lag, seen_ns = limits["lag-critical"], limits["seen-critical"]
    low, high = limits["min-sources"], limits["max-sources"]
    if info.config.mirror is not None or info.mirror is not None:
        _mirror(report, info, lag, seen_ns)
        return
    count = len(info.sources)
    report.metrics.append(Metric("sources", count, "Sources of the stream", "", low, high))
    if low or high:
        wrong = (low and count < low) or (high and count > high)
        (report.critical if wrong else report.ok).append(f"{count} sources")
    if not count:
        if (lag or seen_ns) and not (low or high):
            report.critical.append("the stream has neither a mirror nor sources")
        return
    lagged = sum(bool(lag) and each.lag >= lag for each in info.sources)
    # active is negative for a source that was never seen
    inactive = sum(bool(seen_ns) and not 0 <= each.active < seen_ns for each in info.sources)
    report.metrics += [
        Metric("sources_lagged", lagged, "Sources that are too many messages behind"),
        Metric("sources_inactive", inactive, "Sources that were not seen for too long"),
    ]
    for limit, bad, word, good in (
        (lag, lagged, "lagged", "current"),
        (seen_ns, inactive, "inactive", "active"),
    ):
        if limit:
            text = f"{bad} sources {word}" if bad else f"{count} sources {good}"
            (report.critical if bad else report.ok).append(text)


def _mirror(report: Report, info: StreamInfo, lag: int, seen_ns: int) -> None:
    state = info.mirror
    if state is None:
        report.critical.append("the mirror has no state")
        return
    report.above(
        Metric("lag", state.lag, "Messages that the origin is ahead", "", 0, lag),
        f"lag {state.lag}",
        critical=lag,
    )
    never = state.active < 0
    active_ns = 1 << 62 if never else state.active
    report.above(
        Metric(
            "active",
            active_ns / SECOND_NS,
            "Time since the origin was seen",
            "s",
            0,
            seen_ns / SECOND_NS,
        ),
        "the origin was never seen" if never else f"origin seen {_ago(active_ns)} ago",
        critical=seen_ns / SECOND_NS,
    )


def _peers(report: Report, info: StreamInfo, limits: Limits) -> None:
    expected, cluster = limits["peer-expect"], info.cluster
    replicas = cluster.replicas if cluster is not None else []
    if cluster is None or not expected:
        if expected > 1:
            report.critical.append("the stream is not clustered")
        return
    if not cluster.leader:
        report.critical.append("no leader")
        return
    count = len(replicas) + 1
    kind = report.ok if count == expected else report.critical
    kind.append(f"{count} peers" if count == expected else f"{count} peers of {expected}")
    _replicas(report, replicas, limits["peer-lag-critical"], limits["peer-seen-critical"])


def _replicas(report: Report, peers: list[PeerInfo], lag: int, seen_ns: int) -> None:
    offline = sum(each.offline for each in peers)
    lagged = sum(bool(lag) and each.lag > lag for each in peers)
    inactive = sum(bool(seen_ns) and each.active > seen_ns for each in peers)
    for count, text in ((offline, "offline"), (lagged, "lagged"), (inactive, "inactive")):
        if count:
            report.critical.append(f"{count} replicas {text}")


def consumer(report: Report, info: ConsumerInfo, limits: Limits, now_ns: int) -> None:
    """A consumer: its pending messages, and the times of its last delivery and ack."""
    for name, metric, value, text in (
        ("outstanding-ack-critical", "ack_pending", info.num_ack_pending, "pending acks"),
        ("waiting-critical", "pull_waiting", info.num_waiting, "waiting pull requests"),
        ("unprocessed-critical", "pending", info.num_pending, "messages not delivered"),
        ("redelivery-critical", "redelivered", info.num_redelivered, "messages redelivered"),
    ):
        limit = limits[name]
        said = f"{value} {text}"
        report.above(Metric(metric, value, said, "", 0, limit), said, critical=limit)
    for name, metric, last, text in (
        ("last-delivery-critical", "last_delivery", info.delivered.last_active, "delivery"),
        ("last-ack-critical", "last_ack", info.ack_floor.last_active, "ack"),
    ):
        limit_ns = limits[name]
        if not last:
            if limit_ns:
                report.critical.append(f"no {text}")
            continue
        past_ns = max(now_ns - last, 0)
        report.above(
            Metric(
                metric,
                past_ns / SECOND_NS,
                f"Seconds since the last {text}",
                "s",
                0,
                limit_ns / SECOND_NS,
            ),
            f"last {text} {_ago(past_ns)} ago",
            critical=limit_ns / SECOND_NS,
        )


def pinned(report: Report, info: ConsumerInfo) -> None:
    """Every priority group of the consumer has a pinned client."""
    config = info.config
    if config is None or config.priority_policy != "pinned_client":
        report.critical.append("the consumer pins no clients")
        return
    groups = {each.group: each.pinned_client_id for each in info.priority_groups}
    pinned_count = sum(bool(groups.get(each)) for each in config.priority_groups)
    report.metrics += [
        Metric("pinned_groups", pinned_count, "Priority groups with a pinned client"),
        Metric("groups", len(config.priority_groups), "Priority groups"),
    ]
    for group in config.priority_groups:
        if groups.get(group):
            report.ok.append(f"group {group} is pinned")
        else:
            report.critical.append(f"group {group} has no pinned client")


def account(report: Report, info: AccountInfo, limits: Limits) -> None:
    """The usage of an account, in percent of its limits; thresholds below 0 are not set."""
    most = info.limits
    for item, unit, used, limit in (
        ("mem", "B", info.memory, most.max_memory),
        ("store", "B", info.storage, most.max_storage),
        ("streams", "", info.streams, most.max_streams),
        ("consumers", "", info.consumers, most.max_consumers),
    ):
        name = {"mem": "memory", "store": "storage"}.get(item, item)
        percent = int(used / limit * 100) if limit and limit > 0 else 0
        warning = max(limits[f"{item}-warn"], 0)
        critical = max(limits[f"{item}-critical"], 0)
        report.metrics.append(Metric(name, used, f"JetStream {name} in use", unit))
        report.metrics.append(
            Metric(
                f"{name}_pct",
                percent,
                f"JetStream {name} in percent of the limit",
                "%",
                warning,
                critical,
            )
        )
        text = f"{percent}% {name}"
        if percent > 100:
            report.critical.append(f"{text}: over the limit")
        elif critical and percent > critical:
            report.critical.append(text)
        elif warning and percent > warning:
            report.warning.append(text)
        elif warning or critical:
            report.ok.append(text)


def replicas(report: Report, infos: list[StreamInfo], limits: Limits) -> None:
    """All streams with copies have a leader and healthy copies."""
    lag, seen_ns = limits["replica-lag-critical"], limits["replica-seen-critical"]
    counts = dict.fromkeys(("ok", "no_leader", "missing_replicas", "lagged", "not_seen", "fail"), 0)
    for info in infos:
        wrong = _unhealthy(info, lag, seen_ns)
        counts[wrong or "ok"] += 1
        if wrong:
            text = f"stream {info.config.name}: {wrong.replace('_', ' ')}"
            report.critical.append(text)
    texts = {
        "ok": "Streams with healthy copies",
        "no_leader": "Streams without a leader",
        "missing_replicas": "Streams with fewer copies than configured",
        "lagged": f"Streams with a copy that lags by more than {lag} operations",
        "not_seen": f"Streams with a copy not seen for {format_duration(seen_ns)}",
        "fail": "Streams with a copy that is offline, or without a cluster",
    }
    for name, count in counts.items():
        seconds = name == "not_seen"
        critical = {"lagged": lag, "not_seen": seen_ns / SECOND_NS}.get(name, 0)
        unit = "s" if seconds else ""
        report.metrics.append(Metric(f"replicas_{name}", count, texts[name], unit, 0, critical))


def _unhealthy(info: StreamInfo, lag: int, seen_ns: int) -> str:
    """The first fault of a stream's copies, or an empty text."""
    if info.config.num_replicas <= 1:
        return ""
    if info.cluster is None:
        return "fail"
    if not info.cluster.leader:
        return "no_leader"
    copies = info.cluster.replicas
    if len(copies) != info.config.num_replicas - 1:
        return "missing_replicas"
    for each in copies:
        if each.offline:
            return "fail"
        if seen_ns and each.active > seen_ns:
            return "not_seen"
        if lag and each.lag > lag:
            return "lagged"
    return ""


def meta(
    report: Report, groups: list[Mapping[str, Any]], expect: int, limits: Mapping[str, int | None]
) -> None:
    """The group of a JetStream cluster, as each of its servers reports it."""
    leading = next((each for each in groups if each.get("replicas")), groups[0])
    peers = leading.get("replicas") or []
    if not leading.get("leader"):
        report.critical.append("no leader")
    count = len(peers) + 1
    report.metrics.append(Metric("peers", count, "Servers of the cluster", "", expect, expect))
    text = f"{count} servers of {expect}"
    (report.ok if count == expect else report.critical).append(text)
    lag, seen = limits["lag-critical"] or 0, limits["seen-critical"] or 0
    for words, sick in (
        ("offline", [each for each in peers if each.get("offline")]),
        ("not_current", [each for each in peers if not each.get("current")]),
        ("inactive", [each for each in peers if seen and each.get("active", 0) > seen]),
        ("lagged", [each for each in peers if lag and each.get("lag", 0) > lag]),
    ):
        shown = words.replace("_", " ")
        report.metrics.append(Metric(f"peer_{words}", len(sick), f"Servers that are {shown}"))
        if sick:
            names = ", ".join(str(each.get("name")) for each in sick)
            report.critical.append(f"{shown}: {names}")


def server(report: Report, varz: Mapping[str, Any], limits: Limits, required: set[str]) -> None:
    """A server's load, and the features that it must have: "auth", "tls", "js"."""
    for name, there, text in (
        ("js", bool(varz.get("jetstream", {}).get("config")), "JetStream is on"),
        ("tls", bool(varz.get("tls_required")), "TLS is required"),
        ("auth", bool(varz.get("auth_required")), "authentication is required"),
    ):
        if name in required:
            missing = text.replace(" is ", " is not ")
            (report.ok if there else report.critical).append(text if there else missing)
    for name, value, unit, text in (
        ("cpu", varz.get("cpu", 0.0), "%", "CPU"),
        ("mem", varz.get("mem", 0), "", "memory"),
        ("conn", varz.get("connections", 0), "", "connections"),
        ("subs", varz.get("subscriptions", 0), "", "subscriptions"),
    ):
        warning, critical = limits[f"{name}-warn"], limits[f"{name}-critical"]
        metric = {"conn": "connections", "subs": "subscriptions"}.get(name, name)
        report.between(
            Metric(metric, value, f"{text} of the server", unit, warning, critical),
            f"{value:g} {text}" if unit != "%" else f"{text} {value:.1f} %",
            warning=warning,
            critical=critical,
        )


def uptime(report: Report, up_ns: int, warning_ns: int, critical_ns: int) -> None:
    """How long a server runs: too short a time may be one of many restarts."""
    metric = Metric(
        "uptime",
        up_ns / SECOND_NS,
        "Time since the server's start",
        "s",
        warning_ns / SECOND_NS,
        critical_ns / SECOND_NS,
    )
    report.metrics.append(metric)
    text = f"up {_ago(up_ns)}"
    if up_ns <= critical_ns:
        report.critical.append(text)
    elif up_ns <= warning_ns:
        report.warning.append(text)
    elif critical_ns or warning_ns:
        report.ok.append(text)


def expiry(report: Report, expires_ns: int, now_ns: int, limits: Limits, required: bool) -> None:
    """How long credentials stay valid; ``expires_ns`` 0 means for ever.

    The metric ``expiry`` is 0 for credentials that never expire: a rule that compares it with a
    time to act must exclude 0.
    """
    warning, critical = limits["validity-warn"], limits["validity-critical"]
    left_ns = expires_ns - now_ns if expires_ns else 0
    report.metrics.append(
        Metric(
            "expiry",
            left_ns / SECOND_NS,
            "Time until the credentials expire",
            "s",
            warning / SECOND_NS,
            critical / SECOND_NS,
        )
    )
    if not expires_ns:
        text = "never expires"
        (report.critical if required else report.ok).append(text)
        return
    if left_ns <= 0:
        report.critical.append(f"expired {_ago(-left_ns)} ago")
        return
    text = f"expires in {_ago(left_ns)}"
    if left_ns <= critical:
        report.critical.append(text)
    else:
        (report.warning if left_ns <= warning else report.ok).append(text)
