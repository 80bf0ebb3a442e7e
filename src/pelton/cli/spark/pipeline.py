"""``pelton pipeline``: checks, runs and watches a pipeline file, or prints a first one."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pelton.cli.output import number, print_facts, print_json, print_json_line, print_table
from pelton.cli.session import Session, command
from pelton.errors import not_installed

if TYPE_CHECKING:
    from collections.abc import Callable

    from pelton.pipeline.description.model import Pipeline
    from pelton.pipeline.running.preview import Preview
    from pelton.pipeline.running.queries import Query
    from pelton.pipeline.running.status import QueryStatus, Status
    from pelton.pipeline.running.targets import Findings

F = TypeVar("F", bound="Callable[..., Any]")
STATE = click.option(
    "--state", type=click.Path(file_okay=False), help="Folder of the state, instead of the file's."
)
_TARGET = "pelton.pipeline.target"


def _keep_target(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    ctx.meta[_TARGET] = value


def FILE(function: F) -> F:  # noqa: N802  used like the options above
    """The argument FILE of a command, and the option for one of its targets."""
    target = click.option(
        "--target",
        metavar="NAME",
        expose_value=False,
        callback=_keep_target,
        help="One of the file's targets.",
    )
    return click.argument("file", type=click.Path(), metavar="FILE")(target(function))


_QUERIES = ("query", "batch", "done at", "stream", "sequence", "end", "lag")
_TABLES = ("sink", "query", "table", "version", "rows")
_RIGHT = frozenset({"batch", "sequence", "end", "lag", "version", "rows"})


class Wrong(click.ClickException):
    """Problems of a file or of a run, each on a separate line."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Print the lines."""
        return tuple(self.message.splitlines())


def load_file(file: str, state: str | None, target: str | None = None) -> Pipeline:
    """The pipeline of a file; raises ClickException with its faults.

    Without a ``target`` the command's option chooses, which other threads than its own do not have.
    """
    try:
        from pelton.pipeline.description.problems import PipelineError
        from pelton.pipeline.description.reading import load
    except ImportError as problem:
        raise click.ClickException(str(not_installed(problem, "spark"))) from None
    context = click.get_current_context(silent=True)
    if target is None and context is not None:
        target = context.meta.get(_TARGET)
    try:
        return load(file, state=state, target=target)
    except OSError as error:
        raise click.ClickException(f"cannot read {file}: {error.strerror}") from None
    except PipelineError as error:
        raise Wrong(str(error)) from None


@click.command()
@FILE
@STATE
@click.option("--sql/--no-sql", default=True, help="Have Spark check all SQL; needs Java.")
@click.option("--ask-servers", is_flag=True, help="Check streams, buckets and distant tables too.")
@command
@click.pass_obj
def check(session: Session, file: str, state: str | None, sql: bool, ask_servers: bool) -> int:
    """Check FILE and draw its graph; runs nothing.

    Loads the functions that the file names, and makes all steps on a Spark session that ends at once:
    it finds unknown columns and functions, wrong types, and targets on this machine whose columns do not
    fit. Asks servers only with --ask-servers. Exit status: 1 if the file has faults; each is a line with
    its place.
    """
    pipeline = load_file(file, state)
    queries, problems = planned(pipeline)
    notes: list[str] = []
    if sql:
        found = _analysed(pipeline, queries, ask_servers=ask_servers)
        problems += [line for line in found.problems if line not in problems]
        notes = [*found.warnings, *found.notes]
    elif ask_servers:
        from pelton.pipeline.running.targets import look_at_servers

        problems += look_at_servers(pipeline, queries)
    if problems:
        raise Wrong("\n".join(sorted(problems, key=_line)))
    from pelton.pipeline.description.drawing import draw

    lines = [pipeline.hide(line) for line in draw(pipeline)]
    if session.as_json:
        parts = [asdict(query) for query in queries]
        doubts = [asdict(each) for each in pipeline.warnings]
        print_json(
            {
                "pipeline": pipeline.name,
                "queries": parts,
                "graph": lines,
                "warnings": doubts,
                "notes": notes,
            }
        )
        return 0
    for warning in pipeline.warnings:
        click.echo(f"pelton: warning: {pipeline.file}:{warning.line}: {warning.text}", err=True)
    for note in notes:
        click.echo(f"pelton: warning: {note}", err=True)
    print(f"{pipeline.name}: {file} is valid")
    print("\n".join(["", *lines, ""]))
    for query in queries:
        print(f"query {query.name}: {', '.join(query.sources)} -> {', '.join(query.sinks)}")
    return 0


