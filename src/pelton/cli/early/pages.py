"""The output of `nats` of March 2020 about streams and consumers: pages and differences, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pelton.api.dialects.configurations import old_stream
from pelton.api.times import format_duration

if TYPE_CHECKING:
    from pelton.client.base.models import ConsumerInfo, StreamConfig, StreamInfo

_LABELS = 21  # the column of the colons of a configuration
_DAY_NS = 86_400 * 10**9
_AROUND = 2  # unchanged fields that are shown on each side of a changed one
# our field -> its name in the program of that time
_FIELDS = {
    "name": "Name",
    "subjects": "Subjects",
    "retention": "Retention",
    "max_consumers": "MaxConsumers",
    "max_msgs": "MaxMsgs",
    "max_bytes": "MaxBytes",
    "max_age": "MaxAge",
    "max_msg_size": "MaxMsgSize",
    "storage": "Storage",
    "num_replicas": "Replicas",
    "no_ack": "NoAck",
    "template_owner": "Template",
}
_WORDS = {
    "limits": "Limits",
    "interest": "Interest",
    "workqueue": "WorkQueue",
    "file": "File",
    "memory": "Memory",
}


def size(count: int) -> str:
    """Bytes in powers of 1024: `0 B`, `10 GiB`, `1.5 KiB`."""
    units = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
    power, scaled = 0, float(count)
    while scaled >= 1024 and power < len(units) - 1:
        scaled, power = scaled / 1024, power + 1
    tenths = int(scaled * 10 + 0.5) / 10
    exact = power == 0 or tenths >= 10
    return f"{tenths:.0f} {units[power]}" if exact else f"{tenths:.1f} {units[power]}"


def age(ns: int) -> str:
    """`1d0h0m0s`, `10m0s`, `unlimited`."""
    if ns <= 0:
        return "unlimited"
    days, rest = divmod(ns, _DAY_NS)
    if not days:
        return format_duration(ns)
    hours, rest = divmod(rest, 3600 * 10**9)
    minutes, rest = divmod(rest, 60 * 10**9)
    return f"{days}d{hours}h{minutes}m{rest // 10**9}s"


def _limit(number: int) -> str:
    return "unlimited" if number < 0 else f"{number:,}"


def _rows(rows: list[tuple[str, str]], width: int) -> list[str]:
    return [f"{label:>{width}}: {text}" for label, text in rows]


def stream_page(info: StreamInfo) -> str:
    """`nats stream info`."""
    config, state = info.config, info.state
    options = [
        ("Subjects", ", ".join(config.subjects)),
        ("Acknowledgements", str(not config.no_ack).lower()),
        ("Retention", f"{_WORDS[config.storage]} - {_WORDS[config.retention]}"),
        ("Replicas", str(config.num_replicas)),
        ("Maximum Messages", _limit(config.max_msgs)),
        ("Maximum Bytes", "unlimited" if config.max_bytes < 0 else size(config.max_bytes)),
        ("Maximum Age", age(config.max_age)),
        (
            "Maximum Message Size",
            "unlimited" if config.max_msg_size < 0 else size(config.max_msg_size),
        ),
        ("Maximum Consumers", _limit(config.max_consumers)),
    ]
    counts = [
        ("Messages", f"{state.messages:,}"),
        ("Bytes", size(state.bytes)),
        ("FirstSeq", f"{state.first_seq:,}"),
        ("LastSeq", f"{state.last_seq:,}"),
        ("Active Consumers", str(state.consumer_count)),
    ]
    lines = [f"Information for Stream {config.name}", "", "Configuration:", ""]
    lines += [*_rows(options, _LABELS), "", "State:", "", *_rows(counts, _LABELS - 1), ""]
    return "\n".join(lines)


def consumer_page(info: ConsumerInfo) -> str:
    """`nats consumer info`."""
    config = info.config
    assert config is not None
    options = [
        ("Durable Name", config.durable_name),
        ("Delivery Subject", config.deliver_subject),
        ("Pull Mode", "" if config.deliver_subject else "true"),
        ("Subject", config.filter_subject),
        ("Deliver Policy", config.deliver_policy),
        ("Ack Policy", config.ack_policy),
        ("Ack Wait", age(config.ack_wait) if config.ack_policy != "none" else ""),
        ("Replay Policy", config.replay_policy),
        ("Maximum Deliveries", str(config.max_deliver) if config.max_deliver > 0 else ""),
        ("Sampling Rate", config.sample_freq),
    ]
    delivered, floor = info.delivered, info.ack_floor
    state = [
        (
            "Last Delivered Message",
            f"Consumer sequence: {delivered.consumer_seq} Stream sequence: {delivered.stream_seq}",
        ),
        (
            "Acknowledgment floor",
            f"Consumer sequence: {floor.consumer_seq} Stream sequence: {floor.stream_seq}",
        ),
        ("Pending Messages", str(info.num_ack_pending)),
        ("Redelivered Messages", str(info.num_redelivered)),
    ]
    lines = [f"Information for Consumer {info.stream_name} > {info.name}", "", "Configuration:", ""]
    lines += [*_rows([row for row in options if row[1]], _LABELS - 1), "", "State:", ""]
    return "\n".join([*lines, *_rows(state, _LABELS + 3), ""])


def _shown(name: str, value: Any) -> str:
    if name == "max_age":
        return f's"{format_duration(value)}"'
    if name in ("retention", "storage"):
        return f's"{_WORDS[value]}"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[]string{" + ", ".join(f'"{each}"' for each in value) + "}"
    return f'"{value}"' if isinstance(value, str) else str(value)


def differences(present: StreamConfig, wanted: StreamConfig) -> str:
    """The fields of two configurations that differ, with their neighbours; "": none does."""
    before, after = old_stream(present), old_stream(wanted)
    rows = [
        (_FIELDS[name], _shown(name, getattr(before, name)), _shown(name, getattr(after, name)))
        for name in _FIELDS
    ]
    known = set(_FIELDS)
    for name in present.__struct_fields__:
        ours, theirs = getattr(present, name), getattr(wanted, name)
        if name not in known and name != "metadata" and ours != theirs:
            title = name.title().replace("_", "")
            rows.append((title, _shown(name, ours), _shown(name, theirs)))
    changed = [at for at, (_, old, new) in enumerate(rows) if old != new]
    if not changed:
        return ""
    near = {at + step for at in changed for step in range(-_AROUND, _AROUND + 1)}
    return "\n".join(["  server.StreamConfig{", *_lines(rows, near), "  }"])


def _lines(rows: list[tuple[str, str, str]], near: set[int]) -> list[str]:
    lines: list[str] = []
    at = 0
    while at < len(rows):
        end = at
        while end < len(rows) and (end in near) == (at in near):
            end += 1
        if at not in near:
            plural = "s" if end - at > 1 else ""
            lines.append(f"        ... // {end - at} identical field{plural}")
        else:
            width = max(len(name) for name, _, _ in rows[at:end]) + 2
            for name, old, new in rows[at:end]:
                key = f"{name}:".ljust(width)
                marks = [(" ", old)] if old == new else [("-", old), ("+", new)]
                lines += [f"{mark}       {key}{text}," for mark, text in marks]
        at = end
    return lines
