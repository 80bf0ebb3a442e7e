"""Subjects that nobody else guesses or uses: the reply subjects of requests."""

from __future__ import annotations

import secrets
import string

_ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_LENGTH = 22


def unique_token() -> str:
    """22 characters of base 62, from the system's source of randomness."""
    number = secrets.randbits(130)
    characters = []
    for _ in range(_LENGTH):
        number, digit = divmod(number, 62)
        characters.append(_ALPHABET[digit])
    return "".join(characters)


def new_inbox(prefix: str) -> str:
    """A subject below the prefix to receive answers on."""
    return f"{prefix}.{unique_token()}"
