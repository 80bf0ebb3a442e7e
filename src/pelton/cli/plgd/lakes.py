"""The tables that ``pelton plgd run`` and ``backfill`` write: Delta, or Iceberg by option."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pelton.cli.values import Whole, Word, pairs
from pelton.errors import not_installed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pelton.plgd.spark.lake import Lake
    from pelton.plgd.tables.folders import Noted

DELTA, ICEBERG = "delta", "iceberg"


def table_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which tables."""
    for option in reversed(
        [
            click.option(
                "--buckets",
                type=Whole(1, 4096),
                default=None,
                help="Into how many shares devices are divided: 8, or as tables that are there.",
            ),
            click.option(
                "--tables",
                "kind",
                type=Word([DELTA, ICEBERG]),
                default=None,
                help="The format of new tables; else those that are there, or delta.",
            ),
            click.option(
                "--catalog-property",
                "catalog",
                multiple=True,
                metavar="NAME=VALUE",
                help="Property of the catalog of Iceberg tables, as uri=http://rest:8181; repeatable. By default"
                " the catalog of existing tables, or a file in FOLDER.",
            ),
            click.option(
                "--namespace",
                default=None,
                help="Namespace of Iceberg tables in their catalog; by default that of existing tables, or plgd.",
            ),
        ]
    ):
        function = option(function)
    return function


def lake_of(tables: Path, given: dict[str, Any], *, make: bool = True) -> Lake:
    """Take the options of tables out of those of a command: the tables, made if they are not there.

    Without ``make`` it is an error if they are not there.
    """
    buckets, kind, namespace = (given.pop(name) for name in ("buckets", "kind", "namespace"))
    catalog = pairs(given.pop("catalog"), "--catalog-property")
    try:
        from pelton.plgd.spark.lake import Lake
        from pelton.plgd.tables import Settings
        from pelton.plgd.tables.folders import is_delta, is_iceberg
        from pelton.spark.parsing import OptionError
        from pelton.spark.tables.places import TableError
    except ImportError as problem:
        raise click.ClickException(str(not_installed(problem, "plgd"))) from None
    there = ICEBERG if is_iceberg(tables) or catalog else DELTA if is_delta(tables) else None
    if there == ICEBERG and is_delta(tables):
        raise click.ClickException(f"the tables at {tables} are delta tables: use another folder")
    if kind and there and kind != there:
        raise click.ClickException(f"the tables at {tables} are {there} tables, not {kind}")
    if there is None and not make:
        raise click.ClickException(f"there are no tables of a hub at {tables}")
    where = _where(tables, catalog, namespace)
    settings = Settings() if buckets is None else Settings(buckets=buckets)
    try:
        if (kind or there) == ICEBERG:
            lake = _iceberg(tables, settings, where)
        else:
            lake = Lake(tables, settings)
        made = lake.made_with()
        if made is None and not make:
            raise click.ClickException(f"there are no tables of a hub at {lake.where('raw')}")
        if buckets is None and made is not None:
            lake.settings = Settings(buckets=made)
        lake.create()
    except (TableError, OptionError) as error:
        raise click.ClickException(str(error)) from None
    return lake


def _where(tables: Path, catalog: dict[str, str], namespace: str | None) -> Noted:
    """The place of Iceberg tables, from the options and the note in the folder."""
    from pelton.plgd.tables.folders import CATALOG, NOTE, Noted, noted

    try:
        there = noted(tables)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    beside = (tables / CATALOG).is_file() and not there.properties
    if not beside and not (tables / NOTE).is_file():
        return Noted(namespace or there.namespace, catalog)
    known = {"namespace": there.namespace, **there.properties}
    if beside:
        uri = f"sqlite:///{tables.absolute() / CATALOG}"
        known |= {"type": "sql", "uri": uri, "warehouse": f"file://{tables.absolute()}"}
    asked = {"namespace": namespace, **catalog}
    for name, text in asked.items():
        if text and name in known and text != known[name]:
            raise click.ClickException(
                f"the tables of {tables} are in another catalog: {name} is {known[name]} there, not {text}."
                f" Use another folder; if the catalog has moved, change {tables / NOTE}"
            )
    return Noted(there.namespace, there.properties | catalog)


def _iceberg(tables: Path, settings: Any, where: Noted) -> Lake:
    try:
        from pelton.plgd.spark.homes import CatalogHome
        from pelton.plgd.spark.lake import Lake

        home = CatalogHome(tables, where.properties, namespace=where.namespace)
    except ImportError as problem:
        raise click.ClickException(str(not_installed(problem, "plgd,iceberg"))) from None
    return Lake(home, settings)
