"""The options of commands that maintain tables."""

from __future__ import annotations

import click

from pelton.cli.values import DURATION, SIZE

_HOUR_NS = 3_600_000_000_000


def _hours(context: click.Context, option: click.Parameter, value: int) -> int:
    """Whole hours of a duration."""
    if value < _HOUR_NS:
        raise click.BadParameter(
            "1h or more: a batch under way may be about to commit younger files"
        )
    return -(-value // _HOUR_NS)


def _bytes(context: click.Context, option: click.Parameter, value: int) -> int:
    """A size that files may have."""
    if value < 1:
        raise click.BadParameter("a size of 1 byte or more")
    return value


TARGET_SIZE = click.option(
    "--target-size",
    "target_bytes",
    type=SIZE,
    default="128MB",
    show_default=True,
    callback=_bytes,
    help="Compact files to about this size; larger ones stay as they are.",
)
RETENTION = click.option(
    "--retention",
    "keep_hours",
    type=DURATION,
    default="7d",
    show_default=True,
    callback=_hours,
    help="Keep what was replaced less long ago; at least an hour.",
)
NO_COMPACT = click.option("--no-compact", is_flag=True, help="Leave small files as they are.")
DRY_RUN = click.option("--dry-run", is_flag=True, help="Only show the changes.")
