"""The options of a made-up fleet, for every command that makes one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pelton.cli.plgd.lines import needs
from pelton.cli.values import DURATION, Word, pairs

if TYPE_CHECKING:
    from pelton.plgd.fleet import Faults, FleetConfig

F = TypeVar("F", bound=Callable[..., object])
REALISTIC: dict[str, float] = {
    "drop": 1e-4,
    "tail_drop": 0.01,
    "reorder": 1e-3,
    "duplicate": 1e-3,
    "hidden": 0.01,
}
"""The faults of a hub in a bad week, and a few of each kind of damage."""
DAMAGE: dict[str, float] = {"corrupt": 1e-4, "wrong_envelope": 1e-4, "unknown_type": 1e-4}


def fleet_options(function: F) -> F:
    """Options that make a fleet."""
    options = [
        click.option("--devices", default=100, show_default=True, help="How many devices."),
        click.option(
            "--for",
            "span",
            type=DURATION,
            default="1h",
            show_default=True,
            help="How long they run.",
        ),
        click.option(
            "--seed", default=0, show_default=True, help="The same seed, the same events."
        ),
        click.option("--hub", default="v2.25", show_default=True, help="The hub's version."),
        click.option(
            "--lead",
            type=Word(["first", "last", "none"]),
            default=None,
            help="With lead resource types in subjects; none: the bare token.",
        ),
        click.option(
            "--faults",
            "preset",
            type=Word(["none", "some"]),
            default="none",
            show_default=True,
            help="some: losses, late and double events, damage, at the rates of a hub in a bad week.",
        ),
        click.option(
            "--fault",
            multiple=True,
            metavar="NAME=VALUE",
            help="A fault: drop=0.01, tail_drop, reorder, duplicate, corrupt, wrong_envelope, unknown_type,"
            " hidden; outage=600-630 and restore=900-300 in seconds.",
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def config_of(asked: dict[str, Any]) -> FleetConfig:
    """The config that the options name; UsageError for one that cannot be."""
    try:
        from pelton.plgd import LeadType
        from pelton.plgd.fleet import FleetConfig
    except ImportError as problem:
        raise needs(problem) from None
    lead = asked["lead"]
    try:
        return FleetConfig(
            devices=asked["devices"],
            duration_s=asked["span"] / 1e9,
            seed=asked["seed"],
            hub=asked["hub"],
            lead=None if lead is None else LeadType(choice="" if lead == "none" else lead),
            faults=faults_of(asked["preset"], asked["fault"]),
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def faults_of(preset: str, given: tuple[str, ...]) -> Faults:
    """The faults that the options name."""
    from pelton.plgd.fleet import Faults

    made: dict[str, Any] = dict(REALISTIC | DAMAGE) if preset == "some" else {}
    rates = {field.name for field in fields(Faults) if field.type == "float"} - {"restore_back_s"}
    outages: list[tuple[float, float]] = []
    for name, text in pairs(given, "--fault").items():
        try:
            if name == "outage":
                begin, _, end = text.partition("-")
                outages.append((float(begin), float(end)))
            elif name == "restore":
                at, _, back = text.partition("-")
                made |= {"restore_at_s": float(at), "restore_back_s": float(back or 60)}
            elif name in rates:
                made[name] = float(text)
                if not 0 <= made[name] <= 1:
                    raise ValueError(f"{text} is no probability")
            else:
                known = ", ".join(sorted(rates | {"outage", "restore"}))
                raise ValueError(f"no fault {name!r}; there are {known}")
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--fault") from None
    return Faults(outages=tuple(outages), **made)
