"""The negotiation of two servers on a leaf node connection, before messages flow.

    hub   INFO {server, nonce, leafnode_urls, ...}                                  ->
          <- CONNECT {server, account, credentials, domain, cluster, ...}         leaf
    hub   INFO {..., connect_info, remote_account, import, export}                  ->

An older hub sends one INFO only. `import` and `export` are the subjects that the leaf's user may
subscribe and publish to. The leaf node respects them; the hub closes a connection that violates them.
"""

import base64
import ipaddress
import re
from urllib.parse import unquote, urlsplit

import msgspec

from pelton.server.settings.users import Permissions, SubjectPermission


class Grant(msgspec.Struct, omit_defaults=True):
    """The subjects of `import` or `export`."""

    allow: list[str] | None = None
    deny: list[str] | None = None


class Info(msgspec.Struct, omit_defaults=True):
    """The hub's INFO, without the fields that this server does not use."""

    server_id: str
    server_name: str = ""
    version: str = ""
    proto: int = 0
    go: str = ""
    host: str = ""
    port: int = 0
    headers: bool = False
    auth_required: bool = False
    tls_required: bool = False
    tls_verify: bool = False
    max_payload: int = 0
    jetstream: bool = False
    client_id: int = 0
    nonce: str = ""
    cluster: str = ""
    domain: str = ""
    ldm: bool = False
    compression: str = ""
    connect_info: bool = False
    remote_account: str = ""
    acc_is_sys: bool = False
    api_lvl: int = 0
    import_: Grant | None = msgspec.field(name="import", default=None)
    export: Grant | None = None
    info_on_connect: bool = False
    leafnode_urls: list[str] | None = None
    ws_connect_urls: list[str] | None = None


class Connect(msgspec.Struct, omit_defaults=True):
    """The CONNECT of a leaf node."""

    version: str = ""
    nkey: str = ""
    jwt: str = ""
    sig: str = ""
    user: str = ""
    password: str = msgspec.field(name="pass", default="")
    auth_token: str = ""
    tls_required: bool = False
    server_id: str = ""
    domain: str = ""
    name: str = ""
    is_hub: bool = False
    cluster: str = ""
    headers: bool = False
    jetstream: bool = False
    deny_pub: list[str] | None = None
    isolate: bool = False
    compress_mode: str = ""
    gateway: str = ""
    remote_account: str = ""
    protocol: int = 0
    lang: str = ""  # only clients send it

    def __repr__(self) -> str:
        """Without the secrets."""
        return f"Connect({self.name!r})"


_INFO = msgspec.json.Decoder(Info)
_CONNECT = msgspec.json.Decoder(Connect)


def read_info(text: bytes) -> Info:
    """Parse INFO. ValueError when it is invalid."""
    return _INFO.decode(text)


def read_connect(text: bytes) -> Connect:
    """Parse CONNECT. ValueError when it is invalid."""
    return _CONNECT.decode(text)


def line(name: bytes, body: msgspec.Struct) -> bytes:
    """The protocol line of an INFO or a CONNECT."""
    return b"%s %s\r\n" % (name, msgspec.json.encode(body))


def grants(permissions: Permissions | None) -> tuple[Grant | None, Grant | None]:
    """`import` and `export` for a leaf node with these permissions."""
    if permissions is None:
        return None, None
    return _grant(permissions.subscribe), _grant(permissions.publish)


def _grant(rules: SubjectPermission) -> Grant | None:
    if rules.allow is None and not rules.deny:
        return None
    return Grant(rules.allow, rules.deny or None)


_CREDENTIALS = re.compile(
    r"-{3,}[^\n]*-{3,}\r?\n([\w\-.=]+)\r?\n-{3,}[^\n]*-{3,}(?:\r?\n|\Z)", re.ASCII
)


def read_credentials(text: str) -> tuple[str, str]:
    """User JWT and seed of a credentials file. ValueError when the file is invalid."""
    found = _CREDENTIALS.findall(text)
    if len(found) < 2:
        raise ValueError("Credentials file malformed")
    return found[0], found[1]


def signed(seed: str, nonce: str) -> tuple[str, str]:
    """(public key, signature of the nonce) from a user's seed. ValueError when the seed is invalid."""
    from pelton.nkeys import KeyPair

    pair = KeyPair.from_seed(seed)
    signature = base64.urlsafe_b64encode(pair.sign(nonce.encode())).rstrip(b"=")
    return pair.public, signature.decode()


def show(asked: Connect, credentials: str, seed: str, nonce: str, url: str) -> None:
    """Put this server's credentials into CONNECT: those of a credentials file or a seed, and the
    user of the URL. Raises OSError, ValueError.
    """
    if credentials:
        with open(credentials, encoding="utf-8") as file:
            asked.jwt, seed = read_credentials(file.read())
    if seed:
        public, asked.sig = signed(seed, nonce)
        if not asked.jwt:
            asked.nkey = public
    asked.user, asked.password, asked.auth_token = user_of(url)


def user_of(url: str) -> tuple[str, str, str]:
    """User, password and token of a URL; a name without a password is both user and token."""
    parts = urlsplit(url)
    user = unquote(parts.username or "")
    if parts.password is None:
        return user, "", user
    return user, unquote(parts.password), ""


def is_address(text: str) -> bool:
    """Whether the text is `host:port`."""
    try:
        parts = urlsplit(f"//{text}")
        return bool(parts.hostname and parts.port) and parts.netloc == text and "@" not in text
    except ValueError:
        return False


def is_ip(host: str) -> bool:
    """Whether the host is an IP address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def at_least(version: str, wanted: str) -> bool:
    """Whether a server's version is the wanted one or a later one."""
    return _parts(version) >= _parts(wanted)


def _parts(version: str) -> tuple[int, ...]:
    found = re.match(r"v?(\d+)\.(\d+)\.(\d+)", version)
    return tuple(int(part) for part in found.groups()) if found else (0, 0, 0)
