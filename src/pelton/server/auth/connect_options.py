"""Reads CONNECT as nats-server does: field names in any case, null means absent, unknown fields are
ignored, bytes that are not UTF-8 are replaced; a wrong type is an error.

The usual form of CONNECT is read in one pass; only an unusual form needs a second pass. Pure.
"""

from typing import Any

import msgspec

from pelton.core.base.quoting import quoted

_INTEGER = 1 << 63


class Credentials(msgspec.Struct):
    """The fields of CONNECT; an absent field has the protocol's default. Unknown fields are
    ignored.
    """

    verbose: bool = True
    pedantic: bool = True
    echo: bool = True
    headers: bool = False
    no_responders: bool = False
    protocol: int = 0
    name: str = ""
    lang: str = ""
    version: str = ""
    user: str = ""
    password: str = msgspec.field(name="pass", default="")
    auth_token: str = ""
    jwt: str = ""
    nkey: str = ""
    sig: str = ""
    account: str = ""
    new_account: bool = False

    @property
    def shown(self) -> str:
        """The client's name for itself in the log.

        The user of a URL without a password may be a token; a token is never shown.
        """
        if self.nkey:
            return f"Nkey {quoted(self.nkey)}"
        if self.user and self.user not in (self.auth_token, self.password, self.jwt):
            return f"User {quoted(self.user)}"
        if self.jwt:
            return "JWT User"
        if self.auth_token:
            return 'Token "[REDACTED]"'
        return 'User "[REDACTED]"' if self.user else 'User "N/A"'

    def __repr__(self) -> str:
        """Without the secrets."""
        return f"Credentials({self.shown})"


class _Usual(Credentials, forbid_unknown_fields=True):
    """The fields that clients usually send; a CONNECT with any other field is read again by
    _loosely.
    """

    tls_required: bool = False
    ssl_required: bool = False
    proxy_sig: str = ""


_USUAL = msgspec.json.Decoder(_Usual)
_NAMES = frozenset(field.encode_name for field in msgspec.structs.fields(Credentials))


def read_connect(text: bytes) -> Credentials:
    """The fields of CONNECT. ValueError when the text is not the expected JSON."""
    try:
        asked: Credentials = _USUAL.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        asked = _loosely(text)
    if not -_INTEGER <= asked.protocol < _INTEGER:
        raise ValueError("protocol is no number of 64 bits")
    return asked


def _loosely(text: bytes) -> Credentials:
    import json  # here, because few clients need it, and the first one would wait for it

    try:
        said = json.loads(text.decode("utf-8", "replace"), parse_constant=_no_number)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if said is None:
        return Credentials()
    if not isinstance(said, dict):
        raise ValueError("expected an object")
    known = {
        name.lower(): _clean(value)
        for name, value in said.items()
        if value is not None and name.lower() in _NAMES
    }
    return msgspec.convert(known, Credentials)


def _clean(value: Any) -> Any:
    """Replace half of a surrogate pair, which is no character."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


def _no_number(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
