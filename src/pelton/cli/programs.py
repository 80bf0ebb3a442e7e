"""Commands that are whole programs, with their own options."""

import sys

import click

OWN_OPTIONS = {
    "ignore_unknown_options": True,
    "allow_extra_args": True,
    "allow_interspersed_args": False,  # a "--" behind the first word is the program's
    "help_option_names": [],
}


@click.command(context_settings=OWN_OPTIONS, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[FILE]")
def serve(arguments: tuple[str, ...]) -> int:
    """Start a server, of a configuration FILE or without one, with the options of pelton-server.

    Without a file it has JetStream, listens on 127.0.0.1, and keeps its streams in the user's data
    folder. `pelton serve --help` lists the options.
    """
    from pelton.cli.__main__ import run_server

    return run_server(list(arguments))


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
