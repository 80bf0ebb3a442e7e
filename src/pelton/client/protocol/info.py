"""What server and client say of themselves: the fields of INFO and of CONNECT, and what a -ERR means.

A key (nkey, JWT or ``.creds`` file) authenticates a client by more fields of CONNECT. Files are read at every
connect, so the next one uses renewed credentials. Signing needs the package ``cryptography``, which is
imported when a nonce has to be signed.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pelton import __version__
from pelton.errors import (
    AuthenticationError,
    PeltonError,
    PermissionsViolationError,
    ProtocolError,
    ServerError,
)
from pelton.nkeys import Credentials, KeyPair, NkeyError, read_credentials, read_seed, sign_nonce

from .options import Options, text_of

if TYPE_CHECKING:
    from ..base.addresses import Server


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of INFO that a client uses; unknown ones are ignored.

    Example::

        print(nc.server_info.version, nc.server_info.max_payload)
    """

    server_id: str = ""
    server_name: str = ""
    version: str = ""
    proto: int = 0
    host: str = ""
    port: int = 0
    headers: bool = False
    # The server's own default, for messages that are published before the first INFO.
    max_payload: int = 1_048_576
    jetstream: bool = False
    auth_required: bool = False
    tls_required: bool = False
    tls_available: bool = False
    tls_verify: bool = False
    nonce: str = ""
    client_id: int = 0
    client_ip: str = ""
    cluster: str = ""
    domain: str = ""
    connect_urls: list[str] | None = None
    ldm: bool = False
    """Lame duck mode: the server is about to stop, and its clients should connect to another one."""
    api_lvl: int = 0

    def version_at_least(self, major: int, minor: int, patch: int = 0) -> bool:
        """Whether the server has at least this version; suffixes such as ``-dev`` do not count."""
        # The pattern takes few digits: int() of a very long number raises an error.
        numbers = [int(digits or 0) for digits in _NUMBER.findall(self.version.split("-")[0])]
        return tuple(numbers) >= (major, minor, patch)


_NUMBER = re.compile(r"(?:^|\.)[^0-9.]*([0-9]{0,9})")
_decoder = msgspec.json.Decoder(ServerInfo)


def decode_info(text: bytes) -> ServerInfo:
    """Decode the INFO of a server; ProtocolError when the text is not JSON of the right types."""
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise ProtocolError(f"bad INFO from the server: {error}") from error


def connect_line(options: Options, server: Server, info: ServerInfo, tls: bool) -> bytes:
    """The CONNECT operation; credentials in the URL take precedence over those of the options.

    Raises CredentialsError, or the error of the user's functions.
    """
    # protocol 1 asks for INFO also after the login: other servers, lame duck mode. A 503 is a header,
    # so a server refuses no_responders to a client without headers.
    fields: dict[str, object] = {
        "verbose": options.verbose,
        "pedantic": options.pedantic,
        "tls_required": tls,
        "lang": "python-pelton",
        "version": __version__,
        "protocol": 1,
        "echo": options.echo,
        "headers": info.headers,
        "no_responders": info.headers,
    }
    if options.name:
        fields["name"] = options.name
    if server.token or (options.token and not server.user):
        fields["auth_token"] = server.token or text_of(options.token)
    elif server.user or options.user:
        fields["user"] = server.user or text_of(options.user)
        fields["pass"] = server.password if server.user else text_of(options.password)
    # Read and signed at every connect: files may be renewed, and each nonce is new.
    if options.creds or options.nkey or options.jwt:
        fields.update(signed_fields(options, info.nonce))
    if options.authenticator is not None:
        given = options.authenticator(info.nonce)
        if not isinstance(given, Mapping):
            raise TypeError(
                f"it must return a dict of the fields of CONNECT, not {type(given).__name__}"
            )
        fields.update(given)
    return b"CONNECT " + msgspec.json.encode(fields) + b"\r\n"


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
    # A server that sends no nonce checks no signature.
    if nonce:
        fields["sig"] = sign_nonce(found.seed, nonce)
    return fields


def _seed(text: str) -> str:
    """A seed: the text itself, or the contents of the file that it names."""
    # Base32 of prefix, 32 bytes and checksum. A file may have such a name, too: then it is read below.
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


# nats-server keeps the connection after these.
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
