"""``pelton pipeline test`` and ``sample``: tests of a file without servers, and fixtures for them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pelton.cli.output import print_json_line
from pelton.cli.session import Session, command
from pelton.cli.spark.pipeline import FILE, Wrong, load_file
from pelton.errors import not_installed
from pelton.spark.parsing import SEQUENCE_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from pelton.pipeline.description.cases import Case
    from pelton.pipeline.description.model import Pipeline
    from pelton.pipeline.testing.running import Outcome


@click.command()
@FILE
@click.argument("name", required=False, metavar="[NAME]")
@click.option("--junit", type=click.Path(dir_okay=False), help="Write a report in JUnit's form.")
@command
@click.pass_obj
def test(session: Session, file: str, name: str | None, junit: str | None) -> int:
    """Run the tests of FILE, or the one called NAME; asks no server and writes nothing.

    Prints each test with its time, and the rows that are not as expected. With --json each test is a
    line. Exit status: 1 if a test fails.
    """
    pipeline = load_file(file, None)
    cases = chosen(pipeline, name)
    from pelton.spark.java import JavaNotFoundError, ensure_java

    try:
        from pelton.pipeline.running.preview import session_of
        from pelton.pipeline.running.stages import StepError
        from pelton.pipeline.testing.reporting import write_junit
        from pelton.pipeline.testing.running import session_settings

        ensure_java()
        with session_of(session_settings(pipeline)) as spark:
            outcomes = run_and_print(pipeline, spark, cases, as_json=session.as_json)
    except ModuleNotFoundError as problem:
        raise click.ClickException(str(not_installed(problem, "spark"))) from None
    except (StepError, JavaNotFoundError) as error:
        raise Wrong(str(error)) from None
    if junit is not None:
        try:
            write_junit(Path(junit), pipeline.name, outcomes)
        except OSError as error:
            raise click.ClickException(f"cannot write {junit}: {error.strerror}") from None
    return 0 if all(each.passed for each in outcomes) else 1


def chosen(pipeline: Pipeline, name: str | None) -> tuple[Case, ...]:
    """The tests of a pipeline, or the one with this name; raises ClickException if there is none."""
    from pelton.pipeline.description.cases import cases_of
    from pelton.pipeline.description.problems import PipelineError, did_you_mean

    try:
        cases = cases_of(pipeline, os.environ)
    except PipelineError as error:
        raise Wrong(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"cannot read {error.filename}: {error.strerror}") from None
    if not cases:
        raise click.ClickException(
            f"{pipeline.file} has no tests; a test is, in the section tests:"
            " name: {given: {source: [{data: text}]}, expect: {step: [{column: value}]}}"
        )
    if name is None:
        return cases
    found = tuple(case for case in cases if case.name == name)
    if not found:
        hint = did_you_mean(name, [case.name for case in cases])
        raise click.ClickException(f"{pipeline.file} has no test {name}{hint}")
    return found


def run_and_print(
    pipeline: Pipeline, spark: SparkSession, cases: Sequence[Case], *, as_json: bool = False
) -> list[Outcome]:
    """Run tests, and print each result as soon as it is known."""
    from pelton.pipeline.testing.reporting import as_data, text_of
    from pelton.pipeline.testing.running import run_cases

    width = max(len(case.name) for case in cases)
    outcomes = []
    for outcome in run_cases(pipeline, spark, cases):
        outcomes.append(outcome)
        if as_json:
            print_json_line(as_data(outcome))
            continue
        word = click.style("ok", fg="green") if outcome.passed else click.style("FAILED", fg="red")
        room = " " * (6 - len("ok" if outcome.passed else "FAILED"))
        click.echo(f"{outcome.case.name.ljust(width)}  {word}{room}  {outcome.seconds:.2f} s")
        for line in text_of(outcome).splitlines():
            click.echo(f"    {line}")
    if not as_json:
        failed = sum(not each.passed for each in outcomes)
        total = f"{len(outcomes)} test{'s' * (len(outcomes) != 1)}"
        click.echo(f"{total}, {failed} failed" if failed else f"{total} passed")
    return outcomes


@click.command()
@FILE
@click.argument("source", required=False, metavar="[SOURCE]")
@click.option(
    "--messages",
    type=click.IntRange(1, 100_000),
    default=20,
    show_default=True,
    help="How many messages; the last ones, or those from POSITION on.",
)
@click.option(
    "--from", "begin", metavar="POSITION", help="Read from a sequence or a time on; 41, earliest."
)
@click.option(
    "--where", metavar="CONDITION", help="Only messages that meet a condition of Spark's SQL."
)
@click.option("--output", type=click.Path(dir_okay=False), help="Write to this file.")
@command
def sample(
    file: str,
    source: str | None,
    messages: int,
    begin: str | None,
    where: str | None,
    output: str | None,
) -> int:
    """Write messages of a SOURCE of FILE as a fixture for tests: JSON lines.

    With --where the first messages that meet the condition, of the whole stream or from POSITION on.
    A payload is JSON, a text or base64. Messages may hold personal data: look through the file before
    you share it.

    \b
    pelton pipeline sample orders.yaml raw --messages 5 --output fixtures/orders.jsonl
    pelton pipeline sample orders.yaml raw --where "subject like 'orders.eu.%'"
    """
    pipeline = load_file(file, None)
    from pelton.spark.java import JavaNotFoundError, ensure_java

    try:
        from pelton.pipeline.running.preview import readable, session_of
        from pelton.pipeline.running.stages import StepError
        from pelton.pipeline.testing.sampling import samples, source_of

        ensure_java()
        name = source_of(pipeline, source)
        span = messages if where is None else SEQUENCE_MAX
        read = readable(pipeline, (name,), begin=begin, messages=span)
        with session_of(read) as spark:
            lines = list(samples(read, spark, name, messages, where))
    except ModuleNotFoundError as problem:
        raise click.ClickException(str(not_installed(problem, "spark"))) from None
    except (StepError, JavaNotFoundError) as error:
        raise Wrong(str(error)) from None
    safe = [pipeline.hide(line) for line in lines]
    if safe != lines:
        click.echo("pelton: warning: secrets of the file were replaced by ***", err=True)
    text = "".join(f"{line}\n" for line in safe)
    if output is None:
        click.echo(text, nl=False)
    else:
        try:
            Path(output).parent.mkdir(parents=True, exist_ok=True)
            Path(output).write_text(text)
        except OSError as error:
            raise click.ClickException(f"cannot write {output}: {error.strerror}") from None
        click.echo(f"{len(lines)} messages in {output}; they may hold personal data", err=True)
    return 0
