"""The options that say how a consumer is configured, and the configuration that they make. No I/O.

``add`` begins with the defaults, ``edit`` and ``copy`` with an existing configuration; an option that is
not given changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click
from msgspec.structs import replace

from pelton.api.streams import SERVERS_OWN
from pelton.cli.values import DURATION, LIFETIME, SIZE, WHOLE, Whole, Word, pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pelton.client.base.models import ConsumerConfig

F = TypeVar("F", bound="Callable[..., object]")

_ACKS = Word(["explicit", "all", "none", "flow_control"])
OPTIONS = [
    click.option("--filter", "filters", multiple=True, help="Only messages on this subject."),
    click.option(
        "--ack",
        type=_ACKS,
        default=None,
        help="Which messages need an ack: explicit by default, none with --target.",
    ),
    click.option(
        "--deliver",
        default=None,
        help="Where to begin: all, last, new, subject (the last of each), a sequence, an age (1h), a time.",
    ),
    click.option("--description", default=None, help="The consumer's description."),
    click.option(
        "--wait",
        "ack_wait",
        type=DURATION,
        default=None,
        help="Deliver messages without an ack again after this time; 30s by default.",
    ),
    click.option(
        "--max-deliver",
        type=WHOLE,
        default=None,
        help="Most deliveries of a message; -1: no limit, the default.",
    ),
    click.option(
        "--max-pending",
        "--max-outstanding",
        type=WHOLE,
        default=None,
        help="Most messages that wait for acks; 1000 by default, -1: no limit.",
    ),
    click.option(
        "--max-waiting", type=WHOLE, default=None, help="Most pulls that wait; 512 by default."
    ),
    click.option(
        "--max-pull-batch", type=WHOLE, default=None, help="Most messages that a pull may ask for."
    ),
    click.option(
        "--max-pull-expire", type=DURATION, default=None, help="Longest time that a pull may wait."
    ),
    click.option(
        "--max-pull-bytes",
        type=SIZE,
        default=None,
        help="Most bytes that a pull may ask for, such as 1MB.",
    ),
    click.option("--pull", is_flag=True, help="Wait for pulls; the default without --target."),
    click.option("--target", default=None, help="Push to this subject, do not wait for pulls."),
    click.option(
        "--deliver-group",
        "--queue",
        "queue",
        default=None,
        help="Push to a queue group: each message to one subscriber.",
    ),
    click.option(
        "--flow-control/--no-flow-control",
        default=None,
        help="Push no faster than the client takes it; needs --heartbeat.",
    ),
    click.option(
        "--heartbeat",
        default=None,
        help="Send a heartbeat after this time without messages, such as 5s; -1: never.",
    ),
    click.option("--headers-only/--no-headers-only", default=None, help="Deliver headers only."),
    click.option(
        "--replay",
        type=Word(["instant", "original"]),
        help="As fast as possible (instant, the default), or at the speed of the publishes.",
    ),
    click.option(
        "--bps",
        type=Whole(0),
        default=None,
        help="Push at most so many bits per second; 0: no limit.",
    ),
    click.option(
        "--sample",
        type=Whole(-1, 100),
        help="Report this percentage of acks as advisories; -1: none.",
    ),
    click.option(
        "--backoff",
        type=Word(["none", "linear"]),
        help="Wait longer before each redelivery, from --backoff-min towards --backoff-max. "
        "A new consumer without --max-deliver gets one delivery more than steps.",
    ),
    click.option(
        "--backoff-steps",
        type=Whole(1),
        default=10,
        show_default=True,
        help="Number of different waits.",
    ),
    click.option(
        "--backoff-min", type=DURATION, default="1m", show_default=True, help="The first wait."
    ),
    click.option(
        "--backoff-max",
        type=DURATION,
        default="20m",
        show_default=True,
        help="The wait that one step more would reach.",
    ),
    click.option(
        "--inactive-threshold",
        "--inactive",
        "inactive",
        type=LIFETIME,
        default=None,
        help="Remove the consumer when it is unused for this long, such as 1h; -1: never.",
    ),
    click.option("--memory", is_flag=True, help="Keep its state in memory."),
    click.option(
        "--replicas",
        type=Whole(0),
        default=None,
        help="Copies in a cluster; 0: as many as the stream has, the default.",
    ),
    click.option(
        "--metadata",
        multiple=True,
        metavar="NAME=VALUE",
        help="A name and a value for the metadata, also NAME:VALUE; repeatable.",
    ),
    click.option("--pause", default=None, help="Begin paused: until a time, or for a duration."),
    click.option("--pinned-groups", multiple=True, help="Priority groups with a pinned client."),
    click.option(
        "--pinned-ttl",
        type=DURATION,
        default=None,
        help="How long a pin lasts without a pull; 2m by default.",
    ),
    click.option("--overflow-groups", multiple=True, help="Priority groups by overflow."),
    click.option("--prioritized-groups", multiple=True, help="Priority groups by priority."),
]
_PLAIN = {
    "ack": "ack_policy",
    "description": "description",
    "max_deliver": "max_deliver",
    "max_pending": "max_ack_pending",
    "max_waiting": "max_waiting",
    "max_pull_batch": "max_batch",
    "max_pull_bytes": "max_bytes",
    "target": "deliver_subject",
    "queue": "deliver_group",
    "flow_control": "flow_control",
    "headers_only": "headers_only",
    "replay": "replay_policy",
    "bps": "rate_limit_bps",
    "memory": "mem_storage",
    "replicas": "num_replicas",
}
_SPANS = {
    "ack_wait": "ack_wait",
    "max_pull_expire": "max_expires",
    "inactive": "inactive_threshold",
    "pinned_ttl": "priority_timeout",
}
_GROUPS = {
    "pinned_groups": "pinned_client",
    "overflow_groups": "overflow",
    "prioritized_groups": "prioritized",
}
_HELPERS = ("backoff_steps", "backoff_min", "backoff_max", "pull")


def configured(function: F) -> F:
    """The options of a consumer's configuration."""
    for option in reversed(OPTIONS):
        function = option(function)
    return function


