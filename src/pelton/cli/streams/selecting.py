"""The options that choose streams: those of ``pelton stream find`` and ``stream cluster balance``."""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pelton.api.streams import REQUIRED_LEVEL_KEY
from pelton.cli.output import as_data
from pelton.cli.values import DURATION, PATTERN_ERRORS, Whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    import msgspec

    from pelton.api.streams import ClusterInfo
    from pelton.client.base.models import StreamInfo
    from pelton.client.sync.jetstream import JetStream

F = TypeVar("F", bound=Callable[..., Any])

"""The metadata in which a server says which API level a configuration needs."""

_OPTIONS = (
    click.option("--subject", default=None, help="Streams that take messages of this subject."),
    click.option(
        "--stored", is_flag=True, help="With --subject: only those that hold such messages."
    ),
    click.option("--empty", is_flag=True, help="Streams without messages."),
    click.option("--idle", type=DURATION, help="Streams without a new message for this time."),
    click.option(
        "--created", type=DURATION, help="Streams that were created longer ago than this."
    ),
    click.option("--consumers", type=Whole(0), help="Streams with at most so many consumers."),
    click.option("--replicas", type=Whole(1), help="Streams with at most so many replicas."),
    click.option("--sourced", is_flag=True, help="Streams with sources."),
    click.option("--mirrored", is_flag=True, help="Streams that mirror another one."),
    click.option("--leader", default=None, help="Clustered streams that this server leads."),
    click.option(
        "--server-name", metavar="REGEX", help="Clustered streams with a copy on such a server."
    ),
    click.option("--cluster", metavar="REGEX", help="Streams in such a cluster."),
    click.option("--api-level", type=Whole(0), help="Streams that need at least this API level."),
    click.option("--expression", metavar="EXPR", help="Streams for which this expression is true."),
    click.option("--invert/--no-invert", default=False, help="The streams that do not match."),
)


def selecting(function: F) -> F:
    """A command with the options; it hands them to ``selected``."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def selected(js: JetStream, asked: dict[str, Any]) -> list[StreamInfo]:
    """The streams that meet every given condition; UsageError."""
    if asked["stored"] and asked["subject"] is None:
        raise click.UsageError("--stored needs --subject")
    tests = [
        *pattern_tests(asked["server_name"], "--server-name", _servers),
        *pattern_tests(asked["cluster"], "--cluster", _cluster),
        *expression_tests(asked["expression"], _values),
    ]
    now_ns = time.time_ns()
    everything = js.streams()
    taking = set(js.stream_names(asked["subject"])) if asked["subject"] else set()
    return [
        each
        for each in everything
        if (_matches(js, each, asked, taking, now_ns) and all(test(each) for test in tests))
        != asked["invert"]
    ]


def pattern_tests(
    pattern: str | None, option: str, names: Callable[[Any], Sequence[str]]
) -> list[Callable[[Any], bool]]:
    """The test whether one of the names matches; none without a pattern. UsageError."""
    if pattern is None:
        return []
    try:
        compiled = re.compile(pattern)
    except PATTERN_ERRORS as error:
        text = f"{option}: {pattern!r} is not a regular expression: {error}"
        raise click.UsageError(text) from None
    return [lambda info: any(compiled.search(name) for name in names(info))]


def expression_tests(
    text: str | None, values: Callable[[Any], dict[str, Any]]
) -> list[Callable[[Any], bool]]:
    """The test whether an expression is true; none without one. UsageError."""
    if text is None:
        return []
    from pelton.cli.expressions import given_condition

    condition = given_condition(text, ("config", "state", "info", "Info"))
    now = datetime.datetime.now(datetime.UTC)
    return [lambda info: condition.holds(values(info), now)]


def values_of(
    info: msgspec.Struct, state: Callable[[dict[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    """The properties of a stream or consumer that an expression may use."""
    from pelton.cli.expressions.go_names import with_go_names

    data = as_data(info)
    config = data.get("config") or {}
    return {"config": config, "state": state(data), "info": data, "Info": with_go_names(data)}


def _values(info: StreamInfo) -> dict[str, Any]:
    return values_of(info, lambda data: data.get("state") or {})


def _servers(info: StreamInfo) -> list[str]:
    return servers_of(info.cluster)


def servers_of(cluster: ClusterInfo | None) -> list[str]:
    """The servers with a copy."""
    if cluster is None:
        return []
    return [name for name in (cluster.leader, *(each.name for each in cluster.replicas)) if name]


def _cluster(info: StreamInfo) -> list[str]:
    return [info.cluster.name] if info.cluster and info.cluster.name else []


def api_level(metadata: dict[str, str]) -> int:
    """The API level that a configuration needs, as far as the server tells."""
    level = metadata.get(REQUIRED_LEVEL_KEY, "0")
    return int(level) if level.isdigit() else 0


def _matches(
    js: JetStream,
    info: StreamInfo,
    asked: dict[str, Any],
    taking: set[str],
    now_ns: int,
) -> bool:
    """Whether all but the tests holds that is asked for; what costs a request comes last."""
    config, state = info.config, info.state
    idle, created = asked["idle"], asked["created"]
    consumers, replicas = asked["consumers"], asked["replicas"]
    leader = info.cluster.leader if info.cluster else ""
    return (
        not (asked["empty"] and state.messages)
        and not (asked["sourced"] and not config.sources)
        and not (asked["mirrored"] and config.mirror is None)
        and (idle is None or now_ns - max(state.last_ts, info.created) >= idle)
        and (created is None or now_ns - info.created >= created)
        and (consumers is None or state.consumer_count <= consumers)
        and (replicas is None or config.num_replicas <= replicas)
        and (asked["leader"] is None or leader == asked["leader"])
        and (asked["api_level"] is None or api_level(config.metadata) >= asked["api_level"])
        and (asked["subject"] is None or config.name in taking)
        and (not asked["stored"] or _holds(js, config.name, asked["subject"]))
    )


def _holds(js: JetStream, stream: str, subject: str) -> bool:
    return bool(js.stream_info(stream, subjects_filter=subject).state.subjects)
