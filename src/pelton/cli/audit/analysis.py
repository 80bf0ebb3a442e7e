"""``pelton audit analyze`` and ``checks``: the state of a deployment, from an archive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.audit.archive import ArchiveError, Reader
from pelton.cli.audit.catalog import checks
from pelton.cli.audit.check import FAIL, OUTCOMES, PASS, SKIP, WARN, Check, Result, run
from pelton.cli.inputs import read_input
from pelton.cli.output import print_facts, print_json, print_table
from pelton.cli.session import Session, command
from pelton.cli.values import Real
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KIND = "io.nats.audit.v1.analysis"
_COLOURS = {PASS: "green", WARN: "yellow", FAIL: "red", SKIP: "cyan"}


@click.command("checks")
@command
@click.pass_obj
def checks_(session: Session) -> None:
    """List the checks with their thresholds."""
    found = checks()
    if session.as_json:
        print_json([_check_data(each) for each in found])
        return
    rows = [
        (
            each.code,
            each.suite,
            each.name,
            each.text,
            ", ".join(
                f"{t.key} {t.default:g}{' ' + t.unit if t.unit else ''}" for t in each.thresholds
            ),
        )
        for each in found
    ]
    print_table(("Code", "Suite", "Name", "Sound is", "Thresholds"), rows)


def _check_data(check: Check) -> dict[str, Any]:
    return {
        "code": check.code,
        "suite": check.suite,
        "name": check.name,
        "description": check.text,
        "configuration": {
            each.key: {
                "key": each.key,
                "check": check.code,
                "description": each.text,
                "unit": each.unit,
                "default": each.default,
            }
            for each in check.thresholds
        },
    }


def _thresholds(function: Any) -> Any:
    """An option for each threshold, such as --accounts_001_connections."""
    for check in reversed(checks()):
        for each in reversed(check.thresholds):
            name = f"{check.code.lower()}_{each.key}"
            function = click.option(
                f"--{name}",
                name,
                type=Real(),
                default=None,
                show_default=f"{each.default:g}",
                help=f"{each.text}{', in ' + each.unit if each.unit else ''}.",
            )(function)
    return function


@click.command("analyze")
@click.argument(
    "archive", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False
)
@click.option(
    "--max-examples", default=5, show_default=True, help="Findings of each check; 0: all."
)
@click.option("--skip", multiple=True, metavar="CODE", help="Do not make this check or suite.")
@click.option(
    "--load",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Show a saved report.",
)
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Save the report.")
@click.option("-f", "--force", is_flag=True, help="Replace an existing report.")
@click.option("--markdown", is_flag=True, help="Print Markdown.")
@click.option("--verbose", is_flag=True, help="Also say why checks were skipped.")
@_thresholds
@command
@click.pass_obj
def analyze(
    session: Session,
    /,
    archive: Path | None,
    max_examples: int,
    skip: Sequence[str],
    load: Path | None,
    save: Path | None,
    force: bool,
    markdown: bool,
    verbose: bool,
    **thresholds: float | None,
) -> int:
    """Make all checks over the ARCHIVE that pelton audit gather wrote.

    Ends with 1 if a check fails.
    """
    if (archive is None) == (load is None):
        raise click.UsageError("give an ARCHIVE, or --load with a saved report")
    if save is not None and save.exists() and not force:
        raise click.ClickException(f"{save} already exists; --force replaces it")
    report = _loaded(load) if load is not None else _analyzed(archive or Path(), skip, thresholds)
    if save is not None:
        save.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    shortened = _shortened(report, max_examples)
    if session.as_json:
        print_json(shortened)
    elif markdown or session.form == "md":
        print(_markdown(shortened), end="")
    else:
        _print(shortened, verbose)
    return 1 if report["outcomes"].get(FAIL) else 0


def _analyzed(
    path: Path, skip: Sequence[str], thresholds: Mapping[str, float | None]
) -> dict[str, Any]:
    import time

    from pelton.api.times import format_time

    known = {name for each in checks() for name in (each.code, each.suite)}
    skipped = {each.upper() for each in skip}
    unknown = skipped - {each.upper() for each in known}
    if unknown:
        raise click.UsageError(f"there is no check {min(unknown)}; see pelton audit checks")
    try:
        archive = Reader(path)
    except ArchiveError as error:
        raise click.ClickException(str(error)) from None
    results = []
    for check in checks():
        if {check.code.upper(), check.suite.upper()} & skipped:
            results.append(Result(check, SKIP, error="skipped as asked"))
            continue
        prefix = f"{check.code.lower()}_"
        given = {
            name.removeprefix(prefix): value
            for name, value in thresholds.items()
            if name.startswith(prefix) and value is not None
        }
        results.append(run(check, archive, given))
    outcomes = {name: sum(each.outcome == name for each in results) for name in OUTCOMES}
    metadata = archive.metadata()
    archive.close()
    return {
        "type": KIND,
        "time": format_time(time.time_ns()),
        "metadata": metadata,
        "skipped_checks": sorted(skipped),
        "results": [_result_data(each) for each in results],
        "outcomes": outcomes,
    }


def _result_data(result: Result) -> dict[str, Any]:
    return {
        "check": _check_data(result.check),
        "outcome": OUTCOMES.index(result.outcome),
        "outcome_string": result.outcome,
        "examples": {"examples": list(result.examples), "error": result.error},
    }


def _loaded(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_input(path))
        if found.get("type") == KIND:
            return dict(found)
    except (ValueError, AttributeError):
        pass
    raise click.ClickException(f"{path} is no saved report of pelton audit analyze")


def _shortened(report: dict[str, Any], most: int) -> dict[str, Any]:
    results = []
    for each in report["results"]:
        examples = list((each.get("examples") or {}).get("examples") or ())
        more = len(examples) - most if most and len(examples) > most else 0
        found = {**(each.get("examples") or {}), "examples": examples[: len(examples) - more]}
        results.append({**each, "examples": {**found, "more": more} if more else found})
    return {**report, "results": results}


def _lines(result: Mapping[str, Any]) -> list[str]:
    examples = result["examples"]
    lines = [str(each) for each in examples.get("examples") or ()]
    if examples.get("more"):
        lines.append(f"and {examples['more']} more")
    return lines


def _print(report: Mapping[str, Any], verbose: bool) -> None:
    about = report.get("metadata") or {}
    print_facts(
        "Audit",
        [
            ("Gathered", str(about.get("capture_timestamp") or "")),
            ("Server", str(about.get("connected_server_name") or "")),
            ("By", str(about.get("user_name") or "")),
        ],
    )
    for each in report["results"]:
        outcome, check = each["outcome_string"], each["check"]
        word = click.style(outcome, fg=_COLOURS.get(outcome))
        click.echo(f"[{word}] {check['code']}: {shown(str(check['description']))}")
        for line in _lines(each):
            click.echo(f"         {shown(line)}")
        if (error := each["examples"].get("error")) and verbose:
            click.echo(f"         {shown(str(error))}")
    counts = (f"{count} {name.lower()}" for name, count in report["outcomes"].items())
    click.echo(f"\n{len(report['results'])} checks: {', '.join(counts)}")


def _markdown(report: Mapping[str, Any]) -> str:
    about = report.get("metadata") or {}
    text = ["# Audit\n"]
    text.append(
        f"Gathered {about.get('capture_timestamp', '')} from {about.get('connected_server_name', '')}.\n"
    )
    text.append("| check | outcome | sound is |\n|---|---|---|")
    text += [
        f"| {each['check']['code']} | {each['outcome_string']} | {each['check']['description']} |"
        for each in report["results"]
    ]
    for each in report["results"]:
        lines = _lines(each)
        if lines:
            text.append(f"\n## {each['check']['code']}: {each['check']['name']}\n")
            text += [f"- {' '.join(line.split())}" for line in lines]
    return "\n".join(text) + "\n"
