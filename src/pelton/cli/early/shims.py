"""`pelton shims`, and the tools that it puts into a folder, as the programs that they are."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from pelton.cli.session import Session, command

TOOLS = ("nats", "nats-server", "jsm", "nats-pub", "nats-sub", "nats-req", "nats-bench")
_MARK = "# made by pelton shims"


def script(tool: str, python: str) -> str:
    """The text of the script that is a tool."""
    return f'#!/bin/sh\n{_MARK}\nexec {shlex.quote(python)} -m pelton.cli.early.shims {tool} "$@"\n'


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("-f", "--force", is_flag=True, help="Also replace programs of other makers.")
@command
@click.pass_obj
def shims(session: Session, folder: Path, force: bool) -> None:
    """Write jsm and the nats tools of 2019 and 2020 as scripts into FOLDER.

    They call this Pelton. Put the folder first in PATH to follow pages of that time.
    """
    for tool in TOOLS:
        path = folder / tool
        if path.exists() and not force and _MARK not in path.read_text(errors="replace"):
            raise click.ClickException(f"{path} is another program; --force replaces it")
    folder.mkdir(parents=True, exist_ok=True)
    for tool in TOOLS:
        path = folder / tool
        path.unlink(missing_ok=True)
        path.write_text(script(tool, sys.executable))
        path.chmod(0o755)
    if session.as_json:
        from pelton.cli.output import print_json

        print_json([str(folder / tool) for tool in TOOLS])
    else:
        print(f"wrote {', '.join(TOOLS)} into {folder}")


def main(arguments: list[str]) -> int:
    """Run the tool that the first argument names; its exit status."""
    tool, words = arguments[0], arguments[1:]
    if tool == "nats-server":
        from pelton.server.__main__ import main as serve

        return serve(words)
    if tool == "jsm":
        from pelton.cli.early.jsm import main as jsm

        return jsm(words)
    if tool == "nats":
        from pelton.cli.early.nats import main as nats

        return nats(words)
    from pelton.cli.early.core_tools import run

    return run(tool, words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
