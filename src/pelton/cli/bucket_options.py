"""The options that key-value buckets and object stores share, and the configuration they describe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from pelton.cli.values import LIFETIME, SIZE, Whole, pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

F = TypeVar("F", bound="Callable[..., object]")

SHARED = {
    "max_bucket_size": "max_bytes",
    "description": "description",
    "replicas": "replicas",
    "compress": "compression",
    "storage": "storage",
}
"""Options whose value is a field of the configuration, and that field."""


def bucket_options(
    what: str, *, values: str, compressed: str, own: Sequence[Any] = (), last: Sequence[Any] = ()
) -> Callable[[F], F]:
    """A decorator with the options of ``add`` and ``edit``.

    ``what`` is the noun of the help texts, ``values`` what it keeps, ``compressed`` what is smaller on
    the disk. ``own`` options stand behind --ttl, ``last`` ones at the end.
    """
    options = [
        click.option("--description", default=None, help=f"The description of the {what}."),
        click.option(
            "--ttl",
            type=LIFETIME,
            default=None,
            help=f"How long {values} are kept, such as 30d; -1: for ever, the default.",
        ),
        *own,
        click.option(
            "--max-bucket-size",
            type=SIZE,
            default=None,
            help=f"Most bytes of the {what}, such as 10GB; -1: no limit, the default.",
        ),
        click.option(
            "--replicas",
            type=Whole(1, 5),
            default=None,
            help="Copies in a cluster; 1 by default.",
        ),
        click.option(
            "--compress/--no-compress",
            default=None,
            help=f"Compress {compressed} on the server's disk.",
        ),
        click.option(
            "--metadata",
            multiple=True,
            metavar="NAME=VALUE",
            help="A name and a value for the metadata; repeatable.",
        ),
        click.option("--cluster", default=None, help=f"Cluster that should hold the {what}."),
        click.option("--tags", multiple=True, help="Tag that its servers must have; repeatable."),
        *last,
    ]

    def configured(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return configured


def shared_changes(
    given: Mapping[str, Any], own: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The fields of a configuration that the options change. ``own``: further options and their fields."""
    from pelton.client.base.durations import Nanoseconds
    from pelton.client.base.models import Placement

    fields = SHARED | dict(own or {})
    found = {
        field: given[option] for option, field in fields.items() if given.get(option) is not None
    }
    if given["ttl"] is not None:
        found["ttl"] = Nanoseconds(given["ttl"])
    if given["metadata"]:
        found["metadata"] = pairs(given["metadata"], "--metadata")
    if given["cluster"] or given["tags"]:
        found["placement"] = Placement(cluster=given["cluster"] or "", tags=list(given["tags"]))
    return found