def _said(given: dict[str, Any]) -> dict[str, Any]:
    said = {name: value for name, value in given.items() if value is not None and value != ()}
    if not said.get("memory"):
        said.pop("memory", None)
    return said


def changes_anything(given: dict[str, Any]) -> bool:
    """Whether any option of the configuration is given."""
    return any(name not in _HELPERS for name in _said(given))


def with_options(base: ConsumerConfig, given: dict[str, Any], now_ns: int) -> ConsumerConfig:
    """The configuration with the values of the options; UsageError for options that do not go together."""
    from pelton.client.base.durations import Nanoseconds

    said = _said(given)
    fields: dict[str, Any] = {
        field: said[option] for option, field in _PLAIN.items() if option in said
    }
    fields |= {field: Nanoseconds(said[name]) for name, field in _SPANS.items() if name in said}
    if said.get("pull") and "target" in said:
        raise click.UsageError("--pull and --target exclude each other")
    if "filters" in said:
        fields |= filters_of(said["filters"])
    if "deliver" in said:
        fields |= beginning(said["deliver"], now_ns)
    if "heartbeat" in said:
        text = said["heartbeat"]
        span = 0 if text == "-1" else DURATION.convert(text, None, None)
        fields["idle_heartbeat"] = Nanoseconds(span)
    if "sample" in said:
        fields["sample_freq"] = str(said["sample"]) if said["sample"] > 0 else ""
    if "metadata" in said:
        kept = {
            name: value for name, value in base.metadata.items() if name.startswith(SERVERS_OWN)
        }
        fields["metadata"] = kept | pairs(said["metadata"], "--metadata")
    if "pause" in said:
        fields["pause_until"] = moment_of(said["pause"], now_ns)
    if "backoff" in said:
        fields["backoff"] = [] if said["backoff"] == "none" else _linear(said)
    return replace(base, **fields, **_groups(said))


