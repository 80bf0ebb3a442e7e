"""Entry point of ``pelton``: runs the command tree, and prints every error as one line."""

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper


def main(arguments: Sequence[str] | None = None, tool: str = "pelton") -> int:
    """Run the command line; the exit status (0 done, 1 not done, 2 wrong usage, 130 interrupted).

    As the tool `nats` it prints the texts of March 2020.
    """
    try:
        return _main(list(sys.argv[1:] if arguments is None else arguments), tool)
    except KeyboardInterrupt:  # also while modules are loaded
        return 130


def _main(given: list[str], tool: str) -> int:
    if given[:1] == ["serve"]:
        return run_server(given[1:])
    if given[:1] == ["run"]:
        return run_pipeline(given[1:])
    try:
        import click
    except ImportError:
        return complain(
            "the command line needs the packages click and rich: pip install click rich"
        )
    return _run(click, given, tool)


def _run(click: "ModuleType", given: list[str], tool: str) -> int:
    if isinstance(sys.stdout, TextIOWrapper):
        # a name that is not UTF-8 then becomes an escape in JSON, whatever the locale
        sys.stdout.reconfigure(errors="backslashreplace")
    from pelton.cli.failures import (
        Failure,
        ReaderGone,
        failure_of,
        tell,
        wants_json,
        without_number,
    )
    from pelton.cli.tree import pelton
    from pelton.core.libraries import NoServerError
    from pelton.errors import PeltonError

    as_json = wants_json(given)
    try:
        result = pelton.main(given, prog_name=tool, standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as shown:
        print(shown.format_message())
        return 0
    except click.ClickException as mistake:
        context = getattr(mistake, "ctx", None)
        hint = f"; see {context.command_path} --help" if context is not None else ""
        text = without_number(mistake.format_message())
        problems = getattr(mistake, "problems", ())
        text = text if problems else text.rstrip(".") + hint
        return tell(Failure(text, mistake.exit_code, problems=problems), as_json=as_json, tool=tool)
    except (click.Abort, KeyboardInterrupt):
        return 130
    except (BrokenPipeError, ReaderGone):
        # The reader of the output has closed it. Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (PeltonError, NoServerError, OSError, ValueError) as problem:
        return tell(failure_of(problem, tool), as_json=as_json, tool=tool)
    return result if isinstance(result, int) else 0


def run_server(arguments: list[str]) -> int:
    """``pelton serve``: the program pelton-server, without loading what only other commands need."""
    from pelton.server.__main__ import main as serve
    from pelton.server.options import SERVE

    return serve(arguments, SERVE)


def run_pipeline(arguments: list[str]) -> int:
    """``pelton run``: server, shipper, Spark tables."""
    from importlib.util import find_spec

    try:
        if find_spec("pyspark") is None:  # it is imported when a server runs and a folder is made
            raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
        from pelton.pipeline.logs.run import run
    except ImportError as problem:
        from pelton.errors import not_installed

        return complain(str(not_installed(problem, "spark")))
    return run(arguments)


def complain(text: str) -> int:
    """Print one line on stderr; the exit status."""
    from pelton.cli.failures import Failure, tell

    return tell(Failure(text), as_json=False)


TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

if __name__ == "__main__":
    sys.exit(main())
