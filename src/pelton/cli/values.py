"""Kinds of values on the command line: durations, sizes and numbers, all within the protocol's bounds."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    _Kind = click.ParamType[int]
    _Choice = click.Choice[str]
else:
    _Choice = click.Choice
    _Kind = click.ParamType  # not generic in every supported version of click

INT32_MOST, INT64_MOST, UINT64_MOST = (1 << 31) - 1, (1 << 63) - 1, (1 << 64) - 1
PATTERN_ERRORS = (re.error, RecursionError, OverflowError)
"""Reasons why a text is not a regular expression: its form, its depth, its numbers."""
_WIDTHS = (INT32_MOST, INT64_MOST, UINT64_MOST)
_LETTERS_MOST = 100  # of a wrong value in an error text


class Duration(_Kind):
    """``250ms``, ``10s``, ``2m``, ``1h30m``; also ``1y``, ``6M``, ``2w``, ``30d``. In nanoseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Nanoseconds."""
        if isinstance(value, int):
            return value
        from pelton.api.times import DurationTooLongError, parse_long_duration  # not for --help

        text = str(value)
        try:
            ns = parse_long_duration(text)
        except DurationTooLongError as problem:
            self.fail(str(problem), param, ctx)
        except ValueError:
            said = text[:_LETTERS_MOST]
            self.fail(f'"{said}" is not a duration such as 250ms, 10s, 2m, 1h30m or 7d', param, ctx)
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

    def __init__(self, most: int = INT64_MOST) -> None:
        """The largest one."""
        self.most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes; -1 for no limit."""
        text = str(value)
        if text == "-1":
            return -1
        from pelton.api.sizes import SizeError, parse_size  # not for --help

        try:
            return parse_size(text, most=self.most)
        except SizeError as problem:
            self.fail(str(problem), param, ctx)


class Whole(click.IntRange):
    """A whole number between two bounds; the upper one is that of 64 bits by default."""

    def __init__(self, low: int | None = None, high: int = INT64_MOST) -> None:
        """The bounds, both included; without a lower one, that of 64 bits."""
        self.open = low is None
        self.name = "integer" if self.open else "integer range"
        super().__init__(-INT64_MOST - 1 if low is None else low, high)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number; BadParameter with the bound that it does not keep."""
        text = str(value).strip()
        if not re.fullmatch(r"[+-]?\d+", text, re.ASCII):
            self.fail(f"{text[:_LETTERS_MOST]!r} is not a whole number", param, ctx)
        digits = text.lstrip("+-0")
        if len(digits) > _LETTERS_MOST:
            bound = self._bound(below=text.startswith("-"))
            self.fail(f"a number of {len(digits)} digits is out of range ({bound})", param, ctx)
        number = int(text)
        assert self.min is not None
        assert self.max is not None
        if not self.min <= number <= self.max:
            bound = self._bound(below=number < self.min)
            self.fail(f"{number} is out of range ({bound})", param, ctx)
        return number

    def _bound(self, *, below: bool) -> str:
        if not (self.open or self.max in _WIDTHS):
            return f"{self.min} to {self.max}"
        return f"minimum {self.min}" if below else f"maximum {self.max}"

    def _describe_range(self) -> str:
        """The range in a help text; a bound that only says how wide the number is is left out."""
        low = "" if self.open else f">={self.min}"
        if self.max in _WIDTHS:
            return f"x{low}" if low else ""
        return f"{self.min}<=x<={self.max}"


class Real(click.FloatRange):
    """A number that may have a fraction; neither NaN nor infinite."""

    def __init__(self, low: float | None = None, high: float | None = None) -> None:
        """The bounds, both included."""
        self.name = "float" if low is None and high is None else "float range"
        super().__init__(low, high)

    def _describe_range(self) -> str:
        return "" if self.name == "float" else super()._describe_range()

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{number} is not a number to count with", param, ctx)
        return number


def nearest(text: str, names: Iterable[str]) -> str:
    """The question whether the nearest of these names was meant, or "" if none is near."""
    from difflib import get_close_matches

    found = get_close_matches(text.lower(), list(names), 1, 0.6)
    return f"; did you mean {found[0]!r}?" if found else ""


class Word(_Choice):
    """One of some words; the error names the nearest one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The word."""
        try:
            word: str = super().convert(value, param, ctx)
        except click.BadParameter:
            words = ", ".join(map(str, self.choices))
            text = str(value)[:_LETTERS_MOST]
            self.fail(f"{text!r} is not one of {words}{nearest(text, self.choices)}", param, ctx)
        return word


class Storage(Word):
    """``file`` or ``memory``, also by their first letters as with the ``nats`` command."""

    def __init__(self) -> None:
        """The choice of the two."""
        super().__init__(["file", "memory"])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The whole word."""
        return super().convert({"f": "file", "m": "memory"}.get(value, value), param, ctx)


DURATION = Duration()
LIFETIME = Lifetime()
SIZE = Size()
SIZE_32 = Size(INT32_MOST)
PAYLOAD_SIZE = Size(1 << 30)
"""Of a message that a command makes."""
WHOLE = Whole()
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