def _line(problem: str) -> int:
    number = problem.partition(": ")[0].rpartition(":")[2]
    return int(number) if number.isdigit() else 0


def _analysed(pipeline: Pipeline, queries: list[Query], *, ask_servers: bool) -> Findings:
    from pelton.pipeline.running.targets import Findings

    try:
        from pelton.pipeline.running.analysis import analyse
        from pelton.pipeline.running.preview import session_of
        from pelton.pipeline.running.stages import StepError
        from pelton.spark.java import JavaNotFoundError, ensure_java

        ensure_java()
        with session_of(pipeline, to_analyse=True) as spark:
            return analyse(pipeline, spark, queries, ask_servers=ask_servers)
    except (ImportError, JavaNotFoundError, StepError) as error:
        return Findings(pipeline, notes=[f"SQL is not checked: {error}"])


def planned(pipeline: Pipeline) -> tuple[list[Query], list[str]]:
    """The queries that a run would have, and what is wrong with them and with the functions."""
    from pelton.pipeline.description.functions import check_functions
    from pelton.pipeline.description.problems import PipelineError
    from pelton.pipeline.running.queries import StateError, committed, plan, recall

    problems = check_functions(pipeline)
    try:
        memory = recall(pipeline.state, pipeline.name)
    except StateError as error:
        raise Wrong(str(error)) from None
    queries, more = plan(pipeline, memory, lambda query: committed(pipeline.state, query))
    return queries, PipelineError(pipeline.file, [*problems, *more]).lines()


@click.command()
@FILE
@click.option("--once", is_flag=True, help="Process the available input, print a summary, end.")
@STATE
@command
@click.pass_obj
def run(session: Session, file: str, once: bool, state: str | None) -> int:
    """Run FILE until Ctrl-C, which stops it at the end of a batch; a second Ctrl-C stops at once.

    A run that was killed continues when you start it again, and each sink gets each row once. With
    --json each event of a query is a line, and the summary is the last line. Exit status: 1 after
    an error.
    """
    pipeline = load_file(file, state)
    from pelton.pipeline.description.problems import PipelineError
    from pelton.pipeline.running.command import RunFailed, run_command
    from pelton.pipeline.running.queries import StateError

    try:
        run_command(pipeline, once=once, as_json=session.as_json)
    except ModuleNotFoundError as problem:
        raise click.ClickException(str(not_installed(problem, "spark"))) from None
    except (PipelineError, RunFailed, StateError) as error:
        raise Wrong(str(error)) from None
    return 0


@click.command()
@FILE
@STATE
@command
@click.pass_obj
def status(session: Session, file: str, state: str | None) -> int:
    """Show the progress of the pipeline of FILE: batches, offsets, lag, tables. Needs no Spark."""
    from pelton.pipeline.running.queries import StateError

    pipeline = load_file(file, state)
    from pelton.pipeline.running.status import status_of

    try:
        found = status_of(pipeline)
    except StateError as error:
        raise click.ClickException(str(error)) from None
    if session.as_json:
        print_json(asdict(found))
        return 0
    _show(found)
    return 0


def _show(found: Status) -> None:
    running = f"running, process {found.running}" if found.running else "not running"
    print_facts(f"{found.pipeline}: {running}", [("state", found.state)])
    rows = [row for query in found.queries for row in _rows(query)]
    if rows:
        print()
        print_table(_QUERIES, rows, right=_RIGHT)
        tables = [
            (
                sink.name,
                query.name,
                sink.place,
                "" if sink.version is None else number(sink.version),
                "" if sink.rows is None else number(sink.rows),
            )
            for query in found.queries
            for sink in query.sinks
        ]
        print()
        print_table(_TABLES, tables, right=_RIGHT)
    problems = {place.problem for query in found.queries for place in query.places}
    problems |= {sink.problem for query in found.queries for sink in query.sinks}
    for problem in sorted(filter(None, problems)):
        print(f"unknown: {problem}")
    if found.not_begun:
        print(f"not begun: {', '.join(found.not_begun)}")


def _rows(query: QueryStatus) -> list[tuple[str, ...]]:
    batch = "" if query.batch < 0 else number(query.batch)
    head = (query.name, f"{batch} +1" if query.under_way else batch, query.at)
    found = [
        (
            place.stream,
            number(place.sequence),
            "" if place.last is None else number(place.last),
            "" if place.lag is None else number(place.lag),
        )
        for place in query.places
    ]
    found += [(offset, "", "", "") for offset in query.offsets]
    return [(*head, *each) for each in found or [("", "", "", "")]]


