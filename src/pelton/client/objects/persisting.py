"""Doing a call again when the connection breaks, or when a server that has restarted is not ready."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pelton.errors import (
    ApiError,
    ConnectionLostError,
    NoRespondersError,
    OutputFullError,
    PeltonError,
    PeltonTimeoutError,
)

from ..base.steps import pausing
from ..jetstream.ordered import LEADERLESS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..base.steps import Steps
    from ..session.session import Session

T = TypeVar("T")


def passing(error: BaseException, *, served: bool = True) -> bool:
    """Whether the same call may succeed soon after this error.

    ``served``: whether the server has answered such a call before, so that silence means a restart.
    """
    if isinstance(error, ApiError):
        return error.err_code in LEADERLESS
    if isinstance(error, NoRespondersError):
        return served
    return isinstance(error, ConnectionLostError | OutputFullError | PeltonTimeoutError)


def persisting(
    client: Session[Any],
    attempt: Callable[[], Steps[T]],
    patience_s: float,
    *,
    served: bool = True,
) -> Steps[T]:
    """Repeat the call until it succeeds, fails for good, or the time is over: then its last error."""
    deadline = client._clock() + patience_s
    while True:
        try:
            return (yield from attempt())
        except Exception as error:
            again = passing(error, served=served or client.clustered)
            if not again or client.closed or client._clock() >= deadline:
                raise
        yield from pausing()


def completing(
    attempt: Callable[[float], Steps[T]], patience_s: float, again_s: float, left: str
) -> Steps[T]:
    """Carry out what may be done twice; when it is cancelled, do it once more before the cancel goes on.

    A message that is on its way may be stored at any time, so what was begun can only be completed.
    ``attempt`` gets its patience; ``left`` is a note for the error when it cannot be completed.
    """
    try:
        return (yield from attempt(patience_s))
    except GeneratorExit:  # nobody carries out steps
        raise
    except PeltonError as error:
        if passing(error):
            error.add_note(left)
        raise
    except BaseException as error:
        try:
            yield from attempt(again_s)
        except PeltonError as reason:
            error.add_note(f"{left}: {reason}")
        raise
