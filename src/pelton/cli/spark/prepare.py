"""``pelton spark prepare``: an archive of Spark's classes, so that sessions start sooner."""

from __future__ import annotations

import click

from pelton.cli.output import print_facts, print_json, size
from pelton.cli.session import Session, command
from pelton.errors import not_installed


@click.command()
@command
@click.pass_obj
def prepare(session: Session) -> None:
    """Prepare an archive of the classes that Spark loads, once per machine, Java and Spark.

    This takes about a minute, and some 160 MB in the user's cache. Sessions of
    pelton.spark.session, and the pipeline, then start sooner.
    """
    try:
        from pelton.spark.java import JavaNotFoundError
        from pelton.spark.preparing import PrepareError, prepare

        made = prepare()
    except ImportError as problem:
        raise click.ClickException(str(not_installed(problem, "spark"))) from None
    except (PrepareError, JavaNotFoundError) as problem:
        raise click.ClickException(str(problem)) from None
    found = made.stat().st_size
    if session.as_json:
        print_json({"path": str(made), "bytes": found})
        return
    print_facts(str(made), [("size", size(found))])
