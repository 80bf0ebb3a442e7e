"""Templates in published bodies and subjects: ``{{Count}}``, ``{{Random 10 100}}`` and their siblings.

The functions are those of the ``nats`` command. Other text in braces stays as it is, so JSON needs
no escape.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_PLACE = re.compile(
    r"\{\{-?\s*\.?(Count|Time|TimeStamp|Unix|UnixNano|ID|Request|Random)((?:\s+\d+)*)\s*-?\}\}"
)


def filled(
    text: str,
    count: int,
    now_ns: int,
    new_id: Callable[[], str],
    random_text: Callable[[int, int], str],
    request: str = "",
) -> str:
    """The text with its places filled in; UsageError for numbers that a function does not take.

    ``count`` is the number of the message, ``random_text(shortest, longest)`` makes letters.
    """

    def value(found: re.Match[str]) -> str:
        numbers = [int(each) for each in found[2].split()]
        if found[1] == "Random":
            return random_text(*_lengths(numbers))
        if numbers:
            raise click.UsageError(f"{found[0]}: {found[1]} takes no number")
        # a text that has no place for it costs no clock and no id
        local = datetime.fromtimestamp(now_ns // 10**9).astimezone()
        values: dict[str, Callable[[], str]] = {
            "Count": lambda: str(count),
            "Time": lambda: f"{local.hour % 12 or 12}:{local:%M%p}",
            "TimeStamp": local.isoformat,
            "Unix": lambda: str(now_ns // 10**9),
            "UnixNano": lambda: str(now_ns),
            "ID": new_id,
            "Request": lambda: request,
        }
        return values[found[1]]()

    return _PLACE.sub(value, text) if "{{" in text else text


def _lengths(numbers: Sequence[int]) -> tuple[int, int]:
    if len(numbers) > 2 or not numbers:
        raise click.UsageError("Random takes one or two numbers: {{Random 10 100}}")
    shortest, longest = (numbers[0], numbers[-1]) if len(numbers) == 2 else (numbers[0],) * 2
    if shortest > longest:
        raise click.UsageError(f"Random {shortest} {longest}: the first number is the larger one")
    return shortest, longest


def random_letters(shortest: int, longest: int) -> str:
    """Letters and digits, as many as a random number between the two."""
    import random
    import string

    return "".join(
        random.choices(string.ascii_letters + string.digits, k=random.randint(shortest, longest))
    )
