"""Keys of encrypted stores. The configured key opens the data keys of each stream, and a data key
makes the keys of single files.

    configured key ──HKDF, salt of the key file──► wrapping key ──AEAD──► data keys of a stream
    data key ──HKDF, what the file's head says──► key of one file ──AEAD──► its records or bytes

A stream's key file:

     0  "PNSTKKEY"   8  u32 version=1   12  u32 count of data keys           all numbers little-endian
    16  u32 algorithm of the wrapping (1 ChaCha20-Poly1305, 2 AES-256-GCM)   20  u32 0
    24  16 bytes salt   40  16 bytes that tell which key this was written with   56  u64 generation
    64  count x { u32 number, u32 algorithm, 12 bytes nonce, 32 bytes data key wrapped, 16 bytes tag }
   end  u32 crc32c of everything before it

A small file, encrypted as a whole:

     0  "PNSTKVLT"   8  u32 version=1   12  u32 number of the data key   16  24 random bytes
    40  ciphertext, 16 bytes tag
   end  u32 crc32c of everything before it

One flipped bit in either file is repaired. A data key never changes: a new one gets another number
and encrypts all later writes. No two files share a file key, so nonces need to be unique only inside
a file.

This module does not read or write files. The caller hands in the randomness; the package
`cryptography` is imported when a key is configured. No text and no error here contains a key.
"""

import hashlib
import hmac
import struct
from collections.abc import Callable, Iterable
from typing import Protocol

from pelton.core.base.buffer import crc32c_of

CHACHA, AES = 1, 2
NAMES = {CHACHA: "ChaCha20-Poly1305", AES: "AES-GCM"}
CIPHERS = {"chacha": CHACHA, "chachapoly": CHACHA, "aes": AES, "aes-gcm": AES, "aesgcm": AES}
"""The names of the ciphers in the configuration."""

KEY_BYTES = 32
RANDOM_BYTES = 24
_NONCE = bytes(12)
_KEY_MAGIC = b"PNSTKKEY"
_FILE_MAGIC = b"PNSTKVLT"
_VERSION = 1
_KEY_HEAD = struct.Struct("<8sIIII16s16sQ")
_KEY_ROW = struct.Struct("<II12s48s")
_FILE_HEAD = struct.Struct("<8sII24s")
_TAG_BYTES = 16
_SUM_BYTES = 4
_MEND_BYTES = 1 << 18
_MISSING = "encryption needs the package cryptography: pip install cryptography"

Random = Callable[[int], bytes]


class VaultError(Exception):
    """The keys at hand can't open a key file or a small file; str() says which one and why."""


class Aead(Protocol):
    """A cipher with one key, with the methods of the ciphers in `cryptography`."""

    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes:
        """Encrypt: the ciphertext with its tag."""

    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes:
        """Decrypt: the plain bytes. Raises InvalidTag."""


def _makers() -> tuple[dict[int, Callable[[bytes], Aead]], type[Exception]]:
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
    except ImportError:
        raise VaultError(_MISSING) from None
    return {CHACHA: ChaCha20Poly1305, AES: AESGCM}, InvalidTag


def _derived(key: bytes, context: bytes) -> bytes:
    """HKDF-Expand with SHA-256, one block."""
    return hmac.digest(key, b"penstock " + context + b"\x01", "sha256")


class _Master:
    """One configured key."""

    __slots__ = ("_key",)

    def __init__(self, key: str) -> None:
        self._key = key.encode("utf-8", "surrogateescape")

    def of(self, salt: bytes) -> tuple[bytes, bytes]:
        """The wrapping key, and the 16 bytes by which a key file names its configured key."""
        drawn = hmac.digest(salt, self._key, "sha256")
        return _derived(drawn, b"wrapping"), _derived(drawn, b"id")[:16]


