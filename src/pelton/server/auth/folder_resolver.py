"""The account resolver with a folder: one file ``<account key>.jwt`` per account, in the layout of
nats-server.

`full` keeps all accounts and removes one only on a delete request. `cache` keeps up to `limit` accounts
for `ttl` each, and removes the least recently used ones. The resolver reads only the expiry of a JWT.
"""

import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress

from pelton.nkeys import ACCOUNT, is_public
from pelton.server.auth.claims import AccountClaims
from pelton.server.auth.jwt import JwtError, decode
from pelton.server.settings.operator import Resolver

CACHED_MAX = 1000  # of a cache without a configured limit
_END = ".jwt"


class FolderError(ValueError):
    """A JWT that can't be stored, or an account that can't be deleted."""


class FolderResolver:
    """Account JWTs in files. All methods are called on the event loop's thread."""

    def __init__(self, settings: Resolver, clock: Callable[[], int]) -> None:
        """Open the folder; create it when it does not exist. OSError when that fails. `clock` gives
        nanoseconds since the epoch.
        """
        self.folder = settings.directory
        self.cache = settings.kind == "cache"
        self.settings = settings
        self._limit = settings.limit or (CACHED_MAX if self.cache else 0)
        self._clock = clock
        self._known: OrderedDict[str, tuple[bytes, int]] = OrderedDict()  # hash, expiry
        self.changed: Callable[[str], None] = _nothing  # called with an account and its stored JWT
        self.deleted: Callable[[str], None] = _nothing
        os.makedirs(self.folder, mode=0o750, exist_ok=True)
        for name in sorted(os.listdir(self.folder)):
            account = name.removesuffix(_END)
            if name.endswith(_END) and is_public(account, ACCOUNT):
                with suppress(OSError, UnicodeDecodeError):
                    self._track(account, self._read(account))

    def fetch(self, account: str, answer: Callable[[str | None], None]) -> None:
        """Answer at once: there is no other server to ask."""
        answer(self.load(account))

    def load(self, account: str) -> str | None:
        """The JWT of an account; None when there is none."""
        if not is_public(account, ACCOUNT):
            return None
        try:
            token = self._read(account)
        except (OSError, UnicodeDecodeError):
            self._known.pop(account, None)
            return None
        if account in self._known and self._over(account):
            self._drop(account)
            return None
        self._track(account, token)
        return token

    def store(self, account: str, token: str) -> None:
        """Store a JWT; it is on the disk on return. Raises FolderError when the folder is full,
        OSError.
        """
        if not is_public(account, ACCOUNT):
            raise FolderError("invalid public key")
        if account not in self._known and self._limit and len(self._known) >= self._limit:
            self.expire()
            while self.cache and len(self._known) >= self._limit:
                self._drop(next(iter(self._known)))
            if len(self._known) >= self._limit:
                raise FolderError("jwt store is full")
        digest = _digest(token)
        if self._known.get(account, (b"", 0))[0] == digest:
            return
        path = self._path(account)
        with open(f"{path}.tmp", "w", encoding="ascii") as file:
            file.write(token)
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{path}.tmp", path)
        self._sync_folder()
        self._track(account, token)
        self.changed(account)

    def delete(self, account: str) -> None:
        """Delete an account. FolderError when deletion is not allowed or the account does not
        exist.
        """
        if not self.settings.allow_delete:
            raise FolderError("delete must be enabled in server config")
        path = self._path(account)
        try:
            if self.settings.hard_delete:
                os.unlink(path)
            else:
                os.replace(path, f"{path}.deleted")
        except FileNotFoundError:
            raise FolderError(f"the folder has no JWT of account {account}") from None
        self._sync_folder()
        self._known.pop(account, None)
        self.deleted(account)

    def expire(self) -> None:
        """Remove expired JWTs; a full resolver keeps all."""
        if self.cache:
            for account in [each for each in self._known if self._over(each)]:
                self._drop(account)

    def accounts(self) -> list[str]:
        """The accounts that have a JWT here."""
        there = set(os.listdir(self.folder))
        return sorted(account for account in self._known if f"{account}{_END}" in there)

    def all(self) -> Iterator[tuple[str, str]]:
        """Every (account, JWT)."""
        for account in sorted(self._known):
            with suppress(OSError, UnicodeDecodeError):
                yield account, self._read(account)

    def digest(self) -> bytes:
        """A digest of the folder: the hashes of all JWTs, xored. Folders with the same JWTs have
        the same digest.
        """
        whole = 0
        for digest, _ in self._known.values():
            whole ^= int.from_bytes(digest, "big")
        return whole.to_bytes(32, "big")

    def close(self) -> None:
        """No open files to close."""

    def _over(self, account: str) -> bool:
        ends_ns = self._known[account][1]
        return self.cache and bool(ends_ns) and ends_ns <= self._clock()

    def _track(self, account: str, token: str) -> None:
        ends_ns = 0
        if self.cache:
            if self.settings.ttl_ns:
                ends_ns = self._clock() + self.settings.ttl_ns
            else:
                with suppress(JwtError):
                    ends_ns = decode(token, AccountClaims).exp * 1_000_000_000
        before = self._known.pop(account, None)
        if before is not None and before[0] == _digest(token):
            ends_ns = before[1]
        self._known[account] = (_digest(token), ends_ns)

    def _drop(self, account: str) -> None:
        self._known.pop(account, None)
        with suppress(OSError):
            os.unlink(self._path(account))

    def _read(self, account: str) -> str:
        with open(self._path(account), encoding="ascii") as file:
            return file.read().strip()

    def _path(self, account: str) -> str:
        return os.path.join(self.folder, f"{account}{_END}")

    def _sync_folder(self) -> None:
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _nothing(account: str) -> None:
    """The default of a hook: do nothing."""
