"""Settings of TLS, for a listener or for connections to other servers: file names and limits.
``pelton.server.transports.tls`` makes TLS contexts from them.
"""

from msgspec import Struct, field
from msgspec.structs import astuple

from pelton.server.units import SECOND_NS

DEFAULT_TIMEOUT_NS = 2 * SECOND_NS
AUTO_FALLBACK_NS = 50_000_000


class Pair(Struct):
    """A certificate with its chain, and the private key that belongs to it; PEM files."""

    cert_file: str = ""
    key_file: str = ""


class Tls(Struct):
    """A ``tls`` map. An absent value has nats-server's default."""

    cert_file: str = ""
    key_file: str = ""
    certificates: list[Pair] = field(default_factory=list)  # the client's server name selects one
    ca_file: str = ""  # "": the system's certificates
    verify: bool = False  # clients must show a certificate signed by the CA
    map: bool = False  # verify_and_map: the certificate names the user
    check_known_urls: bool = False  # routes and gateways only
    insecure: bool = False  # accept any certificate of other servers
    cipher_suites: list[str] = field(default_factory=list)  # by their IANA names; []: the default
    curve_preferences: list[str] = field(default_factory=list)
    min_version: str = "1.2"
    timeout_ns: int = DEFAULT_TIMEOUT_NS
    connection_rate_limit: int = 0  # handshakes a second; 0: no limit
    pinned_certs: frozenset[str] = frozenset()  # SHA-256 of public keys, in hex
    handshake_first: bool = False
    fallback_ns: int = 0  # handshake_first: send INFO after this time without a byte; 0: never
    loaded: bytes = b""  # the certificate in use, PEM; b"": none yet

    def __eq__(self, other: object) -> bool:
        """Equal whatever certificate is in use."""
        return isinstance(other, Tls) and astuple(self)[:-1] == astuple(other)[:-1]