def new_consumer(given: dict[str, Any], now_ns: int) -> ConsumerConfig:
    """The configuration of a new consumer from its options; UsageError.

    Values that are not given are those of the ``nats`` command: a push consumer needs no acks, a
    backoff limits the deliveries, and the last message of each subject is that of every subject.
    """
    from pelton.client.base.models import ConsumerConfig

    found = with_options(ConsumerConfig(max_deliver=-1), given, now_ns)
    if given["ack"] is None and found.deliver_subject:
        found = replace(found, ack_policy="none")
    if found.backoff and found.max_deliver == -1:
        found = replace(found, max_deliver=len(found.backoff) + 1)
    if found.deliver_policy == "last_per_subject" and not given["filters"]:
        found = replace(found, filter_subject=">")
    return found


def filters_of(subjects: Sequence[str]) -> dict[str, Any]:
    """The fields for one filter, or for several."""
    found = [part for each in subjects for part in each.replace(",", " ").split()]
    one = len(found) == 1
    return {"filter_subject": found[0] if one else "", "filter_subjects": [] if one else found}


def beginning(text: str, now_ns: int) -> dict[str, Any]:
    """The fields that say where a consumer begins; UsageError."""
    words = {"all": "all", "last": "last", "new": "new", "subject": "last_per_subject"}
    fields: dict[str, Any] = {"opt_start_seq": 0, "opt_start_time": None}
    if text in words:
        return fields | {"deliver_policy": words[text]}
    if text.isdigit() and int(text) > 0:
        return fields | {"deliver_policy": "by_start_sequence", "opt_start_seq": int(text)}
    try:
        if text.isdigit():
            raise click.UsageError("0 is no sequence")
        return fields | {
            "deliver_policy": "by_start_time",
            "opt_start_time": moment_of(text, now_ns, back=True),
        }
    except click.UsageError:
        raise click.UsageError(
            f'"{text}" is no place to begin at: all, last, new, subject, a sequence, an age or a time'
        ) from None


def moment_of(text: str, now_ns: int, *, back: bool = False) -> int:
    """A time in UTC (2026-11-24 10:00:00, or RFC 3339), or a duration from now on; UsageError."""
    from pelton.api.times import parse_instant

    try:
        span: int = DURATION.convert(text, None, None)
    except click.BadParameter:
        pass
    else:
        return now_ns - span if back else now_ns + span
    full = text.replace(" ", "T", 1)
    full = full if "T" in full else full + "T00:00:00"
    for each in (full, full + "Z"):
        try:
            return parse_instant(each)
        except ValueError:
            continue
    raise click.UsageError(f'"{text}" is neither a time (2026-11-24 10:00:00) nor a duration (1h)')


def _linear(said: dict[str, Any]) -> list[Any]:
    """Waits that grow evenly: those of the ``nats`` command, which end one step before the longest."""
    from pelton.client.base.durations import Nanoseconds

    steps, first, last = said["backoff_steps"], said["backoff_min"], said["backoff_max"]
    if last < first:
        raise click.UsageError("--backoff-max is below --backoff-min")
    step_ns = (last - first) // steps
    return [Nanoseconds(first + step_ns * index) for index in range(steps)]


def _groups(said: dict[str, Any]) -> dict[str, Any]:
    given = [name for name in _GROUPS if name in said]
    if len(given) > 1:
        raise click.UsageError("give one kind of priority groups")
    if not given:
        return {}
    names = [part for each in said[given[0]] for part in each.replace(",", " ").split()]
    return {"priority_groups": names, "priority_policy": _GROUPS[given[0]]}


def read_config(text: bytes, place: str) -> ConsumerConfig:
    """The configuration in a text, alone or in the output of ``consumer info --json``; Mistakes."""
    from pelton.api import ConsumerConfig as Wire
    from pelton.api.codec import decode_response
    from pelton.cli.changes import read_fields
    from pelton.client.base.models import ConsumerConfig

    return decode_response(ConsumerConfig, read_fields(text, place, Wire))
