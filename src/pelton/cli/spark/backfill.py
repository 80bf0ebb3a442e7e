"""``pelton pipeline backfill`` and ``rebuild``: older messages into sinks."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import click

from pelton.cli.output import print_json_line
from pelton.cli.session import Session, command
from pelton.cli.spark.pipeline import FILE, STATE, Wrong, load_file
from pelton.errors import not_installed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession

    from pelton.pipeline.backfilling.backfill import Progress
    from pelton.pipeline.children import Children
    from pelton.pipeline.description.model import Pipeline

_MESSAGES = click.option(
    "--messages",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
    help="How many messages a commit takes at most.",
)


@click.command()
@FILE
@click.option(
    "--from", "begin", metavar="POSITION", required=True, help="A sequence, a time or earliest."
)
@click.option(
    "--to", "end", metavar="POSITION", required=True, help="A sequence, a time or latest."
)
@click.option("--sink", "sinks", multiple=True, metavar="NAME", help="Only this sink; repeatable.")
@_MESSAGES
@click.option("--dry-run", is_flag=True, help="Say how many messages would be read; write nothing.")
@STATE
@command
@click.pass_obj
def backfill(
    session: Session,
    file: str,
    begin: str,
    end: str,
    sinks: tuple[str, ...],
    messages: int,
    dry_run: bool,
    state: str | None,
) -> int:
    """Write the messages between two positions of the stream into sinks of FILE, each once.

    Leaves out what the sink's query or an earlier back-fill has written, or will write. Works beside a
    pipeline that runs, and continues where it was killed. --to names the last sequence, or the time
    before which messages are read.

    \b
    pelton pipeline backfill orders.yaml --from earliest --to 2026-11-01T00:00:00Z --dry-run
    pelton pipeline backfill orders.yaml --from 1 --to 5000000 --sink orders
    """
    pipeline = load_file(file, state)
    with _told():
        from pelton.pipeline.backfilling.backfill import planned, taken, write
        from pelton.pipeline.backfilling.ranges import count
        from pelton.spark.java import ensure_java

        with taken(pipeline.state) as children:
            tasks = planned(pipeline, sinks, begin, end, messages)
            for task in tasks:
                left = count(task.left)
                if session.as_json:
                    row = {"sink": task.sink.name, "messages": left, "left_out": task.notes}
                    print_json_line(row)
                    continue
                notes = "".join(f"; {note}" for note in task.notes)
                what = f"up to {left:,} messages" if left else "nothing to write"
                click.echo(f"{task.sink.name}: {what}{notes}")
            if dry_run or not any(task.left for task in tasks):
                return 0
            ensure_java()
            with _session(pipeline, children) as spark:
                _show(write(pipeline, spark, tasks), as_json=session.as_json)
    return 0


@click.command()
@FILE
@click.argument("sink", metavar="SINK")
@_MESSAGES
@click.option(
    "--allow-loss", is_flag=True, help="Rebuild although the stream lacks its first messages."
)
@click.option("--dry-run", is_flag=True, help="Say how many messages would be read; write nothing.")
@STATE
@command
@click.pass_obj
def rebuild(
    session: Session,
    file: str,
    sink: str,
    messages: int,
    allow_loss: bool,
    dry_run: bool,
    state: str | None,
) -> int:
    """Make the table of a SINK of FILE anew, with the steps as they are now, in one commit.

    Reads the stream from its first message to the position of the sink's query, which continues from
    there. The pipeline must be stopped. The table is as it was until the commit, and the old version
    stays readable.
    """
    pipeline = load_file(file, state)
    with _told():
        from pelton.pipeline.backfilling import backfill as backfilling
        from pelton.pipeline.backfilling.rebuild import planned
        from pelton.pipeline.backfilling.rebuild import rebuild as made
        from pelton.pipeline.running.job import locked
        from pelton.spark.java import ensure_java

        with locked(pipeline.state) as children, backfilling.taken(pipeline.state):
            task = planned(pipeline, sink, allow_loss=allow_loss)
            if session.as_json:
                print_json_line({"sink": sink, "messages": task.total})
            else:
                click.echo(f"{sink}: up to {task.total:,} messages")
            if dry_run:
                return 0
            ensure_java()
            with _session(pipeline, children) as spark:
                _show(made(pipeline, spark, task, messages), as_json=session.as_json)
            if not session.as_json:
                click.echo(f"{sink}: replaced in one commit; the former version stays readable")
    return 0


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Faults as lines."""
    try:
        from pelton.pipeline.backfilling.ranges import LedgerError
        from pelton.pipeline.running.queries import StateError
        from pelton.pipeline.running.stages import StepError
        from pelton.spark.java import JavaNotFoundError
    except ModuleNotFoundError as problem:
        raise click.ClickException(str(not_installed(problem, "spark"))) from None
    try:
        yield
    except ModuleNotFoundError as problem:
        raise click.ClickException(str(not_installed(problem, "spark"))) from None
    except (StepError, StateError, LedgerError, JavaNotFoundError) as error:
        raise Wrong(str(error)) from None


@contextlib.contextmanager
def _session(pipeline: Pipeline, children: Children) -> Iterator[SparkSession]:
    """A session whose JVM the next start ends, should this process be killed."""
    from pelton.pipeline.running.preview import session_of
    from pelton.spark.session import jvm_pid

    with session_of(pipeline) as spark:
        if (pid := jvm_pid(spark)) is not None:
            children.remember("jvm", pid)
        yield spark
    children.forget("jvm")


def _show(progress: Iterable[Progress], *, as_json: bool) -> None:
    for each in progress:
        if as_json:
            print_json_line(
                {
                    "sink": each.sink,
                    "done": each.done,
                    "total": each.total,
                    "seconds": round(each.seconds, 3),
                }
            )
        else:
            click.echo(f"{each.sink}: {each.done:,} of {each.total:,}, {each.seconds:.1f} s")
