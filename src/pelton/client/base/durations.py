"""Durations and times in the forms that users write, and in the form of the wire.

A user gives a duration as seconds (30, 0.5), as a ``timedelta``, or as text ("250ms", "30s", "1h30m", "7d"), with
the units of the command line: ns, us, ms, s, m, h, d, w, M (30 days) and y (365 days).
A config shows it as ``Nanoseconds``, the integer of the wire. Because that is a separate type, it is
not taken for seconds when one config is made from another::

    config = ConsumerConfig(durable_name="c", ack_wait="30s")
    config.ack_wait                                30000000000
    replace(config, ack_wait=60).ack_wait          60000000000
    ConsumerConfig(ack_wait=config.ack_wait)       30 seconds again

Reads no clock.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, TypeAlias

from pelton.api.fields import Instant, Number
from pelton.api.times import DurationTooLongError, parse_instant, parse_long_duration

from .arguments import refuse

if TYPE_CHECKING:
    from collections.abc import Iterable

Duration: TypeAlias = float | timedelta | str
"""Seconds, a timedelta, or text such as "30s", "1h30m" and "7d"; the type of duration arguments."""

Moment: TypeAlias = int | datetime | str
"""Nanoseconds since 1970, a datetime with its zone, or RFC 3339 text."""

_NS = 1_000_000_000
_MAX_NS = (1 << 63) - 1
_NUMBER_MAX_S = 10 * 366 * 86_400  # a larger number is most likely nanoseconds
_YEAR_1_NS = -62_135_596_800 * _NS
_YEAR_10000_NS = 253_402_300_800 * _NS
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Nanoseconds(int):
    """A duration of the wire; in all else a plain integer.

    Example::

        print(ConsumerConfig(ack_wait=Nanoseconds(30_000_000_000)) == ConsumerConfig(ack_wait="30s"))
    """

    __slots__ = ()


def to_nanoseconds(duration: Duration, name: str = "") -> Nanoseconds:
    """A duration for the wire.

    Raises ValueError for a negative, infinite or too long duration or other text; TypeError for anything
    else, with the ``name`` of the argument.
    """
    # First of all: it is an int, which would count as seconds below.
    if isinstance(duration, Nanoseconds):
        return duration
    if isinstance(duration, str):
        try:
            ns = parse_long_duration(duration)
        except DurationTooLongError:
            raise ValueError(f"{duration!r} is too long (maximum 292y)") from None
        except ValueError:
            raise ValueError(
                f'{duration!r} is no duration: expected seconds, or text such as "30s", "1h30m" or "7d"'
            ) from None
    elif isinstance(duration, timedelta):
        # In whole numbers: total_seconds() is a float, and rounds long durations.
        ns = duration // timedelta(microseconds=1) * 1000
    # True is an int, but hardly meant as one second.
    elif isinstance(duration, bool) or not isinstance(duration, int | float):
        refuse(name or "a duration", "seconds, a timedelta or text", duration)
    elif not math.isfinite(duration):
        raise ValueError(f"{duration!r} is no duration that a server could count")
    elif duration > _NUMBER_MAX_S:
        raise ValueError(
            f"{duration!r} seconds are more than ten years: give a timedelta if that is meant, "
            f"and Nanoseconds({duration!r}) for nanoseconds"
        )
    else:
        ns = duration * _NS if isinstance(duration, int) else round(duration * _NS)
    if ns < 0:
        raise ValueError(f"a duration is not negative: {duration!r}")
    if ns > _MAX_NS:
        raise ValueError(f"{duration!r} is too long (maximum 292y)")
    return Nanoseconds(ns)


def to_seconds(duration: Duration, name: str = "") -> float:
    """A duration in seconds; a number may have any value, also infinity.

    ValueError for other text and for NaN; TypeError for anything else, with the ``name`` of the argument.
    """
    if isinstance(duration, float):
        pass
    elif isinstance(duration, timedelta):
        return duration.total_seconds()
    elif isinstance(duration, str):
        return to_nanoseconds(duration) / _NS
    elif isinstance(duration, Nanoseconds):
        return duration / _NS
    elif not isinstance(duration, int):
        # Numbers of other libraries, such as NumPy, are neither int nor float.
        if not hasattr(type(duration), "__float__"):
            refuse(name or "a duration", "seconds, a timedelta or text", duration)
        duration = float(duration)
    if duration != duration:
        raise ValueError("NaN is no duration")
    return duration


def to_moment(moment: Moment | None, name: str = "") -> int | None:
    """A moment for the wire, in nanoseconds since 1970.

    Raises ValueError for a datetime without a zone, for text that is not RFC 3339, and for a number that is
    not within the years 1 to 9999; TypeError for anything else, with the ``name`` of the argument.
    """
    if isinstance(moment, datetime):
        # Python would take it for local time, which may be another one on the next machine.
        if moment.tzinfo is None:
            raise ValueError(f"{moment!r} has no zone: use datetime.now(UTC) or .astimezone()")
        return (moment - _EPOCH) // timedelta(microseconds=1) * 1000
    if isinstance(moment, str):
        return parse_instant(moment)
    if moment is not None and not hasattr(type(moment), "__index__"):
        refuse(name or "a moment", "a datetime, text or nanoseconds since 1970", moment)
    if moment is not None and not _YEAR_1_NS <= moment < _YEAR_10000_NS:
        raise ValueError(f"{moment!r} nanoseconds since 1970 are not within the years 1 to 9999")
    return moment


Span = Annotated[
    Nanoseconds, Number("time.Duration", -_MAX_NS - 1, _MAX_NS, Nanoseconds, to_nanoseconds)
]
"""A field of a config that is a duration.

A value that is assigned later is converted when the config is sent.
"""
Time = Annotated[int, Instant(to_moment)]
"""A field of a config that is a moment."""


def settle(config: object, spans: Iterable[str] = (), moments: Iterable[str] = ()) -> None:
    """Convert the fields of a new config for the wire; ValueError and TypeError name the field."""
    for name in (*spans, *moments):
        value = getattr(config, name)
        try:
            if isinstance(value, list):
                setattr(config, name, [to_nanoseconds(each) for each in value])
            elif name in spans:
                setattr(config, name, to_nanoseconds(value))
            else:
                setattr(config, name, to_moment(value))
        except (ValueError, TypeError) as error:
            raise type(error)(f"{name}: {error}") from None


def seconds_of(name: str, duration: Duration) -> float:
    """``to_seconds`` for an argument of this name, which the errors begin with."""
    try:
        return to_seconds(duration)
    except (ValueError, TypeError) as error:
        raise type(error)(f"{name}: {error}") from None


def nanoseconds_of(name: str, duration: Duration) -> Nanoseconds:
    """``to_nanoseconds`` for an argument of this name, which the errors begin with."""
    try:
        return to_nanoseconds(duration)
    except (ValueError, TypeError) as error:
        raise type(error)(f"{name}: {error}") from None
