"""``pelton spark env``: the environment in which Spark's own commands run on this machine."""

from __future__ import annotations

import os
import shlex

import click

from pelton.cli.output import print_json
from pelton.cli.session import Session, command

NAMES = ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


@click.command()
@command
@click.pass_obj
def env(session: Session) -> None:
    """Print the environment for spark-submit and spark-pipelines, as commands of a shell.

    Spark's own commands run the java and the python3 that they find on PATH. With these variables they run a
    Java that Spark starts on (that of the extra spark, if there is no other) and this Python with its packages.

    \b
    eval "$(pelton spark env)"
    spark-submit orders.py
    """
    from pelton.spark.java import JavaNotFoundError, ensure_java

    try:
        ensure_java()
    except JavaNotFoundError as problem:
        raise click.ClickException(str(problem)) from None
    found = {name: os.environ[name] for name in NAMES}
    if session.as_json:
        print_json(found)
        return
    for name, value in found.items():
        click.echo(f"export {name}={shlex.quote(value)}")
