"""NATS keys: Ed25519 identities in text form, their signatures, and the curve keys that encrypt an auth
callout.

A key as text is base32 without padding of these bytes::

    public key    prefix (1)  key (32)  CRC-16 of what is before, little-endian (2)       56 letters
    seed          S prefix and type over two bytes (2)  seed (32)  CRC-16 (2)             58 letters

                  10010 ttt | tt tttt.. : five bits of "S", then the eight bits of the type

A sealed text is "xkv1", a nonce (24), a Poly1305 tag (16) and the ciphertext by XSalsa20, in the
format of NaCl's box.

This module reads no files and no JWTs; the caller hands in the entropy. The package ``cryptography``
(for curve keys ``pynacl``) is imported at the first use of a key.
"""

import base64
import re
from binascii import Error as _BinasciiError
from binascii import crc_hqx
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from nacl.public import Box, PrivateKey

ACCOUNT = 0 << 3
CLUSTER = 2 << 3
SERVER = 13 << 3
OPERATOR = 14 << 3
PRIVATE = 15 << 3
SEED = 18 << 3
USER = 20 << 3
CURVE = 23 << 3

_NAMES = {
    ACCOUNT: "account",
    CLUSTER: "cluster",
    SERVER: "server",
    OPERATOR: "operator",
    USER: "user",
    CURVE: "curve",
}

KEY_BYTES = 32
SIGNATURE_BYTES = 64
_PUBLIC_LETTERS, _PUBLIC_BYTES = 56, 35
_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
# the letters of a key as digits of a number to base 32; all other bytes as an exclamation mark
_DIGITS = bytes(
    b"0123456789abcdefghijklmnopqrstuv"[_LETTERS.index(byte)] if byte in _LETTERS else ord("!")
    for byte in range(256)
)
NONCE_BYTES = 24  # the nonce of a sealed text
_BOX_VERSION = b"xkv1"
_BOX_BYTES_MIN = len(_BOX_VERSION) + NONCE_BYTES + 16  # version, nonce, tag
_INSTALL_NACL = "curve keys need the package pynacl: pip install pynacl"
_INSTALL = "keys need the package cryptography: pip install cryptography"


class NkeyError(ValueError):
    """The text is not a valid key of the wanted kind, or a sealed text can't be opened."""


# -- text


def encode(kind: int, raw: bytes) -> str:
    """A public key of a kind (ACCOUNT, USER, ...) as text."""
    return _to_text(bytes([kind]) + raw)


def encode_seed(kind: int, raw: bytes) -> str:
    """A seed of a kind as text; it is a secret."""
    return _to_text(bytes([SEED | kind >> 5, (kind & 31) << 3]) + raw)


def decode(key: str, kind: int | None = None) -> bytes:
    """The 32 bytes of a public key. NkeyError when the text is not one of the given kind."""
    raw = _public(key)
    if raw[0] not in _NAMES or (kind is not None and raw[0] != kind):
        wanted = f"a public {_NAMES[kind]} key" if kind is not None else "a public key"
        raise NkeyError(f"this is not {wanted}: {key[:8]}...")
    return raw[1:]


def kind_of(key: str) -> int:
    """The kind of a public key. NkeyError when the text is not one."""
    raw = _public(key)
    if raw[0] not in _NAMES:
        raise NkeyError(f"this is not a public key: {key[:8]}...")
    return raw[0]


def is_public(key: str, *kinds: int) -> bool:
    """Whether the text is a valid public key of one of these kinds; without kinds, of any kind."""
    try:
        kind = kind_of(key)
    except NkeyError:
        return False
    return not kinds or kind in kinds


def decode_seed(seed: str) -> tuple[int, bytes]:
    """(kind, 32 bytes) of a seed. NkeyError when it is invalid; the error does not show the seed."""
    raw = _from_text(seed, 2, secret=True)
    kind = (raw[0] & 7) << 5 | raw[1] >> 3
    if raw[0] & 0xF8 != SEED or kind not in _NAMES:
        raise NkeyError("this is not a seed")
    return kind, raw[2:]


