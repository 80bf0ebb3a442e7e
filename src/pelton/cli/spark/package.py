"""``pelton spark package``: the archive that brings Pelton to the machines of a cluster."""

from __future__ import annotations

from pathlib import Path

import click

from pelton.cli.output import number, print_facts, print_json, size
from pelton.cli.session import Session, command


@click.command()
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path), metavar="OUT.zip")
@click.option(
    "--with",
    "more",
    multiple=True,
    metavar="NAME",
    help="Also add this installed distribution, such as deltalake; repeatable.",
)
@command
@click.pass_obj
def package(session: Session, out: Path, more: tuple[str, ...]) -> None:
    """Make OUT.zip of this installation, for spark-submit --py-files or --archives.

    The archive has the compiled modules of this Python, so the machines of the cluster must have
    the same Python version and processor.
    """
    from pelton.spark.packaging import PackagingError
    from pelton.spark.packaging import package as make

    if out.suffix != ".zip":
        raise click.BadParameter("a name that ends with .zip", param_hint="OUT.zip")
    try:
        made = make(out, more)
    except PackagingError as problem:
        raise click.ClickException(str(problem)) from None
    if session.as_json:
        print_json({**vars(made), "path": str(made.path), "contains": list(made.contains)})
        return
    facts = [
        ("for", made.made_for),
        ("with", ", ".join(made.contains)),
        ("files", number(made.files)),
        ("size", size(made.bytes)),
    ]
    print_facts(str(made.path), facts)
