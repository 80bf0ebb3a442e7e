"""What a -ERR of the server means: its error, and whether the connection goes on."""

from __future__ import annotations

from pelton.errors import AuthenticationError, PeltonError, PermissionsViolationError, ServerError

_ERRORS_NOT_FATAL = (
    "permissions violation",
    "invalid subject",
    "invalid publish subject",
    "maximum subscriptions",
)
_ERRORS_AUTHENTICATION = (
    "authorization violation",
    "authentication",
    "user authentication",
    "account authentication",
)


def is_fatal(text: str) -> bool:
    """Whether the server closes the connection after this -ERR."""
    return not text.lower().startswith(_ERRORS_NOT_FATAL)


def make_error(text: str) -> PeltonError:
    """The error for the text of a -ERR."""
    low = text.lower()
    if low.startswith("permissions violation"):
        return PermissionsViolationError(text)
    if low.startswith(_ERRORS_AUTHENTICATION):
        return AuthenticationError(text)
    return ServerError(text)