def _to_text(raw: bytes) -> str:
    return base64.b32encode(raw + crc_hqx(raw, 0).to_bytes(2, "little")).decode().rstrip("=")


def _public(key: str) -> bytes:
    """The bytes of a public key: 56 letters of five bits each are 35 bytes, and each text of that
    length is the one form of its bytes.
    """
    digits = key.encode("utf-8", "replace").translate(_DIGITS)
    if len(digits) != _PUBLIC_LETTERS or b"!" in digits:
        return _from_text(key, 1)  # with the right error
    whole = int(digits, 32).to_bytes(_PUBLIC_BYTES, "big")
    if crc_hqx(whole[:-2], 0) != int.from_bytes(whole[-2:], "little"):
        raise NkeyError(f"a key with a wrong checksum: {key[:8]}...")
    return whole[:-2]


def _from_text(text: str, head: int, *, secret: bool = False) -> bytes:
    shown = "" if secret else f": {text[:8]}..."
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except (_BinasciiError, ValueError):
        raise NkeyError(f"a key is written with the letters A to Z and 2 to 7{shown}") from None
    if len(raw) != head + KEY_BYTES + 2:
        raise NkeyError(f"a key of the wrong length{shown}")
    if crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        raise NkeyError(f"a key with a wrong checksum{shown}")
    if _to_text(raw[:-2]) != text:
        raise NkeyError(f"a key that is not written in its one form{shown}")
    return raw[:-2]


# -- signing


class KeyPair:
    """A signing key of an operator, account, user, server or cluster."""

    __slots__ = ("_private", "_seed", "kind", "public")

    def __init__(self, kind: int, raw: bytes) -> None:
        """Make a pair from 32 random bytes. ImportError without the package cryptography."""
        self.kind = kind
        self._seed = raw
        self._private = _ed25519(raw)
        self.public = encode(kind, self._private.public_key().public_bytes_raw())

    @classmethod
    def from_seed(cls, seed: str) -> "KeyPair":
        """The pair of a seed. NkeyError when the seed is invalid or that of a curve key."""
        kind, raw = decode_seed(seed)
        if kind == CURVE:
            raise NkeyError("a curve key encrypts, it does not sign")
        return cls(kind, raw)

    @property
    def seed(self) -> str:
        """The seed as text; it is a secret."""
        return encode_seed(self.kind, self._seed)

    def sign(self, data: bytes) -> bytes:
        """Sign data; the signature has 64 bytes."""
        return self._private.sign(data)

    def __repr__(self) -> str:
        """Without the seed."""
        return f"KeyPair({self.public})"


def verify(public: str, data: bytes, signature: bytes) -> bool:
    """Whether the signature is that of the public key. An invalid key verifies no signature."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(decode(public)).verify(signature, data)
    except (NkeyError, InvalidSignature, ValueError):
        return False
    return True


def available() -> bool:
    """Whether the package for signatures is installed."""
    try:
        import cryptography  # noqa: F401 # only a check
    except ImportError:
        return False
    return True


def _ed25519(raw: bytes) -> "Ed25519PrivateKey":
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError:
        raise ImportError(_INSTALL) from None
    return Ed25519PrivateKey.from_private_bytes(raw)


def sign_nonce(seed: str, nonce: str) -> str:
    """The signature of INFO's nonce for CONNECT: base64url without padding."""
    signature = KeyPair.from_seed(seed).sign(nonce.encode())
    return base64.urlsafe_b64encode(signature).decode().rstrip("=")


def read_signature(text: str) -> bytes | None:
    """The signature in CONNECT: base64url without padding, or standard base64; None when it is
    neither.
    """
    for decoder in (_url_base64, _plain_base64):
        try:
            return decoder(text)
        except (_BinasciiError, ValueError):
            continue
    return None


def _url_base64(text: str) -> bytes:
    if re.fullmatch(r"[\w-]*", text, re.ASCII) is None:
        raise ValueError
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _plain_base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


