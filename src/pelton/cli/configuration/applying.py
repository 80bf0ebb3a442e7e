"""``pelton validate``, ``plan``, ``diff``, ``apply`` and ``export``: configuration as code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pelton.cli.configuration.declaring import (
    CHANGES,
    FILES,
    OWNER,
    PRUNE,
    VARIABLES,
    Command,
    WrongUsage,
    declared_in,
    planned,
    show,
    warn,
)
from pelton.cli.configuration.side_by_side import side_by_side
from pelton.cli.output import print_json
from pelton.cli.prompts import confirm
from pelton.cli.session import Session, command
from pelton.cli.values import DURATION, Word
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from pelton.apply.planning import Change


@click.command(cls=Command)
@FILES
@VARIABLES
@command
@click.pass_obj
def validate(session: Session, files: tuple[str, ...], variables: tuple[str, ...]) -> int:
    """Check FILEs without a server: names, types, units, references.

    A FILE is JSON, also with comments, YAML, TOML, Terraform, a manifest for Kubernetes, a folder of
    these, or - for the standard input.
    """
    declared = declared_in(files, variables)
    if session.as_json:
        found = [
            {"stream": each.stream, "consumer": each.consumer, "place": str(each.place)}
            for each in declared.resources
        ]
        found += [
            {"stream": each.stream, "entry": each.name, "place": str(each.place)}
            for each in declared.entries
        ]
        print_json({"resources": found, "warnings": [str(each) for each in declared.warnings]})
        return 0
    for place, title in declared.titles():
        print(shown(f"{place}: {title}"))
    return 0


@click.command(cls=Command)
@FILES
@VARIABLES
@OWNER
@PRUNE
@command
@click.pass_obj
def plan(
    session: Session, files: tuple[str, ...], variables: tuple[str, ...], owner: str, prune: bool
) -> int:
    """Show what apply would do. Exit status: 0 nothing, 2 changes, 1 an error."""
    declared = declared_in(files, variables)
    with session.connect() as client:
        found = planned(declared, session.jetstream(client), owner, prune, side_by_side)
    show(session, found)
    return 1 if found.refused else CHANGES if found.pending else 0


@click.command(cls=Command)
@FILES
@VARIABLES
@OWNER
@PRUNE
@click.option("-y", "--yes", "--auto-approve", is_flag=True, help="Do not ask.")
@click.option("--allow-data-loss", is_flag=True, help="Also what loses messages or positions.")
@click.option(
    "--watch", is_flag=True, help="Go on: change the server whenever it or a FILE changes."
)
@click.option(
    "--every",
    "every_ns",
    type=DURATION,
    default="30s",
    show_default=True,
    help="With --watch: look at least this often.",
)
@command
@click.pass_obj
def apply(
    session: Session,
    files: tuple[str, ...],
    variables: tuple[str, ...],
    owner: str,
    prune: bool,
    yes: bool,
    allow_data_loss: bool,
    watch: bool,
    every_ns: int,
) -> int:
    """Make streams, consumers and buckets as FILEs declare them.

    Shows the plan and asks. If a file has a mistake, or a part of the plan cannot be done, nothing
    changes. Exit status: 0 done, 1 an error.

    With --watch it does not ask, makes all changes that are possible, and runs until it is stopped.
    """
    if watch:
        from pelton.cli.configuration.reconciling import Order
        from pelton.cli.configuration.reconciling import watch as watch_on

        watch_on(session, Order(files, variables, owner, prune, True, allow_data_loss, every_ns))
        return 0
    declared = declared_in(files, variables)
    from pelton.apply.executing import check, execute

    with session.connect() as client:
        jetstream = session.jetstream(client)
        found = planned(declared, jetstream, owner, prune, side_by_side)
        if not session.as_json or not yes:
            show(session, found)
        check(found, allow_data_loss=allow_data_loss)
        if not found.pending:
            if session.as_json and yes:
                show(session, found)
            return 0
        if not yes:
            try:
                confirm("Make these changes?", option="--yes")
            except click.UsageError as mistake:
                raise WrongUsage(mistake) from None
        execute(
            jetstream,
            found,
            allow_data_loss=allow_data_loss,
            done=_teller(session),
            together=side_by_side,
        )
    if session.as_json:
        show(session, found)
    return 0


def _teller(session: Session) -> Callable[[Change], None]:
    words = {"create": "created", "update": "updated", "replace": "replaced", "delete": "deleted"}

    def tell(change: Change) -> None:
        if not session.as_json:
            print(shown(f"{words[change.action]} {change.title}"), flush=True)

    return tell


@click.command(cls=Command)
@click.option(
    "--format",
    "form",
    type=Word(["json", "yaml", "tf", "crd"]),
    default="yaml",
    show_default=True,
    help="JSON, YAML, Terraform, or manifests for Kubernetes.",
)
@click.option("--entries", is_flag=True, help="Also the entries of key-value buckets.")
@click.argument("streams", nargs=-1, metavar="[STREAM...]")
@command
@click.pass_obj
def export(session: Session, form: Any, entries: bool, streams: tuple[str, ...]) -> int:
    """Print the configuration of the server as a file for apply: all streams with consumers, or
    some STREAMs.

    Warns of fields that the format does not have.
    """
    _available()
    from pelton.apply.exporting import export as write
    from pelton.apply.inspecting import inspect, inspect_buckets

    with session.connect() as client:
        live = inspect(session.jetstream(client), together=side_by_side)
        if streams:
            live.keep_streams(streams)
        if entries:
            inspect_buckets(session.jetstream(client), live)
    if missing := sorted(set(streams) - live.streams.keys()):
        raise click.ClickException(f"stream {missing[0]} not found")
    text, doubts = write(live, form)
    warn(doubts)
    print(text, end="")
    return 0


def _available() -> None:
    try:
        import yaml  # noqa: F401  # is it there?
    except ImportError as problem:
        raise click.ClickException(f"{problem}; pip install pyyaml") from None
