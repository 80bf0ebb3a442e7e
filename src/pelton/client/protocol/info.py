"""The fields of the server's INFO, and the client's CONNECT."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from pelton import __version__
from pelton.errors import ProtocolError

from .options import text_of

if TYPE_CHECKING:
    from ..base.addresses import Server
    from .options import Options


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
    if options.creds or options.nkey or options.jwt:
        from .credentials import signed_fields

        fields.update(signed_fields(options, info.nonce))
    if options.authenticator is not None:
        given = options.authenticator(info.nonce)
        if not isinstance(given, Mapping):
            raise TypeError(
                f"it must return a dict of the fields of CONNECT, not {type(given).__name__}"
            )
        fields.update(given)
    return b"CONNECT " + msgspec.json.encode(fields) + b"\r\n"
