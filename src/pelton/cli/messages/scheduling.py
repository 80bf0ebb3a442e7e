"""The options of ``pelton pub`` that let a stream publish later, or again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from pelton.cli.values import DURATION

if TYPE_CHECKING:
    from collections.abc import Callable

    from pelton.client.base.models import PubAck
    from pelton.client.sync.jetstream import JetStream

F = TypeVar("F", bound="Callable[..., object]")

_TIMES = {
    "schedule_at": "at",
    "schedule_after": "delay",
    "schedule_every": "every",
    "schedule_cron": "cron",
}
_OPTIONS = [
    click.option(
        "--schedule-at", "--schedule", "--at", help="Let the stream publish at this time."
    ),
    click.option("--schedule-after", "--after", type=DURATION, help="The same, after this time."),
    click.option("--schedule-every", "--every", type=DURATION, help="The same, at this interval."),
    click.option(
        "--schedule-cron",
        "--cron",
        help='The same, by a cron pattern of six fields, seconds first ("0 0 8 * * mon-fri").',
    ),
    click.option("--schedule-dest", "--dest", help="Subject that the stream publishes to."),
    click.option("--schedule-source", help="Publish the last message of this subject, not BODY."),
    click.option("--schedule-ttl", type=DURATION, help="How long the published messages are kept."),
    click.option("--schedule-tz", help="Time zone of the cron pattern, such as Europe/Berlin."),
]


def scheduled(function: F) -> F:
    """The options of a schedule."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def wants_schedule(given: dict[str, Any]) -> bool:
    """Whether the options ask for a schedule; UsageError for some that only go with one."""
    times = [name for name in _TIMES if given[name] is not None]
    if len(times) > 1:
        raise click.UsageError("give one of --at, --after, --every and --cron")
    if times and given["schedule_dest"] is None:
        raise click.UsageError("--schedule-dest is missing: the subject to publish to")
    others = [name for name in given if name not in _TIMES and given[name] is not None]
    if others and not times:
        option = "--" + others[0].replace("_", "-")
        raise click.UsageError(f"{option} needs one of --at, --after, --every and --cron")
    return bool(times)


def schedule(
    js: JetStream,
    subject: str,
    data: bytes,
    headers: dict[str, list[str]],
    given: dict[str, Any],
) -> PubAck:
    """Store the schedule."""
    from pelton.client.base.durations import Nanoseconds

    times = {field: given[name] for name, field in _TIMES.items() if given[name] is not None}
    for field in ("delay", "every"):
        if field in times:
            times[field] = Nanoseconds(times[field])
    ttl = given["schedule_ttl"]
    return js.schedule(
        subject,
        data,
        target=given["schedule_dest"],
        source=given["schedule_source"],
        time_zone=given["schedule_tz"],
        ttl=None if ttl is None else Nanoseconds(ttl),
        headers=headers,
        **times,
    )
