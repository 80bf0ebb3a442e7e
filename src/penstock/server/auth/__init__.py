"""Who a connection is: checks what CONNECT shows against users, keys, JWTs or a callout service.

    Credentials + Peer -> Gate.check -> Admitted | Refused | Later (one of the two, when it comes)

The rest of the server asks the result, not how it came about.
"""

from penstock.server.auth.gate import Gate
from penstock.server.auth.result import Admitted, Later, Limits, Outcome, Peer, Refused

__all__ = [
    "Admitted",
    "Gate",
    "Later",
    "Limits",
    "Outcome",
    "Peer",
    "Refused",
]
