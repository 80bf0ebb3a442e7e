"""The folder with the JWTs and keys of operators; ``nats auth`` and ``nsc`` use the same one.

::

    nsc/stores/OPERATOR/.nsc                              {"managed": false, "name": ..., "kind": "operator", ...}
    nsc/stores/OPERATOR/OPERATOR.jwt
    nsc/stores/OPERATOR/accounts/ACCOUNT/ACCOUNT.jwt
    nsc/stores/OPERATOR/accounts/ACCOUNT/users/USER.jwt
    nsc/keys/keys/O/AB/OAB....nk                          a seed; the folders are the first three letters

The folder ``nsc`` is in ``$XDG_DATA_HOME/nats`` (``~/.local/share/nats``). Everything is readable by its owner alone. A
file is replaced as a whole.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pelton.core.log.store_lock import make_private
from pelton.nkeys import ACCOUNT, OPERATOR, USER, KeyPair, NkeyError, read_jwt, read_seed

if TYPE_CHECKING:
    from collections.abc import Iterable

KINDS = {"operator": OPERATOR, "account": ACCOUNT, "user": USER}
_SELECTED = "select_operator"


def data_folder() -> Path:
    """Where programs keep data of the user."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")


@dataclass
class Entity:
    """An operator, account or user: its place and its claims. Fields that are not known here stay in the claims."""

    kind: str
    name: str
    path: Path
    claims: dict[str, Any]

    @property
    def key(self) -> str:
        """The public key."""
        return str(self.claims.get("sub", ""))

    @property
    def nats(self) -> dict[str, Any]:
        """The part of the claims that is about NATS."""
        found: dict[str, Any] = self.claims.setdefault("nats", {})
        return found

    @property
    def token(self) -> str:
        """The JWT as it is in the file."""
        return read_jwt(self.path.read_text(encoding="utf-8"))


def claims_of(token: str, kind: str) -> dict[str, Any]:
    """The claims of a JWT; ClickException if it is not sound or of another kind."""
    from pelton.server.auth.claims import AccountClaims, Claims, OperatorClaims, UserClaims
    from pelton.server.auth.jwt import JwtError, decode

    wanted: dict[str, type[Claims]] = {
        "operator": OperatorClaims,
        "account": AccountClaims,
        "user": UserClaims,
    }
    try:
        decode(token, wanted[kind])
    except JwtError as error:
        raise click.ClickException(f"this is no JWT of {_article(kind)}: {error}") from None
    except ImportError:
        text = "JWTs are verified with the package cryptography: pip install cryptography"
        raise click.ClickException(text) from None
    part = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


def new_pair(kind: str) -> KeyPair:
    """A new key; ClickException without the package for keys."""
    try:
        return KeyPair(KINDS[kind], secrets.token_bytes(32))
    except ImportError as error:
        raise click.ClickException(str(error)) from None


