"""How users' keys and values become those of a bucket: codecs of keys, codecs of values.

A key codec turns any text into a key that a bucket can hold; one that can also encode filters
(``FilterableKeyCodec``) lets users list and watch by pattern. A value codec turns objects into
bytes. The encodings are those of the official clients' codecs, so they read each other's buckets.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, Generic, Literal, Protocol, TypeVar, runtime_checkable

import msgspec

from pelton.errors import InvalidKeyError, InvalidValueError

from ..base.arguments import unawaited

V = TypeVar("V")

_WILDCARDS = ("*", ">")
# ADR-54: a key cannot begin with a dot, so this stands for the slash at the beginning.
_ROOT = "_root_"


class KeyCodec(Protocol):
    """Turns users' keys into keys of a bucket, and back.

    Example::

        class Reversed:
            def encode_key(self, key):
                return key[::-1]

            decode_key = encode_key

        bucket.with_keys(Reversed()).put("abc", b"1")  # stored as cba

    Both raise ValueError for what they cannot convert.
    """

    def encode_key(self, key: str) -> str:
        """The key in the bucket."""

    def decode_key(self, key: str) -> str:
        """The user's key."""


@runtime_checkable
class FilterableKeyCodec(KeyCodec, Protocol):
    """A key codec that can also encode patterns of keys, with ``*`` and ``>`` for whole tokens.

    Example::

        names = bucket.with_keys(Base64Keys())  # it is one
        names.put("Zoë.x", b"1")
        print(names.keys("Zoë.*"))
        names.delete("Zoë.x")
    """

    def encode_filter(self, pattern: str) -> str:
        """The pattern of keys in the bucket."""


class ValueCodec(Protocol[V]):
    """Turns users' values into bytes, and back. Both raise an exception for what they cannot convert.

    Example::

        class Text:
            def encode_value(self, value):
                return value.encode()

            def decode_value(self, data):
                return data.decode()

        bucket.with_values(Text()).put("color", "blue")
    """

    def encode_value(self, value: V) -> bytes:
        """The bytes to store."""

    def decode_value(self, data: bytes) -> V:
        """The user's value."""


class PlainKeys:
    """Keys as they are."""

    def encode_key(self, key: str) -> str:
        """The same key."""
        return key

    def decode_key(self, key: str) -> str:
        """The same key."""
        return key

    def encode_filter(self, pattern: str) -> str:
        """The same pattern."""
        return pattern


class Base64Keys:
    """Keys of any characters: each token between dots is stored in URL-safe base64 without padding.

    Example::

        names = bucket.with_keys(Base64Keys())
        names.put("Zoë Müller", b"1")  # awaited with asyncio
    """

    def encode_key(self, key: str) -> str:
        """``"Bücher.größe"`` is stored as ``"QsO8Y2hlcg.Z3LDtsOfZQ"``."""
        return ".".join(_base64(token) for token in key.split("."))

    def decode_key(self, key: str) -> str:
        """The user's key; ValueError when the stored one is not base64."""
        return ".".join(_plain(token) for token in key.split("."))

    def encode_filter(self, pattern: str) -> str:
        """Encode every token but the wildcards."""
        # Token by token, so that a filter of keys stays a filter of subjects.
        tokens = pattern.split(".")
        return ".".join(token if token in _WILDCARDS else _base64(token) for token in tokens)


class PathKeys:
    """Keys in the notation of paths: ``/users/anna`` is stored as ``_root_.users.anna``.

    Example::

        bucket.with_keys(PathKeys()).put("/users/anna", b"1")

    A slash at the end is dropped. A path has no dots, because they would come back as slashes.
    """

    def encode_key(self, key: str) -> str:
        """Slashes become dots; ValueError for a path with dots."""
        if "." in key:
            raise ValueError("a path has no dots: they would come back as slashes")
        if key == "/":
            return _ROOT
        if key.startswith("/"):
            key = f"{_ROOT}/{key[1:]}"
        return key.removesuffix("/").replace("/", ".")

    def decode_key(self, key: str) -> str:
        """Dots become slashes."""
        if key == _ROOT:
            return "/"
        path = key.replace(".", "/")
        return path.removeprefix(_ROOT) if path.startswith(f"{_ROOT}/") else path

    def encode_filter(self, pattern: str) -> str:
        """``/users/*`` becomes ``_root_.users.*``."""
        return self.encode_key(pattern)


