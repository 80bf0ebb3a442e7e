"""Authentication: checks the credentials in CONNECT against users, nkeys, JWTs or an auth callout.

    Credentials + AuthContext -> Authenticator.check -> Admitted | Refused
                                                      | PendingOutcome: one of the two, later

The rest of the server reads only the outcome, not the method that led to it.
"""

from pelton.server.auth.authenticator import Authenticator
from pelton.server.auth.result import (
    Admitted,
    AuthContext,
    Limits,
    Outcome,
    PendingOutcome,
    Refused,
)

__all__ = [
    "Admitted",
    "AuthContext",
    "Authenticator",
    "Limits",
    "Outcome",
    "PendingOutcome",
    "Refused",
]