@click.command()
@FILE
@click.argument("name", required=False, metavar="[STEP]")
@click.option(
    "--rows", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Rows of each."
)
@click.option(
    "--from", "begin", metavar="POSITION", help="Read from a sequence or a time on; 41, earliest."
)
@click.option(
    "--messages",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    help="How many messages to read of each stream; the last ones, or those from POSITION on.",
)
@command
@click.pass_obj
def show(
    session: Session, file: str, name: str | None, rows: int, begin: str | None, messages: int
) -> int:
    """Show rows of a STEP of FILE, as a run would make them; without STEP those of every sink.

    STEP is a source, a step, step.rejected or a sink. Reads some messages of the streams, keeps no
    checkpoint and writes nothing. With --json each row is a line. Exit status: 1 after an error.

    \b
    pelton pipeline show orders.yaml
    pelton pipeline show orders.yaml checked.rejected --from 41 --messages 10
    """
    pipeline = load_file(file, None)
    from pelton.spark.java import JavaNotFoundError, ensure_java

    try:
        from pelton.pipeline.running.preview import named, previews, readable, session_of
        from pelton.pipeline.running.stages import StepError

        ensure_java()
        names = named(pipeline, name)
        pipeline = readable(pipeline, names, begin=begin, messages=messages)
        with session_of(pipeline) as spark:
            for shown, each in enumerate(previews(pipeline, spark, names, rows)):
                print_preview(each, names, first=shown == 0, as_json=session.as_json)
    except ModuleNotFoundError as problem:
        raise click.ClickException(str(not_installed(problem, "spark"))) from None
    except (StepError, JavaNotFoundError) as error:
        raise Wrong(str(error)) from None
    return 0


def print_preview(
    preview: Preview, names: tuple[str, ...], *, first: bool, as_json: bool = False
) -> None:
    """Print rows as a table, or as lines of JSON."""
    from pelton.cli.sql.formats import cell, objects_of

    if as_json:
        for batch in preview.rows.to_batches():
            for row in objects_of(batch):
                print_json_line({"step": preview.name, "row": row})
        return
    if len(names) > 1:
        print(f"{'' if first else chr(10)}{preview.name}: {preview.rows.num_rows} rows")
    lines = zip(*(column.to_pylist() for column in preview.rows.columns), strict=True)
    print_table(preview.rows.column_names, [tuple(cell(value) for value in line) for line in lines])


@click.command()
@FILE
@click.argument("sink", metavar="SINK")
@click.option("--where", metavar="CONDITION", help="Only rows of the table that meet this, in SQL.")
@click.option("--dry-run", is_flag=True, help="Show what would pass, and write nothing.")
@STATE
@command
@click.pass_obj
def replay(
    session: Session, file: str, sink: str, where: str | None, dry_run: bool, state: str | None
) -> int:
    """Process the rejected messages of SINK again, with the steps as FILE has them now.

    SINK is a sink that keeps step.rejected in a table. Its messages are read from their streams again; those that
    pass go to the other sinks of the step, each once, however often you replay. Exit status: 1 after an error.

    \b
    pelton pipeline replay orders.yaml bad_orders --dry-run
    pelton pipeline replay orders.yaml bad_orders --where "seq > 41"
    """
    pipeline = load_file(file, state)
    from pelton.spark.java import JavaNotFoundError, ensure_java

    try:
        from pelton.pipeline.running.preview import session_of
        from pelton.pipeline.running.replaying import replay, replayed_step
        from pelton.pipeline.running.stages import StepError

        ensure_java()
        replayed_step(pipeline, sink)
        with session_of(pipeline) as spark:
            found = replay(pipeline, spark, sink, where=where, dry_run=dry_run)
    except ModuleNotFoundError as problem:
        raise click.ClickException(str(not_installed(problem, "spark"))) from None
    except (StepError, JavaNotFoundError) as error:
        raise Wrong(str(error)) from None
    if session.as_json:
        print_json({**asdict(found), "dry_run": dry_run})
        return 0
    facts = [
        ("rejected messages", number(found.rejected)),
        ("replayed before", number(found.before)),
        ("would pass" if dry_run else "replayed now", number(found.replayed)),
        *((f"rows into {name}", number(rows)) for name, rows in found.rows.items()),
        ("still rejected", number(len(found.failing))),
        ("gone", number(len(found.gone))),
    ]
    print_facts(sink, facts)
    for line in found.gone:
        click.echo(f"pelton: warning: {line}", err=True)
    return 0


@click.command()
def init() -> None:
    """Print a first pipeline file, with comments."""
    from pelton.pipeline.description.example import EXAMPLE

    print(EXAMPLE, end="")
