"""Subjects for answers that nobody can guess, not even from other ones of the same client.

Whoever answers a request sees its reply subject. If the next ones followed from it, that program could
answer them, too: forge an ack for a message that no stream has stored. So each reply subject contains
96 bits that its sender alone knows: drawn at random, or computed with a secret key. Does not draw itself:
callers pass the source of randomness in.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

TOKEN_BYTES = 12
TOKEN_LENGTH = TOKEN_BYTES * 4 // 3
BLOCK_TOKENS = 256
"""Tokens that are drawn at once: a system call for each would cost ten times as much."""


class Tokens:
    """Random texts of 16 letters, digits, ``-`` and ``_``. Safe for several threads."""

    def __init__(self, randbytes: Callable[[int], bytes]) -> None:
        """``randbytes(n)`` returns n unpredictable bytes, such as ``random.SystemRandom().randbytes``."""
        self._randbytes = randbytes
        self._drawn: list[str] = []

    def next(self) -> str:
        """A token that was never returned before."""
        try:
            return self._drawn.pop()
        except IndexError:
            text = self.block().decode()
            first, *rest = (
                text[at : at + TOKEN_LENGTH] for at in range(0, len(text), TOKEN_LENGTH)
            )
            self._drawn += rest
            return first

    def block(self) -> bytes:
        """Many tokens, one after the other, for compiled code that cuts them."""
        return urlsafe_b64encode(self._randbytes(BLOCK_TOKENS * TOKEN_BYTES))


class Replies:
    """Numbered reply subjects below one inbox: ``<inbox>.<number>-<code>``.

    The code depends on the number and on a key, so one subject does not help to make another one, and
    nothing has to be stored to recognise a subject that this object made.
    """

    def __init__(self, inbox: str, key: bytes) -> None:
        """``key``: up to 64 unpredictable bytes, used for nothing else."""
        self.prefix = f"{inbox}."
        """The beginning of every subject."""
        self.pattern = f"{inbox}.*"
        """What to subscribe to."""
        self._hash = blake2b(key=key, digest_size=TOKEN_BYTES)

    def subject(self, number: int) -> str:
        """The reply subject with this number, which is 1 or more."""
        code = self._hash.copy()
        code.update(b"%d" % number)
        return f"{self.prefix}{number}-{code.hexdigest()}"

    def number_of(self, subject: str) -> int:
        """The number in a subject that ``subject`` made; 0 for any other subject."""
        number, _, code = subject.removeprefix(self.prefix).partition("-")
        known = number.isascii() and number.isdigit() and code == self._code(number)
        return int(number) if known else 0

    def _code(self, number: str) -> str:
        work = self._hash.copy()
        work.update(number.encode())
        return work.hexdigest()
