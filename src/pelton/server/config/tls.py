"""``tls``: certificates, client certificates, limits of the handshake."""

import re
from collections.abc import Callable

from pelton.server.config.grammar import Item
from pelton.server.config.reader import Key, Reader
from pelton.server.config.values import between, flag, kind, set_to, text
from pelton.server.settings.tls import AUTO_FALLBACK_NS, Pair, Tls
from pelton.server.transports.tls_names import CIPHERS, CURVES, INSECURE_CIPHERS
from pelton.server.units import SECOND_NS, parse_duration

_PIN = re.compile(r"[A-Fa-f0-9]{64}")
_WINDOWS = (
    "cert_store",
    "cert_match_by",
    "cert_match",
    "ca_certs_match",
    "cert_match_skip_invalid",
)


def tls(attribute: str = "tls", *, clients: bool = True) -> Key:
    """A key that is a ``tls`` map and sets an attribute of the reader's target to a Tls.

    `clients`: for a listener of clients or leaf nodes, where some keys have no meaning.
    """

    def apply(reader: Reader, name: str, item: Item) -> None:
        setattr(reader.target, attribute, read_tls(reader, item, clients=clients))

    return apply


def read_tls(reader: Reader, item: Item, *, clients: bool = True) -> Tls:
    """The Tls of a ``tls`` map; errors go to the reader."""
    if not isinstance(item.value, dict):
        raise ValueError(f"expected a map, got {kind(item)}")
    found = Tls()
    named = {key.lower(): value for key, value in item.value.items()}
    before = len(reader.problems)
    reader.section(item.value, {**_KEYS, **(_CLIENTS if clients else _ROUTES)}, "tls.", found)
    insecure = [each for each in found.cipher_suites if each in INSECURE_CIPHERS]
    allowed = named.get("allow_insecure_cipher_suites")
    if insecure and not (allowed is not None and allowed.value is True):
        reader.problem(
            named["cipher_suites"],
            "insecure cipher suites without allow_insecure_cipher_suites: " + ", ".join(insecure),
        )
    if found.certificates and found.cert_file:
        reader.problem(named["cert_file"], "cert_file and certs exclude each other")
    if found.cert_file and not found.key_file:
        reader.problem(named["cert_file"], "cert_file needs a key_file")
    if found.key_file and not found.cert_file:
        reader.problem(named["key_file"], "key_file needs a cert_file")
    if len(found.curve_preferences) > 1:
        reader.warn(
            named["curve_preferences"],
            "the server can require only one curve; with several, it allows every curve of OpenSSL",
        )
    if len(reader.problems) == before and found.insecure and clients:
        reader.warn(named["insecure"], "insecure has no effect on a listener")
    return found


def _listed(convert: Callable[[str], str]) -> Callable[[Item], list[str]]:
    def read(item: Item) -> list[str]:
        if not isinstance(item.value, list) or not item.value:
            raise ValueError(f"expected an array that is not empty, got {kind(item)}")
        return [convert(text(each)) for each in item.value]

    return read


def _cipher(name: str) -> str:
    if name not in CIPHERS and name not in INSECURE_CIPHERS:
        raise ValueError(f'unrecognized cipher "{name}"')
    return name


def _curve(name: str) -> str:
    if name not in CURVES:
        raise ValueError(f'unrecognized curve preference "{name}"')
    return name


def _pins(item: Item) -> frozenset[str]:
    if not isinstance(item.value, list):
        raise ValueError("expected an array of hex-encoded SHA-256 of public keys")
    pins = [text(each).lower() for each in item.value]
    for pin in pins:
        if not _PIN.fullmatch(pin):
            raise ValueError(f'"{pin}" does not look like a hex-encoded SHA-256 of a public key')
    return frozenset(pins)


