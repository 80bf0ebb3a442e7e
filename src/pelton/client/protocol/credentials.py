"""The fields of CONNECT that authenticate a client with a key: nkey, JWT or ``.creds`` file.

Files are read at every connect, so the next one uses renewed credentials. Signing needs the package
``cryptography``, which is imported when a nonce has to be signed.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from pelton.nkeys import Credentials, KeyPair, NkeyError, read_credentials, read_seed, sign_nonce

from .options import text_of

if TYPE_CHECKING:
    from .options import Options

INSTALL = "signing needs the package cryptography: pip install cryptography"


_BEGIN = "-----BEGIN "
_SEED_LIKE = re.compile(r"S[A-Z2-7]{5,}")


class CredentialsError(ValueError):
    """Credentials that can't be read or used; the text holds no secret."""


def signed_fields(options: Options, nonce: str) -> dict[str, str]:
    """The fields of CONNECT that authenticate the client.

    ``nonce`` is that of the server's INFO, "" when there is none. Raises CredentialsError.
    """
    try:
        if options.creds:
            creds = text_of(options.creds)
            found = read_credentials(creds if _BEGIN in creds else _read(creds))
            return _with_jwt(found, nonce)
        jwt = text_of(options.jwt)
        if options.nkey:
            seed = _seed(text_of(options.nkey))
            if jwt:
                return _with_jwt(Credentials(jwt, seed), nonce)
            if not nonce:
                raise CredentialsError("the server takes no nkeys: its INFO has no nonce")
            return {"nkey": KeyPair.from_seed(seed).public, "sig": sign_nonce(seed, nonce)}
    except NkeyError as error:
        raise CredentialsError(str(error)) from None
    except ImportError:
        raise CredentialsError(INSTALL) from None
    return {"jwt": jwt} if jwt else {}


def _with_jwt(found: Credentials, nonce: str) -> dict[str, str]:
    fields = {"jwt": found.jwt}
    if nonce:
        fields["sig"] = sign_nonce(found.seed, nonce)
    return fields


def _seed(text: str) -> str:
    """A seed: the text itself, or the contents of the file that it names."""
    if text.startswith("SU") and len(text) == 58:
        with contextlib.suppress(NkeyError):
            return read_seed(text)
    if "\n" in text:  # what a file holds, and no name of one
        return read_seed(text)
    if _SEED_LIKE.fullmatch(text) and not Path(text).exists():
        # It may be an incomplete seed or another kind of nkey, so it is a secret all the same.
        raise CredentialsError("the nkey is neither the seed of a user nor an existing file")
    return read_seed(_read(text))


def _read(path: str) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise CredentialsError(f"cannot read {path}: {reason}") from None