class PlainValues:
    """Values are bytes, stored as they are."""

    def encode_value(self, value: bytes) -> bytes:
        """The bytes of a bytes-like object; TypeError for anything else."""
        if isinstance(value, bytes):
            return value
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        if unawaited(value):
            raise TypeError("a value is bytes, not a coroutine: await it")
        raise TypeError(
            f"a value is bytes, not {type(value).__name__}: encode it, "
            f"or use bucket.typed({type(value).__name__})"
        )

    def decode_value(self, data: bytes) -> bytes:
        """The same bytes."""
        return data


class Base64Values:
    """Values are bytes, stored in URL-safe base64 without padding.

    Example::

        texts = bucket.with_values(Base64Values())
    """

    def encode_value(self, value: bytes) -> bytes:
        """The bytes in base64. TypeError for other values."""
        if not isinstance(value, bytes | bytearray | memoryview):
            raise TypeError(f"a value is bytes, not {type(value).__name__}: encode it")
        return urlsafe_b64encode(value).rstrip(b"=")

    def decode_value(self, data: bytes) -> bytes:
        """The bytes; ValueError when the stored ones are not base64."""
        return urlsafe_b64decode(data + b"=" * (-len(data) % 4))


class TypedValues(Generic[V]):
    """Values of one type, stored as JSON or MessagePack: anything that msgspec knows.

    Example::

        colors = bucket.with_values(TypedValues(dict))  # as bucket.typed(dict)
        colors.put("color", {"name": "blue"})

    That is Structs, dataclasses, TypedDicts, builtin and generic types, ``Annotated`` with
    constraints. Both directions check the value.
    """

    def __init__(self, kind: type[V], form: Literal["json", "msgpack"] = "json") -> None:
        """``kind``: the type of the values. TypeError for one that msgspec does not know, ValueError."""
        if form not in ("json", "msgpack"):
            raise ValueError(f"form is 'json' or 'msgpack', not {form!r}")
        module: Any = msgspec.json if form == "json" else msgspec.msgpack
        self._encode = module.Encoder().encode
        try:
            self._decode = module.Decoder(kind).decode
        except (TypeError, RuntimeError, NameError) as error:
            raise TypeError(
                f"kind is a type of values, such as dict, a dataclass or a Struct, not {kind!r}: {error}"
            ) from error

    def encode_value(self, value: V) -> bytes:
        """The bytes; msgspec.ValidationError or TypeError when they would not be read as this type."""
        data: bytes = self._encode(value)
        # Encoding checks no types: what cannot be read again must not get into the bucket.
        self._decode(data)
        return data

    def decode_value(self, data: bytes) -> V:
        """The value; msgspec.DecodeError or ValidationError when it is not of this type."""
        value: V = self._decode(data)
        return value


def encoded_value(codec: ValueCodec[V], value: V, key: str) -> bytes:
    """The bytes of a value for a key; InvalidValueError with the codec's reason, TypeError."""
    try:
        return codec.encode_value(value)
    except (ValueError, msgspec.MsgspecError) as error:
        raise InvalidValueError(f"the value for key {key!r} cannot be stored: {error}") from error


def encoded_filter(codec: KeyCodec, pattern: str) -> str:
    """A pattern of keys in the bucket; InvalidKeyError when the codec cannot encode it."""
    try:
        if isinstance(codec, FilterableKeyCodec):
            return codec.encode_filter(pattern)
        if pattern == ">" or all(each not in _WILDCARDS for each in pattern.split(".")):
            return pattern if pattern == ">" else codec.encode_key(pattern)
    except ValueError as error:
        raise InvalidKeyError(f"filter {pattern!r} cannot be encoded: {error}") from error
    raise InvalidKeyError(
        f"filter {pattern!r} has wildcards, and {type(codec).__name__} cannot encode these: "
        "it has no encode_filter"
    )


def _base64(token: str) -> str:
    return urlsafe_b64encode(token.encode()).rstrip(b"=").decode()


def _plain(token: str) -> str:
    return urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
