"""``pelton pipeline plan``: what a changed file does at its next run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pelton.cli.output import print_json
from pelton.cli.session import Session, command
from pelton.cli.spark.pipeline import FILE, STATE, Wrong, load_file

if TYPE_CHECKING:
    from pelton.pipeline.description.model import Pipeline
    from pelton.pipeline.running.upgrade import Change, Upgrade

NOTHING, FAULTS, CHANGES = 0, 1, 2
_MARKS = {"added": "+", "changed": "~", "removed": "-"}
_LONGEST = 60


@click.command()
@FILE
@STATE
@command
@click.pass_obj
def plan(session: Session, file: str, state: str | None) -> int:
    """Show what has changed in FILE since the last run, and what the next run does with it.

    Runs nothing, and asks no server. Exit status: 0 if nothing has changed, 2 if something has, 1 if
    FILE has faults or a change is refused.
    """
    pipeline = load_file(file, state)
    from pelton.pipeline.description.functions import check_functions
    from pelton.pipeline.description.problems import PipelineError
    from pelton.pipeline.running.queries import StateError
    from pelton.pipeline.running.upgrade import upgrade_of

    if problems := check_functions(pipeline):
        raise Wrong(str(PipelineError(pipeline.file, problems)))
    try:
        found = upgrade_of(pipeline)
    except StateError as error:
        raise Wrong(str(error)) from None
    if session.as_json:
        _print_json(pipeline, found)
    else:
        _show(pipeline, found)
    if found.refused:
        return FAULTS
    return CHANGES if found.changed else NOTHING


def _print_json(pipeline: Pipeline, found: Upgrade) -> None:
    from pelton.pipeline.running.command import change_as_data

    changes = [change_as_data(each) for each in found.changes]
    for change in changes:
        del change["event"]
    print_json(
        {
            "pipeline": pipeline.name,
            "state": str(pipeline.state),
            "last_run": found.last_run,
            "changes": changes,
            "notes": found.notes,
        }
    )


def _show(pipeline: Pipeline, found: Upgrade) -> None:
    last = "has not run yet" if found.last_run is None else f"last run {found.last_run}"
    print(f"{pipeline.name}: {last}")
    print(f"state: {pipeline.state}")
    for change in found.changed:
        _show_change(change)
    same = [each.part for each in found.changes if each.kind == "unchanged"]
    if same:
        print(f"unchanged: {', '.join(same)}")
    for note in found.notes:
        print(f"note: {note}")


def _show_change(change: Change) -> None:
    print(f"{_MARKS[change.kind]} {change.part}")
    for key, (old, new) in change.keys.items():
        print(f"    {key}: {_shown(old)} -> {_shown(new)}")
    for effect in change.effects:
        print(f"    => {effect}")


def _shown(value: str | None) -> str:
    if value is None:
        return "(none)"
    line = " ".join(value.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
