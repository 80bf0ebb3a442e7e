"""Commands that are whole programs, with their own options."""

import sys

import click

from pelton.cli.commands import asks_servers

OWN_OPTIONS = {
    "ignore_unknown_options": True,
    "allow_extra_args": True,
    "allow_interspersed_args": False,  # a "--" behind the first word is the program's
    "help_option_names": [],
}


@click.command(context_settings=OWN_OPTIONS, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def server(ctx: click.Context, arguments: tuple[str, ...]) -> object:
    """Start a server: the same as pelton-server; or ask running ones."""
    if asks_servers(arguments):
        from pelton.cli.tree import servers

        with servers.make_context("server", list(arguments), parent=ctx.parent) as inner:
            return servers.invoke(inner)
    from pelton.server.__main__ import main

    sys.exit(main(list(arguments)))


@click.command(context_settings=OWN_OPTIONS, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(arguments: tuple[str, ...]) -> None:
    """Start server, log shipper and Spark tables in one command."""
    from pelton.cli.__main__ import run_pipeline

    sys.exit(run_pipeline(list(arguments)))


@click.command(context_settings=OWN_OPTIONS, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def jsm(arguments: tuple[str, ...]) -> None:
    """The tool of 2019 for message sets and observables."""
    from pelton.cli.early.jsm import main

    sys.exit(main(arguments))
