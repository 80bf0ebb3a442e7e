"""``penstock spark prepare``: an archive of Spark's classes, so that sessions start sooner."""

from __future__ import annotations

import click

from penstock.cli.output import print_facts, print_json, size
from penstock.cli.session import Session, command


@click.command()
@command
@click.pass_obj
def prepare(session: Session) -> None:
    """Prepare an archive of the classes that Spark loads, once per machine, Java and Spark.

    This takes about a minute, and some 160 MB in the user's cache. Sessions of
    penstock.spark.session, and the pipeline, then start sooner.
    """
    try:
        from penstock.spark.java import JavaNotFoundError
        from penstock.spark.preparing import PrepareError, prepare

        made = prepare()
    except ImportError as problem:
        raise click.ClickException(f"{problem}; pip install 'penstock[spark]'") from None
    except (PrepareError, JavaNotFoundError) as problem:
        raise click.ClickException(str(problem)) from None
    found = made.stat().st_size
    if session.as_json:
        print_json({"path": str(made), "bytes": found})
        return
    print_facts(str(made), [("size", size(found))])