class Store:
    """The folder."""

    def __init__(self, folder: Path | None = None) -> None:
        """Without a folder: that of the user."""
        self.folder = folder or data_folder() / "nats" / "nsc"

    # -- reading

    def operators(self) -> list[str]:
        """The names of the operators, sorted."""
        return _names(self.folder / "stores", "*/.nsc", lambda path: path.parent.name)

    def operator(self, name: str) -> Entity:
        """An operator; ClickException if there is none of that name."""
        check_name(name)
        return self._read("operator", name, self._operator(name) / f"{name}.jwt")

    def accounts(self, operator: str) -> list[str]:
        """The names of the accounts of an operator, sorted."""
        folder = self._operator(operator) / "accounts"
        return _names(folder, "*/*.jwt", lambda path: path.stem)

    def account(self, operator: str, name: str) -> Entity:
        """An account, by its name or public key; ClickException if there is none."""
        if len(name) == 56 and name.startswith("A"):
            for each in self.accounts(operator):
                found = self.account(operator, each)
                if found.key == name:
                    return found
        check_name(name)
        return self._read("account", name, self._account(operator, name) / f"{name}.jwt")

    def users(self, operator: str, account: str) -> list[str]:
        """The names of the users of an account, sorted."""
        folder = self._account(operator, account) / "users"
        return _names(folder, "*.jwt", lambda path: path.stem)

    def user(self, operator: str, account: str, name: str) -> Entity:
        """A user; ClickException if there is none of that name."""
        check_name(name)
        return self._read("user", name, self._account(operator, account) / "users" / f"{name}.jwt")

    def pair(self, public: str) -> KeyPair | None:
        """The key with this public part; None if it is not kept here."""
        path = self._key(public)
        try:
            return KeyPair.from_seed(read_seed(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except NkeyError as error:
            raise click.ClickException(f"{path}: {error}") from None
        except ImportError as error:
            raise click.ClickException(str(error)) from None

    # -- writing

    def place(self, kind: str, name: str, operator: str = "", account: str = "") -> Path:
        """The file of a new entity; ClickException if there is one of that name, or none can have it."""
        check_name(name)
        if kind == "operator":
            path = self._operator(name) / f"{name}.jwt"
        elif kind == "account":
            path = self._account(operator, name) / f"{name}.jwt"
        else:
            path = self._account(operator, account) / "users" / f"{name}.jwt"
        if path.exists():
            raise click.ClickException(f"there is already {_article(kind)} {name}")
        return path

    def keep(self, pair: KeyPair) -> None:
        """Keep a key."""
        _write(self._key(pair.public), pair.seed)

    def forget(self, public: str) -> None:
        """Forget a key."""
        self._key(public).unlink(missing_ok=True)

    def sign(self, entity: Entity, signer: KeyPair) -> str:
        """Write the JWT of an entity, signed now; the JWT. ClickException for claims that no server takes."""
        token = signed(entity, signer)
        _write(entity.path, token)
        if entity.kind == "operator":
            about = {"managed": False, "name": entity.name, "kind": "operator", "version": "1"}
            place = entity.path.with_name(".nsc")
            if not place.exists():
                _write(place, json.dumps(about, indent=1))
        return token

    def signer(self, *publics: str) -> KeyPair:
        """The first of these keys that is kept here; ClickException if none is."""
        for public in publics:
            pair = self.pair(public)
            if pair is not None:
                return pair
        raise click.ClickException(f"the key {publics[-1]} is not in {self.folder}")

    def _read(self, kind: str, name: str, path: Path) -> Entity:
        try:
            token = read_jwt(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            raise click.ClickException(f"there is no {kind} {name}") from None
        try:
            return Entity(kind, name, path, claims_of(token, kind))
        except click.ClickException as error:
            raise click.ClickException(f"{path}: {error.message}") from None

    def _operator(self, name: str) -> Path:
        return self.folder / "stores" / name

    def _account(self, operator: str, name: str) -> Path:
        return self._operator(operator) / "accounts" / name

    def _key(self, public: str) -> Path:
        return self.folder / "keys" / "keys" / public[:1] / public[1:3] / f"{public}.nk"

    # -- the selected operator

    def selected(self) -> str:
        """The operator that commands use; "" for none."""
        try:
            return str(json.loads(_settings().read_bytes()).get(_SELECTED) or "")
        except (OSError, ValueError, AttributeError):
            return ""

    def select(self, name: str) -> None:
        """Let commands use this operator."""
        path = _settings()
        try:
            found = json.loads(path.read_bytes())
        except (OSError, ValueError):
            found = {}
        found = found if isinstance(found, dict) else {}
        _write(path, json.dumps({**found, _SELECTED: name}, indent=2))


def signed(entity: Entity, signer: KeyPair) -> str:
    """The JWT of an entity, signed now; ClickException for claims that no server takes."""
    from pelton.server.auth.jwt import encode

    now = int(time.time())
    entity.claims["name"] = entity.name
    entity.nats["type"] = entity.kind
    token = encode(entity.claims, signer, now)
    entity.claims = claims_of(token, entity.kind)
    problems = problems_of(token, entity.kind)
    if problems:
        raise click.ClickException(f"{entity.kind} {entity.name}: {problems[0]}")
    return token


def problems_of(token: str, kind: str) -> list[str]:
    """The values of a valid JWT that a server would not accept."""
    from pelton.server.auth.claims import AccountClaims, OperatorClaims, UserClaims
    from pelton.server.auth.jwt import decode

    if kind == "operator":
        return list(decode(token, OperatorClaims).problems())
    if kind == "account":
        return list(decode(token, AccountClaims).problems())
    return list(decode(token, UserClaims).problems())


def check_name(name: str) -> None:
    """ClickException for a name that can't be one of a file."""
    if not name or name.startswith(".") or not {"/", "\\", "\0"}.isdisjoint(name):
        raise click.ClickException(f'"{name}" can\'t be a name here')


def _article(kind: str) -> str:
    """The kind, as in "an account"."""
    return f"a {kind}" if kind == "user" else f"an {kind}"


def _names(folder: Path, pattern: str, name: Any) -> list[str]:
    found: Iterable[Path] = folder.glob(pattern) if folder.is_dir() else ()
    return sorted(name(path) for path in found)


def _settings() -> Path:
    config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(config) / "nats" / "cli" / "config.json"


def _write(path: Path, text: str) -> None:
    """Replace a file, which only its owner can read."""
    make_private(str(path.parent))
    descriptor, part = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise


def write_private(path: Path, text: str, *, force: bool) -> None:
    """Write a file with a secret; ClickException if it exists and ``force`` is not given."""
    if path.exists() and not force:
        raise click.ClickException(f"{path} already exists; --force replaces it")
    try:
        _write(path, text)
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}") from None