# -- encrypting


class CurvePair:
    """A pair of curve keys, for encryption (``X...``)."""

    __slots__ = ("_private", "_seed", "public")

    def __init__(self, raw: bytes) -> None:
        """Make a pair from 32 random bytes."""
        self._seed = raw
        self._private = _curve_key(raw)
        self.public = encode(CURVE, bytes(self._private.public_key))

    @classmethod
    def from_seed(cls, seed: str) -> "CurvePair":
        """The pair of a seed. NkeyError when it is not the seed of a curve key."""
        kind, raw = decode_seed(seed)
        if kind != CURVE:
            raise NkeyError("this is not the seed of a curve key")
        return cls(raw)

    @property
    def seed(self) -> str:
        """The seed as text; it is a secret."""
        return encode_seed(CURVE, self._seed)

    def seal(self, data: bytes, recipient: str, nonce: bytes) -> bytes:
        """Encrypt for the owner of a public curve key; each nonce of 24 bytes is used only once."""
        return _BOX_VERSION + bytes(self._box(recipient).encrypt(data, nonce))

    def open(self, sealed: bytes, sender: str) -> bytes:
        """Decrypt data that the owner of a public curve key sealed for this key. NkeyError when
        that fails.
        """
        from nacl.exceptions import CryptoError

        if not sealed.startswith(_BOX_VERSION) or len(sealed) < _BOX_BYTES_MIN:
            raise NkeyError("this was not sealed with a curve key")
        box = self._box(sender)
        try:
            return bytes(box.decrypt(sealed[len(_BOX_VERSION) :]))
        except CryptoError:
            text = "this was sealed by somebody else, for somebody else, or changed"
            raise NkeyError(text) from None

    def _box(self, other: str) -> "Box":
        from nacl.exceptions import RuntimeError as NaclRuntimeError
        from nacl.public import Box, PublicKey

        try:
            return Box(self._private, PublicKey(decode(other, CURVE)))
        except NaclRuntimeError:  # a point of small order: the shared secret would be public
            raise NkeyError("this curve key can't be used") from None

    def __repr__(self) -> str:
        """Without the seed."""
        return f"CurvePair({self.public})"


def _curve_key(raw: bytes) -> "PrivateKey":
    try:
        from nacl.public import PrivateKey
    except ImportError:
        raise ImportError(_INSTALL_NACL) from None
    return PrivateKey(raw)


# -- files


class Credentials(NamedTuple):
    """The content of a ``.creds`` file: a user JWT and the user's seed."""

    jwt: str
    seed: str

    def __repr__(self) -> str:
        """Without the seed."""
        return "Credentials(...)"


_DECORATED = re.compile(r"-{3,}[^\n]*-{3,}\r?\n\s*([\w\-.=]+)\s*\r?\n-{3,}[^\n]*-{3,}\s*", re.ASCII)


def read_jwt(text: str) -> str:
    """The JWT in a file, with or without lines of dashes around it."""
    found = _DECORATED.search(text)
    return found[1] if found else text.strip()


def read_credentials(text: str) -> Credentials:
    """The JWT and the seed in a ``.creds`` file. NkeyError when one is missing."""
    found = [match[1] for match in _DECORATED.finditer(text)]
    if len(found) < 2:
        raise NkeyError("expected a JWT and a seed between lines of dashes (a .creds file)")
    decode_seed(found[1])
    return Credentials(found[0], found[1])


def read_seed(text: str) -> str:
    """The seed in a file: between lines of dashes, or on a line of its own. NkeyError when there is
    none.
    """
    words = [match[1] for match in _DECORATED.finditer(text)] or text.split()
    for word in words:
        if word.startswith("S"):
            decode_seed(word)
            return word
    raise NkeyError("expected a seed (58 letters that begin with S)")


def format_credentials(jwt: str, seed: str) -> str:
    """The ``.creds`` file of a user."""
    return (
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
