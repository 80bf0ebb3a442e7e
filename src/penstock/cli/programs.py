"""Commands that are whole programs, with their own options."""

import sys

import click

OWN_OPTIONS = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


@click.command(context_settings=OWN_OPTIONS, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def server(arguments: tuple[str, ...]) -> None:
    """Start a server: the same as penstock-server."""
    from penstock.server.__main__ import main

    sys.exit(main(list(arguments)))


@click.command(context_settings=OWN_OPTIONS, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(arguments: tuple[str, ...]) -> None:
    """Start server, log shipper and Spark tables in one command."""
    from penstock.cli.__main__ import run_pipeline

    sys.exit(run_pipeline(list(arguments)))
