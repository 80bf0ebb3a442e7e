"""Kinds of values on the command line: durations and sizes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    _Kind = click.ParamType[int]
else:
    _Kind = click.ParamType  # not generic in every supported version of click

_SIZE = re.compile(r"(\d+)([kmgt]?)(?:i?b)?", re.IGNORECASE)


class Duration(_Kind):
    """``250ms``, ``10s``, ``2m``, ``1h30m``; also ``1y``, ``6M``, ``2w``, ``30d``. In nanoseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Nanoseconds."""
        if isinstance(value, int):
            return value
        from penstock.api.times import parse_long_duration  # not needed by --help

        text = str(value)
        try:
            ns = parse_long_duration(text)
        except ValueError:
            self.fail(f'"{text}" is not a duration such as 250ms, 10s, 2m, 1h30m or 7d', param, ctx)
        if ns < 0:
            self.fail(f'"{text}" is negative', param, ctx)
        return ns


class Lifetime(Duration):
    """A duration, or -1 for none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Nanoseconds; 0 for -1."""
        return 0 if str(value) == "-1" else super().convert(value, param, ctx)


class Size(_Kind):
    """``1024``, ``64KB``, ``1MiB``, ``10G``: powers of 1024. In bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes; -1 for no limit."""
        text = str(value)
        if text == "-1":
            return -1
        found = _SIZE.fullmatch(text)
        if found is None:
            self.fail(f'"{text}" is not a size such as 65536, 64KB or 8MB', param, ctx)
        power = " kmgt".index(found[2].lower() or " ")
        return int(found[1]) * int(1024**power)


class Storage(click.Choice):
    """``file`` or ``memory``, also by their first letters as with the ``nats`` command."""

    def __init__(self) -> None:
        """The choice of the two."""
        super().__init__(["file", "memory"])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The whole word."""
        return super().convert({"f": "file", "m": "memory"}.get(value, value), param, ctx)


DURATION = Duration()
LIFETIME = Lifetime()
SIZE = Size()
STORAGE = Storage()


def pairs(given: Sequence[str], option: str) -> dict[str, str]:
    """The NAME=VALUE or NAME:VALUE texts of an option that may be repeated; BadParameter.

    The first of the two signs ends the name.
    """
    found = {}
    for each in given:
        parts = re.split("[=:]", each, maxsplit=1)
        if len(parts) != 2 or not parts[0]:
            raise click.BadParameter(
                f"{each!r}: expected NAME=VALUE or NAME:VALUE", param_hint=option
            )
        found[parts[0]] = parts[1]
    return found
