"""The options that choose consumers: those of ``pelton consumer find`` and ``consumer cluster balance``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pelton.cli.streams.selecting import api_level, expression_tests, values_of
from pelton.cli.values import DURATION, Whole

if TYPE_CHECKING:
    from pelton.client.base.models import ConsumerInfo
    from pelton.client.sync.jetstream import JetStream

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--pull", is_flag=True, help="Pull consumers."),
    click.option("--push", is_flag=True, help="Push consumers."),
    click.option("--bound", is_flag=True, help="With a subscriber, or with waiting pulls."),
    click.option("--waiting", type=Whole(0), help="With waiting pulls, but fewer."),
    click.option("--ack-pending", type=Whole(0), help="With unacknowledged messages, but fewer."),
    click.option("--pending", type=Whole(0), help="With messages not delivered yet, but fewer."),
    click.option("--idle", type=DURATION, help="Without a delivery for this time."),
    click.option("--created", type=DURATION, help="Created longer ago than this."),
    click.option("--replicas", type=Whole(0), help="With at most so many replicas."),
    click.option("--leader", help="Led by this server."),
    click.option("--pinned", is_flag=True, help="Each of its priority groups has a pinned client."),
    click.option("--api-level", type=Whole(0), help="That need at least this API level."),
    click.option("--expression", metavar="EXPR", help="For which this expression is true."),
    click.option("--invert/--no-invert", default=False, help="The consumers that do not match."),
)


def selecting(function: F) -> F:
    """A command with the options; it hands them to ``selected``."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def selected(js: JetStream, stream: str, asked: dict[str, Any]) -> list[ConsumerInfo]:
    """The consumers that meet every given condition; UsageError."""
    if asked["pull"] and asked["push"]:
        raise click.UsageError("--pull and --push exclude each other")
    tests = expression_tests(asked["expression"], _values)
    now_ns = time.time_ns()
    return [
        each
        for each in js.consumers(stream)
        if (_matches(each, asked, now_ns) and all(test(each) for test in tests)) != asked["invert"]
    ]


_STATE = (
    "delivered",
    "ack_floor",
    "num_ack_pending",
    "num_redelivered",
    "num_waiting",
    "num_pending",
)


def _values(info: ConsumerInfo) -> dict[str, Any]:
    return values_of(info, lambda data: {name: data[name] for name in _STATE if name in data})


def _is_push(info: ConsumerInfo) -> bool:
    return bool(info.config and info.config.deliver_subject)


def _is_pinned(info: ConsumerInfo) -> bool:
    groups = info.priority_groups
    return bool(groups) and all(group.pinned_client_id for group in groups)


def _replicas(info: ConsumerInfo) -> int:
    return info.config.num_replicas if info.config else 0


def _last_active(info: ConsumerInfo) -> int:
    return info.delivered.last_active or info.created


_TESTS: dict[str, Callable[[ConsumerInfo, Any, int], bool]] = {
    "pull": lambda info, _, now: not _is_push(info),
    "push": lambda info, _, now: _is_push(info),
    "bound": lambda info, _, now: info.push_bound or info.num_waiting > 0,
    "waiting": lambda info, limit, now: 0 < info.num_waiting < limit,
    "ack_pending": lambda info, limit, now: 0 < info.num_ack_pending < limit,
    "pending": lambda info, limit, now: 0 < info.num_pending < limit,
    "idle": lambda info, span, now: now - _last_active(info) >= span,
    "created": lambda info, span, now: now - info.created >= span,
    "replicas": lambda info, limit, now: _replicas(info) <= limit,
    "leader": lambda info, name, now: info.cluster is not None and info.cluster.leader == name,
    "pinned": lambda info, _, now: _is_pinned(info),
    "api_level": lambda info, level, now: (
        api_level(info.config.metadata if info.config else {}) >= level
    ),
}


def _matches(info: ConsumerInfo, asked: dict[str, Any], now_ns: int) -> bool:
    return all(
        test(info, asked[name], now_ns)
        for name, test in _TESTS.items()
        if asked[name] is not None and asked[name] is not False
    )