class Vault:
    """The keys of a server: the current key, and the previous one."""

    __slots__ = ("_current", "_invalid", "_makers", "_previous", "_random", "algorithm")

    def __init__(self, current: str, previous: str, algorithm: int, random: Random) -> None:
        """Use `of` to make a Vault."""
        self._makers, self._invalid = _makers()
        self._current = _Master(current) if current else None
        self._previous = _Master(previous) if previous else None
        self._random = random
        self.algorithm = algorithm

    @classmethod
    def of(
        cls, key: str, previous: str = "", cipher: str = "aes", *, random: Random
    ) -> "Vault | None":
        """The vault for the configured keys; None when there are none.

        `previous` opens the key files that `key` does not open yet; without `key`, the store is
        decrypted step by step. `random(n)` returns n unpredictable bytes. Raises VaultError for an
        unknown cipher, or when `cryptography` is not installed.
        """
        if not key and not previous:
            return None
        algorithm = CIPHERS.get(cipher.lower())
        if algorithm is None:
            raise VaultError(f'there is no cipher "{cipher}": chacha or aes')
        return cls(key, previous, algorithm, random)

    @property
    def encrypts(self) -> bool:
        """Whether new writes are encrypted."""
        return self._current is not None

    def new(self) -> "StreamCipher":
        """Keys for a stream that has none."""
        cipher = StreamCipher(self._makers, self._invalid, self._random)
        if self._current is not None:
            cipher.begin(self.algorithm)
        cipher.stale = True
        return cipher

    def open(self, copies: Iterable[bytes]) -> "StreamCipher":
        """The keys of a stream from the copies of its key file. Raises VaultError when none can be
        opened.
        """
        reasons: set[str] = set()
        best: tuple[int, bool, bytes, list[tuple[int, int, bytes]]] | None = None
        found: set[bytes] = set()
        mended = False
        for given in copies:
            data = _sound(given)
            mended = mended or data != given
            if data is None:
                reasons.add("its key file is damaged")
                continue
            opened = self._unwrapped(data)
            if opened is None:
                reasons.add("the configured key does not open its key file")
                continue
            found.add(data)
            if best is None or opened[:2] > best[:2]:
                best = (*opened[:2], data, opened[2])
        if best is None:
            raise VaultError(" and ".join(sorted(reasons)) or "it has no key file")
        generation, current, _, keys = best
        cipher = StreamCipher(self._makers, self._invalid, self._random)
        cipher.take(generation, keys)
        cipher.stale = mended or bool(reasons) or len(found) > 1
        if self._current is None:
            cipher.number = 0
        elif not current or cipher.algorithm != self.algorithm:
            cipher.begin(self.algorithm)  # old files are then rewritten under it
        return cipher

    def _unwrapped(self, data: bytes) -> tuple[int, bool, list[tuple[int, int, bytes]]] | None:
        """Generation, whether the current key wrapped it, the data keys. None when no key opens it."""
        _, _, count, algorithm, _, salt, known_by, generation = _KEY_HEAD.unpack_from(data)
        for master in (self._current, self._previous):
            if master is None:
                continue
            wrapping, id_ = master.of(salt)
            if not hmac.compare_digest(id_, known_by) or algorithm not in self._makers:
                continue
            aead = self._makers[algorithm](wrapping)
            keys = []
            try:
                for at in range(count):
                    row = _KEY_ROW.unpack_from(data, _KEY_HEAD.size + at * _KEY_ROW.size)
                    number, kind, nonce, wrapped = row
                    keys.append(
                        (number, kind, aead.decrypt(nonce, wrapped, _row_context(number, kind)))
                    )
            except (self._invalid, struct.error):
                return None
            return generation, master is self._current, keys
        return None

    def key_file(self, cipher: "StreamCipher") -> bytes:
        """The key file of a stream, wrapped by the current key, or without one by the previous key."""
        master = self._current or self._previous
        assert master is not None
        salt = self._random(16)
        wrapping, known_by = master.of(salt)
        aead = self._makers[self.algorithm](wrapping)
        rows = cipher.rows()
        data = _KEY_HEAD.pack(
            _KEY_MAGIC, _VERSION, len(rows), self.algorithm, 0, salt, known_by, cipher.generation
        )
        for number, kind, key in rows:
            nonce = self._random(12)
            wrapped = aead.encrypt(nonce, key, _row_context(number, kind))
            data += _KEY_ROW.pack(number, kind, nonce, wrapped)
        return _summed(data)


