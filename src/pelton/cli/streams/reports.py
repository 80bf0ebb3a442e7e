"""``pelton stream report``, ``subjects`` and ``gaps``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from pelton.cli.output import (
    Figure,
    as_data,
    duration,
    number,
    print_json,
    print_names,
    print_table,
    size,
)
from pelton.cli.prompts import Asked
from pelton.cli.session import Session, command
from pelton.cli.values import Word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from pelton.client.base.models import StreamInfo

_COLUMNS = (
    "Stream",
    "Storage",
    "Placement",
    "Consumers",
    "Messages",
    "Bytes",
    "Lost",
    "Deleted",
    "Replicas",
)
_ORDERS: dict[str, Callable[[StreamInfo], object]] = {
    "consumers": lambda info: info.state.consumer_count,
    "messages": lambda info: info.state.messages,
    "name": lambda info: info.config.name,
    "storage": lambda info: info.config.storage,
}


@click.command()
@click.option("--subject", default=None, help="Only streams with this subject.")
@click.option("--cluster", "in_cluster", default=None, help="Only streams of this cluster.")
@click.option("-o", "--consumers", "order", flag_value="consumers", help="In order of consumers.")
@click.option("-m", "--messages", "order", flag_value="messages", help="In order of messages.")
@click.option("-n", "--name", "order", flag_value="name", help="In order of names.")
@click.option("-t", "--storage", "order", flag_value="storage", help="In order of storage.")
@click.option("-r", "--raw", is_flag=True, help="Numbers without units.")
@click.option("-l", "--leaders", is_flag=True, help="Also how many streams each server leads.")
@click.option("--dot", type=click.Path(dir_okay=False), help="Write mirrors and sources as DOT.")
@command
@click.pass_obj
def report(
    session: Session,
    subject: str | None,
    in_cluster: str | None,
    order: str | None,
    raw: bool,
    leaders: bool,
    dot: str | None,
) -> None:
    """Compare the streams: messages, bytes, consumers; and what mirrors and sources copy."""
    with session.connect() as client:
        found = session.jetstream(client).streams(subject)
    if in_cluster is not None:
        found = [each for each in found if each.cluster and each.cluster.name == in_cluster]
    key = _ORDERS[order or "name"]
    found.sort(key=lambda info: (key(info), info.config.name))
    if dot is not None:
        from pathlib import Path

        _write_dot(Path(dot), found)
    if session.as_json:
        print_json([as_data(info) for info in found])
        return
    print_table(_COLUMNS, [_row(info, raw) for info in found], right=frozenset(_COLUMNS[3:8]))
    origins = list(_origin_rows(found))
    if origins:
        print()
        print_table(("Stream", "Kind", "Origin", "Lag", "Active", "Error"), origins)
    if leaders:
        print()
        print_leaders(info.cluster.leader for info in found if info.cluster)


def _row(info: StreamInfo, raw: bool) -> tuple[str, ...]:
    config, state = info.config, info.state
    placement = config.placement
    place = ", ".join([placement.cluster, *placement.tags]).strip(", ") if placement else ""
    lost = len(state.lost.msgs or []) if state.lost else 0
    cells = (
        config.name,
        config.storage,
        place,
        number(state.consumer_count),
        number(state.messages),
        size(state.bytes),
        number(lost),
        number(state.num_deleted),
        _copies(info),
    )
    if not raw:
        return cells
    return tuple(str(cell.value) if isinstance(cell, Figure) else cell for cell in cells)


def _copies(info: StreamInfo) -> str:
    """The servers that hold copies: the leader with a star, one that is behind with a mark."""
    cluster = info.cluster
    if cluster is None or not cluster.replicas:
        return number(info.config.num_replicas)
    others = [each.name + ("" if each.current else "!") for each in cluster.replicas]
    return ", ".join([f"{cluster.leader}*", *others])


def _origin_rows(found: Iterable[StreamInfo]) -> Iterator[tuple[str, ...]]:
    for info in found:
        kind = "mirror" if info.mirror else "source"
        for each in [info.mirror] if info.mirror else info.sources:
            error = each.error.description if each.error else ""
            active = "never" if each.active < 0 else duration(each.active) or "now"
            yield (info.config.name, kind, each.name, number(each.lag), active, error or "")


def print_leaders(names: Iterable[str]) -> None:
    """Print how many streams or consumers each server leads."""
    from collections import Counter

    counts = Counter(name for name in names if name)
    rows = [(name, number(count)) for name, count in sorted(counts.items())]
    print_table(("Server", "Leads"), rows, right=frozenset(("Leads",)))


def _write_dot(path: Path, found: Iterable[StreamInfo]) -> None:
    """Streams as nodes, copies as edges from the origin; names are quoted as JSON quotes them."""
    lines = ["digraph streams {", "  rankdir=LR;"]
    for info in found:
        lines.append(f"  {json.dumps(info.config.name)};")
        for each in [info.mirror] if info.mirror else info.sources:
            style = "solid" if info.mirror else "dashed"
            edge = f"{json.dumps(each.name)} -> {json.dumps(info.config.name)}"
            lines.append(f"  {edge} [style={style}];")
    path.write_text("\n".join([*lines, "}"]) + "\n")


@click.command()
@click.argument("name", cls=Asked)
@click.argument("match", default=">")
@click.option(
    "--sort",
    "order",
    type=Word(["messages", "count", "name", "subjects"]),
    default="messages",
    show_default=True,
    help="Most messages first, or by name.",
)
@click.option("-R", "--reverse", is_flag=True, help="In the opposite order.")
@click.option("--names/--no-names", default=False, help="Only the subjects.")
@command
@click.pass_obj
def subjects(
    session: Session, name: str, match: str, order: str, reverse: bool, names: bool
) -> None:
    """Count the messages of each subject of the stream NAME; MATCH may have wildcards."""
    with session.connect() as client:
        info = session.jetstream(client).stream_info(name, subjects_filter=match)
    counts = sorted(info.state.subjects.items())
    if order in ("messages", "count"):
        counts.sort(key=lambda row: -row[1])
    if reverse:
        counts.reverse()
    if names:
        print_names(session, [subject for subject, _ in counts])
    elif session.as_json:
        print_json(dict(counts))
    else:
        rows = [(subject, number(count)) for subject, count in counts]
        print_table(("Subject", "Messages"), rows, right=frozenset(("Messages",)))


@click.command()
@click.argument("name", cls=Asked)
@click.option("-f", "--force", is_flag=True, help="Accepted for scripts; there is no question.")
@click.option("--progress/--no-progress", default=True, help="Accepted; one request is enough.")
@command
@click.pass_obj
def gaps(session: Session, name: str, force: bool, progress: bool) -> None:
    """List the runs of sequences between the first and the last that have no message."""
    with session.connect() as client:
        state = session.jetstream(client).stream_info(name, deleted_details=True).state
    found = list(runs(state.deleted))
    if session.as_json:
        print_json(found)
        return
    if not found:
        print(f"stream {name} has no gaps")
        return
    rows = [(number(first), number(last), number(last - first + 1)) for first, last in found]
    columns = ("First message", "Last message", "Messages")
    print_table(columns, rows, right=frozenset(columns))


def runs(sequences: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The runs of consecutive numbers in ascending sequences, as first and last."""
    first = last = 0
    for each in sequences:
        if first and each == last + 1:
            last = each
            continue
        if first:
            yield first, last
        first = last = each
    if first:
        yield first, last
