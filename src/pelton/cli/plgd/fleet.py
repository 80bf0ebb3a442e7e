"""``pelton plgd fleet``: the events of a made-up fleet as lines, its store, and its truth."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from pelton.cli.failures import DONE
from pelton.cli.output import print_json
from pelton.cli.plgd.lines import needs, written
from pelton.cli.plgd.making import config_of, fleet_options
from pelton.cli.progress import stages_bar
from pelton.cli.session import Session, command

if TYPE_CHECKING:
    from pelton.plgd.fleet import FleetRun

TELL_EVERY = 2000


@click.command()
@fleet_options
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="The file of the events, one JSON line each; - for stdout.",
)
@click.option(
    "--truth",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Write lost events with their cause, and the last state of every aggregate.",
)
@click.option(
    "--store",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Write the event store that the hub would have (SQLite).",
)
@click.option(
    "--states", is_flag=True, help="Keep only states in the store, as hubs since v2.16 do."
)
@command
@click.pass_obj
def fleet(
    session: Session,
    /,
    output: Path | None,
    truth: Path | None,
    store: Path | None,
    states: bool,
    **asked: Any,
) -> int:
    """Simulate a fleet of devices of a hub.

    \b
    pelton plgd fleet --devices 1000 --for 1h --faults some -o events.jsonl --truth truth.jsonl
    pelton plgd fleet --devices 20 --for 10m -o - | pelton plgd publish -
    """
    config = config_of(asked)
    from pelton.plgd.fleet import FleetRun, write_truth

    if states and store is None:
        raise click.UsageError("--states needs --store")
    if store is not None and store.exists():
        raise click.UsageError(f"{store} already exists")
    run = FleetRun(config, keep_events=store is not None and not states)
    started = time.monotonic()
    with ExitStack() as stack:
        to_stdout = str(output) == "-"
        file: TextIO | None = sys.stdout if to_stdout else None
        if output is not None and not to_stdout:
            file = stack.enter_context(output.open("w", encoding="utf-8"))
        tell = stack.enter_context(stages_bar(wanted=not to_stdout))
        for count, each in enumerate(run.deliveries(), 1):
            if file is not None:
                file.write(written(each.subject, each.payload, each.message_id))
            if count % TELL_EVERY == 0:
                tell("making events", count, None)
    seconds = time.monotonic() - started
    if truth is not None:
        write_truth(run.truth, truth)
    if store is not None:
        _fill(store, run, states)
    summary = run.truth.summary()
    if to_stdout:
        return DONE
    if session.as_json:
        print_json(summary | {"seconds": round(seconds, 3)})
        return DONE
    lost = sum(summary["lost"].values())
    rate = int(summary["delivered"] / max(seconds, 1e-9))
    print(
        f"{summary['stored']:,} events stored, {summary['delivered']:,} delivered, {lost:,} lost,"
        f" {summary['dead_letters']:,} damaged; {rate:,} events/s"
    )
    return DONE


def _fill(path: Path, run: FleetRun, states: bool) -> None:
    """Write the store."""
    try:
        from pelton.plgd.store import SqliteStore
    except ImportError as problem:
        raise needs(problem) from None
    with SqliteStore(path, history=not states) as store:
        store.fill(run.aggregates())