def _timeout(item: Item) -> int:
    if isinstance(item.value, int | float) and not isinstance(item.value, bool):
        ns = parse_duration(item.word) if item.word[-1:] == "m" else round(item.value * SECOND_NS)
    else:
        ns = parse_duration(text(item))
    if ns <= 0:
        raise ValueError("has to be above 0")
    return ns


def _version(item: Item) -> str:
    value = text(item)
    if value not in ("1.2", "1.3"):
        raise ValueError(f'unsupported TLS version "{value}"; it has to be 1.2 or 1.3')
    return value


def _map(reader: Reader, name: str, item: Item) -> None:
    reader.target.map = flag(item)
    if reader.target.map:
        reader.target.verify = True


def _first(reader: Reader, name: str, item: Item) -> None:
    target = reader.target
    if isinstance(item.value, bool):
        target.handshake_first = item.value
        return
    if not isinstance(item.value, str):
        raise ValueError(f"expected true, false, auto or a duration, got {kind(item)}")
    word = item.value.lower()
    if word in ("true", "on", "false", "off"):
        target.handshake_first = word in ("true", "on")
        return
    target.fallback_ns = (
        AUTO_FALLBACK_NS if word in ("auto", "auto_fallback") else parse_duration(item.value)
    )
    target.handshake_first = True


def _insecure(reader: Reader, name: str, item: Item) -> None:
    flag(item)  # read_tls checks it when all suites are known


def _known_urls(reader: Reader, name: str, item: Item) -> None:
    reader.target.check_known_urls = flag(item)
    if reader.target.check_known_urls:
        reader.target.verify = True


def _no_known_urls(reader: Reader, name: str, item: Item) -> None:
    if flag(item):
        raise ValueError(
            "it applies to routes and gateways, which the server does not support; remove it"
        )


def _no_ocsp(reader: Reader, name: str, item: Item) -> None:
    if item.value is not False:
        raise ValueError("this version does not check certificates with OCSP; remove it")


def _windows(reader: Reader, name: str, item: Item) -> None:
    raise ValueError(
        "the certificate store of Windows is not supported; use cert_file and key_file"
    )


def _pairs(reader: Reader, name: str, item: Item) -> None:
    if not isinstance(item.value, list):
        raise ValueError(f"expected an array of {{cert_file, key_file}}, got {kind(item)}")
    for entry in item.value:
        pair = Pair()
        if not isinstance(entry.value, dict):
            raise ValueError(f"expected a map {{cert_file, key_file}}, got {kind(entry)}")
        reader.section(entry.value, _PAIR, "tls.certs.", pair)
        if not (pair.cert_file and pair.key_file):
            reader.problem(entry, "a certificate needs both cert_file and key_file")
        reader.target.certificates.append(pair)


_PAIR: dict[str, Key] = {
    "cert_file": set_to("cert_file", text),
    "key_file": set_to("key_file", text),
}

_KEYS: dict[str, Key] = {
    **_PAIR,
    "ca_file": set_to("ca_file", text),
    "certs": _pairs,
    "certificates": _pairs,
    "verify": set_to("verify", flag),
    "verify_and_map": _map,
    "insecure": set_to("insecure", flag),
    "allow_insecure_cipher_suites": _insecure,
    "cipher_suites": set_to("cipher_suites", _listed(_cipher)),
    "curve_preferences": set_to("curve_preferences", _listed(_curve)),
    "min_version": set_to("min_version", _version),
    "timeout": set_to("timeout_ns", _timeout),
    "connection_rate_limit": set_to("connection_rate_limit", between(0, 1 << 31)),
    "pinned_certs": set_to("pinned_certs", _pins),
    "handshake_first": _first,
    "first": _first,
    "immediate": _first,
    "ocsp_peer": _no_ocsp,
    **dict.fromkeys(_WINDOWS, _windows),
}

_CLIENTS: dict[str, Key] = {"verify_cert_and_check_known_urls": _no_known_urls}
_ROUTES: dict[str, Key] = {"verify_cert_and_check_known_urls": _known_urls}