class StreamCipher:
    """The data keys of one stream.

    `number` is the data key of new writes; 0: new writes are not encrypted. `stale`: the key file
    must be written again. When a data key was `begun`, that happens before the first write with the
    new data key.
    """

    __slots__ = (
        "_invalid",
        "_keys",
        "_makers",
        "_random",
        "begun",
        "generation",
        "number",
        "stale",
    )

    def __init__(
        self,
        makers: dict[int, Callable[[bytes], Aead]],
        invalid: type[Exception],
        random: Random,
    ) -> None:
        """Start without a data key. Only a Vault makes one."""
        self._makers = makers
        self._invalid = invalid
        self._random = random
        self._keys: dict[int, tuple[int, bytes]] = {}
        self.generation = 0
        self.number = 0
        self.stale = self.begun = False

    @property
    def invalid(self) -> type[Exception]:
        """The exception that `decrypt` of an Aead raises."""
        return self._invalid

    @property
    def algorithm(self) -> int:
        """The algorithm of the current data key; 0 when there is none."""
        return self._keys[self.number][0] if self.number else 0

    def begin(self, algorithm: int) -> None:
        """Add a new data key and use it from now on."""
        number = 0
        while not number or number in self._keys:
            number = int.from_bytes(self._random(4), "little")
        self._keys[number] = (algorithm, self._random(KEY_BYTES))
        self.number = number
        self.generation += 1
        self.stale = self.begun = True

    def take(self, generation: int, keys: list[tuple[int, int, bytes]]) -> None:
        """Take over the data keys of a key file; the last one is the current one."""
        self.generation = generation
        for number, algorithm, key in keys:
            self._keys[number] = (algorithm, key)
            self.number = number

    def rows(self) -> list[tuple[int, int, bytes]]:
        """The data keys, as rows of the key file."""
        return [(number, algorithm, key) for number, (algorithm, key) in self._keys.items()]

    def fresh(self) -> bytes:
        """Random bytes for the head of a file."""
        return self._random(RANDOM_BYTES)

    def aead(self, number: int, context: bytes) -> Aead:
        """The cipher of one file. `context` is the head of that file. KeyError: no such data key."""
        algorithm, key = self._keys[number]
        return self._makers[algorithm](_derived(key, context))

    def seal(self, role: str, data: bytes) -> bytes:
        """The bytes of a small file; `role` is its name in the stream's folder. Without encryption,
        the bytes are `data` itself.
        """
        if not self.number:
            return data
        head = _FILE_HEAD.pack(_FILE_MAGIC, _VERSION, self.number, self.fresh())
        return _summed(head + self._file_aead(role, head).encrypt(_NONCE, data, head))

    def open(self, role: str, data: bytes) -> bytes:
        """The content of a small file, encrypted or not. VaultError when it can't be opened."""
        if not is_sealed(data):
            return data
        sound = _mended(data, _FILE_HEAD.size + _TAG_BYTES + _SUM_BYTES)
        if sound is None:
            raise VaultError("damaged: the checksum at its end does not match")
        head = sound[: _FILE_HEAD.size]
        try:
            aead = self._file_aead(role, head)
            return aead.decrypt(_NONCE, sound[_FILE_HEAD.size : -_SUM_BYTES], head)
        except KeyError:
            raise VaultError(
                "the file is encrypted with a data key that the key file does not have"
            ) from None
        except self._invalid:
            raise VaultError("the file was altered or moved") from None

    def current(self, data: bytes) -> bool:
        """Whether a small file is sound and in the form that `seal` writes now."""
        if not is_sealed(data) or len(data) < _FILE_HEAD.size:
            return not self.number
        sound = _summed(data[:-_SUM_BYTES]) == data
        return sound and bool(_FILE_HEAD.unpack_from(data)[2] == self.number)

    def _file_aead(self, role: str, head: bytes) -> Aead:
        number = _FILE_HEAD.unpack(head)[2]
        return self.aead(number, b"file " + role.encode("utf-8", "surrogateescape") + b"\0" + head)


def is_sealed(data: bytes) -> bool:
    """Whether a small file is encrypted. Accepts one flipped bit in the first bytes."""
    if data[: len(_FILE_MAGIC)] == _FILE_MAGIC:
        return True
    return len(data) > _FILE_HEAD.size and _bits_apart(data[:8], _FILE_MAGIC) == 1


def _bits_apart(one: bytes, other: bytes) -> int:
    return (int.from_bytes(one, "little") ^ int.from_bytes(other, "little")).bit_count()


def _row_context(number: int, kind: int) -> bytes:
    return b"penstock data key" + struct.pack("<II", number, kind)


def _summed(data: bytes) -> bytes:
    return data + struct.pack("<I", crc32c_of(data))


def _mended(data: bytes, least: int) -> bytes | None:
    """The bytes when their checksum holds, one flipped bit repaired if necessary; else None."""
    if len(data) < least:
        return None
    if _summed(data[:-_SUM_BYTES]) == data:
        return data
    if len(data) > _MEND_BYTES:
        return None
    # A checksum is linear: the effect of a flipped bit depends only on its place, and each later
    # byte carries the effect on in the same way.
    body = len(data) - _SUM_BYTES
    off = crc32c_of(data[:body]) ^ struct.unpack_from("<I", data, body)[0]
    if off.bit_count() == 1:
        return _summed(data[:body])
    nothing = crc32c_of(b"\0")
    effects = [crc32c_of(bytes([1 << bit])) ^ nothing for bit in range(8)]
    for at in range(body - 1, -1, -1):
        if off in effects:
            mended = bytearray(data[:body])
            mended[at] ^= 1 << effects.index(off)
            return _summed(bytes(mended))
        effects = [crc32c_of(b"\0", effect) ^ nothing for effect in effects]
    return None


def _sound(data: bytes) -> bytes | None:
    """The key file as it was written, one flipped bit repaired; None when it is damaged further."""
    mended = _mended(data, _KEY_HEAD.size + _SUM_BYTES)
    if mended is None or not mended.startswith(_KEY_MAGIC):
        return None
    _, version, count, *_ = _KEY_HEAD.unpack_from(mended)
    whole = len(mended) == _KEY_HEAD.size + count * _KEY_ROW.size + _SUM_BYTES
    return mended if version == _VERSION and whole else None


def key_check(data: bytes) -> str:
    """The damage of a copy of a key file, found without any key; empty when it is sound."""
    sound = _sound(data)
    if sound is None:
        return "damaged"
    return "" if sound == data else "one bit is wrong"


def fingerprint(data: bytes) -> str:
    """Which key a key file was written with, in hex. It does not reveal the key."""
    sound = _sound(data)
    if sound is None:
        return ""
    return hashlib.sha256(_KEY_HEAD.unpack_from(sound)[6]).hexdigest()[:16]
