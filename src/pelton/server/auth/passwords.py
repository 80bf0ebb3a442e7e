"""Checks passwords and tokens. Plain ones are compared in constant time, bcrypt hashes in threads, so a
client that tries many passwords delays no other client.

Waiting checks are served in rotation by address, and the number of an address is bounded.
"""

import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from pelton.server.settings.users import is_bcrypt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

WAITING_MAX = 64  # waiting checks of one address; further ones are refused unchecked
ADDRESSES_MAX = 10_000
BCRYPT_BYTES = 72  # bcrypt ignores the rest
_NICER = 10

RunOnLoop = Callable[[Callable[[], None]], None]
"""Runs a call on the event loop's thread, soon; may be called from other threads."""


def same(expected: str, given: str) -> bool:
    """Whether two secrets are equal. The time does not depend on where they differ."""
    import hmac  # loads OpenSSL

    return hmac.compare_digest(
        expected.encode("utf-8", "surrogatepass"), given.encode("utf-8", "surrogatepass")
    )


def check_bcrypt(stored: str, given: str) -> bool:
    """Whether the password matches a bcrypt hash. Slow by design."""
    import bcrypt

    secret = given.encode("utf-8", "surrogatepass")[:BCRYPT_BYTES]
    try:
        return bcrypt.checkpw(secret, stored.encode())
    except ValueError:  # an invalid hash
        return False


class Passwords:
    """Checks secrets; all methods are called on the event loop's thread."""

    def __init__(self, run_on_loop: RunOnLoop) -> None:
        """`run_on_loop` brings the answers of the threads to the event loop's thread."""
        self._run_on_loop = run_on_loop
        self._pool: ThreadPoolExecutor | None = None
        self._workers = max((os.cpu_count() or 2) - 1, 1)
        self._running = 0
        self._waiting: dict[str, deque[tuple[str, str, Callable[[bool], None]]]] = {}

    def check(
        self, address: str, stored: str, given: str, answer: Callable[[bool], None]
    ) -> bool | None:
        """Whether `given` matches the stored secret.

        For a bcrypt hash the result is None, and `answer` is called with it later; False at once
        when too many checks of this address wait.
        """
        if not is_bcrypt(stored):
            return same(stored, given)
        line = self._waiting.get(address)
        if line is None:
            if len(self._waiting) >= ADDRESSES_MAX:
                return False
            line = self._waiting[address] = deque()
        if len(line) >= WAITING_MAX:
            return False
        line.append((stored, given, answer))
        self._next()
        return None

    def _next(self) -> None:
        while self._running < self._workers and self._waiting:
            address = next(iter(self._waiting))
            line = self._waiting.pop(address)
            stored, given, answer = line.popleft()
            if line:
                self._waiting[address] = line  # behind the other addresses
            self._running += 1
            self._start(stored, given, answer)

    def _start(self, stored: str, given: str, answer: Callable[[bool], None]) -> None:
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(self._workers, "bcrypt", initializer=_be_nice)

        def ended(future: "Future[bool]") -> None:
            self._run_on_loop(
                lambda: self._ended(future.exception() is None and future.result(), answer)
            )

        self._pool.submit(check_bcrypt, stored, given).add_done_callback(ended)

    def _ended(self, fits: bool, answer: Callable[[bool], None]) -> None:
        self._running -= 1
        self._next()
        answer(fits)

    def close(self) -> None:
        """Start no further checks."""
        self._waiting.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def _be_nice() -> None:
    """Lower the priority of the thread below the event loop."""
    import threading

    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICER)
